"""`autosp.explain`: what the compiler would do, as a table."""

from .capture import capture


def explain(model, inputs, sp=4):
    """Prints and returns what `autosp.compile` would do with a model or function on `sp` ranks,
    called with `inputs` (a dict: keyword arguments, a tuple or list: positional ones, or the one
    tensor): every exchange with its bytes, every gathered or replicated value above a size, every
    output, each with the line it comes from.

    Nothing runs and nothing is exchanged: it works on one machine, without a process group, and on
    fake tensors (`torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True)`), where a model of
    any size fits.

    Returns an object with `exchanges`, `replicated` and `outputs` (lists of rows) whose text is the
    table. Raises Unsupported as the compiled model would.
    """
    report = capture(model, inputs, sp).report
    print(report)
    return report
