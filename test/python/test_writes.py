"""What a program changes in place shows wherever it looks again, with the right gradients."""

import pytest
from parity import check_simulated
from writes import FORMS


@pytest.mark.parametrize("name", FORMS)
def test_two_ranks(name):
    form = FORMS[name]
    check_simulated(
        form.make, form.inputs(), 2, 1e-6 if name == "narrower_types" else form.tolerance
    )


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [3, 4])
@pytest.mark.parametrize("name", FORMS)
def test_more_ranks(name, ranks):
    form = FORMS[name]
    check_simulated(
        form.make, form.inputs(), ranks, 1e-6 if name == "narrower_types" else form.tolerance
    )
