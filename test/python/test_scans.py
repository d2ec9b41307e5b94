"""A token that sees all others, and values of all tokens, with the right gradients; also where the
ranks don't divide the length.
"""

import pytest
from parity import check_simulated
from scans import FORMS
from small import program

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
