"""Random programs on simulated ranks against one device: equal in float64, or refused.

    python test/python/random_programs.py --count 20000 --seed 1

prints what became of them, refusals by operator, and every failure as the smallest program that
still fails that way.
"""

import argparse
import collections
import sys
import time

import torch
from generate_program import generate
from on_ranks import run, run_one
from shrink import shrink


class Summary:
    def __init__(self):
        self.kinds = collections.Counter()
        self.refused = collections.Counter()
        self.seen = collections.Counter()  # by operator: programs that ran or were refused
        self.held = collections.Counter()  # programs with it that were right
        self.failures = []

    def add(self, outcome):
        self.kinds[outcome.kind] += 1
        if outcome.failed:
            self.failures.append(outcome)
        if outcome.kind in ("parity", "refused"):
            self.seen.update(outcome.program.targets())
        if outcome.kind == "parity":
            self.held.update(outcome.program.targets())
        if outcome.kind == "refused":
            self.refused[outcome.reason] += 1

    @property
    def refusal_rate(self):
        ran = self.kinds["parity"] + self.kinds["refused"]
        return self.kinds["refused"] / ran if ran else 0.0

    def line(self):
        kinds = ("parity", "refused", "mismatch", "error", "unstable", "invalid")
        return ", ".join(f"{kind} {self.kinds[kind]}" for kind in kinds)

    def __str__(self):
        lines = [f"{self.line()}; {self.refusal_rate:.0%} refused"]
        lines += [f"{count:6}  refused: {reason}" for reason, count in self.refused.most_common()]
        lines.append(f"{'programs':>8} {'right':>6}  operator")
        lines += [
            f"{count:8} {self.held[target] / count:6.0%}  {target}"
            for target, count in sorted(self.seen.items())
        ]
        return "\n".join(lines)


def sweep(seeds, batch=64, progress=None):
    """The summary of the programs of these seeds, failures as they were found."""
    torch.set_num_threads(1)
    summary, waiting = Summary(), collections.defaultdict(list)
    start = time.monotonic()

    def flush(ranks):
        for outcome in run(waiting.pop(ranks)):
            summary.add(outcome)
            if progress and outcome.failed:
                progress(f"seed {outcome.program.seed}: {outcome.kind}: {outcome.text[:300]}")

    for number, seed in enumerate(seeds):
        program = generate(seed)
        waiting[program.ranks].append(program)
        if len(waiting[program.ranks]) == batch:
            flush(program.ranks)
        if progress and number and number % 1000 == 0:
            progress(f"{number} programs, {time.monotonic() - start:.0f} s: {summary.line()}")
    for ranks in list(waiting):
        flush(ranks)
    return summary


def shrunk(outcome):
    """The smallest program that fails in the same way."""

    def fails(program):
        other = run_one(program)
        return other.failed and (other.kind, other.reason) == (outcome.kind, outcome.reason)

    def fails_somehow(program):
        return run_one(program).kind == outcome.kind

    by_text = outcome.kind == "error"
    return run_one(shrink(outcome.program, fails if by_text else fails_somehow))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1, help="of the first program")
    parser.add_argument("--print", action="store_true", help="prints every program")
    parser.add_argument("--shrink", type=int, default=20, help="how many failures to shrink")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    if arguments.print:
        for seed in seeds:
            print(generate(seed), "", sep="\n")
    say = lambda text: print(text, flush=True)  # noqa: E731
    start = time.monotonic()
    summary = sweep(seeds, progress=say)
    seconds = time.monotonic() - start
    for outcome in summary.failures[: arguments.shrink]:
        say(f"\n{shrunk(outcome)}\n")
    say(summary)
    say(f"{arguments.count} programs in {seconds:.0f} s")
    return 1 if summary.failures else 0


if __name__ == "__main__":
    sys.exit(main())
