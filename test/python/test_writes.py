"""What a program changes in place shows wherever it looks again, with the right gradients."""

import pytest
from parity import check_simulated
from small import program
from writes import FORMS

pytestmark = pytest.mark.slow

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("ranks", "length"),
    [(2, 12), pytest.param(3, 12, marks=SLOW), pytest.param(4, 13, marks=SLOW)],
)
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    tolerance = 1e-6 if name == "narrower_types" else form.tolerance
    check_simulated(form.make, form.inputs(), ranks, tolerance)
