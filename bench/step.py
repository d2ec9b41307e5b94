"""What AutoSP costs where it has nothing to win.

    python bench/step.py             the example's model, one thread
    python bench/step.py --quick     smoke sizes; writes no results

Two measurements: a training step compiled by AutoSP in a group of one rank against the same model
under plain torch.compile, in turns in one process; and the agreement of ranks that comes before
every call, between two gloo processes on this machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import record
import torch
import torch.distributed as dist

sys.path.insert(0, str(record.RESULTS.parent.parent / "examples"))

import autosp
from autosp.agreement import Agreement
from train import llama, random_windows, read_text
from transformers import LlamaForCausalLM

AIM_RATIO, AIM_AGREEMENT_MS = 1.02, 1.0


def one_rank_against_torch(seq: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, by who compiled it; the two take turns."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    text = read_text(None)
    steps = {}
    for name, compiler in (
        ("torch.compile", lambda model: torch.compile(model, fullgraph=True)),
        ("AutoSP, group of one", autosp.compile),
    ):
        torch.manual_seed(0)
        model = LlamaForCausalLM(llama(seq))
        steps[name] = (model, compiler(model))
    seconds = {name: [] for name in steps}
    for number in range(rounds + 2):  # the first two compile and warm up
        ids = random_windows(text, 1, seq, seed=number)
        losses = {}
        for name in sorted(steps, reverse=number % 2 == 1):
            model, compiled = steps[name]
            began = time.perf_counter()
            loss = compiled(input_ids=ids, labels=ids).loss
            loss.backward()
            losses[name] = loss.item()
            took = time.perf_counter() - began
            for parameter in model.parameters():
                parameter.grad = None
            if number >= 2:
                seconds[name].append(took)
            elif number == 0:
                print(f"{name}: compiled and ran in {took:.0f} s", flush=True)
        low, high = sorted(losses.values())
        if not high - low <= 1e-5 * high:
            sys.exit(f"the two compute different losses: {losses}")
    dist.destroy_process_group()
    return seconds


def agreement_ms(calls: int) -> list[float]:
    """Milliseconds of each agreement, on two processes that call one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ms.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node=2", __file__, "--agree", str(calls), "--output", str(path)]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return json.loads(path.read_text())


def agree(calls: int, path: Path) -> None:
    """One of the two processes."""
    dist.init_process_group("gloo")
    agreement = Agreement(dist.group.WORLD, 60)
    details = {
        "inputs": "input_ids: torch.int64 [1, 4096], labels: torch.int64 [1, 4096]",
        "gradient mode": "True",
        "step": "run",
        "program": "0123456789abcdef",
    }
    times = []
    for _ in range(calls):
        began = time.perf_counter()
        agreement.agree("call of the model", details)
        times.append(1e3 * (time.perf_counter() - began))
    if dist.get_rank() == 0:
        path.write_text(json.dumps(times[calls // 10 :]))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--quick", action="store_true", help="128 tokens, 5 rounds, no file")
    parser.add_argument("--output", type=Path, default=record.RESULTS / "step.json")
    parser.add_argument("--agree", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.agree:
        agree(args.agree, args.output)
        return 0
    if args.quick:
        args.seq, args.rounds, args.calls, args.output = 128, 5, 200, None
    torch.set_num_threads(1)
    ms = agreement_ms(args.calls)
    seconds = one_rank_against_torch(args.seq, args.rounds)
    plain, ours = (statistics.median(times) for times in seconds.values())
    ratio = statistics.median(b / a for a, b in zip(*seconds.values(), strict=True))
    step = record.Table(
        f"A step of {args.seq} tokens, forward and backward, one thread, median of {args.rounds}",
        ["", "ms", "to torch.compile"],
        [
            ["torch.compile", f"{1e3 * plain:.1f}", ""],
            ["AutoSP, group of one", f"{1e3 * ours:.1f}", f"{ratio:.3f} x"],
        ],
        note="the ratio is the median of the rounds' ratios",
    )
    deciles = statistics.quantiles(ms, n=10)
    calls = record.Table(
        f"Agreement of two gloo processes, ms a call, {len(ms)} calls",
        ["", "median", "90 % of calls within"],
        [["two processes on one machine", f"{deciles[4]:.3f}", f"{deciles[8]:.3f}"]],
    )
    record.finish(
        args.output,
        [step, calls],
        aims={
            "a group of one at most 2 % slower than torch.compile": ratio <= AIM_RATIO,
            "an agreement within 1 ms": deciles[4] <= AIM_AGREEMENT_MS,
        },
        seconds={name: [round(s, 5) for s in times] for name, times in seconds.items()},
        ratio=ratio,
        agreement_ms={"median": deciles[4], "90 %": deciles[8]},
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
