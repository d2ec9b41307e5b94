"""The measurements that run on a GPU, as far as a machine without one can tell."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GPU = ROOT / "bench" / "gpu"
sys.path[:0] = [str(GPU), str(GPU.parent)]

import measure  # noqa: E402
import policies  # noqa: E402


def event(action, address, size):
    return {"action": action, "addr": address, "size": size}


def test_peak_of_an_allocators_events():
    """Blocks that were there before don't count; a gradient's doesn't where it stays, but its
    address does while something else lies there.
    """
    trace = [
        event("alloc", 1, 100),
        event("free_requested", 1, 100),
        event("free_completed", 1, 100),
        event("alloc", 2, 60),
        event("segment_alloc", 9, 4096),
        event("alloc", 1, 30),
        event("free_completed", 7, 500),
        event("alloc", 3, 50),
        event("free_completed", 2, 60),
    ]
    assert policies.peak_bytes(trace, {1}) == 110
    assert policies.peak_bytes(trace, set()) == 140
    assert policies.peak_bytes(trace[:3], {1}) == 100


def test_tables():
    few, many = (2, 8 * 1024, "inductor"), (4, 8 * 1024, "inductor")
    token = 1024 * 1024  # bytes that are one KiB for each of a rank's tokens
    found = {
        (few, "sac"): {"kept_bytes": 40 * token, "peak_bytes": 100 * token, "seconds": [2.0]},
        (many, "sac"): {"kept_bytes": 72 * token, "peak_bytes": 132 * token, "seconds": [4.0]},
        (many, "off"): {"seconds": [3.0, 4.0, 4.1]},
    }
    found[many, "sac"] |= {"predicted_peak_bytes": 198 * token, "host_bytes": 8 * token}
    table = measure.memory_table(found, ["off", "sac"], [few, many], "a model")
    assert table.rows == [
        ["sac", "16.000", "16.000", "100.0", "", "132.0", "198.0 (+50.0%)", "8.0"]
    ]
    table = measure.time_table(found, ["off", "sac", "full"], [many], "a model")
    assert table.rows == [
        ["off", "4.0000", "1.000"],
        ["sac", "4.0000", "1.000"],
        ["full", "", ""],
    ]


OLD_TORCH = """
import contextlib, sys, types
sys.modules["torch._functorch._activation_offloading.offload_ops"] = None  # as in torch 2.11
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
empty = torch.empty
torch.empty = lambda *args, pin_memory=False, **kwargs: empty(*args, **kwargs)
waited = []
stream = types.SimpleNamespace(
    wait_stream=lambda other: None, wait_event=waited.append, record_event=lambda: "event"
)
torch.cuda.Stream = torch.cuda.current_stream = lambda device: stream
torch.cuda.stream = lambda stream: contextlib.nullcontext()
import old_torch
from autosp import offload
assert offload.available("cuda")
ao = torch.ops.ao

def there_and_back(x):
    host = ao.wait_tensor(ao.offload(x), None, x)
    return ao.wait_tensor(ao.reload(host, x.device), None, host)

x = torch.randn(3, 4)
y = there_and_back(x)
assert torch.equal(x, y) and x.data_ptr() != y.data_ptr() and waited == ["event"] * 2
with FakeTensorMode():
    assert there_and_back(torch.zeros(5, 6)).shape == (5, 6)
print("good")
"""


def run(command, **environment):
    path = os.pathsep.join(sys.path)
    return subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        timeout=500,
    )


def test_operators_for_a_torch_without_them():
    done = run([sys.executable, "-c", OLD_TORCH])
    assert done.stdout == "good\n", done.stderr


@pytest.mark.slow
def test_runs_to_its_end(tmp_path):
    """From the script on, without the parts that take longest."""
    command = ["bash", str(GPU / "run.sh"), "--cpu-smoke", "--only", "policies"]
    done = run(command, PYTHON=sys.executable, OUT=str(tmp_path), LIMIT="450")
    assert done.returncode == 0, done.stdout + done.stderr
    figures = [json.loads(line) for line in (tmp_path / "figures.jsonl").read_text().splitlines()]
    for figure in figures:
        offloaded = figure.get("policy") == "sac, offloaded"
        assert ("error" in figure) == offloaded, figure
        assert not offloaded or "are on the CPU" in figure["error"]
    assert {figure["phase"] for figure in figures} == {
        "calibrate",
        "policies, warm-up",
        "policies",
    }
    tables = json.loads((tmp_path / "gpu.json").read_text())["tables"]
    assert [len(table["rows"]) for table in tables] == [8, 0, 3]
