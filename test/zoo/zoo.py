"""Every causal-LM architecture of transformers, tiny, over 2 and 4 simulated ranks against one
device.

    python test/zoo/zoo.py [NAME …] [--jobs 2] [--record docs/zoo.md]

Each model is captured twice, with symbolic sizes for 2 ranks and with static ones for 4. The table
says of each: parity; refused, with the reason; not capturable, with torch's reason; or that it
doesn't train by itself. A mismatch, an error that is no refusal, or a model that was at parity in
the recorded table and is not any more, fails the run.
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

RECORD = pathlib.Path(__file__).with_name("zoo.json")
SECONDS = 180  # for one model
LENGTH = 16


@dataclasses.dataclass
class Result:
    """`status`: "parity", "refused", "not capturable", "does not train", "MISMATCH" or "ERROR";
    `detail`: why. The numbers are those of the plan for 4 ranks.
    """

    name: str
    status: str
    detail: str = ""
    seconds: float = 0.0
    nodes: int = 0
    plan_ms: float = 0.0  # the engine's, for one plan
    exchanged_bytes: float = 0.0  # sent in forward and backward, per token and layer
    replicated: float = 0.0  # share of the operators' results that every rank computes in full


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
        result = Result(name, "not capturable", f"took more than {SECONDS} s")
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
            return Result(name, "not capturable", _first_line(refusal))
        except TimeoutError:
            raise
        except Exception as error:
            return Result(name, "not capturable", f"{type(error).__name__}: {_first_line(error)}")
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
    return result


def _first_line(error):
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--log", type=pathlib.Path, help="write every result as a line of JSON")
    options = parser.parse_args()
    import architectures

    names = options.names or architectures.NAMES
    results = []
    log = options.log.open("a") if options.log else None
    with concurrent.futures.ProcessPoolExecutor(options.jobs, max_tasks_per_child=20) as pool:
        for number, result in enumerate(pool.map(try_model, names), 1):
            results.append(result)
            print(
                f"[{number}/{len(names)}] {result.name}: {result.status} {result.detail[:200]}",
                flush=True,
            )
            if log:
                print(json.dumps(dataclasses.asdict(result)), file=log, flush=True)
    print(collections.Counter(result.status for result in results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
