"""flex_attention on several ranks: each computes some heads or queries, and the functions on the
scores read their numbers among all.
"""

import autosp
import flex
import pytest
from autosp.check import Reference
from autosp.errors import Unsupported
from flex import Scored, tokens
from parity import check_simulated
from torch.nn.attention import flex_attention
from torch.utils.checkpoint import checkpoint

pytestmark = pytest.mark.slow

SLOW = pytest.mark.slow
FORMS = {
    "plain": (flex.no_mask, flex.no_change),
    "alibi": (flex.no_mask, flex.alibi),
    "relative": (flex.no_mask, flex.relative),
    "causal": (flex.causal_mask, flex.relative),
    "documents": (flex.documents, flex.alibi),
    "windows": (flex.windows_by_head, flex.no_change),
}


@pytest.fixture(autouse=True)
def gradients_on_cpu(monkeypatch):
    """torch has no kernel for the backward on CPU and says so; written out, it needs none."""
    monkeypatch.setattr(flex_attention, "_validate_device", lambda *tensors: None)


def scored(form, heads=4, key_heads=4):
    return Scored(*FORMS[form], heads, key_heads).double()


# Batches of 1 can't be what is cut.
@pytest.mark.parametrize(
    "form", ["alibi", "documents", *(pytest.param(f, marks=SLOW) for f in ("causal", "windows"))]
)
@pytest.mark.parametrize(
    ("ranks", "length", "heads", "key_heads"),
    [
        (2, 13, 4, 2),
        pytest.param(4, 3, 8, 1, marks=SLOW),
        pytest.param(4, 13, 8, 2, marks=SLOW),
    ],
)
def test_heads(form, ranks, length, heads, key_heads):
    check_simulated(lambda: scored(form, heads, key_heads), {"ids": tokens(length)}, ranks)


# Without blocks, each rank can take its own queries.
@pytest.mark.parametrize(
    "form", ["relative", *(pytest.param(f, marks=SLOW) for f in ("plain", "alibi"))]
)
@pytest.mark.parametrize(
    ("ranks", "length", "heads", "key_heads"),
    [
        (3, 13, 4, 2),
        pytest.param(4, 3, 2, 1, marks=SLOW),
    ],
)
def test_queries(form, ranks, length, heads, key_heads):
    check_simulated(lambda: scored(form, heads, key_heads), {"ids": tokens(length)}, ranks)


def test_queries_by_wish():
    check_simulated(lambda: scored("relative"), {"ids": tokens(13)}, 2, attention="gather_kv")


@SLOW
@pytest.mark.parametrize("form", ["causal", "documents"])
def test_parts_of_the_batch(form):
    check_simulated(lambda: scored(form, heads=3, key_heads=3), {"ids": tokens(13, batch=4)}, 2)


@SLOW
def test_mask_from_outside():
    mask = flex.causal_mask(None, tokens(13))
    check_simulated(lambda: scored("alibi"), {"ids": tokens(13), "block_mask": mask}, 2)


@SLOW
def test_compiled():
    options = {"backend": "aot_eager", "checkpointing": "full"}
    check_simulated(lambda: scored("causal"), {"ids": tokens(13)}, 2, **options)


def test_symbolic_length():
    report = Reference(scored("documents"), {"ids": tokens(13)}, dynamic=True).compare(4)
    assert report.parity, report


def test_symbolic_lengths_in_functions(monkeypatch):
    def last_seen_by_all(model, ids):
        known = ids.shape[1] - 3
        return flex.create_block_mask(
            lambda b, h, i, j: (i >= j) | (j > known - 2),
            *(None, None, ids.shape[1], ids.shape[1]),
            device="cpu",
        )

    monkeypatch.setitem(FORMS, "last", (last_seen_by_all, flex.no_change))
    report = Reference(scored("last"), {"ids": tokens(13)}, dynamic=True).compare(2)
    assert report.parity, report


class Recomputed(Scored):
    def forward(self, ids):
        return checkpoint(super().forward, ids, use_reentrant=False)


@pytest.mark.parametrize("form", ["alibi", "causal"])
def test_recomputed(form):
    model = Recomputed(*FORMS[form], 4, 4).double()
    autosp.check(model, {"ids": tokens(13)}, sp=2)


def test_heads_that_ranks_do_not_divide():
    with pytest.raises(Unsupported, match="a number of heads that 3 ranks divide") as error:
        autosp.check(scored("windows"), {"ids": tokens(130)}, sp=3)
    assert "flex_attention at flex.py" in str(error.value)


@SLOW
def test_masks_from_activations(monkeypatch):
    def by_value(model, ids):
        values = model.embed(ids).detach()
        return flex.create_block_mask(
            lambda b, h, i, j: (i >= j) & ((values @ values.mT).sum() > -1e9),
            *(None, None, ids.shape[1], ids.shape[1]),
            device="cpu",
        )

    monkeypatch.setitem(FORMS, "by value", (by_value, flex.no_change))
    check_simulated(lambda: scored("by value"), {"ids": tokens(13)}, 2)
