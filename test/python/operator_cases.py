"""Elementwise operators and products (operator_case.py)."""

import torch
from generate import Skip
from operator_case import case, column, elsewhere, first, ids, lengthened, own, tokens

# ---- Elementwise ----


def elementwise(g, t, x):
    """With one, two or three operands, on numbers that it is defined for."""
    inner = g.emit("_operator.mul", g.emit("torch.sigmoid", x), 0.8)
    unit = g.emit("_operator.add", inner, 0.1)  # within 0.1 .. 0.9
    large = g.emit("_operator.add", unit, 1.0)
    whole = ids(g, x, 7)
    truth = g.emit("torch.gt", x, 0.0)
    other, numbers, more = g.input((12,)), g.ints((tokens(g, x),), 5), g.input((12,))
    choices = [
        (unit,),
        (large,),
        (unit, large),
        (unit, g.emit("torch.sigmoid", other)),
        (whole, numbers),
        (whole,),
        (truth, truth),
        (truth,),
        (unit, other, more),
        (truth, unit, other),
        (unit, truth, 0.5),
        (unit, 0.5),
        (unit, -1.0, 1.0),
    ]
    for operands in choices:
        found = []

        def attempt(g, operands=operands, found=found):
            found.append(g.emit(t, own(g, t, operands[0]), *operands[1:]))
            if not isinstance(g.x[found[0]], torch.Tensor):
                raise Skip

        if g.attempt(attempt):
            return found[0]
    raise Skip


@case("floor_divide")
def _(g, t, x):
    """Which has no gradient in torch."""
    return g.emit(t, own(g, t, g.emit("Tensor.detach", x)), 0.3)


@case("heaviside")
def _(g, t, x):
    return g.emit(t, own(g, t, g.emit("Tensor.detach", x)), g.constant((12,)))


@case("alias")
def _(g, t, x):
    parts = t.split(".")[-1] in ("real", "imag")
    return g.emit(t, g.emit("torch.complex", x, g.emit("torch.sin", x)) if parts else x)


@case("threshold")
def _(g, t, x):
    return g.emit(t, own(g, t, g.emit("torch.sin", x)), 0.1, 0.2)


@case("glu")
def _(g, t, x):
    return g.emit(t, x)


@case("prelu")
def _(g, t, x):
    return g.emit(t, g.emit("Tensor.transpose", x, 1, 2), g.input((12,)))


@case("to")
def _(g, t, x):
    return g.emit(t, x, torch.float32)


@case("type")
def _(g, t, x):
    return g.emit(t, x, torch.float64)


@case("type_as")
def _(g, t, x):
    return g.emit(t, g.emit("torch.gt", x, 0.0), x)


@case("copy_", "copy")
def _(g, t, x):
    y = g.emit("torch.zeros_like", x)
    g.emit(t, y, x)
    return g.emit("_operator.mul", y, 1.0)


# ---- Products ----


@case("linear")
def _(g, t, x):
    return g.emit(t, x, g.input((5, 12)), g.input((5,)))


@case("matmul")
def _(g, t, x):
    return g.emit(t, x, g.input((12, 3)))


@case("mm")
def _(g, t, x):
    return g.emit(t, first(g, x), g.input((12, 3)))


@case("bmm")
def _(g, t, x):
    return g.emit(t, g.emit("Tensor.transpose", x, 1, 2), g.emit("torch.sin", x))


@case("mv")
def _(g, t, x):
    return g.emit(t, first(g, x), g.input((12,)))


@case("dot", "vdot")
def _(g, t, x):
    return g.emit(t, column(g, x, 0), column(g, x, 1))


@case("outer")
def _(g, t, x):
    return g.emit(t, column(g, x, 0), g.input((3,)))


@case("addmm")
def _(g, t, x):
    return g.emit(t, g.input((3,)), first(g, x), g.input((12, 3)))


@case("baddbmm")
def _(g, t, x):
    return g.emit(t, g.input((2, tokens(g, x), 3)), x, g.input((2, 12, 3)))


@case("addmv")
def _(g, t, x):
    return g.emit(t, g.input((tokens(g, x),)), first(g, x), g.input((12,)))


@case("einsum")
def _(g, t, x):
    return g.emit(t, "bsd,bse->bde", x, g.emit("torch.cos", x))


@case("solve_triangular")
def _(g, t, x):
    diagonal = g.emit("_operator.mul", g.emit("torch.eye", 12, dtype=torch.float64), 9.0)
    a = g.emit("torch.tril", g.emit("_operator.add", g.constant((12, 12)), diagonal))
    return g.emit(t, a, g.emit("Tensor.unsqueeze", x, -1), upper=False)


@case("embedding")
def _(g, t, x):
    return g.emit(t, ids(g, x, 9), g.input((9, 12)))


@case("embedding (table first)")
def _(g, t, x):
    return g.emit(t, g.input((9, 12)), ids(g, x, 9))


@case("sdpa")
def _(g, t, x):
    heads = g.emit("Tensor.transpose", lengthened(g, x), 1, 2)
    return g.emit(t, heads, heads, heads, is_causal=True)


elsewhere("test_experts.py", "grouped_mm", "histc")
