"""Operators of random programs that work on each element, reduce, or normalise."""

from generate import Skip, operator

UNARY = [
    "abs",
    "cos",
    "sin",
    "tanh",
    "sigmoid",
    "erf",
    "atan",
    "square",
    "neg",
    "sgn",
    "floor",
    "round",
    "exp",
    "expm1",
    "sinh",
    "nan_to_num",
    "frac",
    "positive",
]
# Not softshrink: whether torch gives 0 or -0 hangs on where in memory an element lies.
ACTIVATIONS = [
    "celu",
    "elu",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "logsigmoid",
    "mish",
    "relu",
    "relu6",
    "selu",
    "silu",
    "softplus",
    "softsign",
    "tanhshrink",
]
OF_POSITIVE = ["log", "log2", "log1p", "sqrt", "rsqrt", "reciprocal"]
BINARY = [
    "add",
    "sub",
    "mul",
    "maximum",
    "minimum",
    "hypot",
    "atan2",
    "logaddexp",
    "fmax",
    "lt",
    "ge",
    "eq",
    "ne",
    "copysign",
    "subtract",
    "multiply",
]


@operator(4)
def unary(g):
    name = g.random.choice(UNARY)
    g.emit(g.either("torch.", "Tensor.") + name, g.some(0))


@operator(3)
def activation(g):
    g.emit("torch.nn.functional." + g.random.choice(ACTIVATIONS), g.some(0))


@operator(2)
def of_positive(g):
    x = g.emit("_operator.add", g.emit("torch.square", g.some(0)), g.either(0.5, 1, 2.0))
    g.emit("torch." + g.random.choice(OF_POSITIVE), x)


def partner(g, x):
    """Something that broadcasts with x, often a parameter of its last dimensions."""
    shape = g.shape(x)
    if g.maybe(0.4):
        kept = g.random.randint(0, len(shape))
        sizes = [n if g.maybe(0.8) else 1 for n in shape[len(shape) - kept :]]
        return g.input(sizes)

    def fits(y):
        pairs = zip(reversed(y.shape), reversed(shape), strict=False)
        return all(a == b or 1 in (a, b) for a, b in pairs)

    return g.pick(fits)


@operator(6)
def binary(g):
    x = g.some(0)
    pair = [x, partner(g, x)]
    g.random.shuffle(pair)
    g.emit(g.either("torch.", "Tensor.") + g.random.choice(BINARY), *pair)


@operator(2)
def with_number(g):
    name = g.random.choice(["add", "sub", "mul", "truediv", "pow"])
    number = 2 if name == "pow" else g.either(0.5, -1.5, 3)
    g.emit("_operator." + name, g.some(0), number)


@operator(1.5)
def ternary(g):
    x = g.some(0)
    kind = g.random.randrange(5)
    if kind == 0:
        g.emit("torch.addcmul", x, x, partner(g, x), value=0.5)
    elif kind == 1:
        g.emit("torch.lerp", x, partner(g, x), 0.25)
    elif kind == 2:
        g.emit("torch.where", g.emit("torch.gt", x, 0.1), x, partner(g, x))
    elif kind == 3:
        mask = g.emit("torch.lt", x, partner(g, x))
        if g.shape(mask) != g.shape(x):
            raise Skip
        g.emit("Tensor.masked_fill", x, mask, 0.5)
    else:
        g.emit("torch.clamp", x, min=-0.7, max=g.either(None, 0.9))


@operator(1)
def cast(g):
    x = g.some(0)
    target = g.either("Tensor.contiguous", "Tensor.clone", "Tensor.detach", "Tensor.double")
    if target == "Tensor.double" and g.maybe():
        return g.emit(target, g.emit("torch.gt", x, 0.0))
    return g.emit(target, x)


# ---- Reductions and norms ----

REDUCTIONS = [
    "sum",
    "mean",
    "sum",
    "mean",
    "amax",
    "amin",
    "var",
    "std",
    "logsumexp",
    "norm",
    "prod",
]


@operator(4)
def reduction(g):
    x = g.some(1)
    name = g.random.choice(REDUCTIONS)
    dim = g.signed(x, g.dim(x, 2 if name in ("var", "std") else 1))
    keep = {"keepdim": True} if g.maybe() else {}
    dims = dim
    if name in ("sum", "mean", "amax") and g.maybe(0.3) and g.rank(x) > 1:
        dims = sorted(g.random.sample(range(g.rank(x)), 2))
    if name in ("sum", "mean", "norm") and g.maybe(0.2):
        return g.emit("torch." + name, x)
    return g.emit(g.either("torch.", "Tensor.") + name, x, dim=dims, **keep)


@operator(1)
def masked_mean(g):
    """Over the tokens that count."""
    x = g.pick(lambda x: x.dim() == 3)
    counted = g.emit("Tensor.double", g.input((*g.shape(x)[:2], 1), "bools"))
    total = g.emit("torch.sum", g.emit("_operator.mul", x, counted), 1)
    count = g.emit("torch.clamp", g.emit("torch.sum", counted, 1), min=1)
    return g.emit("_operator.truediv", total, count)


@operator(0.7)
def extreme(g):
    x = g.some(1)
    values, _ = g.emit_parts(g.either("torch.max", "torch.min"), x, g.dim(x))
    return values


@operator(0.4)
def truths(g):
    x = g.some(1)
    true = g.emit("torch.gt", x, 0.5)
    g.emit(g.either("torch.any", "torch.all"), true, g.dim(x))


@operator(0.4)
def place(g):
    x = g.some(1)
    g.emit(g.either("torch.argmax", "torch.argmin"), x, g.dim(x), keepdim=g.maybe())


@operator(2)
def softmax(g):
    x = g.some(1)
    name = g.either("torch.softmax", "torch.log_softmax", "torch.nn.functional.softmax")
    g.emit(name, x, g.signed(x, g.dim(x)))


@operator(2)
def norm(g):
    x = g.features()
    width = g.shape(x)[-1]
    kind = g.random.randrange(4)
    if kind == 0:
        affine = [g.input((width,)), g.input((width,))] if g.maybe() else []
        return g.emit("torch.nn.functional.layer_norm", x, (width,), *affine)
    if kind == 1:
        return g.emit("torch.nn.functional.rms_norm", x, (width,), g.input((width,)), 1e-5)
    if kind == 2:
        return g.emit("torch.nn.functional.normalize", x, dim=g.dim(x, tokens=False))
    mean = g.emit("torch.mean", g.emit("torch.square", x), -1, True)
    return g.emit("_operator.mul", x, g.emit("torch.rsqrt", g.emit("_operator.add", mean, 1e-5)))
