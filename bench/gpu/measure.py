"""What one GPU tells of AutoSP: values, memory and time of a rank, and the lengths that fit.

Started by bench/gpu/run.sh. Everything that compiles does so at the same time; then the processes
measure one after the other. What has been measured is written at once, and the time limit holds
whatever happens: the important comes first. `--only` leaves out parts.
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
from policies import POLICIES, VOCABULARY  # noqa: E402
from worker import VARIANTS  # noqa: E402

NAMES = {
    "one eager": "one device, eager",
    "one compiled": "one device, compiled",
    "ulysses eager": "Ulysses by hand, eager",
    "ulysses compiled": "Ulysses by hand, compiled",
    "autosp compiled": "AutoSP, compiled",
}
PARTS = ("policies", "truth", "checks", "variants")
RANKS = 8
KIB = 1024
ENDED = {"error": "the process ended"}


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
        self.over: dict = {}  # why there will be no more answers
        threading.Thread(target=self.read, daemon=True).start()

    def read(self) -> None:
        for line in self.process.stdout:
            if line.startswith("@"):
                self.answers.put(json.loads(line[1:]))
            else:
                print(f"{self.name}: {line}", end="", flush=True)
        self.answers.put(ENDED)

    def order(self, **order) -> None:
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(order), file=self.process.stdin, flush=True)

    def answer(self, seconds: float) -> dict:
        """The next answer; once the process has ended, or its time has, an error at once."""
        if not self.over:
            try:
                answer = self.answers.get(timeout=max(seconds, 0.1))
                if answer != ENDED:
                    return answer
                self.over = ENDED
            except queue.Empty:
                self.end()
                self.over = {"error": "out of time"}
        return self.over

    def end(self) -> None:
        """Asks first: torchrun's processes are in groups of their own and end with it."""
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
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
        options += ["--backend", "aot_eager"] * self.args.cpu_smoke
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

    def answers(self, process: Process, phase: str, subject: str, share: float):
        """Those of a process until it ends or one has no `subject`; each may take that share of the
        time limit.
        """
        while (answer := process.answer(min(self.left(), share * self.args.limit))) != ENDED:
            self.keep(phase=phase, **answer)
            if subject not in answer:
                break
            yield answer
        process.end()

    def truth(self) -> Process:
        command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        options = ["--device", self.device]
        if self.args.cpu_smoke:
            options += ["--tokens", "256", "--ways", "aot_eager", "aot_eager, offloaded"]
        return Process("truth", [*command, str(HERE / "truth.py"), *options])

    def keep_truth(self, process: Process) -> None:
        table = record.Table(
            "Two gloo processes on one device against one device, float32, the example's model",
            ["", "loss", "one device", "relative error", "largest error of a gradient"],
        )
        for answer in self.answers(process, "truth", "way", 0.5):
            cells = [answer.get("error", "").partition(":")[0], "", "", ""]
            if "loss" in answer:
                cells = [f"{answer[key]:.7f}" for key in ("loss", "one device")]
                cells += [f"{answer[key]:.1e}" for key in ("loss error", "largest gradient error")]
            table.rows.append([answer["way"], *cells])
        self.write(table)

    def checks(self) -> Process:
        options = ["--device", self.device]
        if self.args.cpu_smoke:
            options += ["--models", "llama", "mixtral"]
        return Process("checks", [str(HERE / "checks.py"), *options])

    def keep_checks(self, process: Process) -> None:
        table = record.Table(
            "autosp.check: 4 simulated ranks against one device, float32, tiny models",
            ["", "tokens", "", "worst error", "of", "s"],
        )
        for answer in self.answers(process, "checks", "model", 0.3):
            cells = [answer.get("error", "").partition(":")[0], "", "", ""]
            if "parity" in answer:
                cells = ["parity" if answer["parity"] else "MISMATCH", f"{answer['worst']:.1e}"]
                cells += [answer["of"], f"{answer['seconds']:.1f}"]
            table.rows.append([answer["model"], str(answer["length"]), *cells])
        self.write(table)

    def start_policies(self) -> dict[str, Process]:
        smoke = self.args.cpu_smoke
        options = ["--widths", "smoke" if smoke else "8b", "--ranks", str(RANKS)]
        options += ["--device", self.device]
        names = ("off", "sac", "sac, offloaded") if smoke else POLICIES
        script = str(HERE / "policies.py")
        return {p: Process(p, [script, "--policy", p, *options]) for p in names}

    def calibrate(self, worker: Process) -> None:
        worker.order(calibrate=True)
        answer = worker.answer(min(self.left(), 60))
        self.keep(phase="calibrate", **answer)
        if "error" in answer:
            return
        rows = [[what, f"{value:.4g}"] for what, value in answer.items()]
        self.write(record.Table("autosp.calibrate()", ["", "reached"], rows))

    def policies(self, workers: dict[str, Process]) -> None:
        """Memory by layer, and time, of each policy: every shape is compiled in all processes at
        once, then measured in one after the other.
        """
        smoke = self.args.cpu_smoke
        short, long = (256, 512) if smoke else (2**16, 2**17)
        few, many = (1, 2) if smoke else (2, 6)
        backend = "aot_eager" if smoke else "inductor"
        timed = {"off", "sac", "sac, offloaded"}
        shapes = [(few, short, backend), (many, short, backend), (few, long, backend)]
        if not smoke:
            shapes += [(few, short, "aot_eager"), (many, short, "aot_eager")]
        wanted = [
            (shape, policy, dict(zip(("layers", "tokens", "backend"), shape, strict=True)))
            for shape in shapes
            for policy in workers
            if shape[1] == short or policy in timed
        ]
        for _, policy, order in wanted:
            workers[policy].order(**order, steps=0)
        failed, found = set(), {}
        for shape, policy, order in wanted:
            answer = workers[policy].answer(min(self.left(), 0.6 * self.args.limit))
            if "error" in answer:
                failed.add((shape, policy))
            self.keep(phase="policies, warm-up", policy=policy, **order | answer)
        for shape, policy, order in wanted:
            if (shape, policy) in failed or self.left() < 10:
                continue
            workers[policy].order(**order, steps=4, memory=True)
            answer = workers[policy].answer(min(self.left(), 60))
            self.keep(phase="policies", policy=policy, **order | answer)
            if "error" not in answer:
                found[shape, policy] = answer
        for compiler in dict.fromkeys(shape[2] for shape in shapes):
            at = [(layers, short, compiler) for layers in (few, many)]
            self.write(memory_table(found, list(workers), at, self.model_name()))
        timings = [(many, short, backend), (few, long, backend)]
        self.write(time_table(found, list(workers), timings, self.model_name()))

    def model_name(self) -> str:
        widths = "small" if self.args.cpu_smoke else "8B"
        return f"{widths} widths, {VOCABULARY} words, bf16, one rank of {RANKS}"

    def run(self) -> None:
        parts = set(self.args.only)
        with contextlib.ExitStack() as processes:

            def until_the_end(workers):
                for worker in workers:
                    processes.callback(worker.end)

            if "policies" in parts:
                workers = self.start_policies()
                until_the_end(workers.values())
                self.calibrate(workers["off"])
            if "truth" in parts:
                truth = self.truth()
                until_the_end([truth])
            if "checks" in parts:
                checks = self.checks()
                until_the_end([checks])
            if "policies" in parts:
                self.policies(workers)
                for worker in workers.values():
                    worker.end()
            if "truth" in parts:
                self.keep_truth(truth)
            if "checks" in parts:
                self.keep_checks(checks)
            if "variants" in parts and self.left() > 30:
                self.variants()

    def variants(self) -> None:
        smoke = self.args.cpu_smoke
        large = "smoke" if smoke else "1b"
        names = ("one eager", "autosp compiled") if smoke else VARIANTS
        workers = self.start(large, RANKS, names)
        try:
            self.steps(large, workers, RANKS, 256 if smoke else 16384)
            self.longest(large, workers, *((512, 1024) if smoke else (32768, 2**20)))
        finally:
            for process in workers.values():
                process.end()
        if smoke or self.left() < 60:
            return
        workers = self.start("example", 2)
        try:
            self.steps("example", workers, 2, 65536)
        finally:
            for worker in workers.values():
                worker.end()


def memory_table(found: dict, policies: list[str], shapes: list, model: str) -> record.Table:
    (few, tokens, compiler), (many, *_) = shapes
    table = record.Table(
        f"{model}, {tokens} tokens, {compiler}: KiB per local token, parameters and their gradients"
        " aside",
        [
            "",
            "kept, a layer",
            "peak, a layer",
            f"peak of {few}",
            "predicted",
            f"peak of {many}",
            "predicted",
            "on the host",
        ],
    )
    for policy in policies:
        pair = [found.get((shape, policy), {}) for shape in shapes]
        if any("peak_bytes" not in answer for answer in pair):
            continue
        small, large = pair

        def local(nbytes):
            return nbytes / KIB / (tokens // RANKS)

        def slope(key, small=small, large=large):
            return f"{local(large[key] - small[key]) / (many - few):.3f}"

        cells = [slope("kept_bytes"), slope("peak_bytes")]
        for answer in pair:
            cells.append(f"{local(answer['peak_bytes']):.1f}")
            predicted = answer.get("predicted_peak_bytes")
            error = predicted and predicted / answer["peak_bytes"] - 1
            cells.append("" if predicted is None else f"{local(predicted):.1f} ({error:+.1%})")
        table.rows.append([policy, *cells, f"{local(large.get('host_bytes', 0)):.1f}"])
    return table


def time_table(found: dict, policies: list[str], shapes: list, model: str) -> record.Table:
    columns = [f"{layers} layers, {tokens} tokens, s" for layers, tokens, _ in shapes]
    table = record.Table(
        f"{model}: a step", ["", *(text for column in columns for text in (column, "over off"))]
    )
    for policy in policies:
        cells = []
        for shape in shapes:
            times = [found.get((shape, name), {}).get("seconds") for name in (policy, "off")]
            medians = [statistics.median(seconds) for seconds in times if seconds]
            cells.append(f"{medians[0]:.4f}" if times[0] else "")
            cells.append(f"{medians[0] / medians[1]:.3f}" if all(times) else "")
        table.rows.append([policy, *cells])
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--limit", type=float, default=320, help="seconds")
    parser.add_argument("--cpu-smoke", action="store_true")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    Measurements(args).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
