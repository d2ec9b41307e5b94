"""The training example: it runs, compares with one device and says so when something is wrong."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

# Stands in for the package: what the ranks compute is right, wrong, or ends.
RIGHT = "def compile(model): return model"
HALF_A_GRADIENT = """
import torch.distributed as dist

def compile(model):
    if dist.get_rank() == 0:
        for p in model.parameters():
            p.register_hook(lambda grad: grad / 2)
    return model
"""
FAILS_ON_RANK_1 = """
import torch.distributed as dist

def compile(model):
    if dist.get_rank() == 1:
        raise RuntimeError("rank 1 has had enough")
    return model
"""

# An editable install has a finder of its own that comes before the path.
PATH_FIRST = """
import sys
from importlib.machinery import PathFinder

sys.meta_path.remove(PathFinder)
sys.meta_path.insert(0, PathFinder)
"""


def _run(*arguments, package=None, tmp_path=None):
    """Runs the example, with the text of a module in the package's place if given."""
    env = {**os.environ, "COLUMNS": "120"}
    if package is not None:
        (tmp_path / "autosp.py").write_text(package)
        (tmp_path / "sitecustomize.py").write_text(PATH_FIRST)
        env["PYTHONPATH"] = str(tmp_path)
    command = [sys.executable, str(EXAMPLES / "train.py"), *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def _step(loss, norm=1.0):
    return {"loss": loss, "norm": norm, "seconds": 1.0, "mebibytes": [1.0]}


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(256)) * 8)
    return path


@pytest.mark.parametrize(
    ("parallel", "agree"),
    [
        ([_step(3.0), _step(2.0)], True),
        ([_step(3.0 * (1 + 1e-7)), _step(2.0)], True),
        ([_step(3.0), _step(2.0001)], False),
        ([_step(3.0, norm=1.01), _step(2.0)], False),
        ([_step(math.nan), _step(2.0)], False),
        ([_step(3.0), _step(2.0, norm=math.nan)], False),
    ],
)
def test_comparison_of_losses_and_norms(parallel, agree, capsys):
    import train

    assert train.compare(parallel, [_step(3.0), _step(2.0)], 2, 100) is agree
    assert "largest difference" in capsys.readouterr().out


def test_windows_are_the_same_everywhere_and_differ_by_step(text):
    import train

    data = train.read_text(text)
    first = train.random_windows(data, 2, 100, seed=0)
    assert first.shape == (2, 100)
    assert first.equal(train.random_windows(data, 2, 100, seed=0))
    assert not first.equal(train.random_windows(data, 2, 100, seed=1))
    start = first[0, 0].item()
    assert first[0].tolist() == [(start + i) % 256 for i in range(100)]


def test_text_of_a_directory_and_of_the_standard_library(tmp_path):
    import train

    (tmp_path / "b").write_bytes(b"second")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_bytes(b"first ")
    assert bytes(train.read_text(tmp_path).tolist()) == b"first second"
    assert len(train.read_text(None)) > 1_000_000


@pytest.mark.slow
def test_bad_arguments(text, tmp_path):
    missing = _run("--text", tmp_path / "nothing", package=RIGHT, tmp_path=tmp_path)
    assert missing.returncode and "does not exist" in missing.stderr
    short = _run("--text", text, "--ranks", 1, "--seq", 4096, package=RIGHT, tmp_path=tmp_path)
    assert short.returncode
    assert "the text has 2048 bytes, a sequence needs 4096" in short.stderr
    none = _run("--steps", 0, package=RIGHT, tmp_path=tmp_path)
    assert none.returncode and "--steps must be at least 1" in none.stderr


@pytest.mark.gloo
@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "code", "said"),
    [
        (RIGHT, 0, "the runs agree"),
        (HALF_A_GRADIENT, 1, "the runs differ by more than"),
        (FAILS_ON_RANK_1, 1, "the run on 2 ranks failed"),
    ],
    ids=["right", "wrong", "fails"],
)
def test_exit_code_of_right_and_wrong_runs(text, tmp_path, package, code, said):
    done = _run(*("--text", text, "--steps", 2, "--seq", 64), package=package, tmp_path=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


@pytest.mark.gloo
@pytest.mark.inductor
@pytest.mark.slow
def test_two_ranks_train_like_one_device(text, tmp_path):
    done = _run("--text", text, "--steps", 3, "--seq", 256, "--batch", 2)
    assert done.returncode == 0, done.stderr
    assert "the runs agree" in done.stdout
    assert done.stdout.count("tokens/s") == 2 * 3 + 1


@pytest.mark.slow
def test_one_device_alone_writes_its_record(text, tmp_path):
    record = tmp_path / "record.json"
    arguments = ("--text", text, "--ranks", 1, "--steps", 2, "--seq", 64, "--record", record)
    done = _run(*arguments, package=RIGHT, tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = json.loads(record.read_text())
    assert [sorted(step) for step in steps] == [["loss", "mebibytes", "norm", "seconds"]] * 2
    assert steps[0]["loss"] == pytest.approx(math.log(256), rel=0.05)
    assert steps[0]["mebibytes"][0] > 10  # the gradients alone are 12
