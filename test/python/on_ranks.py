"""Programs (generated.py) on simulated ranks against one device: equal in float64, or refused.

The engine plans for every rank, its checker accepts that, and it gives the same each time; the
graphs that it writes run as they are.
"""

import dataclasses
import re
import traceback

import torch
import torch.distributed as dist
from autosp import fx
from autosp.errors import AutoSPError, Unsupported
from autosp.simulate import RanksFailed, run_ranks
from generated import Module, Program, take_step
from symbolic import Symbolic


@dataclasses.dataclass
class Outcome:
    """`kind`: "parity", "refused", "mismatch", "error", "invalid" for what torch can't run, or
    "unstable" where one device gives as different numbers when the last digits of its values change
    (ties, deviations of equal values): then no order of sums is the right one.
    """

    program: Program
    kind: str
    text: str = ""

    def __str__(self):
        return f"{self.program}\n# {self.kind}: {self.text}"

    @property
    def failed(self):
        return self.kind in ("mismatch", "error")

    @property
    def reason(self):
        """What was refused, or the kind of failure: without names and numbers."""
        if self.kind == "refused":
            return self.text.split(" at ")[0].split(":")[0][:60]
        return re.sub(r"%\w+|\d+|rank \w+", "…", self.text.splitlines()[0] if self.text else "")


class Reference:
    """A program's step on one device, and a rank's step against it."""

    def __init__(self, program):
        self.program = program
        self.values, self.want = program.run()
        self._cotangents = program.cotangents([self.values[name] for name in program.outputs])

    def step(self, rank, dims, run):
        """`run(inputs)` gives the outputs of `rank`, sharded along `dims`."""
        inputs = self.program.make_inputs()
        leaves = {name: x for name, x in inputs.items() if x.requires_grad}
        outputs = run(inputs)
        cotangents = [
            None if cotangent is None else _part(cotangent, dim, rank, self.program.ranks, x)
            for cotangent, dim, x in zip(self._cotangents, dims, outputs, strict=True)
        ]
        return take_step(outputs, cotangents, leaves)

    def difference(self, dims, steps):
        """What is not as on one device, in words, or None."""
        for i, dim in enumerate(dims):
            if dim is not None:
                whole = torch.cat([step.outputs[i] for step in steps], dim)
                for step in steps:
                    step.outputs[i] = whole
        for rank, step in enumerate(steps):
            if found := self._differences(step):
                return f"rank {rank}: {'; '.join(found)}"
        return None

    def is_unstable(self):
        generator = torch.Generator().manual_seed(0)
        return any(self._differences(self.program.run(generator)[1], 0.1) for _ in range(5))

    def _differences(self, step, share=1.0):
        """More than that share of what rounding may do."""
        size = _size([x for x in self.values.values() if isinstance(x, torch.Tensor)])
        grad_size = _size(list(self.want.grads.values()))
        outputs = zip(self.program.outputs, step.outputs, self.want.outputs, strict=True)
        found = [f"{name}: {text}" for name, *x in outputs if (text := difference(*x, size, share))]
        for name, got in step.grads.items():
            if text := difference(got, self.want.grads[name], grad_size, share):
                found.append(f"gradient of {name}: {text}")
        return found


class _Prepared:
    """A program with a reference and a plan for every rank."""

    def __init__(self, program):
        self.program = program
        options = dict(program.options)
        ranks, lengths = options.pop("ranks"), options.pop("lengths", None)
        self.lengths = []
        if lengths is None:
            self.reference = Reference(program)
            graph = program.graph(self.reference.values)
        else:
            symbolic = Symbolic(program, lengths[0])
            length = lengths[1] if symbolic.holds(lengths[1]) else lengths[0]
            graph, self.lengths = symbolic.graph, [length]
            self.reference = Reference(symbolic.at(length))
        self.plans = []
        for _ in range(ranks):
            module = _copy(graph)
            plan = fx.read(module).plan(ranks, name_masks=True, **options)
            self.plans.append((module, plan))
        texts = {(plan.hash, plan.text) for _, plan in self.plans}
        if len(texts) > 1:
            raise AssertionError("the engine's output differs between two runs")
        self.dims = self.plans[0][1].sharded_dims

    def run_rank(self, rank):
        module, plan = self.plans[rank]
        plan.write(rank, dist.group.WORLD.group_name)

        def run(inputs):
            return _interpret(module.graph, [*self.lengths, *inputs.values()])

        return self.reference.step(rank, self.dims, run)

    def judge(self, steps):
        text = self.reference.difference(self.dims, steps)
        if text is None:
            return Outcome(self.program, "parity")
        kind = "unstable" if self.reference.is_unstable() else "mismatch"
        return Outcome(self.program, kind, text)


def difference(got, want, scale, share=1.0):
    """What differs, in words. `scale` is the size of what the numbers came from: some are zero in
    theory and hold only rounding.
    """
    if got is None or want is None:
        there = want if got is None else got
        same = there is None or not there.count_nonzero()  # the same to an optimizer
        return None if same else f"{'nothing' if got is None else 'something'} there"
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype} {list(got.shape)} in place of {want.dtype} {list(want.shape)}"
    if got.dtype.is_complex:
        got, want = torch.view_as_real(got), torch.view_as_real(want)
    if not got.dtype.is_floating_point:
        return None if torch.equal(got, want) else "other values"
    if not torch.equal(got.isfinite(), want.isfinite()):
        return "not a number elsewhere"
    got, want = got.nan_to_num(), want.nan_to_num()
    error, size = float((got - want).norm()), float(want.norm())
    rounding = share * (1e-8 * size + 1e-10 * scale)
    return f"off by {error:.3g} of {size:.3g}" if error > rounding else None


def _size(tensors):
    floats = [x.detach() for x in tensors if x is not None and x.is_floating_point()]
    return max([1e-4, *(float(x.nan_to_num(0, 0, 0).norm()) for x in floats)])


def _part(whole, dim, rank, ranks, like):
    if dim is None:
        return whole
    length = whole.shape[dim] // ranks
    return whole.narrow(dim, rank * length, like.shape[dim])


def _copy(module):
    graph = torch.fx.Graph()
    outputs = graph.graph_copy(module.graph, {}, return_output_node=True)
    graph.output(outputs[0])
    return Module(graph)


def _interpret(graph, inputs):
    values, inputs = {}, iter(inputs)
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(inputs)
            continue
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
        if node.op == "output":
            return args[0]
        if node.op == "call_method":
            values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
        else:
            values[node] = node.target(*args, **kwargs)


def prepare(program):
    """_Prepared, or the outcome of a program that is not run."""
    try:
        program.run()
        if "lengths" in program.options:
            Symbolic(program, program.options["lengths"][0])
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
        return Outcome(program, "invalid", str(error))
    try:
        return _Prepared(program)
    except Unsupported as error:
        return Outcome(program, "refused", str(error))
    except Exception as error:
        name = "" if isinstance(error, AutoSPError) else f"{type(error).__name__}: "
        return Outcome(program, "error", f"planning: {name}{error}")


def run(programs):
    """The outcome of each program; all have the same number of ranks."""
    outcomes = [prepare(program) for program in programs]
    waiting = [i for i, x in enumerate(outcomes) if isinstance(x, _Prepared)]
    while waiting:
        ranks = programs[0].ranks
        done = [[] for _ in range(ranks)]

        def on_rank(rank, waiting=waiting, done=done):
            torch.set_num_threads(1)
            for i in waiting:
                done[rank].append(outcomes[i].run_rank(rank))

        error = None
        try:
            run_ranks(ranks, on_rank)
        except RanksFailed as failed:
            error = next(iter(failed.errors.values()))
        count = min(map(len, done))
        for i, steps in zip(waiting, zip(*done, strict=False), strict=False):
            outcomes[i] = outcomes[i].judge(list(steps))
        if error is not None:
            at = waiting[count]
            text = "".join(traceback.format_exception_only(error)).strip()
            outcomes[at] = Outcome(outcomes[at].program, "error", f"running: {text}")
            count += 1
        waiting = waiting[count:]
    return outcomes


def run_one(program):
    return run([program])[0]
