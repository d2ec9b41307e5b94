"""Forms (small.py) in which a token sees all others, or all tokens make one value."""

import torch
import torch.nn.functional as F

FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


@form
def running_totals(m, x, ids):
    decay = (x * m.scalar).sigmoid()
    y = x.cumsum(1) / 7 + decay.log().cumsum(1) + decay.cumprod(1) * m.vector
    z = torch.logcumsumexp(x, 1)
    return x + y.tanh(), z, x[:, 2:].cumsum(1), x.cumsum(-1)


@form
def running_extremes(m, x, ids):
    high, at = torch.cummax(x * m.vector, 1)
    low, _ = x.cummin(1)
    return x + high * low, at, (x > 0.5).double().cummax(1).values + x


@form
def both_directions(m, x, ids):
    back = x.flip(1).cumsum(1).flip(1)
    return x + back / 7, x.flip(1, 2) * m.vector, x[:, :-3].flip(1)


@form
def tokens_taken(m, x, ids):
    """Poolers: the first, the last, a few, those that indices name."""
    batch = torch.arange(2)
    last = (ids > 3).sum(1) - 1
    h = x * m.vector
    pooled = h[:, 0] + h[:, -1] + h.select(1, 4) + h[batch, last] + h[batch, -2]
    few = h[:, -2:] + h[:, 1:3] + h.narrow(1, 2, 2)
    by_index = h.index_select(1, last) + h.gather(1, last[:, None, None].expand(-1, 2, 24))
    first = ids.argmax(1)
    rows = h[batch[:, None], torch.stack([first, last, -first - 1], 1), :5]
    listed = h[:, [3, -1], 2]
    return x + pooled[:, None], few, by_index, rows, listed


@form
def one_row_of_many(m, x, ids):
    y = x * m.vector
    high = y.amax(1) + y.amin((1, 2), keepdim=True)[:, 0] + y.max()
    values, places = y.max(1)
    low, where = torch.min(y, dim=1, keepdim=True)
    total = y.logsumexp(1) + y.norm(dim=1) + torch.linalg.vector_norm(y, 3, (1,)) * m.scalar
    return x + high[:, None], values * low[:, 0], places, where, y.argmax(1), total


@form
def norms_and_products(m, x, ids):
    y = (x * 0.1 + 1) * m.scalar
    spread = y.var(1) + y.std((1, 2), unbiased=False)[:, None] + torch.norm(y) + y.norm(1, 1)
    variance, mean = torch.var_mean(y, 1, keepdim=True, correction=0)
    largest = torch.linalg.vector_norm(y, float("inf"), 1)
    return (y - mean) / (variance + 1e-3).sqrt(), spread, y.prod(1) + y[:, :-1].prod(1), largest


@form
def equal_extremes(m, x, ids):
    """Their gradient is shared by all of them."""
    y = x.clamp(-0.5, 0.5)
    return x + y.amax(1, keepdim=True) - y.amin(1, keepdim=True), (x > 9).double().amax(1)


@form
def nothing_moves(m, x, ids):
    """Variances and norms of 0 have no slope."""
    y = x * 0 + m.vector
    return x + y.std(1, keepdim=True), (x * 0).norm(dim=1)


@form
def pooled_by_attention(m, x, ids):
    weights = (x @ m.vector).softmax(1)
    pooled = (weights[..., None] * x).sum(1)
    logs = F.log_softmax(x * m.vector, 1)
    return x + pooled[:, None], weights, logs, x[:, 1:].softmax(1)


@form
def counted(m, x, ids):
    return (
        x,
        torch.count_nonzero(x > 0.3, 1),
        torch.count_nonzero(x.relu(), (1, 2)),
        x.relu().sum(1),
    )


@form
def hidden_on_a_rank(m, x, ids):
    """All of the first ranks' tokens, and those of the others but the last."""
    scores = x @ m.vector
    late = torch.arange(x.shape[1]) * 4 >= 3 * x.shape[1]
    hidden = scores.masked_fill(~late, float("-inf"))
    pooled = (hidden.softmax(1)[..., None] * x).sum(1)
    early = scores.masked_fill(late, float("-inf")).logsumexp(1)
    return x + pooled[:, None], early, hidden.logsumexp(1)


@form
def greater_past_the_end(m, x, ids):
    """A kernel at the zeros behind the last row gives far more than at any row."""
    ramp = 800 * torch.arange(x.shape[1])[:, None] + x * m.vector
    kernel = (1 - 1.5 * torch.arange(2, dtype=x.dtype)).expand(24, 1, 2)
    y = F.conv1d(ramp.mT, kernel, padding=1, groups=24)[..., :-1].mT
    return x + y.softmax(1), F.log_softmax(y, 1), y.logsumexp(1)
