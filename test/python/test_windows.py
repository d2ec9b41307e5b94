"""Tokens see their neighbours across ranks, with the right gradients; also where the ranks don't
divide the length.
"""

import itertools

import pytest
from autosp import checkpointing
from autosp.simulate import RanksFailed
from parity import check_simulated
from scans import FORMS as SCANS
from small import on_ranks_and_lengths, program
from windows import FORMS


@on_ranks_and_lengths
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    check_simulated(form.make, form.inputs(), ranks, form.tolerance)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("forms", "checkpointing"),
    [(FORMS, "sac"), (SCANS, "full")],
    ids=["windows, sac", "scans, full"],
)
def test_made_again_in_the_backward(forms, checkpointing):
    """Every rank takes part in what any of them makes again, whatever it needs of that itself."""

    def all_of_them(m, x, ids):
        return x.tanh(), *(y for form in forms.values() for y in form(m, x, ids))

    made = program(all_of_them, 13)
    options = {"backend": "aot_eager", "checkpointing": checkpointing}
    check_simulated(made.make, made.inputs(), 3, **options)


def test_other_exchanges_on_another_rank_are_an_error(monkeypatch):
    """Before any of them: the ranks would wait for each other."""
    texts = itertools.count()
    monkeypatch.setattr(checkpointing, "_exchanges", lambda parts: str(next(texts)))
    made = program(FORMS["relative_positions"], 12)
    with pytest.raises(RanksFailed, match="compiled to exchange in different orders"):
        check_simulated(made.make, made.inputs(), 2, backend="aot_eager")
