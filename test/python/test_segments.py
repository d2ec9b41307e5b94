"""Tokens added up into segments, by the numbers that they are given."""

import autosp
import pytest
import torch
from autosp.errors import Unsupported
from parity import check_simulated
from small import on_ranks_and_lengths, program

SEGMENTS = 5


def _added(m, x, ids):
    zeros = x.new_zeros(SEGMENTS, x.shape[2])
    return zeros.index_add(0, ids[0] % SEGMENTS, x[0])


def _added_in_place(m, x, ids):
    out = torch.zeros(2, x.shape[2], SEGMENTS, dtype=x.dtype)
    return out.index_add_(2, ids[1] % SEGMENTS, x.mT, alpha=0.5).mT


def _scattered(m, x, ids):
    at = (ids % SEGMENTS)[..., None].expand_as(x)
    return x.new_zeros(2, SEGMENTS, x.shape[2]).scatter_add(1, at, x)


def _reduced(m, x, ids):
    at = (ids % SEGMENTS)[..., None].expand_as(x)
    zeros = torch.zeros_like(x[:, :1]).expand(-1, SEGMENTS, -1).contiguous()
    return torch.zeros_like(zeros).scatter_reduce(1, at, x, "sum")


def _means(m, x, ids):
    """Each token gets the mean of its segment back."""
    at = (ids % SEGMENTS)[..., None].expand_as(x)
    zeros = x.new_zeros(2, SEGMENTS, x.shape[2])
    count = zeros.scatter_add(1, at, torch.ones_like(x)).clamp(min=1)
    return x - (zeros.scatter_add(1, at, x) / count).gather(1, at)


FORMS = {
    "index_add": _added,
    "index_add_": _added_in_place,
    "scatter_add": _scattered,
    "scatter_reduce": _reduced,
    "means": _means,
}


@pytest.mark.parametrize("form", FORMS)
@on_ranks_and_lengths
def test_sums(form, ranks, length):
    made = program(lambda m, x, ids: (x, FORMS[form](m, x, ids)), length)
    check_simulated(made.make, made.inputs(), ranks)


def test_a_rank_sends_the_sums_alone():
    made = program(lambda m, x, ids: (x, _scattered(m, x, ids)), 4096)
    report = autosp.explain(made.make(), made.inputs(), sp=4)
    (sums,) = [row for row in report.exchanges if "scatter_add" in row.source]
    assert sums.what == "all_reduce" and sums.value == "f64[2, 5, 24]"


def test_what_is_there_already_is_not_added_to():
    """Every rank would count it."""
    made = program(lambda m, x, ids: (x, m.rows.index_add(0, ids[0] % 3, x[0])), 12)
    with pytest.raises(Unsupported, match=r"Tensor\.index_add"):
        autosp.explain(made.make(), made.inputs(), sp=2)
