"""Scans of the user's own whose state the ranks pass on: `scan t` with states in the rule."""

import concurrent.futures
import threading

import autosp
import gloo_pool
import pytest
import torch
from autosp import scans
from autosp.errors import Unsupported
from parity import check, check_simulated, take_step
from small import on_ranks_and_lengths, program
from test_rules import define
from torch import Tensor

SLOW = pytest.mark.slow


@define
def decaying(x: Tensor, decay: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """h = decay * h + x: [batch, tokens, width], [width], [batch, width]."""
    rows = []
    for row in x.unbind(1):
        state = decay * state + row.tanh()
        rows.append(state)
    return torch.stack(rows, 1), state.clone()


@define
def gated(
    q: Tensor, memory: Tensor, k: Tensor, v: Tensor, total: Tensor, *, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Linear attention, normalized: [batch, tokens, heads, width] and the states [batch, heads,
    width, width], [batch, heads, width].
    """
    rows = []
    for q_, k_, v_ in zip(q.unbind(1), k.unbind(1), v.unbind(1), strict=True):
        memory = memory + scale * k_[..., :, None] * v_[..., None, :]
        total = total + k_
        rows.append(torch.einsum("bhk,bhkv->bhv", q_, memory) / (1 + (q_ * total).sum(-1, True)))
    return memory.clone(), torch.stack(rows, 1), total.clone()


@define
def remembered(x: Tensor, state: Tensor) -> Tensor:
    for row in x.unbind(1):
        state = (state / 2 + row).sin()
    return state.clone()


@define
def unshared(x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    return x + state[:, None], state + x.sum(1)


RULES = {
    "remembered": "b t d, state b d -> state b d  scan t",
    "decaying": "b t d, d, state b d -> b t d, state b d  scan t",
    "gated": "b t h k, state b h k v, b t h k, b t h v, state b h k ->"
    " state b h k v, b t h v, state b h k  scan t",
}


def register():
    for name, rule in RULES.items():
        autosp.register_rule(f"autosp_test::{name}", rule)


@pytest.fixture(autouse=True)
def rules():
    register()


def simple(m, x, ids):
    y, last = decaying(x, m.vector.sigmoid(), x.new_zeros(x.shape[0], x.shape[2]))
    return y, last


@on_ranks_and_lengths
def test_one_state(ranks, length):
    made = program(simple, length)
    check_simulated(made.make, made.inputs(), ranks)


def with_learned_states(m, x, ids):
    """Two scans, the second from the states that the first has left; the first from a parameter."""
    q, k, v = (t.unflatten(-1, (12, -1)).sigmoid() for t in m.qkv(x).chunk(3, -1))
    memory = m.vector.view(12, 2, 1).expand(2, 12, 2, 2).contiguous()
    memory, y, total = gated(q, memory, k, v, q.new_zeros(2, 12, 2), scale=0.5)
    memory, z, total = gated(k, memory, q, y, total, scale=0.25)
    return m.out(z.flatten(2)), total


@on_ranks_and_lengths
def test_states_handed_to_another_scan(ranks, length):
    made = program(with_learned_states, length)
    check_simulated(made.make, made.inputs(), ranks)


@pytest.mark.parametrize("form", [simple, with_learned_states])
@pytest.mark.parametrize(
    ("ranks", "length", "checkpointing"),
    [(2, 13, "sac"), pytest.param(4, 12, "full", marks=SLOW)],
)
def test_compiled(form, ranks, length, checkpointing):
    made = program(form, length)
    options = {"backend": "aot_eager", "checkpointing": checkpointing}
    check_simulated(made.make, made.inputs(), ranks, **options)


@SLOW
@pytest.mark.inductor
def test_inductor():
    made = program(with_learned_states, 13)
    check_simulated(made.make, made.inputs(), 3, backend="inductor")


@torch.library.custom_op("autosp_test::from_any", mutates_args=())
def from_any(x: Tensor, decay: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
    return x.cumsum(1), x.sum(1)


from_any.register_fake(lambda x, decay, state=None: (x.clone(), x[:, 0].clone()))


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            lambda x: None,
            "is given 2 tensors, and the rule 'b t d, d, state b d -> .*' is one of 3",
        ),
        (lambda x: x.new_zeros(1, x.shape[2]), "both must be of one floating-point dtype and"),
        (lambda x: x.new_zeros(x.shape[0], x.shape[2], dtype=torch.float32), "ends with f64.2, 24"),
    ],
)
def test_refused_states(state, text):
    autosp.register_rule("autosp_test::from_any", RULES["decaying"])
    made = program(lambda m, x, ids: from_any(x, m.vector, state(x)), 12)
    with pytest.raises(Unsupported, match=text):
        autosp.explain(made.make(), made.inputs(), sp=2)


def in_a_process(rank, length):
    register()
    made = program(with_learned_states, length)
    model = made.make()
    return take_step(model, autosp.compile(model, backend="aot_eager"), made.inputs())


@SLOW
@pytest.mark.gloo
def test_in_processes():
    made = program(with_learned_states, 7)
    model = made.make()
    want = take_step(model, model, made.inputs())
    check(gloo_pool.run(3, in_a_process, 7), want)


def only_state(m, x, ids):
    return x, remembered(x, x.new_zeros(x.shape[0], x.shape[2]))


def test_a_state_alone():
    made = program(only_state, 13)
    check_simulated(made.make, made.inputs(), 3)


def test_ranks_that_come_at_once_define_an_operator_once():
    ready = threading.Barrier(4)

    def ask():
        ready.wait()
        return scans.passing_state(torch.ops.autosp_test.unshared.default)

    with concurrent.futures.ThreadPoolExecutor(4) as ranks:
        found = [future.result() for future in [ranks.submit(ask) for _ in range(4)]]
    assert len(set(found)) == 1
