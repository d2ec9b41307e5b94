"""Operators that move, pick or write rows (operator_case.py)."""

import math

from operator_case import case, column, first, ids, lengthened, own, refused, tokens

# ---- Shapes ----


@case("view", "reshape")
def _(g, t, x):
    return g.emit(t, x, (2, tokens(g, x), 3, 4))


@case("reshape_as")
def _(g, t, x):
    return g.emit(t, lengthened(g, x), x)


@case("unsqueeze")
def _(g, t, x):
    return g.emit(t, g.emit("torch.sin", x), 1)


@case("squeeze")
def _(g, t, x):
    return g.emit(t, g.emit("Tensor.unsqueeze", x, 1), 1)


@case("flatten")
def _(g, t, x):
    return g.emit(t, x, 0, 1)


@case("ravel")
def _(g, t, x):
    return g.emit(t, x)


@case("unflatten")
def _(g, t, x):
    return g.emit(t, x, -1, (3, 4))


@case("view_as_complex")
def _(g, t, x):
    pairs = g.emit(t, g.emit("Tensor.unflatten", x, -1, (6, 2)))
    return g.emit("torch.view_as_real", pairs)


@case("view_as_real")
def _(g, t, x):
    return g.emit(t, g.emit("torch.complex", x, x))


@case("transpose")
def _(g, t, x):
    return g.emit(t, g.emit("torch.sin", x), 1, 2)


@case("t")
def _(g, t, x):
    return g.emit(t, g.emit("torch.sin", first(g, x)))


@case("permute")
def _(g, t, x):
    return g.emit(t, x, (2, 0, 1))


@case("movedim")
def _(g, t, x):
    return g.emit(t, x, 2, 0)


@case("getattr")
def _(g, t, x):
    return g.emit(t, x, "mT")


@case("expand", "broadcast_to")
def _(g, t, x):
    return g.emit(t, g.emit("Tensor.unsqueeze", x, 1), (2, 3, tokens(g, x), 12))


@case("expand_as")
def _(g, t, x):
    return g.emit(t, g.input((12,)), x)


@case("broadcast_tensors")
def _(g, t, x):
    return g.emit_parts(t, x, g.input((12,)))[1]


@case("meshgrid")
def _(g, t, x):
    return g.emit_parts(t, column(g, x, 0), g.input((3,)), indexing="ij")[0]


@case("repeat", "tile")
def _(g, t, x):
    return g.emit(t, x, (1, 1, 2))


@case("repeat_interleave")
def _(g, t, x):
    return g.emit(t, x, 2, dim=2)


@case("split", "chunk", "tensor_split", "split_with_sizes", "unbind")
def _(g, t, x):
    if t.endswith("unbind"):
        return g.emit_parts(t, x, 0)[1]
    return g.emit_parts(t, x, [5, 7] if "sizes" in t else 3, 2)[1]


@refused("split", "chunk", "tensor_split", "split_with_sizes", "unbind")
def _(g, t, x):
    if t.endswith("unbind"):
        return g.emit_parts(t, x, 1)[1]
    return g.emit_parts(t, x, [1, tokens(g, x) - 1] if "sizes" in t else 2, 1)[1]


@case("stack")
def _(g, t, x):
    return g.emit(t, [x, g.emit("torch.sin", x)], 1)


# ---- Rows ----


@case("getitem")
def _(g, t, x):
    return g.emit(t, x, (slice(None), slice(1, -1)))


@case("select")
def _(g, t, x):
    return g.emit(t, x, 1, 2)


@case("narrow")
def _(g, t, x):
    return g.emit(t, x, 1, 1, tokens(g, x) - 2)


@case("gather")
def _(g, t, x):
    return g.emit(t, x, 1, g.ints((2, 3, 12), tokens(g, x)))


@case("take_along_dim")
def _(g, t, x):
    return g.emit(t, x, g.ints((2, tokens(g, x), 3), 12), 2)


@case("index_select")
def _(g, t, x):
    return g.emit(t, x, 1, g.ints((4,), tokens(g, x)))


@case("one_hot")
def _(g, t, x):
    return g.emit("_operator.mul", x, g.emit(t, ids(g, x, 12), 12))


@refused("narrow")
def _(g, t, x):
    return g.emit(t, x, 1, 1, 3)


@refused("masked_select")
def _(g, t, x):
    return g.emit(t, x, g.emit("torch.gt", x, 0.0))


@refused("nonzero")
def _(g, t, x):
    return g.emit(t, x)


@refused("masked_scatter")
def _(g, t, x):
    return g.emit(t, own(g, t, x), g.emit("torch.gt", x, 0.0), g.input((math.prod(g.shape(x)),)))


@case("scatter", "scatter_add", "scatter_reduce")
def _(g, t, x):
    shape = (2, tokens(g, x), 3)
    how = ("sum",) if "reduce" in t else ()
    index = g.input((12,), "order")
    index = g.emit("Tensor.expand", g.emit("_operator.getitem", index, (slice(None, 3),)), *shape)
    return g.emit(t, own(g, t, x), 2, index, g.input(shape), *how)


@case("index_add", "index_copy")
def _(g, t, x):
    index = g.emit("_operator.getitem", g.input((12,), "order"), (slice(None, 3),))
    return g.emit(t, own(g, t, x), 2, index, g.input((2, tokens(g, x), 3)))


@case("index_fill")
def _(g, t, x):
    return g.emit(t, own(g, t, x), 2, g.ints((3,), 12), 0.5)


@case("index_put")
def _(g, t, x):
    if "aten" in t:
        return g.emit(t, x, [None, None, g.ints((3,), 12)], g.input((3,)))
    return g.emit(t, own(g, t, x), (g.emit("torch.arange", 2),), g.input((12,)))


@case("setitem")
def _(g, t, x):
    y = g.emit("Tensor.clone", x)
    g.emit(t, y, (slice(None), slice(1, None)), g.input((12,)))
    return g.emit("_operator.mul", y, 1.0)


@case("slice_scatter")
def _(g, t, x):
    return g.emit(t, x, g.input((2, 3, 12)), 1, 1, 4)


@case("select_scatter")
def _(g, t, x):
    return g.emit(t, x, g.input((2, 12)), 1, 0)


@case("diff")
def _(g, t, x):
    return g.emit(t, x, dim=1)


@case("pad")
def _(g, t, x):
    return g.emit(t, x, (0, 0, 1, -1))


@case("unfold")
def _(g, t, x):
    return g.emit(t, x, 1, 3, 1)


@case("roll")
def _(g, t, x):
    return g.emit(t, x, 1, 1)


@case("conv")
def _(g, t, x):
    more = int(t[-2]) - 1
    y = g.emit("Tensor.reshape", g.emit("Tensor.transpose", x, 1, 2), 2, 12, -1, *[1] * more)
    return g.emit(t, y, g.input((3, 12, 2, *[1] * more)))


@refused("conv_transpose")
def _(g, t, x):
    more = int(t[-2]) - 1
    y = g.emit("Tensor.reshape", g.emit("Tensor.transpose", x, 1, 2), 2, 12, -1, *[1] * more)
    return g.emit(t, y, g.input((12, 3, 2, *[1] * more)))


@case("cat")
def _(g, t, x):
    rest = g.emit("_operator.getitem", x, (slice(None), slice(None, -1)))
    return g.emit(t, [g.input((2, 1, 12)), rest], 1)


@case("cumsum")
def _(g, t, x):
    return g.emit(t, own(g, t, x), 1)


@case("flip")
def _(g, t, x):
    return g.emit(t, x, (1,))


@case("flipud")
def _(g, t, x):
    return g.emit(t, first(g, x))


@case("fliplr")
def _(g, t, x):
    return g.emit(t, x)


@case("sort", "argsort", "topk")
def _(g, t, x):
    if t.endswith("argsort"):
        return g.emit(t, x, -1)
    return g.emit_parts(t, x, *([3] if t.endswith("topk") else []), -1)[0]


@refused("topk")
def _(g, t, x):
    return g.emit_parts(t, x, 3, 1)[0]
