"""Tokens see their neighbours across ranks, with the right gradients; also where the ranks don't
divide the length.
"""

import pytest
from parity import check_simulated
from small import program
from windows import FORMS

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("ranks", "length"),
    [
        (2, 12),
        pytest.param(2, 13, marks=SLOW),
        pytest.param(3, 12, marks=SLOW),
        pytest.param(3, 14, marks=SLOW),
        (4, 13),
    ],
)
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    check_simulated(form.make, form.inputs(), ranks, form.tolerance)
