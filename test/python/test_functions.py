"""torch.autograd.Functions on several ranks: their own backward, on parts of the sequence."""

import re

import autosp
import pytest
from autosp.check import Reference
from autosp.errors import Unsupported
from functions import FORMS, Function
from parity import check_simulated
from small import program

SLOW = pytest.mark.slow


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("ranks", "length"),
    [(2, 13), pytest.param(3, 12, marks=SLOW), pytest.param(4, 13, marks=SLOW)],
)
def test_ranks(name, ranks, length):
    form = program(FORMS[name], length)
    check_simulated(form.make, form.inputs(), ranks, 1e-6 if name == "norm" else form.tolerance)


@pytest.mark.parametrize("name", ["loss", pytest.param("clipped", marks=SLOW)])
def test_compiled(name):
    form = program(FORMS[name], 13)
    options = {"backend": "aot_eager", "checkpointing": "full"}
    check_simulated(form.make, form.inputs(), 3, form.tolerance, **options)


@pytest.mark.parametrize("name", ["clipped", "linear", "positions"])
def test_symbolic_length(name):
    form = program(FORMS[name], 13)
    report = Reference(form.make(), form.inputs(), dynamic=True).compare(4)
    assert report.parity, report


def refused(backward, forward=lambda x, w: x * w):
    class Custom(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    form = program(lambda m, x, ids: (Custom.apply(x, m.vector),), 12)
    with pytest.raises(Unsupported) as error:
        autosp.check(form.make(), form.inputs(), sp=2)
    return str(error.value)


@pytest.mark.parametrize(
    ("backward", "text"),
    [
        (lambda g, x, w: (g.cumsum(1), (g * x).sum((0, 1))), "cumsum.*needs more than a part"),
        (lambda g, x, w: (g / g.norm(), (g * x).sum((0, 1))), "norm .*needs more than a part"),
        (lambda g, x, w: (g, (g * x).sum((0, 1)).sign()), "sign .* of which a rank has a summand"),
        (lambda g, x, w: (g, (g * x).sum((0, 1)) + 1), "add .* of which a rank has a summand"),
        (
            lambda g, x, w: (g, w * 2),
            "for an input of which every rank has all of it, a gradient of",
        ),
    ],
)
def test_refused_backward(backward, text):
    message = refused(backward)
    assert "dimension 1 of %" in message and "this torch.autograd.Function can't run" in message
    assert "test_functions.py" in message
    assert re.search(text, message), message


def test_refused_forward():
    message = refused(lambda g, x, w: (g, None), lambda x, w: x.flip(1) * w)
    assert "flip" in message and "needs more than a part" in message
