"""Operators of random programs that pick and move rows."""

from generate import Skip, operator

# ---- Rows by number ----


@operator(4)
def sliced(g):
    x = g.some(1)
    dim = g.dim(x, 2)
    tokens = g.sizes.is_length(g.shape(x)[dim])
    size = g.shape(x)[dim]
    item = g.random.choice(
        [
            slice(1, None),
            slice(None, -1),
            slice(None, size // 2 + 1),
            slice(-2, None),
            slice(1, size // 2 + 1),
            slice(None, None, 2) if not tokens else slice(2, None),
            slice(1, None, 2) if not tokens or g.maybe(0.1) else slice(-3, -1),
            0,
            -1,
            size // 2,
        ]
    )
    index = (slice(None),) * dim + (item,)
    if g.maybe(0.3):
        index = (Ellipsis, item, *[slice(None)] * (g.rank(x) - 1 - dim))
    if g.maybe(0.2):
        index += (None,)
    return g.emit("_operator.getitem", x, index)


@operator(1)
def narrowed(g):
    x = g.some(1)
    dim = g.dim(x, 2)
    size = g.shape(x)[dim]
    start = g.random.randrange(size)
    if g.maybe(0.3):
        return g.emit("torch.select", x, dim, start)
    return g.emit("torch.narrow", x, dim, start, g.random.randint(1, size - start))


@operator(1.5)
def gathered(g):
    x = g.some(1)
    dim = g.dim(x)
    size = g.shape(x)[dim]
    kind = g.random.randrange(4)
    if kind == 0:
        shape = list(g.shape(x))
        shape[dim] = g.random.randint(1, 4)
        return g.emit("torch.gather", x, dim, g.ints(shape, size))
    if kind == 1:
        return g.emit("torch.index_select", x, dim, g.ints((g.random.randint(1, 5),), size))
    if kind == 2:
        return g.emit("torch.index_select", x, dim, g.input((size,), "order"))
    index = [slice(None)] * dim + [g.ints(g.either((3,), (2, 2)), size)]
    return g.emit("_operator.getitem", x, tuple(index))


@operator(1)
def row_of_each(g):
    """x[arange(batch), positions]: what poolers do."""
    x = g.some(2)
    n, size = g.shape(x)[:2]
    return g.emit("_operator.getitem", x, (g.emit("torch.arange", n), g.ints((n,), size)))


@operator(1)
def embedded(g):
    x = g.pick(lambda x: x.dim() <= 3, floating=False)
    if g.x[x].dtype.is_complex or str(g.x[x].dtype) != "torch.int64" or int(g.x[x].min()) < 0:
        raise Skip
    table = g.input((int(g.x[x].max()) + 2, g.random.randint(1, 6)))
    return g.emit("torch.nn.functional.embedding", x, table)


@operator(0.7)
def scattered(g):
    x = g.some(1)
    kind = g.random.randrange(4)
    dim = g.dim(x, tokens=kind == 3)
    size = g.shape(x)[dim]
    shape = list(g.shape(x))
    if kind == 0:
        shape[dim] = 2
        return g.emit("torch.scatter_add", x, dim, g.ints(shape, size), g.input(shape))
    if kind == 1:
        order = g.input((size,), "order")
        return g.emit("torch.index_copy", x, dim, order, g.emit("torch.sin", x))
    if kind == 2:
        shape[dim] = 3
        return g.emit("torch.index_add", x, dim, g.ints((3,), size), g.input(shape))
    shape[dim] = g.either(size, 3)
    target = g.emit("Tensor.new_zeros", x, shape)
    return g.emit("torch.index_add", target, dim, g.ints((size,), shape[dim]), x)


# ---- Neighbours and everything before ----


@operator(2)
def padded(g):
    x = g.some(2)
    dim = g.random.randint(1, min(g.rank(x), 3))
    pair = g.random.choice([(1, 0), (0, 1), (1, -1), (-1, 1), (2, 1), (0, -1), (-1, 0), (3, 0)])
    value = {"value": 0.5} if g.maybe(0.2) else {}
    y = g.emit("torch.nn.functional.pad", x, (0, 0) * (dim - 1) + pair, **value)
    length, more = g.shape(x)[-dim], sum(pair)
    if more <= 0 or g.maybe(0.2):
        return y
    # a sum of shifted copies, as convolutions are written by hand
    y = g.emit("torch.sin", y)
    copies = [
        g.emit("_operator.getitem", y, (Ellipsis, slice(i, i + length), *[slice(None)] * (dim - 1)))
        for i in {0, more}
    ]
    return g.emit("_operator.mul", *copies) if len(copies) > 1 else copies[0]


@operator(1)
def rolled(g):
    x = g.some(1)
    dim = g.dim(x, 2)
    if g.maybe(0.3):
        return g.emit("torch.flip", x, [dim])
    return g.emit("torch.roll", x, g.either(1, -1, 2, 5), dim)


@operator(1)
def differences(g):
    x = g.some(1)
    dim = g.dim(x, 2)
    if g.maybe(0.3):
        return g.emit("torch.diff", x, 2, g.dim(x, 4))
    more = {}
    if g.maybe():
        shape = list(g.shape(x))
        shape[dim] = 1
        more = {g.either("prepend", "append"): g.input(shape)}
    return g.emit("torch.diff", x, dim=dim, **more)


@operator(1)
def unfolded(g):
    x = g.some(1)
    dim = g.dim(x, 4)
    y = g.emit("Tensor.unfold", x, dim, g.random.randint(1, 4), g.either(1, 1, 2, 4))
    return g.emit("torch.sum", y, -1)


@operator(1)
def by_cat(g):
    """A row or two in front, behind, or in place of those at the other end."""
    x = g.some(2)
    dim = g.dim(x, 3, tokens=True)
    size = g.shape(x)[dim]
    shape = list(g.shape(x))
    shape[dim] = count = g.random.randint(1, 2)
    new = g.input(shape) if g.maybe() else g.emit("torch.zeros", *shape, dtype=g.x[x].dtype)
    behind = g.maybe()
    if g.maybe(0.8):
        start, stop = (count, None) if behind else (None, size - count)
        x = g.emit("_operator.getitem", x, (slice(None),) * dim + (slice(start, stop),))
    return g.emit("torch.cat", [x, new] if behind else [new, x], dim)


@operator(1)
def scanned(g):
    x = g.some(1)
    dim = g.dim(x, 2)
    name = g.random.choice(["cumsum", "cumsum", "cumprod", "logcumsumexp", "cummax"])
    if name == "cummax":
        return g.emit_parts("torch.cummax", x, dim)
    return g.emit("torch." + name, x, dim=dim)


@operator(1.2)
def convolution(g):
    """Along the last or the middle dimension of [batch, tokens, channels]."""
    x = g.pick(lambda x: x.dim() == 3)
    across = g.sizes.is_length(g.shape(x)[1]) or g.maybe(0.1)
    if not across and g.sizes.is_length(g.shape(x)[2]) and g.maybe(0.9):
        raise Skip
    t = g.emit("Tensor.transpose", x, 1, 2) if across else x
    _, channels, length = g.shape(t)
    depthwise = g.maybe()
    k = g.random.randint(1, 4)
    out = channels if depthwise else g.random.randint(1, 4)
    groups = channels if depthwise else 1
    weight = g.input((out, channels // groups, k))
    bias = g.input((out,)) if g.maybe() else None
    more = {"dilation": 2} if g.maybe(0.2) else {}
    padding = g.either(0, k - 1, k // 2)
    y = g.emit(
        "torch.nn.functional.conv1d", t, weight, bias, padding=padding, groups=groups, **more
    )
    if padding == k - 1 and k > 1 and not more and g.maybe(0.7):
        y = g.emit("_operator.getitem", y, (Ellipsis, slice(None, length)))
    return g.emit("Tensor.transpose", y, 1, 2) if across else y


@operator(0.5)
def ordered(g):
    x = g.some(1)
    dim = g.dim(x, tokens=False)
    if g.maybe():
        count = g.random.randint(1, min(3, g.shape(x)[dim]))
        return g.emit_parts("torch.topk", x, count, dim)
    return g.emit_parts("torch.sort", x, dim)
