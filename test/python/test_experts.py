"""Mixtures of experts: tokens are sorted by expert, worked on in groups and sorted back. Every rank
does that with its own tokens; what would depend on the order of all of them is refused.
"""

import autosp
import pytest
import torch
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401  registers an operator that works in float32
from autosp.check import Reference
from torch import nn

pytestmark = pytest.mark.slow

grouped_mm = torch.ops.transformers.grouped_mm_fallback


class Experts(nn.Module):
    """Attention, then experts; `dispatch(self, h, ids, weights)` mixes those of each row of h."""

    def __init__(self, dispatch, top=2, width=16, experts=4):
        super().__init__()
        self.dispatch, self.top, self.experts = dispatch, top, experts
        self.qkv, self.router = nn.Linear(width, 3 * width), nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 24) / 4)
        self.down = nn.Parameter(torch.randn(experts, 24, width) / 4)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + mixed.transpose(1, 2).flatten(2)
        h = x.reshape(-1, x.shape[-1])
        weights, chosen = self.router(h).softmax(-1).topk(self.top, -1)
        y, counts = self.dispatch(self, h, chosen.reshape(-1), weights.reshape(-1))
        # A loss that balances the experts: a product of two means over all tokens.
        balance = (self.router(h).softmax(-1).mean(0) * counts / counts.sum()).sum()
        return (x + y.view_as(x)).pow(2).mean() + 0.1 * balance, counts


def groups(model, h, ids):
    """Sorted experts, positions, rows of h, how many for each expert, and where each one's end."""
    ids, order = torch.sort(ids)
    counts = torch.histc(ids.float(), bins=model.experts, min=0, max=model.experts - 1)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    return ids, order, h[order // model.top], counts, ends


def work(model, rows, ends):
    hidden = F.silu(grouped_mm(rows, model.up, offs=ends))
    return grouped_mm(hidden, model.down, offs=ends)


def restored(model, y):
    return y.view(-1, model.top, y.shape[-1]).sum(1)


def inverse(order):
    count = torch.arange(order.size(0))
    return torch.index_put(torch.empty_like(order), (order,), count)


def by_inverse(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends) * weights[order].unsqueeze(-1)
    return restored(model, y[inverse(order)]), counts


def by_argsort(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends)[torch.argsort(order)]
    return restored(model, y * weights.unsqueeze(-1)), counts


def with_biases(model, h, ids, weights):
    ids, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends) + model.down[:, 0][ids]
    y = y.masked_fill((ids >= model.experts).unsqueeze(-1), 0.0)
    return restored(model, y[inverse(order)] * weights.unsqueeze(-1)), counts


def with_a_mean(model, h, ids, weights):
    """Of all sorted tokens, and ends of groups that are a result besides."""
    _, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends)
    y = (y + y.mean(0)) * (1 + ends[-1] / ends.sum())
    return restored(model, y[inverse(order)]), counts


@pytest.mark.parametrize("dispatch", [by_inverse, by_argsort, with_biases, with_a_mean])
@pytest.mark.parametrize(
    ("ranks", "batch", "length", "top"),
    [(2, 2, 12, 2), (4, 1, 12, 1), (3, 2, 12, 3), (2, 2, 13, 2), (4, 1, 13, 1), (4, 2, 3, 3)],
)
def test_parity(dispatch, ranks, batch, length, top):
    torch.manual_seed(0)
    x = torch.randn(batch, length, 16, requires_grad=True)
    report = autosp.check(Experts(dispatch, top), x, sp=ranks)
    counts = next(row for row in report.rows if row.name == "output [1]")
    assert counts.verdict == "equal"


def test_lengths_that_change():
    torch.manual_seed(0)
    reference = Reference(Experts(with_a_mean), torch.randn(2, 13, 16), dynamic=True)
    for ranks in (2, 3):
        assert reference.compare(ranks).parity


def test_experts_exchange_nothing():
    torch.manual_seed(0)
    report = autosp.explain(Experts(by_inverse, width=64), torch.randn(2, 2048, 64), sp=2)
    exchanges = {row.what: row.bytes for row in report.exchanges}
    assert exchanges.keys() == {"all_to_all", "all_reduce"}
    assert exchanges["all_reduce"] <= 16  # losses and counts


# ---- What depends on the order of all tokens ----


def mixed_with_unsorted(model, h, ids, weights):
    _, _, rows, counts, ends = groups(model, h, ids)
    return restored(model, work(model, rows + h.repeat_interleave(model.top, 0), ends)), counts


def running_sum(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    return restored(model, work(model, rows.cumsum(0), ends)[inverse(order)]), counts


def positions_as_numbers(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    return restored(model, work(model, rows * order[:, None].float(), ends)), counts


def counting_as_numbers(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    numbers = torch.arange(order.size(0))[:, None].float()
    return restored(model, work(model, rows * numbers, ends)[inverse(order)]), counts


def inverse_as_numbers(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends) * inverse(order)[:, None].float()
    return restored(model, y[inverse(order)]), counts


def descending(model, h, ids, weights):
    ids, order = torch.sort(ids, descending=True)
    counts = torch.histc(ids.float(), bins=model.experts, min=0, max=model.experts - 1)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    return restored(model, work(model, h[order // model.top], ends)[inverse(order)]), counts


def ends_of_something_else(model, h, ids, weights):
    _, order, rows, _, _ = groups(model, h, ids)
    counts = torch.histc((ids * 0).float(), bins=model.experts, min=0, max=model.experts - 1)
    ends = torch.cumsum(counts, 0, dtype=torch.int32)
    return restored(model, work(model, rows, ends)[inverse(order)]), counts


def two_orders(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    rows = rows + h[torch.sort(-ids)[1] // model.top]
    return restored(model, work(model, rows, ends)[inverse(order)]), counts


def never_sorted_back(model, h, ids, weights):
    _, _, rows, counts, ends = groups(model, h, ids)
    return restored(model, work(model, rows, ends)), counts


def some_rows(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    first = rows[:3].sum(0)
    return restored(model, (work(model, rows, ends) + first)[inverse(order)]), counts


def sum_of_merged(model, h, ids, weights):
    _, order, rows, counts, ends = groups(model, h, ids)
    y = work(model, rows, ends)
    return restored(model, (y + y.flatten().sum())[inverse(order)]), counts


def test_which_of_merged_rows_lie_past_the_end_is_not_known():
    torch.manual_seed(0)
    autosp.check(Experts(sum_of_merged), torch.randn(2, 12, 16), sp=2)
    with pytest.raises(autosp.Unsupported, match=r"sum at test_experts\.py:.*merged"):
        autosp.check(Experts(sum_of_merged), torch.randn(2, 13, 16), sp=2)


@pytest.mark.parametrize("top", [1, 2])
@pytest.mark.parametrize(
    "dispatch",
    [
        mixed_with_unsorted,
        running_sum,
        positions_as_numbers,
        counting_as_numbers,
        inverse_as_numbers,
        descending,
        ends_of_something_else,
        two_orders,
        never_sorted_back,
        some_rows,
    ],
)
def test_refusals(dispatch, top):
    torch.manual_seed(0)
    with pytest.raises(autosp.Unsupported, match=r"test_experts\.py:\d+ in "):
        autosp.check(Experts(dispatch, top), torch.randn(2 if top > 1 else 1, 16, 16), sp=2)
