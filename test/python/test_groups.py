"""Tokens in groups: what happens inside of one stays with its rank, and groups hand on little."""

import pytest
from groups import FORMS
from parity import check_simulated
from small import program

pytestmark = pytest.mark.slow

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("ranks", "length"),
    [
        (2, 16),
        pytest.param(3, 24, marks=SLOW),
        pytest.param(4, 16, marks=SLOW),
        (3, 16),
        pytest.param(4, 28, marks=SLOW),
    ],
)
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    check_simulated(form.make, form.inputs(), ranks, form.tolerance)
