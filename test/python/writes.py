"""Forms (small.py) that change tensors in place: through views, by assignment, through masks."""

import torch
import torch.nn.functional as F
from programs import VOCABULARY
from small import HEADS, WIDTH

FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


@form
def latent_keys(m, x, ids):
    """Keys built in place out of two parts, as multi-head latent attention does."""
    a, b = x.split([16, 8], -1)
    keys = x.new_empty(*x.shape[:-1], 2, WIDTH)
    keys[..., :16] = a[..., None, :]
    keys[..., 16:].copy_(b[..., None, :] * 2)
    return keys.mean(-2), keys


@form
def streams(m, x, ids):
    """gemma3n: all streams but the first change."""
    y = torch.stack([x, x.sin(), x.cos()])
    first = y[0]
    y[1:] += first
    y[0] *= 0.5
    return y.sum(0), y, first


@form
def through_views(m, x, ids):
    y = x * 1
    z = y.view(2, -1, 4, 6).transpose(1, 2)
    z[:, 1:3].mul_(m.scalar)
    y.unsqueeze(1)[:, 0, :, ::2] = 0.0
    p = y.permute(2, 0, 1)
    p[3].copy_(m.scalar)
    return y, z.contiguous(), p.sum(0)


@form
def parts(m, x, ids):
    """Parts of a tensor without gradient; with one they must not be changed in place."""
    y = torch.stack([ids, ids * 2, ids * 3], -1)
    left, right = y.split([1, 2], -1)
    left.add_(right[..., :1])
    first, _, last = y.unbind(-1)
    last.mul_(first)
    low, high = ids[:, :10].clone().chunk(2, 1)
    low.add_(high)
    return x, y, left, right, low, high


@form
def views_of_the_written(m, x, ids):
    y = x.clone()
    same = y.squeeze()
    narrow = y.narrow(-1, 4, 8)
    y.mul_(2).sub_(m.vector)
    narrow[..., 0] = 1
    y.select(-1, 5).exp_()
    return y, same, narrow, narrow.mT


@form
def elements_of_tuples(m, x, ids):
    """Values and positions of topk and sort are tensors of their own."""
    values, places = x.topk(4, -1)
    values += m.scalar
    ranked, order = torch.stack([ids, ids + 5, ids * 2], -1).sort(-1)
    order.clamp_(max=1)
    ranked *= order + 1
    return x + ranked.sum(-1, keepdim=True), values, places, ranked, order


@form
def by_position(m, x, ids):
    y = x.clone()
    index = torch.arange(0, WIDTH, 5)
    y[..., index] = m.scalar
    y[:, :, [1, -2]] = x[:, :, :2] * 3
    y[0, :, index] = 2
    table = torch.zeros(VOCABULARY, dtype=torch.long)
    table[ids.flatten()] = torch.arange(ids.numel()).clamp(max=7) * 0 + 7
    rows = torch.empty(*ids.shape, dtype=torch.long)
    rows[:] = table[ids]
    rows[1] += 1
    return y, rows


@form
def through_masks(m, x, ids):
    y = x.clone()
    y[y > 1] = 0.25
    y[ids > 40] = m.vector
    y[ids < 5] = m.scalar
    y[:, ids[0] == ids[0, 0]] = -1
    kept = ids.clone()
    kept[ids > 30] = 3
    kept.masked_fill_(ids < 3, 1)
    some = y * 1
    some.masked_fill_((kept == 3)[..., None], 0.5)
    return y, kept, some


@form
def masks_of_queries(m, x, ids):
    """A mask built in place, used by an attention of its own."""
    hidden = torch.full((x.shape[1],) * 2, float("-inf"), dtype=x.dtype).triu(1)
    hidden[:, 2] = 0.0
    hidden[4:7, 4:7] = 0
    mask = hidden[None, None].expand(2, 1, -1, -1).clone()
    padding = (ids > 55)[:, None, None]
    mask[:, :, :, : x.shape[1]] = mask[:, :, :, : x.shape[1]].masked_fill(padding, -1e9)
    q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in m.qkv(x).chunk(3, -1))
    y = F.scaled_dot_product_attention(q, k, v, mask)
    return y.transpose(1, 2).flatten(2), mask


@form
def narrower_types(m, x, ids):
    y = x.float()
    y += x
    y[..., :3] = x[..., 3:6]
    whole = ids.clone()
    whole[:, 1:] = 2.7
    same = y.to(torch.float32)
    same[..., 4] = 1
    return x + y, whole, y
