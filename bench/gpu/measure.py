"""What one GPU tells of AutoSP: values, memory and time of a rank, and the lengths that fit.

Started by bench/gpu/run.sh. Everything that compiles does so at the same time; then the processes
measure one after the other. What has been measured is written at once, and the time limit holds
whatever happens: the important comes first.
"""

import argparse
import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import record  # noqa: E402
from worker import VARIANTS  # noqa: E402

NAMES = {
    "one eager": "one device, eager",
    "one compiled": "one device, compiled",
    "ulysses eager": "Ulysses by hand, eager",
    "ulysses compiled": "Ulysses by hand, compiled",
    "autosp compiled": "AutoSP, compiled",
}


class Process:
    """A process whose lines that begin with "@" are answers."""

    def __init__(self, name: str, command: list[str]):
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # so that what it starts ends with it
            env={**os.environ, "OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "4"},
        )
        self.answers: queue.Queue = queue.Queue()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            if line.startswith("@"):
                self.answers.put(json.loads(line[1:]))
            else:
                print(f"{self.name}: {line}", end="", flush=True)
        self.answers.put({"error": "the process ended"})

    def order(self, **order) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self, seconds: float) -> dict:
        try:
            return self.answers.get(timeout=max(seconds, 0.1))
        except queue.Empty:
            self.end()
            return {"error": "out of time"}

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Measurements:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.end = time.monotonic() + args.limit
        self.device = "cpu" if args.cpu_smoke else "cuda"
        self.tables: list[record.Table] = []
        self.figures: list[dict] = []

    def left(self) -> float:
        return self.end - time.monotonic()

    def keep(self, **figure) -> None:
        self.figures.append(figure)
        with open(self.args.output / "figures.jsonl", "a") as file:
            file.write(json.dumps(figure) + "\n")
        print(json.dumps(figure), flush=True)

    def write(self, table: record.Table) -> None:
        table.show()
        self.tables.append(table)
        record.write(
            self.args.output / "gpu.json",
            self.tables,
            {},
            self.device,
            "bench/gpu/run.sh" + " --cpu-smoke" * self.args.cpu_smoke,
            figures=self.figures,
        )

    def start(self, model: str, ranks: int, variants=VARIANTS) -> dict[str, Process]:
        script = str(HERE / "worker.py")
        options = ["--model", model, "--ranks", str(ranks), "--device", self.device]
        return {v: Process(v, [script, "--variant", v, *options]) for v in variants}

    def steps(self, model: str, workers: dict[str, Process], ranks: int, tokens: int) -> None:
        """Memory and time of a step at one length; the first order compiles, all at once."""
        for worker in workers.values():
            worker.order(tokens=tokens, steps=2)
        for variant, worker in list(workers.items()):
            began = time.monotonic()
            answer = worker.answer(min(self.left(), 0.65 * self.args.limit))
            print(f"{variant}: ready after {time.monotonic() - began:.0f} s more", flush=True)
            if "error" in answer:
                self.keep(model=model, variant=variant, ranks=ranks, phase="warm-up", **answer)
                if answer["error"] != "out of memory":
                    workers.pop(variant).end()
        table = record.Table(
            f"{model}, bf16, {tokens} tokens, forward and backward; one rank of {ranks}, exchanges"
            " take no time",
            ["", "s a step", "peak GiB", "above parameters and gradients, GiB"],
        )
        for variant, worker in workers.items():
            worker.order(tokens=tokens, steps=5)
            answer = worker.answer(min(self.left(), 60))
            self.keep(model=model, variant=variant, ranks=ranks, phase="step", **answer)
            cells = [answer.get("error", ""), "", ""]
            if "seconds" in answer:
                cells = [f"{statistics.median(answer['seconds'][1:]):.3f}"]
                cells += [f"{answer[key] / 2**30:.2f}" for key in ("peak_bytes", "above_bytes")]
            table.rows.append([NAMES[variant], *cells])
        self.write(table)

    def longest(self, model: str, workers: dict[str, Process], first: int, last: int) -> None:
        """Doubles the length until it fits no more, every variant in turn, a length a round; then
        tries half as much again as the last that did.
        """
        fits = dict.fromkeys(workers, 0)
        lengths = [first * 2**n for n in range(20) if first * 2**n <= last]
        cells = {variant: dict.fromkeys(lengths, "") for variant in workers}

        def attempt(variant: str, tokens: int) -> bool:
            workers[variant].order(tokens=tokens, steps=2)
            answer = workers[variant].answer(min(self.left() - 5, 60))
            self.keep(model=model, variant=variant, phase="length", **answer)
            if "error" in answer:
                cells[variant][tokens] = answer["error"].partition(":")[0]
                return False
            fits[variant] = tokens
            seconds, peak = answer["seconds"][-1], answer["peak_bytes"] / 2**30
            cells[variant][tokens] = f"{seconds:.2f} s, {peak:.1f} GiB"
            return True

        for tokens in lengths:
            for variant in list(workers):
                if self.left() < 20 or attempt(variant, tokens):
                    continue
                if fits[variant]:
                    attempt(variant, fits[variant] * 3 // 2)
                workers.pop(variant).end()
        table = record.Table(
            f"{model}: a step and its peak, and the longest that fits beside the others' weights",
            ["", *map(str, lengths), "longest"],
        )
        for variant, length in fits.items():
            shown = [cells[variant][tokens] for tokens in lengths]
            table.rows.append([NAMES[variant], *shown, str(length or "none")])
        self.write(table)

    def truth(self) -> Process:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        return Process("truth", [*command, str(HERE / "truth.py"), "--device", self.device])

    def keep_truth(self, process: Process) -> None:
        table = record.Table(
            "Two gloo processes on one device, float32, the example's model, 1024 tokens",
            ["", "loss", "one device", "relative error", "largest error of a gradient"],
        )
        for _ in range(2):
            answer = process.answer(min(self.left(), 0.5 * self.args.limit))
            self.keep(phase="truth", **answer)
            if "error" in answer:
                break
            for backend, row in answer.items():
                losses = [f"{row[key]:.7f}" for key in ("loss", "one device")]
                errors = [f"{row[key]:.1e}" for key in ("loss error", "largest gradient error")]
                table.rows.append([backend, *losses, *errors])
        process.end()
        self.write(table)

    def run(self) -> None:
        smoke = self.args.cpu_smoke
        large = "smoke" if smoke else "1b"
        truth = self.truth()
        workers = self.start(large, 8)
        try:
            self.steps(large, workers, 8, 256 if smoke else 16384)
            self.keep_truth(truth)
            self.longest(large, workers, *((512, 1024) if smoke else (32768, 2**20)))
        finally:
            for process in (*workers.values(), truth):
                process.end()
        if self.left() < 60:
            return
        workers = self.start("example", 2)
        try:
            self.steps("example", workers, 2, 256 if smoke else 65536)
        finally:
            for worker in workers.values():
                worker.end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=320, help="seconds")
    parser.add_argument("--cpu-smoke", action="store_true")
    args = parser.parse_args()
    Measurements(args).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
