"""Where random programs start, and their attentions: in every style that models write them."""

from generate import Skip
from generate_masks import mask


def start(g):
    """Activations of tokens, and which dimensions of inputs carry those."""
    s = g.sizes
    kind = g.random.random()
    if kind < 0.3:
        ids = g.ints((s.batch, s.tokens), 11)
        x = g.emit("torch.nn.functional.embedding", ids, g.input((11, s.width)))
        # no two tokens alike: rounding would decide which one is the largest
        return g.emit("_operator.add", x, _positions_of(g, ids)), {str(ids): 1}
    shape, dim = (s.batch, s.tokens, s.width), 1
    if kind < 0.4:
        shape, dim = (s.tokens, s.batch, s.width), 0
    x = g.input(shape, stem="x")
    y = g.emit("torch.mul", x, g.input((s.width,)))
    return g.emit("Tensor.transpose", y, 0, 1) if dim == 0 else y, {str(x): dim}


def _positions_of(g, ids):
    """Learned: a parameter, the first rows of a longer one, or looked up."""
    s = g.sizes
    kind = g.random.randrange(4)
    if kind == 0:
        return g.input((s.tokens, s.width))
    table = g.input((s.tokens + g.random.randrange(4), s.width))
    if kind == 1:
        return g.emit("_operator.getitem", table, (slice(None, s.tokens),))
    if kind == 2:
        where = g.emit("torch.arange", s.tokens)
        if g.maybe():
            where = g.emit("Tensor.expand", g.emit("Tensor.unsqueeze", where, 0), s.batch, s.tokens)
        return g.emit("torch.nn.functional.embedding", where, table)
    seen = g.emit("torch.cumsum", g.emit("torch.ge", ids, 0), 1)
    return g.emit("torch.nn.functional.embedding", g.emit("_operator.sub", seen, 1), table)


def attend(g, h):
    """Of the tokens of h [batch, tokens, width], and those of another sequence now and then."""
    s = g.sizes
    batch, tokens, width = g.shape(h)
    keys = h
    if g.maybe(0.2):
        others = g.names(lambda x: x.dim() == 3 and x.shape[0] == batch and x.is_floating_point())
        if g.maybe():
            keys = g.random.choice(others)
        else:
            keys = g.emit("torch.tanh", g.input((batch, s.others, width), stem="y"))
    kv_heads = g.random.choice([n for n in range(1, s.heads + 1) if s.heads % n == 0])
    if g.maybe(0.6):
        kv_heads = s.heads
    q = _project(g, h, s.heads)
    k = _project(g, keys, kv_heads)
    v = k if g.maybe(0.1) else _project(g, keys, kv_heads)
    y = _core(g, q, k, v, kv_heads)
    y = g.emit("Tensor.transpose", y, 1, 2)
    if g.maybe():
        y = g.emit("Tensor.flatten", y, 2)
    else:
        y = g.emit("Tensor.reshape", y, batch, tokens, s.heads * s.head)
    if g.maybe(0.7):
        y = g.emit("torch.nn.functional.linear", y, g.input((width, s.heads * s.head)))
    if g.shape(y) == g.shape(h) and g.maybe(0.8):
        y = g.emit("_operator.add", h, y)
    return y


def attend_plainly(g, h):
    """The tokens of h [batch, tokens, width] by a causal attention."""
    batch, tokens, width = g.shape(h)
    heads = g.emit("Tensor.unflatten", h, -1, (g.sizes.heads, g.sizes.head))
    heads = g.emit("Tensor.transpose", heads, 1, 2)
    sdpa = "torch.nn.functional.scaled_dot_product_attention"
    y = g.emit(sdpa, heads, heads, heads, is_causal=True)
    y = g.emit("Tensor.reshape", g.emit("Tensor.transpose", y, 1, 2), batch, tokens, width)
    return g.emit("torch.nn.functional.linear", y, g.input((width, width)))


def _project(g, x, heads):
    """[batch, heads, tokens, width of a head]"""
    s = g.sizes
    batch, tokens, width = g.shape(x)
    if width != heads * s.head or g.maybe(0.6):
        bias = [g.input((heads * s.head,))] if g.maybe(0.3) else []
        x = g.emit("torch.nn.functional.linear", x, g.input((heads * s.head, width)), *bias)
    target = g.either("Tensor.view", "Tensor.reshape")
    if g.maybe():
        x = g.emit(target, x, batch, tokens, heads, s.head)
    else:
        x = g.emit("Tensor.unflatten", x, -1, (heads, s.head))
    return (
        g.emit("Tensor.transpose", x, 1, 2)
        if g.maybe()
        else g.emit("Tensor.permute", x, 0, 2, 1, 3)
    )


def _repeat(g, x, times):
    """Key heads as often as there are query heads for each."""
    batch, heads, tokens, width = g.shape(x)
    if g.maybe():
        return g.emit("torch.repeat_interleave", x, times, dim=1)
    x = g.emit("_operator.getitem", x, (slice(None), slice(None), None))
    x = g.emit("Tensor.expand", x, batch, heads, times, tokens, width)
    return g.emit("Tensor.reshape", x, batch, heads * times, tokens, width)


def _core(g, q, k, v, kv_heads):
    s = g.sizes
    grouped = {}
    if kv_heads < s.heads:
        if g.maybe(0.4):
            grouped = {"enable_gqa": True}
        else:
            k = _repeat(g, k, s.heads // kv_heads)
            v = _repeat(g, v, s.heads // kv_heads)
    if not grouped and g.maybe(0.4):
        return _by_hand(g, q, k, v)
    sdpa = "torch.nn.functional.scaled_dot_product_attention"
    kind = g.random.random()
    square = g.shape(q)[2] == g.shape(k)[2]
    if kind < 0.4 and square:
        return g.emit(sdpa, q, k, v, is_causal=True, **grouped)
    if kind < 0.6:
        return g.emit(sdpa, q, k, v, **grouped)
    added = mask(g, q, k)
    if g.maybe():
        return g.emit(sdpa, q, k, v, added, **grouped)
    return g.emit(sdpa, query=q, key=k, value=v, attn_mask=added, **grouped)


def _by_hand(g, q, k, v):
    """Matmul, softmax, matmul."""
    batch, heads, rows, _ = g.shape(q)
    if g.maybe():
        scores = g.emit("torch.matmul", q, g.emit("Tensor.transpose", k, -2, -1))
    else:
        scores = g.emit("torch.einsum", "bhqd,bhkd->bhqk", q, k)
    if g.maybe():
        scores = g.emit("_operator.mul", scores, 0.5)
    if g.maybe(0.2):
        scores = g.emit("torch.tanh", scores)
    if g.maybe(0.7):
        added = mask(g, q, k)
        if g.x[added].is_floating_point():
            scores = g.emit("_operator.add", scores, added)
        else:
            hidden = g.emit("torch.logical_not", added)
            scores = g.emit("Tensor.masked_fill", scores, hidden, g.either(-1e3, float("-inf")))
    columns = g.shape(scores)[-1]
    sinks = g.maybe(0.15)
    if sinks:
        sink = g.emit("Tensor.view", g.input((heads,)), 1, heads, 1, 1)
        sink = g.emit("Tensor.expand", sink, batch, heads, rows, 1)
        scores = g.emit("torch.cat", [scores, sink], -1)
    if g.maybe():
        weights = g.emit("torch.softmax", scores, -1)
    else:
        weights = g.emit("torch.nn.functional.softmax", scores, dim=-1)
    if sinks:
        weights = g.emit("_operator.getitem", weights, (Ellipsis, slice(None, columns)))
    if g.shape(weights)[-1] != g.shape(v)[2]:
        raise Skip
    if g.maybe():
        return g.emit("torch.matmul", weights, v)
    return g.emit("torch.einsum", "bhqk,bhkd->bhqd", weights, v)
