"""More ranks than key heads, or a number that they don't divide: each key head is copied for the
ranks that need it, and no more often, wherever the program repeats them.
"""

import math

import autosp
import pytest
import torch
from parity import check_simulated
from programs import bool_mask, float_mask, head_mask, lm

pytestmark = pytest.mark.slow

WIDTH = 4  # of a head


def grouped(heads, kv_heads, length=12, **model):
    return lm(layers=1, heads=heads, kv_heads=kv_heads, width=WIDTH * heads, length=length, **model)


# (ranks, query heads, key heads): causal attentions exchange heads whatever it costs, others where
# that moves and holds less than gathering the key heads that there are.
CAUSAL = {
    "2 for 4 ranks": (4, 8, 2, grouped(8, 2)),
    "2 for 4 ranks, in sdpa": (4, 8, 2, grouped(8, 2, length=13, style="gqa")),
    "2 for 3 ranks": (3, 6, 2, grouped(6, 2, style="gqa")),
    "1 for 2 ranks": (2, 4, 1, grouped(4, 1, batch=1, style="gqa")),
    "4 for 6 ranks": (6, 12, 4, grouped(12, 4, length=13)),
}
OTHERS = {
    "eager": (4, 4, 2, grouped(4, 2, style="eager")),
    "eager, any length": (4, 4, 2, grouped(4, 2, length=13, style="eager", positions="rotary")),
    "eager, 4 for 6 ranks": (6, 12, 4, grouped(12, 4, style="eager")),
    "einsum, 4 for 8 ranks": (8, 16, 4, grouped(16, 4, length=16, style="einsum")),
    "full": (4, 4, 2, grouped(4, 2, style="full")),
    "mask": (4, 4, 2, grouped(4, 2, style="mask", inputs=bool_mask)),
    "mask by keyword": (4, 4, 2, grouped(4, 2, style="mask_keyword", inputs=float_mask)),
    "mask by head": (4, 4, 2, grouped(4, 2, length=13, style="mask", inputs=head_mask)),
    "mask in sdpa": (4, 4, 2, grouped(4, 2, style="gqa mask", inputs=bool_mask)),
    "mask by head in sdpa": (6, 12, 4, grouped(12, 4, style="gqa mask", inputs=head_mask)),
}
COPIED = CAUSAL | OTHERS

# Gathering moves less: the key heads that there are, before they are repeated.
GATHERED = {
    "eager": (3, 6, 2, grouped(6, 2, style="eager")),
    "eager on 4": (4, 16, 2, grouped(16, 2, length=13, style="eager")),
    "one key head": (4, 8, 1, grouped(8, 1, style="eager")),
    "mask": (3, 6, 2, grouped(6, 2, length=13, style="mask", inputs=bool_mask)),
    "float mask": (2, 6, 3, grouped(6, 3, batch=1, style="mask", inputs=float_mask)),
    "full": (4, 12, 2, grouped(12, 2, style="full")),
}


def moved_by_attention(program, ranks):
    """Rows of what a rank sends around the attention, and the operators."""
    report = autosp.explain(program.make(), program.inputs(), ranks)
    torch._dynamo.reset()
    rows = [row for row in report.exchanges if row.bytes and row.backward_bytes]
    assert all(row.count == 1 and row.backward_bytes == row.bytes for row in rows)
    return rows, {row.target for row in report.operators}


def bytes_of_head(program, ranks):
    """Of all tokens, and of a rank's with what fills up its part."""
    batch, length = program.inputs()["ids"].shape
    return batch * length * WIDTH * 8, batch * -(-length // ranks) * WIDTH * 8


@pytest.mark.parametrize("name", COPIED)
def test_copied_heads(name):
    ranks, heads, kv_heads, program = COPIED[name]
    rows, targets = moved_by_attention(program, ranks)
    assert "autosp.repeat_heads" in targets
    assert [row.what for row in rows] == ["all_to_all"] * 2
    whole, part = bytes_of_head(program, ranks)
    exchanged = (heads + 2 * math.lcm(kv_heads, ranks)) * part, heads // ranks * whole
    assert [row.bytes for row in rows] == [round(x * (ranks - 1) / ranks) for x in exchanged]
    check_simulated(program.make, program.inputs(), ranks, program.tolerance)


@pytest.mark.parametrize("name", GATHERED)
def test_gathered_heads(name):
    ranks, _, kv_heads, program = GATHERED[name]
    rows, targets = moved_by_attention(program, ranks)
    assert "autosp.repeat_heads" not in targets
    assert [row.what for row in rows] == ["all_gather"] * 2
    _, part = bytes_of_head(program, ranks)
    assert [row.bytes for row in rows] == [kv_heads * part * (ranks - 1)] * 2
    check_simulated(program.make, program.inputs(), ranks, program.tolerance)
