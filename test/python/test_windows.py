"""Tokens see their neighbours across ranks, with the right gradients."""

import pytest
from parity import check_simulated
from windows import FORMS


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks):
    form = FORMS[name]
    check_simulated(form.make, form.inputs(), ranks, form.tolerance)
