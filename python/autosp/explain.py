"""`autosp.explain`: what the compiler would do, without any process group."""

import torch
from torch._dynamo.exc import ShortenTraceback

from . import fx
from .api import capture_settings, traceable, unwrap
from .backend import Settings, _refuse_broken_graph, broken_graph
from .errors import Unsupported


class _Planned(ShortenTraceback):
    """Ends a capture: the graph has been planned and is not going to run."""

    def __init__(self, report):
        super().__init__(first_useful_frame=None)
        self.report = report


def explain(model, *args, sp=4, **kwargs):
    """Prints and returns what `autosp.compile` would do with a model or function on `sp` ranks,
    called with these arguments: every exchange with its bytes, every gathered or replicated value
    above a size, every output, each with the line it comes from.

    Nothing runs and nothing is exchanged: it works on one machine, without a process group, and on
    fake tensors (`torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)`), where a model of
    any size fits.

    Returns an object with `exchanges`, `replicated` and `outputs` (lists of rows) whose text is the
    table. Raises Unsupported as the compiled model would.
    """
    function, names = traceable(unwrap(model))
    options = Settings().plan_options()

    def plan(gm, example_inputs):
        _refuse_broken_graph(gm)
        raise _Planned(fx.read(gm, names).plan(sp, **options).report)

    function = torch.compile(function, backend=plan, fullgraph=True)
    try:
        with capture_settings():
            function(*args, **kwargs)
    except _Planned as planned:
        print(planned.report)
        return planned.report
    except torch._dynamo.exc.Unsupported as error:
        raise Unsupported(broken_graph(error.msg, error.real_stack)) from None
    raise Unsupported("the function computes nothing with tensors, so there is nothing to explain")
