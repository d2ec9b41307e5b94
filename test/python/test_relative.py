"""Attention whose scores are a sum of several products: of content, and of relative positions whose
columns are brought in the order of the keys afterwards.
"""

import autosp
import pytest
import torch
import torch.nn.functional as F
from parity import check_simulated
from torch import nn

pytestmark = pytest.mark.slow

WIDTH = 24


class Relative(nn.Module):
    """`form` gives the scores of positions from the module, queries and keys [B, H, S, D]."""

    def __init__(self, form, heads):
        super().__init__()
        self.form, self.heads = form, heads
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.position = nn.Linear(WIDTH, WIDTH, bias=False)
        self.biases = nn.Parameter(torch.randn(2, heads, 1, WIDTH // heads))
        self.near = nn.Parameter(torch.randn(8, WIDTH))

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(-3, -2)

    def forward(self, x):
        q, k, v = (self.split(t) for t in self.qkv(x).chunk(3, -1))
        scores = (q + self.biases[0]) @ k.mT
        scores = (scores + self.form(self, q, k)) / (WIDTH // self.heads) ** 0.5
        y = scores.softmax(-1) @ v
        y = self.out(y.transpose(1, 2).flatten(2))
        return (y * x).sum(-1).tanh().mean(), y


def waves(first, last):
    angles = torch.arange(first, last, -1.0, dtype=torch.float64)[:, None] / torch.arange(1.0, 13.0)
    return torch.cat([angles.sin(), angles.cos()], -1)


def transformer_xl(m, q, k):
    length = q.shape[-2]
    r = m.split(m.position(waves(length - 1, -1)))
    places = F.pad((q + m.biases[1]) @ r.mT, (1, 0))
    places = places.reshape(*q.shape[:2], length + 1, length)
    return places[:, :, 1:].reshape(*q.shape[:2], length, length)


def xlnet(m, q, k):
    """Twice as many positions as tokens: keys stand on both sides."""
    length = q.shape[-2]
    r = m.split(m.position(waves(length, -length)))
    places = torch.einsum("bhid,hjd->bhij", q + m.biases[1], r)
    places = places.reshape(*q.shape[:2], 2 * length, length)[:, :, 1:]
    places = places.reshape(*q.shape[:2], length, 2 * length - 1)
    return places.index_select(3, torch.arange(length))


def deberta(m, q, k):
    """Few positions, near ones: a row's scores and a column's, each picked by distance."""
    r = m.split(m.position(m.near))
    rows = torch.arange(q.shape[-2])
    distance = (rows[:, None] - rows + 4).clamp(0, 7).expand(*q.shape[:2], -1, -1)
    by_rows = torch.gather(q @ r.mT, -1, distance)
    return by_rows + torch.gather(k @ (2 * r).mT, -1, distance).mT


# (form, heads, length, values that go into the attention)
FORMS = {
    "transformer_xl": (transformer_xl, 4, 16, 4),
    "transformer_xl, any length": (transformer_xl, 12, 13, 4),
    "xlnet": (xlnet, 4, 12, 4),
    "xlnet, any length": (xlnet, 12, 11, 4),
    "deberta": (deberta, 4, 16, 5),
    "deberta, any length": (deberta, 12, 13, 5),
}


def program(name):
    form, heads, length, _ = FORMS[name]
    torch.manual_seed(0)
    model = Relative(form, heads).double()
    return model, {"x": torch.randn(2, length, WIDTH, dtype=torch.float64)}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", FORMS)
def test_scores_of_positions(name, ranks):
    model, inputs = program(name)
    if model.heads % ranks and model.form is not deberta:
        with pytest.raises(autosp.Unsupported, match="reshape"):
            autosp.explain(model, inputs, ranks)
        return
    check_simulated(lambda: program(name)[0], inputs, ranks, cotangents=True)


@pytest.mark.parametrize("name", FORMS)
def test_what_is_exchanged(name):
    """Queries, keys and values, and what is attended: nothing with rows and columns."""
    model, inputs = program(name)
    report = autosp.explain(model, inputs, 4)
    rows = [row for row in report.exchanges if row.bytes and row.backward_bytes]
    assert {row.what for row in rows} == {"all_to_all"}
    batch, length, width = inputs["x"].shape
    sent_in = FORMS[name][3] * batch * -(-length // 4) * width * 8 * 3 // 4
    attended = batch * length * width // 4 * 8 * 3 // 4
    assert sum(row.bytes for row in rows) == sent_in + attended
