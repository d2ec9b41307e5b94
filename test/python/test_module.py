"""The module and the function that autosp.compile returns are used as before."""

import copy
import inspect
import logging
import pickle
import sys
import warnings

import autosp
import pytest
import torch
import torch.distributed as dist
from causal import Model, tokens
from torch import nn


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()


@pytest.fixture
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_the_module_is_used_as_before(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    assert isinstance(thin, Model) and isinstance(thin, nn.Module)
    assert list(thin.state_dict()) == list(model.state_dict())
    assert all(a is b for a, b in zip(thin.parameters(), model.parameters(), strict=True))
    assert [name for name, _ in thin.named_modules()] == [n for n, _ in model.named_modules()]
    assert (thin.width, repr(thin)) == (16, repr(model))
    assert inspect.signature(thin.forward) == inspect.signature(model.forward)
    thin.scale = 3.0
    assert model.scale == 3.0
    torch.testing.assert_close(thin(tokens()), model(tokens()))
    thin.eval()
    assert not model.training and not model.q.training
    model.train()
    assert thin.training
    thin.extra = nn.Parameter(torch.ones(1))
    assert "extra" in model.state_dict()
    thin.load_state_dict({k: torch.zeros_like(v) for k, v in thin.state_dict().items()})
    assert model.q.weight.abs().max() == 0
    assert thin.half().q is model.q and model.q.weight.dtype == torch.float16


def test_copies_and_pickles_are_plain(alone):
    thin = autosp.compile(Model(), backend="aot_eager")
    for other in (copy.deepcopy(thin), pickle.loads(pickle.dumps(thin))):
        assert type(other) is Model and other.q.weight is not thin.q.weight
        torch.testing.assert_close(other(tokens()), thin(tokens()))


def test_hooks_run(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    thin.register_forward_hook(lambda module, args, result: result * 2)
    torch.testing.assert_close(thin(tokens()), model(tokens()))


def test_training_and_evaluation_alternate(alone):
    model = Model()
    thin = autosp.compile(model, backend="aot_eager")
    for _ in range(2):
        loss, _ = thin.train()(tokens(), tokens())
        loss.backward()
        with torch.no_grad():
            logits = thin.eval()(tokens())
        assert not logits.requires_grad
        torch.testing.assert_close(logits, model(tokens()))


def test_a_function_stays_a_function(alone):
    model = Model()

    def step(ids):
        """One step."""
        return model(ids, ids)[0]

    compiled = autosp.compile(step, backend="aot_eager")
    assert (compiled.__name__, compiled.__doc__) == ("step", "One step.")
    torch.testing.assert_close(compiled(tokens()), step(tokens()))


def test_compiling_a_compiled_module_compiles_the_module(alone):
    model = Model()
    once = autosp.compile(model, backend="aot_eager")
    twice = autosp.compile(once, backend="aot_eager")
    torch.testing.assert_close(twice(tokens()), model(tokens()))


def test_nothing_global_changes(alone):
    before = torch._dynamo.config.get_config_copy()
    autosp.compile(Model(), backend="aot_eager")(tokens())
    with pytest.raises(autosp.Unsupported):
        autosp.compile(lambda x: torch._dynamo.graph_break(), backend="aot_eager")(tokens())
    assert torch._dynamo.config.get_config_copy() == before


def test_warnings_do_not_break_the_graph(alone):
    def function(x):
        warnings.warn("careful", FutureWarning, stacklevel=2)
        return x * 2

    assert autosp.compile(function, backend="aot_eager")(torch.ones(1)) == 2


def test_warnings_of_transformers_do_not_break_the_graph(alone, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", logging)
    library, mine = logging.getLogger("transformers.models.x"), logging.getLogger("mine")

    def warns(logger):
        def function(x):
            logger.warning("careful")
            return x * 2

        return autosp.compile(function, backend="aot_eager")

    assert warns(library)(torch.ones(1)) == 2
    with pytest.raises(autosp.Unsupported, match="ignore_logging_functions"):
        warns(mine)(torch.ones(1))
