"""Tokens see their neighbours across ranks, with the right gradients; also where the ranks don't
divide the length.
"""

import pytest
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
