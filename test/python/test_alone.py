"""A group of one: nothing is cut into parts, and only recomputation is left."""

import copy

import autosp
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from test_checkpointing import POLICIES
from test_models import hugging_face, token_inputs
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def step(model, call, *args, **kwargs):
    """The loss and the gradients of a step from seed 1."""
    torch.manual_seed(1)
    outputs = call(*args, **kwargs)
    loss = outputs[0]
    loss.backward()
    grads = [p.grad for p in model.parameters()]
    model.zero_grad()
    return loss.detach(), grads


class Everything(nn.Module):
    """What can't be run in parts: no attention, operators over all tokens, dropout, a region that
    the user recomputes, writes to activations and to a buffer.
    """

    def __init__(self, p=0.5):
        super().__init__()
        self.p = p
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("steps", torch.zeros(1, dtype=torch.float64))
        self.double()

    def region(self, x):
        return F.dropout(torch.tanh(self.layers[1](x)), self.p)

    def forward(self, x):
        x = self.layers[0](x).cumsum(1)
        self.steps.add_(1)
        x = checkpoint(self.region, x, use_reentrant=False).flip(1)
        x[:, :2] = 0
        return self.layers[2](x * self.steps).square().mean(), x


BACKENDS = ["aot_eager", pytest.param("inductor", marks=pytest.mark.inductor)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_can_not_be_cut_into_parts(backend):
    x = torch.randn(2, 7, 8, dtype=torch.float64)
    model, steps = Everything(), {}
    for policy in ("off", *POLICIES):
        torch._dynamo.reset()
        mine = copy.deepcopy(model)
        call = autosp.compile(mine, backend=backend, checkpointing=policy)
        steps[policy] = step(mine, call, x), step(mine, call, x)
        assert mine.steps == 2
        assert type(call(x)[1]) is torch.Tensor
    model.p = 0.0  # eager code draws other numbers
    torch._dynamo.reset()
    mine = copy.deepcopy(model)
    call = autosp.compile(mine, backend=backend, checkpointing="off")
    for _ in range(2):
        torch.testing.assert_close(step(mine, call, x), step(model, model, x), rtol=1e-9, atol=1e-9)
    for other in steps.values():
        torch.testing.assert_close(other, steps["off"], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_gpt2_with_dropout(backend):
    model = hugging_face("gpt2", "sdpa")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    inputs, steps = token_inputs(length=15), []
    policies = POLICIES if backend == "aot_eager" else POLICIES[:1]  # a compilation takes long
    for policy in ("off", *policies):
        torch._dynamo.reset()
        call = autosp.compile(model, backend=backend, checkpointing=policy)
        steps.append(step(model.train(), call, **inputs))
        torch.testing.assert_close(steps[-1], steps[0], rtol=1e-9, atol=1e-9)
    assert not torch.isclose(model.eval()(**inputs).loss, steps[0][0])
