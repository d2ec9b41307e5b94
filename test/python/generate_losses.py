"""Operators of random programs that make, count and write values; losses."""

from generate import Skip, operator

# ---- Values from sizes ----


@operator(1)
def created(g):
    x = g.some(1)
    dim = g.dim(x)
    size = g.shape(x)[dim]
    kind = g.random.randrange(4)
    if kind == 0:
        numbers = g.emit("torch.arange", size, dtype=g.x[x].dtype)
        shape = [1] * g.rank(x)
        shape[dim] = size
        return g.emit("_operator.mul", x, g.emit("Tensor.view", numbers, *shape))
    if kind == 1:
        return g.emit("_operator.add", x, g.emit("torch.ones_like", x))
    if kind == 2:
        return g.emit("_operator.sub", x, g.emit("Tensor.new_full", x, g.shape(x), 0.5))
    tokens = g.rank(x) > 1 and any(map(g.sizes.is_length, g.shape(x)[-2:]))
    if g.rank(x) < 2 or (tokens and g.maybe(0.9)):
        raise Skip
    return g.emit(g.either("torch.tril", "torch.triu"), x, g.either(0, 1, -1))


@operator(0.5)
def counts(g):
    x = g.pick(lambda x: x.dim() == 2, floating=False)
    if str(g.x[x].dtype) != "torch.int64" or int(g.x[x].min()) < 0:
        raise Skip
    classes = int(g.x[x].max()) + 1
    one = g.emit("torch.nn.functional.one_hot", x, classes)
    g.emit("Tensor.double", g.emit("torch.sum", one, g.either(0, 1, -1)))


@operator(0.7)
def of_numbers(g):
    """Arithmetic on whole numbers: ids, positions, counts."""
    x = g.pick(lambda x: str(x.dtype) == "torch.int64", floating=False)
    kind = g.random.randrange(6)
    if kind == 0:
        return g.emit("Tensor.double", g.emit("torch.eq", x, 3))
    if kind == 4 and g.shape(x)[-1] > 2:
        return g.emit("torch.nn.functional.pad", x, g.either((0, 1), (1, -1), (-1, 1)), value=1)
    if kind == 5:
        return g.emit("torch.roll", x, 1, g.dim(x))
    if kind == 1:
        return g.emit("torch.cumsum", g.emit("torch.gt", x, 3), -1)
    if kind == 2:
        return g.emit("torch.remainder", x, 5)
    return g.emit("Tensor.double", x)


# ---- Writes ----


@operator(1.5)
def in_place(g):
    x = g.emit("torch.sin", g.some(1)) if g.maybe() else g.emit("Tensor.clone", g.some(1))
    kind = g.random.randrange(4)
    if kind == 0:
        g.emit("Tensor.mul_", x, g.either(0.5, g.input(g.shape(x)[-1:])))
    elif kind == 1:
        g.emit("_operator.iadd", x, g.input(g.shape(x)))
    else:
        dim = g.dim(x, 2)
        item = g.either(0, -1, slice(1, None), slice(None, -1), slice(1, 2))
        index = (slice(None),) * dim + (item,)
        shape = g.shape(g.emit("_operator.getitem", x, index))
        what = g.either(0.0, g.input(shape))
        if kind == 2:
            g.emit("_operator.setitem", x, index, what)
        else:
            view = g.emit("_operator.getitem", x, index)
            g.emit(g.either("Tensor.mul_", "Tensor.add_"), view, what)
    return g.emit("_operator.mul", x, 1.0)


# ---- Losses ----


@operator(2)
def cross_entropy(g):
    x = g.pick(lambda x: 2 <= x.dim() <= 3)
    classes = g.random.randint(2, 7)
    logits = g.emit("torch.nn.functional.linear", x, g.input((classes, g.shape(x)[-1])))
    rows = g.shape(x)[:-1]
    labels = g.ints(rows, classes)
    options = {}
    if g.maybe(0.5):
        options["ignore_index"] = g.random.randrange(classes)
    if g.maybe(0.3):
        options["reduction"] = g.either("sum", "none")
    if g.maybe(0.3):
        options["label_smoothing"] = 0.1
    if g.maybe(0.2):
        options["weight"] = g.constant((classes,))
    if len(rows) == 2 and g.maybe():
        logits = g.emit("Tensor.transpose", logits, 1, 2)
    else:
        logits = g.emit("Tensor.reshape", logits, -1, classes)
        labels = g.emit("Tensor.view", labels, -1)
    g.emit("torch.nn.functional.cross_entropy", logits, labels, **options)


@operator(1)
def element_loss(g):
    x = g.some(1)
    name = g.random.choice(["mse_loss", "smooth_l1_loss", "huber_loss", "l1_loss"])
    options = {"reduction": g.either("sum", "none")} if g.maybe(0.4) else {}
    target = g.input(g.shape(x))
    g.emit("torch.nn.functional." + name, x, target, **options)
