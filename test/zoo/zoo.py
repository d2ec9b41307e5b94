"""Every causal-LM architecture of transformers, tiny, over 2 and 4 simulated ranks against one
device.

    python test/zoo/zoo.py [NAME …] [--jobs 2] [--record]

Each model is captured twice: with symbolic sizes for 2 and 4 ranks, and with static ones, for a
length that 4 ranks don't divide. The table says of each: parity; refused, with the reason;
not captured, with torch's reason; or that it doesn't train by itself. A mismatch, an error that is
no refusal, and a model that was at parity in the recorded table and is not any more fail the run.
--record writes the table, to docs/zoo.md for people and to zoo.json for the next run; of NAMEs
alone, it replaces their rows.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import logging
import multiprocessing
import os
import pathlib
import sys
import time

import architectures
import torch
import torch._dynamo
from autosp.check import Reference
from autosp.errors import Unsupported

HERE = pathlib.Path(__file__).parent
RECORD = HERE / "zoo.json"
TABLE = HERE.parent.parent / "docs" / "zoo.md"
SECONDS = 300  # for one model
LENGTH = 64  # so many that work on all of them is not the cheapest choice
RAGGED = 61
WRONG = ("MISMATCH", "ERROR")


@dataclasses.dataclass
class Result:
    """`status`: "parity", "refused", "not captured", "does not train", "MISMATCH" or "ERROR";
    `detail`: why. The numbers are those of the plan for 2 ranks.
    """

    name: str
    status: str
    detail: str = ""
    ragged: str = ""  # "yes", or why a length that the ranks don't divide is refused
    seconds: float = 0.0
    engine_ms: float = 0.0
    sent_bytes: int = 0  # of activations, by a rank in a step, for each of its tokens and layers
    repeated: float = 0.0  # the share of a rank's arithmetic that every rank does


def try_model(name):
    """In a process of its own, which takes what the model leaves behind with it."""
    start = time.perf_counter()
    mine, other = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_child, args=(name, other))
    process.start()
    other.close()
    try:
        if mine.poll(SECONDS):
            result = mine.recv()
        else:
            result = Result(name, "not captured", f"took more than {SECONDS} s")
    except EOFError:
        process.join()
        result = Result(name, "ERROR", f"the process ended with {process.exitcode}")
    process.kill()
    process.join()
    result.seconds = round(time.perf_counter() - start, 1)
    return result


def _child(name, pipe):
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.CRITICAL)
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    pipe.send(_try(name))


def _try(name):
    try:
        model = architectures.tiny_model(name)
        _loss(model(**architectures.inputs(model, LENGTH))).backward()
        model.zero_grad()
    except Exception as error:
        return Result(name, "does not train", _first_line(error))
    result = _compare_all(name, model)
    if result.status == "MISMATCH" and not _captured_well(model):
        # Asked for a mask, transformers answers otherwise while it is traced.
        model.set_attn_implementation("eager")
        result = _compare_all(name, model)
        if result.status == "MISMATCH" and not _captured_well(model):
            result.status = "not captured"
            result.detail = "what torch captures computes something else on one device, too"
        elif result.status == "parity":
            result.detail = "with eager attention: else the captured program has another mask"
    return result


def _compare_all(name, model):
    result = Result(name, "parity")
    status, detail, reports = _compare(model, LENGTH, (2, 4), dynamic=True)
    if status != "parity":
        result.status, result.detail = status, detail
        return result
    report = reports[0]
    sent = [row for row in report.plan.exchanges if row.source != "gradients"]
    sent_bytes = sum(row.count * (row.bytes + row.backward_bytes) for row in sent)
    result.sent_bytes = round(sent_bytes / LENGTH / architectures.layers(model))  # 2 of 2 LENGTH
    result.repeated = round(sum(row.share for row in report.plan.repeated), 4)
    result.engine_ms = report.engine_ms
    status, detail, _ = _compare(model, RAGGED, (4,), dynamic=False)
    if status in WRONG:
        result.status, result.detail = status, detail
    result.ragged = "yes" if status == "parity" else detail
    return result


def _compare(model, length, all_ranks, dynamic):
    """(status, detail, reports)"""
    torch._dynamo.reset()
    try:
        reference = Reference(model, architectures.inputs(model, length), dynamic=dynamic)
    except Exception as error:
        kind = "" if isinstance(error, Unsupported) else f"{type(error).__name__}: "
        return "not captured", kind + _first_line(error), []
    reports = []
    for ranks in all_ranks:
        at = f"{length} tokens, {ranks} ranks: "
        try:
            reports.append(reference.compare(ranks))
        except Unsupported as refusal:
            return "refused", at + str(refusal), reports
        except Exception as error:
            return "ERROR", f"{at}{type(error).__name__}: {error}", reports
        if not reports[-1].parity:
            return "MISMATCH", f"{at}\n{reports[-1]}", reports
    return "parity", "", reports


def _captured_well(model):
    return _compare(model, LENGTH, (1,), dynamic=True)[0] == "parity"


def _loss(outputs):
    loss = getattr(outputs, "loss", None)
    return outputs[0].sum() if loss is None else loss


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def table(results):
    counts = collections.Counter(result.status for result in results)
    ragged = sum(result.ragged == "yes" for result in results)
    lines = [
        "# Architectures of transformers",
        "",
        "What `make zoo` found: a training step of a tiny model of every causal-LM architecture,"
        f" over 2 and 4 ranks with {LENGTH} tokens (symbolic sizes), against one device: the loss,"
        f" every output and every gradient. *Any length*: the same with {RAGGED} tokens over 4"
        " ranks (static sizes). *Sent*: bytes of activations that a rank sends in a step"
        " over 2 ranks, forward and backward, for each of its tokens and each layer, in float32 at"
        " these tiny widths (a hidden state of a token has 256 bytes in most). *Repeated*: the"
        " share of a rank's arithmetic that every other rank does, too.",
        "",
        ", ".join(f"{status}: {count}" for status, count in counts.most_common())
        + f"; any length: {ragged}.",
        "",
        "| architecture | result | any length | sent | repeated | notes |",
        "|---|---|---|---|---|---|",
    ]
    for r in results:
        sent = f"{r.sent_bytes} B | {100 * r.repeated:.1f} %" if r.status == "parity" else " | "
        any_length = "" if r.status != "parity" else "yes" if r.ragged == "yes" else "refused"
        why = (r.detail or r.ragged.removeprefix("yes")).replace("|", "\\|")
        lines.append(f"| {r.name} | {r.status} | {any_length} | {sent} | {why} |")
    return "\n".join(lines) + "\n"


def _cut(text, length):
    return text if len(text) <= length else text[:length].rpartition(" ")[0] + " …"


def recorded():
    rows = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    return {name: Result(name, **row) for name, row in rows.items()}


def record(results):
    rows = recorded() | {result.name: result for result in results}
    rows = [rows[name] for name in architectures.NAMES if name in rows]
    TABLE.write_text(table(rows))
    fields = ("status", "detail", "ragged", "sent_bytes", "repeated")
    kept = {row.name: {field: getattr(row, field) for field in fields} for row in rows}
    RECORD.write_text(json.dumps(kept, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", action="store_true", help="write docs/zoo.md and zoo.json")
    options = parser.parse_args()
    names = options.names or architectures.NAMES
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for number, result in enumerate(pool.map(try_model, names), 1):
            results.append(result)
            result.detail = _cut(" ".join(result.detail.split()), 400)
            result.ragged = _cut(" ".join(result.ragged.split()), 400)
            notes = (
                f"[{number}/{len(names)}] {result.name}: {result.status} ({result.seconds} s)",
                result.detail,
                f"any length: {result.ragged}" if result.ragged not in ("", "yes") else "",
            )
            print(*filter(None, notes), flush=True)
    print(", ".join(f"{k}: {v}" for k, v in collections.Counter(r.status for r in results).items()))
    print(f"engine: {sum(r.engine_ms for r in results):.0f} ms for all plans")
    good = {name for name, row in recorded().items() if row.status == "parity"}
    lost = [r.name for r in results if r.name in good and r.status != "parity"]
    if lost:
        print(f"no longer at parity: {', '.join(lost)}")
    if options.record:
        record(results)
    return bool(lost or any(result.status in WRONG for result in results))


if __name__ == "__main__":
    sys.exit(main())
