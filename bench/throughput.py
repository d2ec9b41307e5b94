"""Tokens per second and peak memory: one device, a hand-written Ulysses and AutoSP, in one run.

    python bench/throughput.py             the example's model, 2 processes of one thread each
    python bench/throughput.py --quick     a smoke test of a minute or two; writes no results

All variants train the same model on the same text in the same processes; for one device the first
of them works while the others wait. Rounds take every variant in turn, each time starting with
another, and report medians, so that a disturbance does not hit one variant alone. Every variant
must give the first variant's losses, or the run stops.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import ProfilerActivity, profile
from transformers import LlamaForCausalLM

BENCH = Path(__file__).resolve().parent
sys.path[:0] = [str(BENCH), str(BENCH.parent / "examples")]

import autosp  # noqa: E402
import record  # noqa: E402
from peak_memory import PeakMemory  # noqa: E402
from peers.ulysses import Ulysses  # noqa: E402
from train import default_device, llama, random_windows, read_text, set_up_device  # noqa: E402

ONE_DEVICE = ("one device, eager", "one device, compiled")
BY_HAND = ("Ulysses, eager", "Ulysses, compiled")
OURS = "AutoSP, compiled"
WARM_UP_STEPS = 2
LOSS_TOLERANCE = 1e-4
AIM = 1.6


@dataclass
class Variant:
    """One way to train the model; `loss` runs the forward, `reduce` follows the backward."""

    name: str
    model: LlamaForCausalLM
    loss: Callable[[Tensor], Tensor]
    reduce: Callable[[], None] | None = None
    ranks: int = 1
    seconds: list[float] = field(default_factory=list)
    resident: list[float] = field(default_factory=list)
    allocated: list[float] = field(default_factory=list)

    def __post_init__(self):
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, ids: Tensor) -> float:
        loss = self.loss(ids)
        loss.backward()
        if self.reduce:
            self.reduce()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def make_variant(name: str, seq: int, device: torch.device) -> Variant:
    torch.manual_seed(0)
    model = LlamaForCausalLM(llama(seq)).to(device)
    ranks = dist.get_world_size()
    if name in BY_HAND:
        peer = Ulysses(model, backend="inductor" if name.endswith("compiled") else None)
        return Variant(name, model, lambda ids: peer(ids, ids), peer.reduce_gradients, ranks)
    if name == OURS:
        run, ranks = autosp.compile(model), ranks
    else:
        compiled = name.endswith("compiled")
        run, ranks = torch.compile(model, fullgraph=True) if compiled else model, 1
    return Variant(name, model, lambda ids: run(input_ids=ids, labels=ids).loss, None, ranks)


class Bench:
    """The variants and what all processes do with them, in step."""

    def __init__(self, args: argparse.Namespace, device: torch.device):
        self.args, self.device = args, device
        self.text = read_text(args.text)
        self.variants = [make_variant(name, args.seq, device) for name in args.variants]
        self.memory = PeakMemory(device)

    def run(self) -> None:
        losses = [self.warm_up(variant) for variant in self.variants]
        for variant, own in zip(self.variants, losses, strict=True):
            for ours, reference in zip(own, losses[0], strict=True):
                if not abs(ours - reference) <= LOSS_TOLERANCE * abs(reference):
                    sys.exit(f"{variant.name} computes another loss: {ours}, not {reference}")
        for step in range(self.args.rounds):
            ids = self.batch(WARM_UP_STEPS + step)
            for turn in range(len(self.variants)):
                variant = self.variants[(turn + step) % len(self.variants)]
                seconds = self.everywhere(variant, lambda v, ids=ids: seconds_of(v, ids))
                variant.seconds.append(max(seconds))
        for variant in self.variants:
            variant.resident = self.everywhere(variant, self.resident)
            variant.allocated = self.everywhere(variant, self.allocated)

    def warm_up(self, variant: Variant) -> list[float]:
        """The losses of the first steps; they include the compilation."""
        began = time.perf_counter()
        losses = []
        for step in range(WARM_UP_STEPS):
            ids = self.batch(step)
            losses.append(self.everywhere(variant, lambda v, ids=ids: v.step(ids))[0])
        if dist.get_rank() == 0:
            seconds = time.perf_counter() - began
            print(f"{variant.name}: {WARM_UP_STEPS} steps to warm up, {seconds:.0f} s", flush=True)
        return losses

    def everywhere(self, variant: Variant, measure: Callable[[Variant], float]) -> list[float]:
        """`measure` on each of the variant's ranks at once, and the results of all on all."""
        dist.barrier()
        own = measure(variant) if dist.get_rank() < variant.ranks else 0.0
        every = [None] * dist.get_world_size()
        dist.all_gather_object(every, own)
        return every[: variant.ranks]

    def resident(self, variant: Variant) -> float:
        self.memory.start()
        variant.step(self.batch(0))
        return self.memory.mebibytes()

    def allocated(self, variant: Variant) -> float:
        """The peak of torch's own allocations in a step, exact and the same in every run."""
        if self.device.type == "cuda":
            return self.resident(variant)
        ids = self.batch(0)
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            variant.step(ids)
        live = peak = 0
        for event in profiler.profiler.kineto_results.events():
            if event.name() == "[memory]":
                live += event.nbytes()
                peak = max(peak, live)
        return peak / 2**20

    def batch(self, step: int) -> Tensor:
        return random_windows(self.text, 1, self.args.seq, seed=step).to(self.device)


def seconds_of(variant: Variant, ids: Tensor) -> float:
    """The time of one step; `step` reads the loss, which waits for a CUDA device."""
    began = time.perf_counter()
    variant.step(ids)
    return time.perf_counter() - began


def report(bench: Bench) -> None:
    """Prints the table and writes it with all figures."""
    rows = {}
    for v in bench.variants:
        rows[v.name] = {
            "ranks": v.ranks,
            "tokens_per_second": round(bench.args.seq / statistics.median(v.seconds), 1),
            "allocated_mib": round(max(v.allocated), 1),
            "resident_mib": round(max(v.resident), 1),
            "seconds": [round(s, 3) for s in v.seconds],
        }
    one = max((rows[n] for n in ONE_DEVICE if n in rows), key=speed, default=None)
    hand = rows.get(BY_HAND[1])
    threads = torch.get_num_threads()
    table = record.Table(
        f"Training the example's model: {bench.args.seq} tokens a step, {threads} thread(s) a "
        f"rank, median of {bench.args.rounds} steps",
        [
            *("", "ranks", "tokens/s", "to one device", "to Ulysses"),
            *("allocated per rank", "to one device", "resident per rank"),
        ],
        note="to the faster on one device and to compiled Ulysses; memory: a step's peak above "
        "parameters and optimizer state, as torch allocates it and as the system sees it",
    )
    for name, row in rows.items():
        table.rows.append(
            [
                name,
                str(row["ranks"]),
                f"{speed(row):,.0f}",
                ratio(speed(row), one and speed(one)),
                ratio(speed(row), hand and speed(hand)),
                f"{row['allocated_mib']:,.0f} MiB",
                ratio(row["allocated_mib"], one and one["allocated_mib"]),
                f"{row['resident_mib']:,.0f} MiB",
            ]
        )
    aims = {}
    if one and hand and (ours := rows.get(OURS)):
        aims = {
            f"at least {AIM} x one device": speed(ours) >= AIM * speed(one),
            "at least as fast as Ulysses, compiled": speed(ours) >= speed(hand),
            "no more memory than Ulysses, compiled": ours["allocated_mib"] <= hand["allocated_mib"],
        }
    record.finish(
        bench.args.output,
        [table],
        device=str(bench.device),
        aims=aims,
        tokens=bench.args.seq,
        threads_per_rank=threads,
        parameters=sum(p.numel() for p in bench.variants[0].model.parameters()),
        variants=rows,
    )


def speed(row: dict) -> float:
    return row["tokens_per_second"]


def ratio(value: float, base: float | None) -> str:
    return f"{value / base:.2f} x" if base else ""


def parse_arguments() -> argparse.Namespace:
    names = [*ONE_DEVICE, *BY_HAND, OURS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="256 tokens, 3 rounds, no file")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--text", type=Path, help="a file or directory")
    parser.add_argument("--variants", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "throughput.json")
    args = parser.parse_args()
    if args.quick:
        args.seq, args.rounds, args.output = 256, 3, None
    return args


def main() -> int:
    args = parse_arguments()
    if "RANK" not in os.environ:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += [f"--nproc-per-node={args.ranks}", __file__, *sys.argv[1:]]
        quiet = {"KINETO_LOG_LEVEL": "99"}  # the profiler announces each of its starts
        return subprocess.call(command, env={**os.environ, "OMP_NUM_THREADS": "1", **quiet})
    # The variants share the model's code: lengths that differ between them must not turn dynamic.
    torch._dynamo.config.automatic_dynamic_shapes = False
    device = set_up_device(default_device(args.ranks))
    bench = Bench(args, device)
    bench.run()
    if dist.get_rank() == 0:
        report(bench)
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
