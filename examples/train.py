"""Trains a byte-level Llama on real text over several ranks, and checks it against one device.

    python examples/train.py                     two ranks, Python's own sources, then one device
    python examples/train.py --ranks 4 --seq 8192 --text my_corpus/
    torchrun --nproc-per-node 2 examples/train.py              the training alone

`train` is the part to copy. It is ordinary PyTorch for one device, with one line for AutoSP: each
rank passes the full sequences and gets the full loss, computes its share of the tokens, and ends up
with the gradients that one device would have.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import autosp
import torch
import torch.distributed as dist
from peak_memory import PeakMemory
from rich.console import Console
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM

# Largest relative differences of a step's loss and gradient norm between P ranks and one device.
# Both add the same float32 numbers in another order, which makes 1e-7 at once and, carried on by
# the optimizer, 2e-7 of the loss and 6e-6 of the norm within 30 steps (measured). A missing share
# of a gradient is far above: it changes the norm by percents at the first step.
TOLERANCE = {"loss": 1e-5, "norm": 1e-3}


def train(args: argparse.Namespace) -> list[dict]:
    """Trains for `args.steps` steps and returns what each of them reported."""
    device = set_up_device(args.device)
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama(args.seq)).to(device)
    if dist.is_initialized():
        model = autosp.compile(model)  # the one line for AutoSP
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    text = read_text(args.text)

    progress = Progress(args, device)
    for step in range(args.steps):
        ids = random_windows(text, args.batch, args.seq, seed=step).to(device)
        progress.start()
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        progress.stop(step, loss.item(), norm.item())
    return progress.steps


def llama(seq: int) -> LlamaConfig:
    """Three million parameters; a token is a byte."""
    return LlamaConfig(
        vocab_size=256,
        hidden_size=256,
        intermediate_size=688,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=seq,
        use_cache=False,
    )


def set_up_device(kind: str) -> torch.device:
    """This process's device; under torchrun it joins the process group, too."""
    device = torch.device(kind)
    if kind == "cuda":
        device = torch.device(kind, int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if kind == "cuda" else "gloo")
    return device


def default_device(ranks: int) -> str:
    """GPUs when every rank on this machine can have its own."""
    ranks = int(os.environ.get("LOCAL_WORLD_SIZE", ranks))
    return "cuda" if torch.cuda.device_count() >= ranks else "cpu"


def read_text(path: Path | None) -> torch.Tensor:
    """The bytes of a file, of all files below a directory, or of Python's standard library."""
    if path is None:
        library = Path(sysconfig.get_path("stdlib"))
        files = [f for f in library.rglob("*.py") if "site-packages" not in f.parts]
    elif path.is_dir():
        files = [f for f in path.rglob("*") if f.is_file()]
    else:
        files = [path]
    return torch.frombuffer(
        bytearray(b"".join(f.read_bytes() for f in sorted(files))), dtype=torch.uint8
    )


def random_windows(text: torch.Tensor, batch: int, seq: int, seed: int) -> torch.Tensor:
    """`batch` pieces of `seq` bytes as token ids, the same on every rank."""
    if len(text) < seq:
        sys.exit(f"train.py: the text has {len(text)} bytes, a sequence needs {seq}")
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - seq + 1, (batch,), generator=generator)
    return torch.stack([text[start : start + seq] for start in starts.tolist()]).long()


class Progress:
    """Times steps, measures their memory on every rank and prints a line for each on rank 0."""

    def __init__(self, args: argparse.Namespace, device: torch.device):
        self.tokens, self.count, self.device = args.batch * args.seq, args.steps, device
        self.memory = PeakMemory(device)
        self.steps: list[dict] = []

    def start(self) -> None:
        self.memory.start()
        self.began = time.perf_counter()

    def stop(self, step: int, loss: float, norm: float) -> None:
        seconds = time.perf_counter() - self.began
        memory = [self.memory.mebibytes()]
        if dist.is_initialized():
            own = torch.tensor(memory, device=self.device)
            every = [torch.empty_like(own) for _ in range(dist.get_world_size())]
            dist.all_gather(every, own)
            memory = [mebibytes.item() for mebibytes in every]
        self.steps.append({"loss": loss, "norm": norm, "seconds": seconds, "mebibytes": memory})
        if not dist.is_initialized() or dist.get_rank() == 0:
            print(
                f"step {step + 1:3}/{self.count}   loss {loss:.4f}   gradient {norm:.3f}   "
                f"{self.tokens / seconds:7,.0f} tokens/s   peak memory "
                + " ".join(f"{mebibytes:,.0f}" for mebibytes in memory)
                + (" MiB a rank" if len(memory) > 1 else " MiB")
                + ("   (compiles)" if step == 0 and len(memory) > 1 else ""),
                flush=True,
            )


def run(args: argparse.Namespace, ranks: int, record: Path) -> list[dict]:
    """Runs the training in processes of its own and returns what its steps reported.

    A CPU device is the same share of the cores in both runs, so that the speeds can be compared.
    """
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = [sys.executable, *(torchrun if ranks > 1 else []), __file__]
    for name in ("text", "steps", "seq", "batch", "lr", "device"):
        if (value := getattr(args, name)) is not None:
            command += [f"--{name}", str(value)]
    command += ["--ranks", "1", "--record", str(record)]
    threads = max(1, len(os.sched_getaffinity(0)) // args.ranks)
    result = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
    if result.returncode:
        sys.exit(f"train.py: the run on {describe(ranks)} failed")
    return json.loads(record.read_text())


def compare(parallel: list[dict], single: list[dict], ranks: int, tokens: int) -> bool:
    """Prints both runs side by side; true when losses and gradient norms agree in every step."""
    table = Table(title=f"{describe(ranks)} against one device")
    for heading in ("", describe(ranks), "one device", "difference", "of gradient norms"):
        table.add_column(heading, justify="right" if heading else "left")
    worst = {"loss": 0.0, "norm": 0.0}
    for step, (ours, its) in enumerate(zip(parallel, single, strict=True)):
        off = {key: abs(ours[key] - its[key]) / abs(its[key]) for key in worst}
        worst = {key: max(worst[key], off[key], key=nan_is_largest) for key in worst}
        losses = (f"{run['loss']:.6f}" for run in (ours, its))
        table.add_row(f"loss, step {step + 1}", *losses, *(f"{off[key]:.1e}" for key in worst))
    agree = all(worst[key] <= TOLERANCE[key] for key in worst)
    table.add_section()
    largest = [f"{worst[key]:.1e}" for key in worst]
    table.add_row("largest difference", "", "", *largest, style="bold" if agree else "bold red")

    speeds = [tokens / statistics.median(s["seconds"] for s in warm(r)) for r in (parallel, single)]
    ratio = f"{speeds[0] / speeds[1]:.2f} x"
    table.add_row("tokens/s (median)", *(f"{speed:,.0f}" for speed in speeds), ratio, "")
    memory = [max(max(s["mebibytes"]) for s in warm(r)) for r in (parallel, single)]
    ratio = f"{memory[0] / memory[1]:.2f} x"
    table.add_row("memory per rank", *(f"{peak:,.0f} MiB" for peak in memory), ratio, "")
    table.caption = (
        "speed and memory of the steps after the first, which compiles; memory is a step's peak "
        "above parameters and optimizer state, on the rank that needs most"
    )
    Console().print(table)
    return agree


def nan_is_largest(difference: float) -> float:
    return math.inf if math.isnan(difference) else difference


def warm(steps: list[dict]) -> list[dict]:
    return steps[1:] or steps


def describe(ranks: int) -> str:
    return f"{ranks} ranks" if ranks > 1 else "one device"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, help="a file or directory (default: Python's library)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--seq", type=int, default=4096, help="tokens a sequence")
    parser.add_argument("--ranks", type=int, default=2, help="1: one device, without comparison")
    parser.add_argument("--batch", type=int, default=1, help="sequences a step")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], help="default: GPUs if there are enough"
    )
    parser.add_argument("--record", type=Path, help="a file for the steps' results (JSON)")
    args = parser.parse_args()
    for name in ("steps", "seq", "ranks", "batch"):
        if getattr(args, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if args.text is not None and not args.text.exists():
        parser.error(f"--text: {args.text} does not exist")
    args.device = args.device or default_device(args.ranks)
    return args


def main() -> int:
    args = parse_arguments()
    if args.ranks == 1 or "RANK" in os.environ:
        steps = train(args)
        rank = 0
        if dist.is_initialized():
            rank = dist.get_rank()
            dist.destroy_process_group()
        if args.record and rank == 0:
            args.record.write_text(json.dumps(steps))
        return 0
    with tempfile.TemporaryDirectory() as directory:
        print(
            f"{describe(args.ranks)}, {args.batch} x {args.seq} tokens a step, {args.device}",
            flush=True,
        )
        parallel = run(args, args.ranks, Path(directory) / "parallel.json")
        print("the same steps on one device", flush=True)
        single = run(args, 1, Path(directory) / "single.json")
    if compare(parallel, single, args.ranks, args.batch * args.seq):
        print("the runs agree")
        return 0
    print(f"train.py: the runs differ by more than {TOLERANCE}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
