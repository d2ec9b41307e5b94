"""Forms (small.py) in which tokens see their neighbours: shifts, differences, convolutions."""

import torch
import torch.nn.functional as F
from small import WIDTH

FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


@form
def causal_convolution(m, x, ids):
    """As state-space models write it: padded on both sides, trimmed behind."""
    y = m.depthwise(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2)
    return x + F.silu(y), y


@form
def padded_by_hand(m, x, ids):
    y = F.pad(x.transpose(1, 2), (3, 0))
    y = F.conv1d(y.contiguous(), m.depthwise.weight, m.depthwise.bias, groups=WIDTH)
    return x + y.transpose(1, 2), y


@form
def symmetric_convolutions(m, x, ids):
    """The same length, two rows more, three rows less, all channels."""
    t = x.transpose(1, 2)
    same = F.conv1d(t, m.full.weight, m.full.bias, padding="same", dilation=2)
    longer = F.conv1d(t, m.full.weight, padding=3, dilation=2)[..., 1:-1]
    shorter = F.conv1d(t, m.depthwise.weight, groups=WIDTH)
    return x + same.mT + longer.mT + m.full(t).mT, shorter


@form
def kernels_of_shifts(m, x, ids):
    """A convolution as a sum of shifted copies of a padded one."""
    padded = F.pad(x, (0, 0, 2, 1))
    y = sum(padded[:, i : i + x.shape[1]] * m.rows[i - 1] for i in range(4))
    return x + y, padded.narrow(1, 1, x.shape[1])


@form
def shifts(m, x, ids):
    right = F.pad(x, (0, 0, 1, -1))
    left = F.pad(x, (0, 0, -2, 2), value=0.5)
    by_cat = torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)
    learned = torch.cat([x[:, 3:], m.rows.expand(2, -1, -1)], 1)
    return x + right * left, by_cat * m.vector, learned


@form
def attended_when_cut(m, x, ids):
    """Two attentions more, each over some of the rows: heads for the next but one, and so on."""
    y = x[:, :-1] + x[:, 1:] * m.vector
    y = y + m.attend(y)
    y = (y - m.token(ids[:, 1:]))[:, :-2]
    return y + m.attend(y), y.cumsum(1)


@form
def rolls(m, x, ids):
    y = x.roll(1, 1) + x.roll((-2, 3), (1, 2)) * m.vector
    return x + y, x.roll(7, 1), x.roll(-12, 1)


@form
def differences(m, x, ids):
    less = x[:, 1:] - x[:, :-1]
    first = x.diff(dim=1, prepend=m.vector.expand(2, 1, -1))
    last = x.diff(dim=1, append=x.new_zeros(2, 1, WIDTH))
    return x + first * last, less.square().mean(), x.diff(dim=1), less


@form
def differences_of_differences(m, x, ids):
    y = x.diff(2, 1)
    far = torch.diff(x * m.vector, n=7, dim=1)
    return x, y.square().sum(), y[:, 1:].diff(n=3, dim=1), far, y.mT.diff(n=2).sum(-1)


@form
def unfolded(m, x, ids):
    padded = F.pad(x, (0, 0, 2, 0)).unfold(1, 3, 1)
    far = (x * m.vector).unfold(1, 6, 1).amax(-1)
    return x + padded.sum(-1) * m.vector, far, x.unfold(2, 3, 2).square(), x[:, 1:].unfold(1, 2, 1)


@form
def nothing_to_see(m, x, ids):
    """Singular at zero, which a kernel makes of nothing but rows past the end."""
    kernel = m.depthwise.weight[..., 2:]
    y = F.conv1d(x.mT, kernel, padding=1, groups=WIDTH)[..., :-1]
    return x, y.square().log().mT


@form
def steps_apart(m, x, ids):
    """Singular where two neighbours are equal, as copies of the last row are."""
    return x, (x.diff(dim=1) * m.vector).abs().log(), (x[:, 1:] - x[:, :-1]).norm(dim=-1)


@form
def steps_of_more_rows(m, x, ids):
    y = m.depthwise(x.mT)
    return x + y.diff(dim=2)[..., :-2].mT, y[..., :-2].diff().mT


@form
def far_shifts(m, x, ids):
    """Rows that come from further than the next rank."""
    y = F.pad(x, (0, 0, 7, -7)) + F.pad(x, (0, 0, -5, 5))
    return x + y, x[:, 5:] * m.vector, torch.cat([x[:, 4:], m.rows.repeat(2, 2, 1)[:, :4]], 1)


@form
def a_token_in_front(m, x, ids):
    """One more token than the attention around it has."""
    y = torch.cat([m.vector.expand(2, 1, -1), x], 1)
    y = F.gelu(y * m.scalar)
    return y[:, :-1] + y[:, 1:], x


@form
def rows_written(m, x, ids):
    y = x.clone()
    y[:, 1:] = x[:, :-1] * m.scalar
    y[:, 0] = m.vector
    z = torch.zeros_like(x)
    z[:, :-2] += x[:, 2:]
    z[:, 4:7] = m.rows
    w = (x * m.vector)[:, :9]
    w[:, 1:3] += m.rows[:2]
    w[:, 4] = m.vector
    return y, z, w


@form
def no_numbers_past_the_end(m, x, ids):
    """Of trimmed tokens the rows past the end are the program's own, and equal to each other."""
    step = x[:, 1:] - x[:, :-1]
    rate = step / step.norm(dim=-1, keepdim=True)
    spread = torch.stack([x[:, 1:], x[:, :-1]], 2).std(2)
    return x, (step**2).log(), rate, spread


@form
def without_gradient(m, x, ids):
    with torch.no_grad():
        y = x.roll(1, 1) + F.pad(x, (0, 0, 1, -1))
    return x + y, F.pad(x.detach(), (0, 0, -1, 1))


@form
def attention_sinks(m, x, ids):
    """One more column of scores than there are tokens; per head, or per query where they don't
    fit.
    """
    q, k, v = (t.unflatten(-1, (12, -1)).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
    sinks = m.vector[:12].view(1, 12, 1, 1).expand(2, -1, x.shape[1], 1)
    weights = torch.cat([q @ k.mT, sinks], -1).softmax(-1)[..., :-1]
    return x + (weights @ v).transpose(1, 2).flatten(2), x


@form
def relative_positions(m, x, ids):
    """Scores of relative positions, shifted row by row as Transformer-XL does it: with heads alone,
    though gathered keys would cost less.
    """
    q, k, v = (t.unflatten(-1, (12, -1)).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
    r = (x.mean(0) * m.vector).unflatten(-1, (12, -1)).transpose(0, 1)
    places = F.pad(torch.einsum("bhqd,hkd->bhqk", q, r), (1, 0))
    batch, heads, length, columns = places.shape
    places = places.reshape(batch, heads, columns, length)[:, :, 1:].reshape_as(q @ k.mT)
    weights = (q @ k.mT + places).softmax(-1)
    return x + (weights @ v).transpose(1, 2).flatten(2), x
