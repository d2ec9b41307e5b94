"""`autosp.check`: the program of every rank, run in one process, against one device."""

import contextlib
import dataclasses

import torch
import torch.distributed as dist
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_leaves

from . import collectives, fx  # noqa: F401  registers the operators that plans are written in
from .api import capture_settings, traceable, unwrap
from .backend import Settings, _refuse_broken_graph, broken_graph
from .capture import bind
from .errors import AutoSPError, InternalError, Unsupported
from .simulate import RanksFailed, run_ranks

# What rounding may do to a result: sums over tokens are added in another order, in the narrowest
# floating-point type that the program computes in.
TOLERANCES = {
    torch.float64: 1e-10,
    torch.float32: 2e-5,
    torch.bfloat16: 5e-2,
    torch.float16: 1e-2,
}
# A gradient that is zero in theory holds only rounding: its error is judged against a small part of
# the model's largest gradient besides its own size.
_FLOOR = 1e-3


class Mismatch(AutoSPError):
    """Ranks together computed something else than one device; `report` has every row."""

    def __init__(self, report):
        super().__init__(str(report))
        self.report = report

    def __reduce__(self):
        return type(self), (self.report,)


@dataclasses.dataclass(frozen=True)
class Row:
    """One tensor: its size (2-norm), its largest error over all ranks relative to that (of a
    gradient, to that and a thousandth of the model's largest), and whether that is rounding.
    """

    name: str
    error: float
    size: float
    verdict: str  # "equal", "rounding", or what is wrong

    @property
    def right(self):
        return self.verdict in ("equal", "rounding")


@dataclasses.dataclass(frozen=True)
class Report:
    """What `check` found: `rows`, the worst first; `tolerance`, relative, and the narrowest dtype
    it follows from; `plan`, the report of rank 0's program (see `autosp.explain`), and the engine's
    time for it in milliseconds.
    """

    ranks: int
    rows: list[Row]
    tolerance: float
    dtype: torch.dtype
    plan: object
    engine_ms: float

    def __getstate__(self):
        return vars(self) | {"plan": None}  # the engine's objects stay in their process

    @property
    def parity(self):
        return all(row.right for row in self.rows)

    def __str__(self):
        wrong = [row for row in self.rows if not row.right]
        shown = wrong[:20] or self.rows[:8]
        width = max(len(row.name) for row in shown)
        lines = [f"{'':{width}}  {'error':>8}  {'size':>8}"]
        lines += [
            f"{row.name:{width}}  {row.error:8.1e}  {row.size:8.1e}  {row.verdict}" for row in shown
        ]
        if len(shown) < len(self.rows):
            lines.append(f"… and {len(self.rows) - len(shown)} more tensors")
        dtype = str(self.dtype).removeprefix("torch.")
        lines.append(
            f"{'parity' if self.parity else 'MISMATCH'}: {self.ranks} ranks against one device,"
            f" {len(self.rows) - len(wrong)} of {len(self.rows)} tensors agree to"
            f" {self.tolerance:g} of their size (the program computes in {dtype})"
        )
        return "\n".join(lines)


def check(model, inputs, sp=4, *, attention="auto", seq_dims=None, tolerance=None):
    """Runs a training step of `model` as `sp` ranks would run it, in this process, and compares the
    loss, every output and every gradient with the same step on one device.

        autosp.check(model, {"input_ids": ids, "labels": ids}, sp=8)

    The ranks are threads that run the same rewritten graphs as a real run, operator by operator,
    and exchange real tensors, on the CPU or on one GPU. Memory: activations of about one device's
    step, and one set of gradients per rank.

    A step goes backward from the sum of all scalar outputs that want a gradient (the losses); where
    there is none, from all outputs that do, each multiplied by fixed random numbers. The model is
    called twice more on one device, without the compiler and with it; random numbers are drawn from
    the same seed each time. Gradients that parameters hold are left alone.

    Args:
        model: a module or a function, as for `autosp.compile`. inputs: its arguments, a dict of
        keyword arguments, a tuple or list of positional ones, or one tensor.
        sp: the number of ranks. attention, seq_dims: as for `autosp.compile`. tolerance: relative
        to a tensor's 2-norm; default: 1e-10 in float64, 2e-5 in float32, 5e-2 in bfloat16 and 1e-2
        in float16, whichever is the narrowest type among the program's values. Many models compute
        norms, softmaxes or the loss in float32 whatever their weights are.

    Returns the report, which is also printed. Raises Mismatch, which has the report, when something
    differs by more than rounding or a gradient is missing or zero on one side only; Unsupported as
    the compiled model would.
    """
    report = Reference(model, inputs).compare(
        sp, tolerance=tolerance, attention=attention, seq_dims=seq_dims
    )
    print(report)
    if not report.parity:
        raise Mismatch(report)
    return report


# ---- Steps ----


@dataclasses.dataclass
class _Step:
    outputs: list  # tensors
    grads: list  # per leaf, None for none


class Reference:
    """A step of a model on one device, and the program that Dynamo captured from the same call; to
    be compared with several numbers of ranks. Arguments and errors as for `check`; with `dynamic`
    sizes are symbols, as in a program that has been called with several lengths.
    """

    def __init__(self, model, inputs, dynamic=None):
        model = unwrap(model)
        self._arguments = _own_leaves(bind(inputs))
        self._capture(model, dynamic)
        self._step = self._take_step(model)

    def compare(self, sp, *, tolerance=None, **options):
        """The report on `sp` ranks; `options` are those of `autosp.compile` that change a plan."""
        options = Settings(**options).plan_options()
        plan, steps = self._on_ranks(sp, options)
        dtype = _narrowest(self.gm)
        tolerance = TOLERANCES[dtype] if tolerance is None else tolerance
        rows = _rows(self._outputs, self._leaves.values(), self._step, steps, tolerance)
        engine_ms = sum(ns for _, ns in plan.step_ns) / 1e6
        return Report(sp, rows, tolerance, dtype, plan.report, engine_ms)

    def _capture(self, model, dynamic):
        function, self._names = traceable(model)
        args, kwargs = self._arguments
        seen = []

        def backend(gm, example_inputs):
            _refuse_broken_graph(gm)
            # Dynamo clears the metadata of the graph that it handed out.
            seen.append((_copy(gm), [fx.hint(x) for x in example_inputs]))

            @torch.no_grad()  # no step yet: which results are which outputs
            def run(*inputs):
                seen.append(outputs := gm(*inputs))
                return outputs

            return run

        compiled = torch.compile(function, backend=backend, fullgraph=True, dynamic=dynamic)
        try:
            with capture_settings(), _same_buffers(model):
                result = compiled(*args, **kwargs)
        except torch._dynamo.exc.Unsupported as error:
            raise Unsupported(broken_graph(error.msg, error.real_stack)) from None
        if not seen:
            raise Unsupported(
                "the function computes nothing with tensors: there is nothing to check"
            )
        (self.gm, self._inputs), flat = seen[-2:]
        positions = {id(x): i for i, x in enumerate(flat)}
        self._outputs = {
            name: positions[id(x)] for name, x in _tensors(result) if id(x) in positions
        }
        placeholders = self.gm.graph.find_nodes(op="placeholder")
        self._leaves = {
            position: _input_name(node, self._names)
            for position, (node, x) in enumerate(zip(placeholders, self._inputs, strict=True))
            if isinstance(x, torch.Tensor) and x.requires_grad
        }

    def _take_step(self, model):
        """Of the model as it is: not captured, not compiled. One that draws random numbers draws
        others that way, and torch's flex_attention gives other gradients when it is recomputed
        uncompiled, so for these it is the program of a group of one.
        """
        args, kwargs = self._arguments
        try:
            plan = fx.read(_copy(self.gm), self._names).plan(1)
        except Unsupported:  # whatever it is, it is no reason to look at several ranks' programs
            plan = None
        alone = None if plan is None else plan.write(0, "")
        with _same_buffers(model), torch.random.fork_rng():
            torch.manual_seed(0)
            if alone is not None and (plan.draws or _recomputes_scores(alone)):
                flat = alone(*self._inputs, *fx.seeds(plan.draws))
                outputs = [flat[position] for position in self._outputs.values()]
            else:
                found = dict(_tensors(model(*args, **kwargs)))
                outputs = [found[name] for name in self._outputs]
            self._chosen, self._cotangents = _cotangents(outputs)
            if not self._chosen:
                raise Unsupported(
                    "no output of the program wants a gradient: there is no step to check"
                )
            leaves = [self._inputs[position] for position in self._leaves]
            wanting = [outputs[i] for i in self._chosen]
            grads = torch.autograd.grad(wanting, leaves, self._cotangents, allow_unused=True)
        return _Step([x.detach() for x in outputs], grads)

    def _on_ranks(self, ranks, options):
        """The plan, and every rank's step; parts of sharded outputs are joined."""
        programs = [
            fx.read(_copy(self.gm), self._names).plan(ranks, name_masks=True, **options)
            for _ in range(ranks)
        ]
        plan = programs[0]
        if any(other.hash != plan.hash for other in programs):
            raise InternalError("the same program gave different plans")
        dims = [plan.sharded_dims[i] for i in self._outputs.values()]

        def on_rank(rank):
            plan = programs[rank]
            gm = plan.write(rank, dist.group.WORLD.group_name)
            return self._rank_step(gm, rank, dims, plan.draws)

        try:
            steps = run_ranks(ranks, on_rank)
        except RanksFailed as failed:
            raise next(iter(failed.errors.values())) from failed
        for i, dim in enumerate(dims):
            if dim is not None:
                whole = torch.cat([step.outputs[i] for step in steps], dim)
                for step in steps:
                    step.outputs[i] = whole
        return plan, steps

    def _rank_step(self, gm, rank, dims, draws):
        inputs = [
            x.detach().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x
            for x in self._inputs
        ]
        placeholders = gm.graph.find_nodes(op="placeholder")
        for write in gm.graph.find_nodes(op="call_method", target="copy_"):
            buffer = placeholders.index(write.args[0])
            inputs[buffer] = inputs[buffer].clone()  # every rank has its own
        torch.manual_seed(0)
        flat = gm(*inputs, *fx.seeds(draws))
        outputs = [flat[position] for position in self._outputs.values()]
        cotangents = [
            cotangent if dims[i] is None else _part(cotangent, dims[i], rank, outputs[i])
            for i, cotangent in zip(self._chosen, self._cotangents, strict=True)
        ]
        leaves = [inputs[position] for position in self._leaves]
        wanting = [outputs[i] for i in self._chosen]
        grads = torch.autograd.grad(wanting, leaves, cotangents, allow_unused=True)
        return _Step([x.detach() for x in outputs], grads)


def _recomputes_scores(gm):
    calls = gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention)
    return any("ac_graph_id" in call.meta for call in calls)


def _tensors(result):
    """(name, tensor) for every tensor in what a model returned."""
    return [
        (keystr(path).lstrip(".") or "result", x)
        for path, x in tree_flatten_with_path(result)[0]
        if isinstance(x, torch.Tensor)
    ]


def _input_name(node, arguments):
    """As the user calls it: "layers.0.weight" of a module, "x" of an argument."""
    source = node.meta["grapharg"].source.name if "grapharg" in node.meta else node.name
    for i, name in enumerate(arguments):
        source = source.replace(f"L['args'][{i}]", name)
    for old, new in [("L['model']", ""), ("._modules['", "."), ("._parameters['", "."), ("']", "")]:
        source = source.replace(old, new)
    return source.replace("L['", "").lstrip(".")


def _own_leaves(tree):
    """The arguments with leaves of their own in place of tensors that want a gradient."""
    return torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda x: x.detach().clone().requires_grad_() if x.requires_grad else x, tree
    )


@contextlib.contextmanager
def _same_buffers(model):
    """What the model writes to its buffers meanwhile is undone."""
    buffers = list(model.buffers()) if isinstance(model, torch.nn.Module) else []
    values = [buffer.clone() for buffer in buffers]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in zip(buffers, values, strict=True):
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _copy(gm):
    graph = torch.fx.Graph()
    outputs = graph.graph_copy(gm.graph, {}, return_output_node=True)
    graph.output(outputs[0])
    copied = torch.fx.GraphModule(gm, graph)
    copied.meta = dict(gm.meta)
    for name, body in gm.named_children():
        if isinstance(body, torch.fx.GraphModule):
            setattr(copied, name, _copy(body))
    return copied


def _cotangents(outputs):
    """The outputs that a step goes backward from, by position, and what from each."""
    wanting = [i for i, x in enumerate(outputs) if x.requires_grad]
    scalars = [i for i in wanting if outputs[i].ndim == 0]
    generator = torch.Generator().manual_seed(0)
    cotangents = [
        torch.randn(outputs[i].shape, generator=generator, dtype=torch.float64).to(outputs[i])
        for i in wanting
    ]
    if scalars:
        return scalars, [torch.ones_like(outputs[i]) for i in scalars]
    return wanting, cotangents


def _part(whole, dim, rank, like):
    length = like.shape[dim]
    return whole.narrow(dim, min(rank * length, whole.shape[dim]), length)


# ---- Comparison ----


def _rows(outputs, leaves, wanted, got, tolerance):
    rows = [
        _row(f"output {name}", want, [step.outputs[i] for step in got], tolerance, 0.0)
        for i, (name, want) in enumerate(zip(outputs, wanted.outputs, strict=True))
    ]
    sizes = [float(g.double().norm()) for g in wanted.grads if g is not None]
    floor = _FLOOR * max(sizes, default=0.0)
    rows += [
        _row(f"gradient of {name}", want, [step.grads[i] for step in got], tolerance, floor)
        for i, (name, want) in enumerate(zip(leaves, wanted.grads, strict=True))
    ]
    return sorted(rows, key=lambda row: (row.right, -row.error))


def _narrowest(gm):
    """The floating-point type with the largest rounding error among the program's values."""
    dtypes = {
        x.dtype
        for node in gm.graph.nodes
        for x in tree_leaves(node.meta.get("example_value"))
        if isinstance(x, torch.Tensor) and x.dtype.is_floating_point and x.dtype in TOLERANCES
    }
    return max(dtypes, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)


def _row(name, want, got, tolerance, floor):
    rows = [_judge(name, want, x, tolerance, floor) for x in got]
    return max(rows, key=lambda row: (not row.right, row.error))


def _judge(name, want, got, tolerance, floor):
    if want is None or got is None:
        return _judge_missing(name, want, got, tolerance * floor)
    size = float(want.double().nan_to_num().norm()) if want.is_floating_point() else 0.0
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return Row(name, float("inf"), size, f"{_type(got)} in place of {_type(want)}")
    if torch.equal(got, want):
        return Row(name, 0.0, size, "equal")
    if not want.is_floating_point():
        return Row(name, float("inf"), size, "other values")
    if not torch.equal(got.isnan(), want.isnan()):
        return Row(name, float("inf"), size, "not a number elsewhere")
    off = float((got.double().nan_to_num() - want.double().nan_to_num()).norm())
    if not off:
        return Row(name, 0.0, size, "equal")
    error = off / (size + floor) if size + floor else float("inf")
    if error <= tolerance:
        return Row(name, error, size, "rounding")
    if not got.count_nonzero():
        return Row(name, error, size, "zero")
    return Row(name, error, size, "WRONG")


def _judge_missing(name, want, got, negligible):
    """A gradient that does not exist and one of zeros are the same to an optimizer."""
    if want is got:
        return Row(name, 0.0, 0.0, "equal")
    there = got if want is None else want
    size = float(there.double().norm())
    if size <= negligible:
        return Row(name, 0.0, size, "rounding")
    return Row(
        name, float("inf"), size, "missing" if got is None else "there is none on one device"
    )


def _type(x):
    return f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
