"""Errors raised inside a Dynamo backend reach the user's call as themselves."""

import pickle

import pytest
import torch
from autosp.errors import AutoSPError, InternalError, RanksDisagree, Unsupported

KINDS = [Unsupported, RanksDisagree, InternalError]


class Model(torch.nn.Module):
    def forward(self, x):
        return x.sin() + 1


def backend_raising(error):
    def backend(gm, example_inputs):
        raise error

    return backend


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_from_a_backend(kind, fullgraph):
    torch._dynamo.reset()
    backend, model = backend_raising(kind("no rule for frobnicate")), Model()
    with pytest.raises(AutoSPError) as through_compile:
        torch.compile(model, backend=backend, fullgraph=fullgraph)(torch.ones(2))
    model.compile(backend=backend, fullgraph=fullgraph)
    with pytest.raises(AutoSPError) as through_module:
        model(torch.ones(2))
    for raised in (through_compile.value, through_module.value):
        assert type(raised) is kind
        assert str(raised) == str(kind("no rule for frobnicate"))
        assert raised.__cause__ is None


@pytest.mark.parametrize("kind", KINDS)
def test_pickling_keeps_type_and_text(kind):
    error = pickle.loads(pickle.dumps(kind("text")))
    assert type(error) is kind
    assert str(error) == str(kind("text"))


def test_only_internal_errors_ask_for_a_report():
    assert "Please report it" in str(InternalError("text"))
    assert str(Unsupported("text")) == "text"
