"""What the attentions of random programs mask: given, built as models do, or any expression of the
numbers of queries and keys.
"""

from generate import Skip


def _positions(g, length, column):
    x = g.emit("torch.arange", length)
    return g.emit("Tensor.unsqueeze", x, 1) if column else x


def mask(g, q, k):
    """What may be seen; the first key always is, so that no row is empty."""
    batch, heads, rows, _ = g.shape(q)
    columns = g.shape(k)[2]
    kind = g.random.random()
    ids = g.names(lambda x: tuple(x.shape) == (batch, rows) and not x.is_floating_point())
    if ids and rows == columns and kind < 0.1:
        return _documents(g, ids[0], batch, rows)
    if kind < 0.2:
        shape = g.either((rows, columns), (batch, heads, rows, columns), (1, 1, rows, columns))
        return g.input(shape, stem="m")
    if kind < 0.3:
        one = g.input((batch, 1, 1, columns), "bools")
        first = g.emit("torch.eq", _positions(g, columns, False), 0)
        return g.emit("_operator.or_", one, first)
    if kind < 0.5:
        return _computed(g, rows, columns)
    if kind < 0.6:
        return _by_heads(g, heads, rows, columns)
    i, j = _positions(g, rows, True), _positions(g, columns, False)
    seen = g.emit("_operator.le", j, i)
    if g.maybe(0.4):
        near = g.emit("_operator.gt", j, g.emit("_operator.sub", i, g.random.randint(2, 5)))
        seen = g.emit("_operator.and_", seen, near)
    if g.maybe(0.3):
        seen = g.emit("_operator.or_", seen, g.emit("_operator.lt", j, 2))
    if g.maybe(0.3):
        seen = g.emit("Tensor.expand", seen, batch, 1, rows, columns)
    if g.maybe(0.3):
        return g.emit("Tensor.double", g.emit("torch.where", seen, 0.0, float("-inf")))
    return seen


def _documents(g, ids, batch, length):
    """A token sees those of its own document: they end with a certain id."""
    ends = g.emit("torch.cumsum", g.emit("torch.eq", ids, 3), 1)
    rows = g.emit("_operator.getitem", ends, (slice(None), None, slice(None), None))
    columns = g.emit("_operator.getitem", ends, (slice(None), None, None, slice(None)))
    same = g.emit("torch.eq", rows, columns)
    before = g.emit("_operator.le", _positions(g, length, False), _positions(g, length, True))
    return g.emit("_operator.and_", same, before)


def _by_heads(g, heads, rows, columns):
    """A number of each head times the distance, or one of a table for each distance."""
    i, j = _positions(g, rows, True), _positions(g, columns, False)
    far = g.emit("_operator.sub", j, i)
    if g.maybe():
        slopes = g.emit("Tensor.view", g.input((heads,)), heads, 1, 1)
        bias = g.emit("_operator.mul", slopes, far)
    else:
        near = g.emit("_operator.add", g.emit("torch.clamp", far, -3, 3), 3)
        bias = g.emit("torch.nn.functional.embedding", near, g.input((7, heads)))
        bias = g.emit("Tensor.permute", bias, 2, 0, 1)
    if g.maybe():
        bias = g.emit("Tensor.unsqueeze", bias, 0)
    if g.maybe(0.6):
        bias = g.emit("torch.where", g.emit("_operator.le", j, i), bias, float("-inf"))
    return bias


def _computed(g, rows, columns):
    """Any truth about a query's and a key's number; most often the causal one and another."""
    i, j = _positions(g, rows, True), _positions(g, columns, False)
    seen = _truth(g, i, j, g.random.randint(1, 4))
    if g.maybe(0.6):
        seen = g.emit("_operator.and_", seen, g.emit("_operator.le", j, i))
    seen = g.emit("Tensor.expand", seen, rows, columns)
    if not bool(g.x[seen].any(1).all()):
        raise Skip
    return seen


def _truth(g, i, j, depth):
    kind = g.random.random()
    if depth == 0 or kind < 0.2:
        return g.emit(g.either("_operator.le", "_operator.lt"), j, i)
    if kind < 0.6:
        other = g.random.randint(-5, 5) if g.maybe(0.4) else _number(g, i, j, depth - 1)
        compare = g.either("le", "lt", "ge", "gt", "eq", "ne")
        return g.emit(f"_operator.{compare}", _number(g, i, j, depth - 1), other)
    if kind < 0.7:
        return g.emit("torch.logical_not", _truth(g, i, j, depth - 1))
    both = g.either("_operator.and_", "_operator.or_", "torch.logical_and", "torch.logical_or")
    return g.emit(both, _truth(g, i, j, depth - 1), _truth(g, i, j, depth - 1))


def _number(g, i, j, depth):
    kind = g.random.random()
    if depth == 0 or kind < 0.3:
        return g.either(i, j)
    if kind < 0.4:
        return g.emit("Tensor.long", _truth(g, i, j, depth - 1))
    x = _number(g, i, j, depth - 1)
    if kind < 0.65:
        combine = g.either("_operator.add", "_operator.sub", "torch.maximum", "torch.minimum")
        return g.emit(combine, x, _number(g, i, j, depth - 1))
    if kind < 0.75:
        return g.emit(g.either("torch.abs", "torch.neg"), x)
    if kind < 0.85:
        divide = g.either("_operator.floordiv", "_operator.mod", "torch.remainder")
        return g.emit(divide, x, g.random.randint(1, 4))
    return g.emit(g.either("_operator.add", "_operator.mul"), x, g.random.randint(-3, 3))
