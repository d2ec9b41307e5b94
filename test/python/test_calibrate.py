"""What the device at hand reaches: measured, the same on all ranks, and fit for a plan."""

import importlib
import time

import autosp
import gloo_pool
import pytest
import torch
from autosp import _engine, checkpointing
from autosp.errors import Unsupported
from autosp.simulate import run_ranks
from test_checkpointing import blocks, inputs

module = importlib.import_module("autosp.calibrate")  # the package has a function of this name

RATES = {
    "flops_16bit": 4e12,
    "flops_32bit": 2e12,
    "flops_64bit": 1e12,
    "memory_bytes_per_second": 3e11,
    "host_bytes_per_second": 0,
    "launch_ns": 1500,
}


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "_measure", lambda device: dict(RATES))


def test_measures():
    began = time.perf_counter()
    device = autosp.calibrate(device="cpu")
    assert time.perf_counter() - began < 20  # a second or two where nothing else runs
    assert device.name == "cpu, measured"
    assert 0 < device.launch_ns < 1e6
    reached = device.reached
    assert reached.pop("host_bytes_per_second") == 0
    assert all(rate > 1e7 for rate in reached.values())
    assert _engine.find_device(device.text) == device


def test_the_model_takes_what_was_measured(quick):
    """The cost model takes shares of a device's rates: what is left is what was measured."""
    device = autosp.calibrate(device="cpu")
    assert device.flops_32bit * _engine.MATMUL_SHARE == pytest.approx(2e12)
    assert device.memory_bytes_per_second * _engine.MEMORY_SHARE == pytest.approx(3e11)
    assert device.launch_ns == 1500
    assert device.link_bytes_per_second == _engine.device_for("cpu").link_bytes_per_second


def test_shows_what_was_measured(quick):
    assert repr(autosp.calibrate(device="cpu")) == (
        "cpu, measured\n"
        "  products in 16 bit   4 TFLOP/s\n"
        "  products in 32 bit   2 TFLOP/s\n"
        "  products in 64 bit   1 TFLOP/s\n"
        "  memory               300 GB/s\n"
        "  link                 8 GB/s\n"
        "  launch               1.5 µs"
    )


def step_ns(device):
    planned = []

    class Planning(checkpointing.Partitioner):
        def plan(self, graph):
            planned.append(super().plan(graph))
            return planned[-1]

    partitioner = Planning(checkpointing.choose("sac", "aot_eager", device))

    def backend(gm, example_inputs):
        return checkpointing._aot_eager(gm, example_inputs, partitioner)

    torch._dynamo.reset()
    torch.compile(blocks(), backend=backend)(inputs())
    return planned[-1].step_ns


def test_plans_are_made_for_a_measured_device(quick, monkeypatch):
    slow = step_ns(autosp.calibrate(device="cpu"))
    monkeypatch.setitem(RATES, "launch_ns", 15)
    monkeypatch.setitem(RATES, "memory_bytes_per_second", 3e12)
    assert slow > 2 * step_ns(autosp.calibrate(device="cpu")) > 0


@pytest.mark.parametrize("device", ["cuda:77", "meta", "nothing"])
def test_devices_that_cannot_be_measured(device):
    with pytest.raises(Unsupported, match=device):
        autosp.calibrate(device=device)


# ---- Several ranks ----


def measured_here(rank):
    return autosp.calibrate(device="cpu").text


def check_same(texts):
    assert len(texts) > 1 and len(set(texts)) == 1
    device = _engine.find_device(texts[0])
    assert 0 < device.link_bytes_per_second != _engine.device_for("cpu").link_bytes_per_second


def test_the_first_ranks_numbers_hold_on_all(monkeypatch):
    ranks = iter(range(4))
    monkeypatch.setattr(module, "_measure", lambda device: RATES | {"launch_ns": next(ranks)})
    check_same(run_ranks(4, measured_here))


@pytest.mark.gloo
@pytest.mark.slow
def test_processes_measure():
    check_same(gloo_pool.run(2, measured_here))


def outcome(rank, device):
    try:
        return autosp.calibrate(device=device).text
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_ranks_on_different_devices(quick, monkeypatch):
    monkeypatch.setattr(module, "_resolve", torch.device)
    texts = run_ranks(2, lambda rank: outcome(rank, ["cpu", "cuda"][rank]))
    for text in texts:
        assert text.startswith("RanksDisagree") and "kind of device differs" in text


def test_a_rank_that_fails(monkeypatch):
    calls = iter(range(2))

    def measure(device):
        if next(calls) == 1:
            raise MemoryError("no room")
        return dict(RATES)

    monkeypatch.setattr(module, "_measure", measure)
    texts = run_ranks(2, lambda rank: outcome(rank, "cpu"))
    assert sorted(text.partition(":")[0] for text in texts) == ["MemoryError", "RanksDisagree"]
    assert all("no room" in text for text in texts)
