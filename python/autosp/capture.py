"""What one of the ranks would run, as the engine sees it: without the other ranks, without a
process group, without data, and without running anything.

    Dynamo captures the program -> the engine plans it for the ranks and writes a rank's graph
    -> AOTAutograd traces that with its backward into one joint graph -> the engine reads it

The graphs are those that `autosp.compile` with Inductor makes, and each step ends by an exception
where the next would begin, so that nothing is compiled. Tensors may be fake: a model of any size is
captured on any machine.
"""

import contextlib
import dataclasses
import gc
import math
from dataclasses import dataclass

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._subclasses import FakeTensor, FakeTensorMode
from torch.fx._lazy_graph_module import _use_lazy_graph_module

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

    report: _engine.Report | None  # None: can't be cut, and need not be for one rank
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


def capture(model, inputs, ranks, *, seq_dims=None, joint=False, stock=False):
    """The program that each of `ranks` ranks runs of a model or function called with `inputs` (see
    `bind`), with `seq_dims` as `autosp.compile` takes it; with `joint` also the joint graph with
    its backward, for the lengths of the inputs, and with `stock` what torch's own partitioner keeps
    of it.

    The inputs are the full ones, as a compiled model gets them. Takes Dynamo's time, for the joint
    graph about twice as much more. Raises Unsupported as the compiled model would, and with `joint`
    where nothing that the program uses requires a gradient, or gradients are off.
    """

    def finish(gm, example_inputs, plan_of):
        parameters, report = _parameters(gm), None
        try:
            plan = plan_of(ranks)
            report = plan.report
        except Unsupported:
            if ranks > 1 or not joint:
                raise
        else:
            if joint:
                gm = plan.write(0, _GROUP)
                example_inputs = [*example_inputs, *fx.seeds(plan.draws)]
        if not joint:
            return Capture(report, parameters)
        return Capture(report, parameters, *_joint_graph(gm, example_inputs, stock=stock))

    return _run(model, bind(inputs), ranks, seq_dims, finish)


class Lengths:
    """The program of one rank at any length of the sequence.

    `capture` is the program, with a joint graph in which `base` stands for the length of a rank's
    part. `length` is the inputs' own, of the longest axis of tokens; with it all others grow in
    proportion, so that it is a multiple of `step`.
    """

    def __init__(self, capture, base, length, step):
        self.capture, self.length, self.step = capture, length, step
        self._base = base

    def at(self, length):
        """The joint graph at a length, a multiple of `step`."""
        return _engine.with_length(self.capture.joint, self._base, length // self.step)


def capture_lengths(model, inputs, ranks, *, seq_dims=None, stock=False):
    """The program as `capture` gives it with its joint graph, but for all lengths: captured with
    its length as a symbol, and traced with its backward at a length so large that it shows in all
    sizes how they depend on it. Without Inductor's passes over joint graphs, which take a fifth of
    the time and hardly change what is kept.

    Sizes of the inputs that are equal change together. Raises Unsupported as `capture`, and where
    the program has no length that can change.
    """

    def finish(gm, example_inputs, plan_of):
        _merge_equal_sizes(gm)
        plan = plan_of(ranks)
        # Which sizes are lengths shows where two ranks at least share them.
        sizes = plan.divisible if ranks > 1 else plan_of(2).divisible
        if not sizes:
            raise Unsupported(
                "the program fixes the length of its sequence, or has none: nothing is known of"
                " other lengths"
            )
        program = Capture(plan.report, _parameters(gm))
        base = 1 << (256 * fx.largest_number(gm)).bit_length()
        gm = plan.write(0, _GROUP)
        return gm, [*example_inputs, *fx.seeds(plan.draws)], sizes, program, base

    call = _any_size(*bind(inputs))
    gm, example_inputs, sizes, program, base = _run(model, call, ranks, seq_dims, finish)
    hints = {}
    for size in sizes:
        hints |= fx.size_facts(size)[1]
    unit = math.gcd(*hints.values())
    steps = {symbol: hint // unit * ranks for symbol, hint in hints.items()}
    fakes = _fake_inputs(
        gm, example_inputs, {symbol: step * base for symbol, step in steps.items()}
    )
    with _no_collections():
        joint, kept = _joint_graph(gm, fakes, stock=stock, passes=False)
    program = dataclasses.replace(program, joint=joint, stock=kept)
    length = max(_value(size, {}) for size in sizes)
    return Lengths(program, base, length, max(_value(size, steps) for size in sizes))


def _merge_equal_sizes(gm):
    """Takes sizes of inputs that are equal in this call for one size, as torch does by itself for
    sizes that were seen to change.
    """
    hints, sizes = fx.input_sizes(gm)
    first = {}
    for symbol, size in sizes.items():
        bool(first.setdefault(hints[symbol], size) == size)


def _any_size(args, kwargs):
    """The call with tensors of the same data whose sizes Dynamo may take for symbols."""

    copies = {}  # of a tensor given twice there is one

    def free(x):
        if type(x) is not torch.Tensor and not isinstance(x, FakeTensor):
            return x
        if id(x) not in copies:
            copies[id(x)] = x.detach().requires_grad_(x.requires_grad)
            torch._dynamo.maybe_mark_dynamic(copies[id(x)], list(range(x.dim())))
        return copies[id(x)]

    return torch.utils._pytree.tree_map(free, (args, kwargs))


def _fake_inputs(gm, example_inputs, lengths):
    """Inputs for a captured graph, without data and without symbols: `lengths` stand for some, and
    for others what they are in this call.
    """
    mode = torch._guards.detect_fake_mode(example_inputs) or FakeTensorMode()
    result = []
    for node, given in zip(gm.graph.find_nodes(op="placeholder"), example_inputs, strict=True):
        value = node.meta["example_value"]
        if isinstance(value, torch.SymInt):
            result.append(_value(value, lengths))
        elif not isinstance(given, torch.Tensor):
            result.append(given)
        elif any(isinstance(size, torch.SymInt) for size in value.shape):
            with mode:
                sizes = [_value(size, lengths) for size in value.shape]
                like = {"dtype": value.dtype, "device": value.device}
                result.append(torch.empty(sizes, requires_grad=value.requires_grad, **like))
        else:
            result.append(mode.from_tensor(given, static_shapes=True))
    return result


def _value(size, lengths):
    """A size with `lengths` for some of its symbols, and for others what they are in this call."""
    if not isinstance(size, torch.SymInt):
        return size
    values, expression = fx.size_facts(size)[1] | lengths, size.node.expr
    return int(expression.xreplace({s: values[str(s)] for s in expression.free_symbols}))


def _run(model, call, ranks, seq_dims, finish):
    """What `finish(gm, example_inputs, plan_of)` makes of a captured program; `plan_of(ranks)` is
    its plan.
    """
    if not isinstance(ranks, int) or ranks < 1:
        raise AutoSPError(f"sp is the number of ranks, a positive integer, not {ranks!r}")
    model = unwrap(model)
    if not callable(model):
        raise AutoSPError(f"what is captured is a module or a function, not {type(model).__name__}")
    function, names = traceable(model)
    options = Settings(seq_dims=seq_dims).plan_options()

    def backend(gm, example_inputs):
        _refuse_broken_graph(gm)

        def plan_of(ranks):
            return fx.read(gm, names).plan(ranks, name_masks=True, **options)

        raise _Ended(finish(gm, example_inputs, plan_of))

    args, kwargs = call
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


def _joint_graph(gm, example_inputs, *, stock=False, passes=True):
    """The joint graph of a rank's graph in Inductor's operators, and with `stock` what Inductor
    would keep by itself; with `passes` after what Inductor does to it ahead of splitting it.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._inductor.decomposition import select_decomp_table

    def partition(gm, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=(), **_):
        if passes:
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
        with _use_lazy_graph_module(True):
            backend(gm, example_inputs)
    except _Ended as ended:
        return ended.result
    raise AssertionError("AOTAutograd compiled a graph without splitting it")


def _inductor_passes(gm):
    """What Inductor does to a joint graph ahead of splitting it, without its measurements."""
    from torch._inductor import config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    if config.use_joint_graph_passes:
        values = [node.meta["val"] for node in gm.graph.find_nodes(op="placeholder")]
        mode = torch._guards.detect_fake_mode(values)
        with config.patch(shape_padding=False), V.set_fake_mode(mode):
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
