"""What one of the ranks would run, as the engine sees it: without the other ranks, without a
process group, without data, and without running anything.

    Dynamo captures the program -> the engine plans it for the ranks and writes a rank's graph
    -> AOTAutograd traces that with its backward into one joint graph -> the engine reads it

The graphs are those that `autosp.compile` with Inductor makes, and each step ends by an exception
where the next would begin, so that nothing is compiled. Tensors may be fake: a model of any size is
captured on any machine.
"""

import contextlib
import gc
from dataclasses import dataclass

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition

from . import _engine, checkpointing, fx
from .api import capture_settings, traceable, unwrap
from .backend import Settings, _refuse_broken_graph, broken_graph
from .errors import AutoSPError, ShortenTraceback, Unsupported

_GROUP = "autosp"  # a name that no process group has: collectives on fake tensors look none up


@dataclass(frozen=True)
class Parameter:
    """A parameter that the program uses."""

    elements: int
    element_bytes: int
    requires_grad: bool


@dataclass(frozen=True)
class Capture:
    """The program of one rank."""

    report: _engine.Report
    parameters: list[Parameter]
    joint: _engine.JointGraph | None = None  # forward and backward, where they were asked for
    stock: list[int] | None = None  # its nodes that torch's own partitioner keeps


def bind(inputs):
    """The call that `inputs` stands for, as (args, kwargs): a dict is keyword arguments, a tuple or
    a list positional ones, anything else the one argument.
    """
    if isinstance(inputs, dict):
        return (), inputs
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def capture(model, inputs, ranks, *, joint=False, stock=False):
    """The program that each of `ranks` ranks runs of a model or function called with `inputs` (see
    `bind`); with `joint` also the joint graph with its backward, for the lengths of the inputs, and
    with `stock` what torch's own partitioner keeps of it.

    The inputs are the full ones, as a compiled model gets them. Takes Dynamo's time, for the joint
    graph about twice as much more. Raises Unsupported as the compiled model would, and with `joint`
    where nothing that the program uses requires a gradient, or gradients are off.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise AutoSPError(f"sp is the number of ranks, a positive integer, not {ranks!r}")
    model = unwrap(model)
    if not callable(model):
        raise AutoSPError(f"what is captured is a module or a function, not {type(model).__name__}")
    function, names = traceable(model)
    options = Settings().plan_options()

    def backend(gm, example_inputs):
        _refuse_broken_graph(gm)
        parameters = _parameters(gm)
        plan = fx.read(gm, names).plan(ranks, **options)
        report = plan.report
        if not joint:
            raise _Ended(Capture(report, parameters))
        plan.write(0, _GROUP)
        raise _Ended(Capture(report, parameters, *_joint_graph(gm, example_inputs, stock)))

    args, kwargs = bind(inputs)
    compiled = torch.compile(function, backend=backend, fullgraph=True)
    try:
        with capture_settings(), _no_collections():
            compiled(*args, **kwargs)
    except _Ended as ended:
        return ended.result
    except torch._dynamo.exc.Unsupported as error:
        raise Unsupported(broken_graph(error.msg, error.real_stack)) from None
    raise Unsupported("the function computes nothing with tensors, so there is nothing to explain")


class _Ended(ShortenTraceback):
    """Ends a capture with what was wanted of it."""

    def __init__(self, result):
        super().__init__(first_useful_frame=None)
        self.result = result


def _joint_graph(gm, example_inputs, stock):
    """The joint graph that Inductor would split of a rank's graph, and what it keeps by itself."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    def partition(gm, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=(), **_):
        _inductor_passes(gm)
        checkpointing.prepare(gm)
        static = list(static_lifetime_input_indices or ())
        graph = checkpointing.read_joint_graph(gm.graph, num_fwd_outputs, static, _hinted)
        raise _Ended((graph, _stock(gm, num_fwd_outputs, static) if stock else None))

    def no_backward(gm, example_inputs):
        raise Unsupported(
            "the program has no backward: nothing that it uses requires a gradient, or gradients"
            " are off, so nothing is kept for one"
        )

    backend = aot_autograd(
        fw_compiler=no_backward,
        bw_compiler=no_backward,
        inference_compiler=no_backward,
        partition_fn=partition,
        decompositions=select_decomp_table(),
        keep_inference_input_mutations=True,
    )
    try:
        backend(gm, example_inputs)
    except _Ended as ended:
        return ended.result
    raise AssertionError("AOTAutograd compiled a graph without splitting it")


def _inductor_passes(gm):
    """What Inductor does to a joint graph ahead of splitting it, without its measurements."""
    from torch._inductor import config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes

    if config.use_joint_graph_passes:
        with config.patch(shape_padding=False):
            joint_graph_passes(gm)


def _stock(gm, forward_outputs, static_inputs):
    """The positions of the nodes that torch's partitioner keeps."""
    positions = {node.name: i for i, node in enumerate(gm.graph.nodes)}
    with torch._functorch.config.patch(cse=False):  # has been done; names stay
        forward, _ = min_cut_rematerialization_partition(
            gm,
            None,
            num_fwd_outputs=forward_outputs,
            static_lifetime_input_indices=static_inputs,
        )
    kept = torch.utils._pytree.arg_tree_leaves(*forward.graph.output_node().args)[forward_outputs:]
    return sorted(positions[node.name] for node in kept if node.op != "placeholder")


def _hinted(symbol, hint):
    if hint is None:
        raise Unsupported(f"the size {symbol} depends on data, so the memory is not known ahead")
    return hint


def _parameters(gm):
    """The parameters among a captured graph's inputs."""
    result = []
    for node in gm.graph.find_nodes(op="placeholder"):
        facts = fx.input_facts(node)
        if facts and facts[1]:
            value = node.meta["example_value"]
            result.append(Parameter(value.numel(), value.element_size(), value.requires_grad))
    return result


@contextlib.contextmanager
def _no_collections():
    """Without the garbage collector, which finds nothing while graphs grow: a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
