"""Operators of random programs that multiply, or change shapes."""

import math

from generate import Skip, operator

# ---- Products ----


@operator(3)
def linear(g):
    x = g.features()
    out, width = g.random.randint(1, 9), g.shape(x)[-1]
    if g.maybe(0.7):
        bias = [g.input((out,))] if g.maybe() else []
        return g.emit("torch.nn.functional.linear", x, g.input((out, width)), *bias)
    return g.emit("torch.matmul", x, g.input((width, out)))


@operator(1)
def product_of_values(g):
    x = g.some(2, 4)
    k = g.shape(x)[-1]
    if g.maybe():
        return g.emit("torch.matmul", x, g.emit("Tensor.transpose", x, -1, -2))
    y = g.pick(lambda y: y.dim() == g.rank(x) and y.shape[-2] == k)
    return g.emit("torch.matmul", x, y)


@operator(1)
def mixing(g):
    """A matrix along any dimension, or one number for each of its elements."""
    x = g.pick(lambda x: x.dim() == 3)
    at = g.random.randrange(3)
    letters = "abc"
    size = g.shape(x)[at]
    if g.maybe():
        out = letters.replace(letters[at], "z")
        return g.emit(
            "torch.einsum", f"abc,{letters[at]}z->{out}", x, g.input((size, g.either(3, size)))
        )
    out = letters.replace(letters[at], "")
    return g.emit("torch.einsum", f"abc,{letters[at]}->{out}", x, g.input((size,)))


@operator(0.4)
def batched_product(g):
    x = g.pick(lambda x: x.dim() == 3)
    b, m, k = g.shape(x)
    if g.maybe():
        return g.emit("torch.bmm", x, g.input((b, k, 3)))
    y = g.input((b, m, 2))
    return g.emit("torch.baddbmm", y, x, g.input((b, k, 2)))


# ---- Shapes ----


@operator(2.5)
def merged(g):
    """Two neighbouring dimensions as one."""
    x = g.some(2)
    at = g.random.randrange(g.rank(x) - 1)
    shape = list(g.shape(x))
    if g.maybe():
        return g.emit("torch.flatten", x, at, at + 1)
    shape[at : at + 2] = [-1 if g.maybe() else math.prod(shape[at : at + 2])]
    return g.emit("Tensor.reshape", x, *shape)


@operator(2.5)
def split_up(g):
    """One dimension as two."""
    x = g.some(1, 4)
    at = g.dim(x, 4)
    size = g.shape(x)[at]
    pairs = [(n, size // n) for n in range(2, size) if size % n == 0]
    if not pairs:
        raise Skip
    pair = g.random.choice(pairs)
    if g.maybe():
        return g.emit("Tensor.unflatten", x, g.signed(x, at), pair)
    shape = list(g.shape(x))
    shape[at : at + 1] = pair
    return g.emit(g.either("Tensor.reshape", "Tensor.view"), x, *shape)


@operator(2.5)
def permuted(g):
    x = g.some(2)
    a, b = g.random.sample(range(g.rank(x)), 2)
    kind = g.random.randrange(3)
    if kind == 0:
        order = list(range(g.rank(x)))
        g.random.shuffle(order)
        return g.emit("Tensor.permute", x, *order)
    if kind == 1:
        return g.emit("torch.movedim", x, a, b)
    return g.emit(g.either("torch.transpose", "Tensor.transpose"), x, g.signed(x, a), b)


@operator(1.5)
def ones_in_shape(g):
    x = g.some(1, 4)
    if 1 in g.shape(x) and g.maybe():
        return g.emit(
            "torch.squeeze", x, g.random.choice([i for i, n in enumerate(g.shape(x)) if n == 1])
        )
    x = g.emit("torch.unsqueeze", x, g.random.randint(0, g.rank(x)))
    if not g.maybe():
        return x
    shape = [3 if n == 1 else g.either(-1, n) for n in g.shape(x)]
    return g.emit("Tensor.expand", x, *shape)


@operator(1)
def repeated(g):
    x = g.some(1, 4)
    if g.maybe():
        times = [g.either(1, 1, 2) for _ in g.shape(x)]
        return g.emit("Tensor.repeat", x, *times)
    return g.emit("torch.repeat_interleave", x, 2, dim=g.dim(x))


@operator(1.5)
def cut_up(g):
    x = g.some(1)
    dim = g.dim(x, 2, tokens=False)
    size = g.shape(x)[dim]
    kind = g.random.randrange(4)
    if kind == 0:
        return g.emit_parts("torch.chunk", x, 2, g.signed(x, dim))
    if kind == 1:
        return g.emit_parts("Tensor.split", x, g.random.randint(1, size), dim)
    if kind == 2:
        first = g.random.randint(1, size - 1)
        return g.emit_parts("torch.split", x, [first, size - first], dim=dim)
    if size > 4:
        raise Skip
    return g.emit_parts("torch.unbind", x, dim)


@operator(1.5)
def joined(g):
    x = g.some(1, 4)
    if g.maybe():
        others = [g.pick(lambda y: tuple(y.shape) == g.shape(x)) for _ in range(2)]
        return g.emit("torch.stack", [x, *others], g.random.randint(0, g.rank(x)))
    dim = g.dim(x, tokens=False)
    y = g.pick(
        lambda y: (
            y.dim() == g.rank(x)
            and all(
                a == b for i, (a, b) in enumerate(zip(y.shape, g.shape(x), strict=True)) if i != dim
            )
        )
    )
    return g.emit("torch.cat", [x, y], g.signed(x, dim))


@operator(0.3)
def gated(g):
    x = g.some(1)
    g.emit("torch.nn.functional.glu", x, g.dim(x, 2, tokens=False))
