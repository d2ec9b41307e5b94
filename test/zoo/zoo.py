"""Every causal-LM architecture of transformers, tiny, over 2 and 4 simulated ranks against one
device.

    python test/zoo/zoo.py [NAME …] [--jobs 2] [--record]

Each model is captured twice, with symbolic sizes for 2 ranks and with static ones for 4. The table
says of each: parity; refused, with the reason; not captured, with torch's reason; or that it
doesn't train by itself. A mismatch, an error that is no refusal, and a model that was at parity in
the recorded table and is not any more fail the run. --record writes the table, to docs/zoo.md for
people and to zoo.json for the next run.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import logging
import os
import pathlib
import signal
import sys
import time

HERE = pathlib.Path(__file__).parent
RECORD = HERE / "zoo.json"
TABLE = HERE.parent.parent / "docs" / "zoo.md"
SECONDS = 180  # for one model
LENGTH = 16
WRONG = ("MISMATCH", "ERROR")


@dataclasses.dataclass
class Result:
    """`status`: "parity", "refused", "not captured", "does not train", "MISMATCH" or "ERROR";
    `detail`: why. The numbers are those of the plan for 2 ranks.
    """

    name: str
    status: str
    detail: str = ""
    seconds: float = 0.0
    plan_ms: float = 0.0  # the engine's time
    exchanged: float = 0.0  # bytes of activations that a rank sends in a step, for each token


def try_model(name):
    import torch

    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.alarm(SECONDS)
    start = time.perf_counter()
    try:
        result = _try(name)
    except TimeoutError:
        result = Result(name, "not captured", f"took more than {SECONDS} s")
    finally:
        signal.alarm(0)
    result.seconds = round(time.perf_counter() - start, 1)
    return result


def _out_of_time(*_):
    raise TimeoutError


def _try(name):
    import architectures
    import torch
    from autosp.check import Reference
    from autosp.errors import Unsupported

    torch._dynamo.reset()
    try:
        model = architectures.tiny_model(name)
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(3, architectures.VOCABULARY, (2, LENGTH), generator=generator)
        inputs = {"input_ids": ids, "labels": ids}
        loss = model(**inputs).loss
        loss.backward()
        model.zero_grad()
    except TimeoutError:
        raise
    except Exception as error:
        return Result(name, "does not train", _first_line(error))
    result = Result(name, "parity")
    for ranks, dynamic in [(2, True), (4, False)]:
        torch._dynamo.reset()
        try:
            reference = Reference(model, inputs, dynamic=dynamic)
        except Unsupported as refusal:
            return Result(name, "not captured", _first_line(refusal))
        except TimeoutError:
            raise
        except Exception as error:
            return Result(name, "not captured", f"{type(error).__name__}: {_first_line(error)}")
        try:
            report = reference.compare(ranks)
        except Unsupported as refusal:
            return Result(name, "refused", f"{ranks} ranks: {refusal}")
        except TimeoutError:
            raise
        except Exception as error:
            return Result(name, "ERROR", f"{ranks} ranks: {type(error).__name__}: {error}")
        if not report.parity:
            return Result(name, "MISMATCH", f"{ranks} ranks:\n{report}")
        if dynamic:
            tokens = ids.numel() // ranks
            sent = [row for row in report.plan.exchanges if row.source != "gradients"]
            result.exchanged = sum(r.count * (r.bytes + r.backward_bytes) for r in sent) / tokens
            result.plan_ms = report.engine_ms
    return result


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def table(results):
    counts = collections.Counter(result.status for result in results)
    lines = [
        "# Architectures of transformers",
        "",
        "What `make zoo` found: a training step of a tiny model of every causal-LM architecture,"
        " over 2 ranks (symbolic sizes) and 4 ranks (static ones), against one device: the loss,"
        " every output and every gradient.",
        "",
        ", ".join(f"{status}: {count}" for status, count in counts.most_common()) + ".",
        "",
        "| architecture | result | sent per token | why |",
        "|---|---|---|---|",
    ]
    for result in results:
        sent = f"{result.exchanged / 1024:.1f} KiB" if result.status == "parity" else ""
        why = " ".join(result.detail.replace("|", "\\|").split())
        lines.append(f"| {result.name} | {result.status} | {sent} | {why[:400]} |")
    return "\n".join(lines) + "\n"


def regressions(results):
    """Models that were at parity when the table was recorded."""
    if not RECORD.exists():
        return []
    recorded = json.loads(RECORD.read_text())
    return [r.name for r in results if recorded.get(r.name) == "parity" and r.status != "parity"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", action="store_true", help="write docs/zoo.md and zoo.json")
    options = parser.parse_args()
    import architectures

    names = options.names or architectures.NAMES
    results = []
    with concurrent.futures.ProcessPoolExecutor(options.jobs, max_tasks_per_child=20) as pool:
        for number, result in enumerate(pool.map(try_model, names), 1):
            results.append(result)
            line = f"[{number}/{len(names)}] {result.name}: {result.status}"
            print(f"{line} {' '.join(result.detail.split())[:300]}", flush=True)
    print(", ".join(f"{k}: {v}" for k, v in collections.Counter(r.status for r in results).items()))
    print(f"engine: {sum(r.plan_ms for r in results):.0f} ms for all plans")
    lost = regressions(results)
    if lost:
        print(f"no longer at parity: {', '.join(lost)}")
    if options.record and not options.names:
        TABLE.write_text(table(results))
        RECORD.write_text(json.dumps({r.name: r.status for r in results}, indent=0) + "\n")
    return bool(lost or any(result.status in WRONG for result in results))


if __name__ == "__main__":
    sys.exit(main())
