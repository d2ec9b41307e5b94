"""Every program gives on several ranks what it gives on one device: loss, outputs and gradients.

Simulated ranks run the rewritten graph as it is, so that this is a test of the engine and of the
operators it inserts, not of a compiler behind it.
"""

import pytest
from autosp.check import Reference
from forms import FORMS
from parity import check_simulated
from programs import (
    PROGRAMS,
    PROGRAMS_OF_THREE,
    Flat,
    Pooled,
    Shared,
    bool_mask,
    both_losses,
    class_weights,
    head_mask,
    lm,
    plain,
    shifted_pad,
    shifted_slice,
    summed_none,
)

# What four ranks divide otherwise: shards of one row, labels on one of them, merged rows, masks.
ON_FOUR = [
    "unequal labels",
    "slice shift",
    "preference",
    "grouped heads",
    "eager attention",
    "mask bool",
    "length is heads",
    "encoder tokens first",
    "encoder decoder",
    "flat",
    "shared",
]
QUICK_ON_FOUR = {"unequal labels", "slice shift", "length is heads", "flat", "shared"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_ranks(name):
    program = PROGRAMS[name]
    check_simulated(program.make, program.inputs(), 2, program.tolerance)


@pytest.mark.parametrize("name", PROGRAMS_OF_THREE)
def test_three_ranks(name):
    program = PROGRAMS_OF_THREE[name]
    check_simulated(program.make, program.inputs(), 3, program.tolerance)


@pytest.mark.parametrize(
    "name", [n if n in QUICK_ON_FOUR else pytest.param(n, marks=pytest.mark.slow) for n in ON_FOUR]
)
def test_four_ranks(name):
    program = PROGRAMS[name]
    check_simulated(program.make, program.inputs(), 4, program.tolerance)


class Singular(Pooled):
    """Divides by the norm of each token: a row of zeros has no gradient."""

    def forward(self, x):
        return super().forward(x / x.norm(dim=-1, keepdim=True))


# Rows past the end: none on the last rank but some on others, on all of the last, on several; sums,
# losses and positions that must not see them.
ANY_LENGTH = {
    "causal": lm(13),
    "slice shift": lm(13, layers=1, loss=shifted_slice(), ignored=[(0, 0, 3)]),
    "summed": lm(13, layers=1, loss=summed_none, ignored=[(1, 3, 6)]),
    "class weights": lm(13, layers=1, loss=class_weights),
    "label smoothing": lm(13, layers=1, loss=shifted_pad(label_smoothing=0.1)),
    "two losses": lm(13, layers=1, loss=both_losses),
    "rotary": lm(13, layers=1, positions="rotary"),
    "eager": lm(13, layers=1, style="eager"),
    "mask": lm(13, layers=1, style="mask", inputs=bool_mask),
    "heads that don't fit": lm(13, layers=1, heads=3, kv_heads=3, width=12),
    "pooled": plain(Pooled, length=13),
    "flat": plain(Flat, ids=True, batch=3, length=13),
    "shared": plain(Shared, length=13),
    "two tokens": lm(2, layers=1),
    "three tokens": lm(3, layers=1, positions="rotary"),
    "singular at zero": plain(Singular, length=13),
}


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", ANY_LENGTH)
def test_any_length(name, ranks):
    program = ANY_LENGTH[name]
    check_simulated(program.make, program.inputs(), ranks, program.tolerance)


@pytest.mark.parametrize("ranks", [3, 8])
@pytest.mark.parametrize("name", ["causal", "summed", "pooled", "three tokens"])
def test_any_symbolic_length(name, ranks):
    program = ANY_LENGTH[name]
    report = Reference(program.make(), program.inputs(), dynamic=True).compare(ranks)
    assert report.parity, report


ANY_HEADS = {
    "causal": lm(layers=1, heads=3, kv_heads=3, width=12, length=12),
    "grouped": lm(layers=1, heads=6, kv_heads=2, width=24, length=12, positions="rotary"),
    "one key head": lm(layers=1, heads=4, kv_heads=1, length=12),
    "one key head in sdpa": lm(layers=1, heads=4, kv_heads=1, length=12, style="gqa"),
    "eager": lm(layers=1, heads=3, kv_heads=3, width=12, length=12, style="eager"),
    "mask per head": lm(
        layers=1, heads=5, kv_heads=5, width=20, length=12, style="mask", inputs=head_mask
    ),
}


@pytest.mark.parametrize("ranks", [2, 3, 4])
@pytest.mark.parametrize("name", ANY_HEADS)
def test_any_number_of_heads(name, ranks):
    program = ANY_HEADS[name]
    check_simulated(program.make, program.inputs(), ranks, program.tolerance)


@pytest.mark.parametrize(
    "name", ["rotary", "grouped heads in sdpa", "eager attention", "encoder decoder", "mask float"]
)
def test_gathered_keys_and_values(name):
    program = PROGRAMS[name]
    options = {"attention": "gather_kv"}
    check_simulated(program.make, program.inputs(), 2, program.tolerance, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_forms(name):
    """Cotangents of all outputs, too."""
    form = FORMS[name]
    check_simulated(form.make, form.inputs(), 2, form.tolerance, cotangents=True)
