"""A model with an attention on both sides of a function under test.

A form gets the model, token activations [2, length, 24] and the token ids; it returns what is
compared, first what the second attention gets.
"""

import pytest
import torch
import torch.nn.functional as F
from programs import VOCABULARY, Program
from torch import nn

WIDTH, HEADS = 24, 12


class Model(nn.Module):
    """Every result of the form has a share in the loss."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.vector = nn.Parameter(torch.randn(WIDTH))
        self.rows = nn.Parameter(torch.randn(3, WIDTH))
        self.scalar = nn.Parameter(torch.randn(()))
        self.depthwise = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)
        self.full = nn.Conv1d(WIDTH, WIDTH, 3, dilation=2, padding=2)

    def attend(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

    def forward(self, ids):
        x = self.token(ids)
        results = self.form(self, x + self.attend(x), ids)
        loss = self.attend(results[0]).square().mean()
        for result in results:
            if result.is_floating_point():
                loss = loss + result.sin().mean()
        return loss, *results


def program(function, length):
    def make():
        torch.manual_seed(0)
        return Model(function).double()

    def inputs():
        generator = torch.Generator().manual_seed(1)
        return {"ids": torch.randint(0, VOCABULARY, (2, length), generator=generator)}

    return Program(make, inputs)


_SLOW = pytest.mark.slow
on_ranks_and_lengths = pytest.mark.parametrize(
    ("ranks", "length"),
    [
        (2, 12),
        pytest.param(2, 13, marks=_SLOW),
        pytest.param(3, 12, marks=_SLOW),
        pytest.param(3, 14, marks=_SLOW),
        pytest.param(4, 13, marks=_SLOW),
    ],
)
