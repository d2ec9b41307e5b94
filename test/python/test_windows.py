"""Tokens see their neighbours across ranks, with the right gradients; also where the ranks don't
divide the length.
"""

import pytest
from parity import check_simulated
from small import on_ranks_and_lengths, program
from windows import FORMS


@on_ranks_and_lengths
@pytest.mark.parametrize("name", FORMS)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    check_simulated(form.make, form.inputs(), ranks, form.tolerance)
