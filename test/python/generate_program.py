"""Random programs from seeds: a few operators around an attention."""

import dataclasses

import generate_losses  # noqa: F401  registers operators
import generate_operators  # noqa: F401
import generate_rows  # noqa: F401
import generate_shapes  # noqa: F401
import torch
from generate import OPERATORS, Generator
from generate_attention import attend, start
from generated import Program
from symbolic import Symbolic

SYMBOLIC = 0.05  # of all programs: they take longer to make than to run


def generate(seed, only=()):
    """The program of a seed. Values that nothing reads are outputs, and a few others. `only`: the
    names of the operators to choose from, in place of all.
    """
    g = Generator(seed)
    # Small values are whole on every rank where a collective costs what it costs really.
    options = {
        "ranks": g.sizes.ranks,
        "latency_bytes": g.random.choice((0, 0, 0, 16, 256, 1 << 16)),
    }
    if g.maybe(0.2):
        options["attention"] = "gather_kv"
    if g.maybe(0.3):
        options["outputs"] = "full"
    h, dims = start(g)
    attends = g.maybe(0.8) and g.attempt(lambda g: attend(g, h))
    if not attends and g.maybe(0.95):
        options["seq_dims"] = dims
    operators = [entry for entry in OPERATORS if not only or entry[1].__name__ in only]
    weights, functions = zip(*operators, strict=True)
    for _ in range(g.random.randint(1, 9)):
        for function in g.random.choices(functions, weights, k=20):
            if g.attempt(function):
                break
    if g.maybe(0.3):
        g.attempt(lambda g: attend(g, g.pick(lambda x: x.dim() == 3)))
    program = Program(seed, g.inputs, g.calls, _outputs(g), options)
    return _with_symbol(g, program) if g.maybe(SYMBOLIC) else program


def _with_symbol(g, program):
    """The program with a symbol for its tokens, where it doesn't depend on how many there are."""
    length, ranks = g.sizes.tokens, g.sizes.ranks
    other = length + g.either(ranks, 2 * ranks) if length % ranks == 0 else length + g.either(1, 2)
    if length < 7:
        return program
    symbolic = dataclasses.replace(program, options=program.options | {"lengths": (length, other)})
    try:
        Symbolic(program, length).at(other).run()
    except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
        return program
    return symbolic


def _outputs(g):
    made = [call.name for call in g.calls if isinstance(g.x[call.name], torch.Tensor)]
    ends = [name for name in made if name not in g.used]
    chosen = ends[-5:] or made[-1:]
    if g.maybe(0.4) and len(made) > 2:
        chosen.append(g.random.choice(made))
    if g.maybe(0.7):
        # as a training step has it: one number that depends on much of the program
        floats = [name for name in chosen if g.x[name].is_floating_point()]
        losses = []
        for name in floats:
            function = g.either("torch.sum", "torch.mean")
            g.attempt(
                lambda g, f=function, x=name: losses.append(g.emit(f, g.emit("torch.sin", x)))
            )
        if losses:
            total = losses[0]
            for loss in losses[1:]:
                total = g.emit("_operator.add", total, loss)
            chosen = [total, *(chosen if g.maybe() else [])]
    return list(dict.fromkeys(chosen))
