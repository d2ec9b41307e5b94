"""The memory of a step whose values move as planned: as predicted, and no more with more layers."""

import autosp
import pytest
import torch
from autosp import checkpointing
from measure_memory import Lifetimes, as_inductor_splits, fake_llama, fake_ranks

planned = []


class Recording(checkpointing.Partitioner):
    def plan(self, graph):
        planned.append(super().plan(graph))
        return planned[-1]


RANKS, LENGTH = 8, 8192


def measure(layers):
    """KiB per local token of a Llama with the 8B model's widths: on the device between forward and
    backward, there at the peak, and on the host; and the same three as predicted.
    """
    torch._dynamo.reset()
    with fake_ranks(RANKS), fake_llama(layers, vocabulary=1024) as model:
        ids = torch.zeros(1, RANKS * LENGTH, dtype=torch.int64)
        choice = checkpointing.Choice("sac", RANKS, device="h100", offload="all")
        compiled = autosp.compile(model, backend=as_inductor_splits(Recording(choice)))
        lifetimes = Lifetimes([*model.parameters(), *model.buffers()])
        with lifetimes:
            loss = compiled(input_ids=ids, labels=ids).loss
            between = lifetimes.live()
            loss.backward()
            grads = {lifetimes.number(p.grad) for p in model.parameters()}
    host = {n for n, row in enumerate(lifetimes.storages) if row[3] == "ao.offload.default"}
    storages = [
        [row for number, row in between.items() if number not in host],
        lifetimes.live_at_peak(grads | host),
        [row for number, row in between.items() if number in host],
    ]
    plan = planned[-1]
    predicted = [plan.kept_bytes, plan.peak_bytes, plan.offloaded_bytes]
    measured = [sum(row[0] for row in rows) for rows in storages]
    return [nbytes / LENGTH / 1024 for nbytes in (*measured, *predicted)]


@pytest.mark.slow
def test_memory_per_token_and_layer():
    small, large = measure(4), measure(10)
    assert small[:3] == pytest.approx(small[3:], rel=0.05)
    assert large[:3] == pytest.approx(large[3:], rel=0.05)
    device, peak, host = ((b - a) / 6 for a, b in zip(small[:3], large[:3], strict=True))
    assert device == 0
    assert peak <= 1
    assert host == pytest.approx(16.125)
