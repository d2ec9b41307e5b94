"""Attentions with functions on their scores, as programs."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention


def causal(b, h, i, j):
    return i >= j


def no_mask(model, ids):
    return None


def causal_mask(model, ids):
    return create_block_mask(causal, None, None, ids.shape[1], ids.shape[1], device="cpu")


def documents(model, ids):
    document = (ids == 3).cumsum(1)

    def mask(b, h, i, j):
        return (i >= j) & (document[b, i] == document[b, j])

    return create_block_mask(mask, *ids.shape[:1], None, *2 * ids.shape[1:], device="cpu")


def windows_by_head(model, ids):
    def mask(b, h, i, j):
        return (i >= j) & (i - j < h + 2)

    return create_block_mask(mask, None, model.heads, *2 * ids.shape[1:], device="cpu")


def no_change(model):
    return None


def alibi(model):
    return lambda score, b, h, i, j: score - model.slope[h] * (i - j)


def relative(model):
    return lambda score, b, h, i, j: score + model.bias[i - j + 20, h] * (b + 1)


class Scored(nn.Module):
    """Embeds `ids` [batch, length], attends, and predicts each next one."""

    def __init__(self, mask, score, heads, key_heads):
        super().__init__()
        torch.manual_seed(0)
        self.mask, self.score, self.heads, self.key_heads = mask, score, heads, key_heads
        width = heads * 4
        self.embed = nn.Embedding(11, width)
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, key_heads * 4)
        self.value = nn.Linear(width, key_heads * 4)
        self.slope = nn.Parameter(torch.rand(heads))
        self.bias = nn.Parameter(torch.randn(64, heads))
        self.head = nn.Linear(width, 11)

    def forward(self, ids, block_mask=None):
        x = self.embed(ids)
        query, key, value = (
            layer(x).unflatten(-1, (heads, 4)).transpose(1, 2)
            for layer, heads in (
                (self.query, self.heads),
                (self.key, self.key_heads),
                (self.value, self.key_heads),
            )
        )
        attended = flex_attention(
            query,
            key,
            value,
            score_mod=self.score(self),
            block_mask=self.mask(self, ids) if block_mask is None else block_mask,
            enable_gqa=self.heads != self.key_heads,
        )
        y = x + attended.transpose(1, 2).flatten(2)
        return F.cross_entropy(self.head(y)[:, :-1].mT, ids[:, 1:]), y


def tokens(length, batch=1):
    generator = torch.Generator().manual_seed(length)
    return torch.randint(0, 11, (batch, length), generator=generator)
