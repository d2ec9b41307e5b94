"""A small causal model, and what tests of the user's interface do with it."""

import copy

import torch
from autosp import simulate
from torch import nn


class Model(nn.Module):
    """A causal model with a property, and an attribute that changes its result."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(11, 16)
        self.q, self.out = nn.Linear(16, 48), nn.Linear(16, 11)
        self.scale = 1.0

    @property
    def width(self):
        return self.out.in_features

    def forward(self, ids, labels=None):
        q, k, v = (
            t.view(*ids.shape, 8, 2).transpose(1, 2) for t in self.q(self.embed(ids)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        logits = self.out(y.transpose(1, 2).reshape(*ids.shape, 16)) * self.scale
        if labels is None:
            return logits
        return nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def tokens(length=8, batch=2):
    return torch.randint(0, 11, (batch, length), generator=torch.Generator().manual_seed(length))


def on_ranks(ranks, case, model, *args):
    """[case(rank, the rank's own copy of the model, *args)], on simulated ranks."""
    copies = [copy.deepcopy(model) for _ in range(ranks)]
    return simulate.run_ranks(ranks, lambda rank: case(rank, copies[rank], *args))
