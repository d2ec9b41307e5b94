"""Forms (small.py) that work on groups of four tokens, and on what groups say to each other."""

import torch
import torch.nn.functional as F

FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


@form
def inside(m, x, ids):
    """Neighbours of tokens, in groups and across them."""
    y = m.depthwise(x.mT)[..., : x.shape[1]].mT
    groups = y.unflatten(1, (-1, 4))
    groups = groups - groups.mean(2, keepdim=True)
    y = groups.cumsum(2).flatten(1, 2) * m.vector
    return x + y + F.pad(y, (0, 0, 1, -1)) * y.roll(1, 1), groups


@form
def shortened(m, x, ids):
    """Rows cut off at the ends leave a last group that is not whole."""
    groups = x.unflatten(1, (-1, 4))
    y = (groups * groups.amax(2, keepdim=True)).flatten(1, 2)
    logits = y @ m.token.weight.mT
    loss = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    late = y[:, 3:] - y[:, :-3] * m.vector
    return y, loss, late.cumsum(1), late[:, :-2].softmax(1), y[:, :-5].diff(dim=1).amax(1)


@form
def unfolded(m, x, ids):
    groups = x.unfold(1, 4, 4)
    sums = groups.sum(-1)
    return x + groups.softmax(-1).mT.flatten(1, 2) * m.vector, sums, sums.unfold(1, 2, 1)


@form
def between(m, x, ids):
    groups = x.unflatten(1, (-1, 4))
    sums = groups.sum(2)
    before = torch.cat([m.vector.expand(2, 1, -1), sums[:, :-1]], 1)
    after = F.pad(sums, (0, 0, -1, 1))
    groups = groups * before[:, :, None] + after[:, :, None] + sums.cumsum(1)[:, :, None]
    return groups.flatten(1, 2), before


@form
def divided(m, x, ids):
    """Parts of what all groups make, cut at both ends: zeros past the end would be singular."""
    groups = x.unflatten(1, (-1, 4))
    sums = torch.cat([m.vector.square().expand(2, 1, -1), groups.square().sum(2)], 1)
    totals = sums[:, :, None].expand(-1, -1, sums.shape[1], -1).cumsum(1)
    before = (totals * sums[:, None]).sum(2)
    return (groups / before[:, :-1, None]).flatten(1, 2), before[:, 1:].log()


def decays(x):
    """[…, n] -> […, n, n]: row i, column j has the sum of x over j < k <= i, -inf above."""
    n = x.shape[-1]
    below = torch.ones(n, n, dtype=torch.bool).tril(-1)
    sums = x[..., None].expand(*x.shape, n).masked_fill(~below, 0).cumsum(-2)
    return sums.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.inf)


@form
def chunked_scan(m, x, ids):
    """A linear recurrence by groups, as Mamba-2 has it: 12 heads of 2 that decay, states of 2."""
    y = F.silu(m.depthwise(x.mT)[..., : x.shape[1]].mT)
    v, b, c = (m.qkv(y).unflatten(-1, (3, 12, 2)).unflatten(1, (-1, 4))).unbind(3)
    decay = -F.softplus(v.sum(-1) * m.scalar).permute(0, 3, 1, 2)  # [batch, head, group, token]
    total = decay.cumsum(-1)
    near = torch.exp(decays(decay)).permute(0, 2, 3, 4, 1)[..., None]
    scores = (c[:, :, :, None] * b[:, :, None]).sum(-1)
    inside = ((scores[..., None] * near).sum(-1)[..., None] * v[:, :, None]).sum(3)
    rest = torch.exp(total[..., -1:] - total).permute(0, 2, 3, 1)[..., None]
    states = ((b * rest)[..., None, :] * v[..., None]).sum(2)
    states = torch.cat([torch.zeros_like(states[:, :1]), states], 1)
    far = torch.exp(decays(F.pad(total[..., -1], (1, 0)))).transpose(1, 3)
    states = (far[..., None, None] * states[:, :, None]).sum(1)[:, :-1]
    before = (c[..., None, :] * states[:, :, None]).sum(-1)
    before = before * torch.exp(total).permute(0, 2, 3, 1)[..., None]
    return x + (inside + before).reshape(x.shape), states
