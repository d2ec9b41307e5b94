"""All measurements, one after the other: what `make bench` runs.

python bench/run.py             writes bench/results/*.json and bench/results/README.md
python bench/run.py --quick     smoke sizes, some minutes; writes nothing
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from record import RESULTS, Table

SCRIPTS = ("engine.py", "remat.py", "step.py", "throughput.py")


def summary(results: Path) -> str:
    """The tables of all files of results, for people."""
    parts = ["# Latest figures\n\nWritten by `make bench` from the files beside it.\n"]
    for path in sorted(results.glob("*.json")):
        record = json.loads(path.read_text())
        parts.append(f"## {path.stem}\n")
        parts.append(
            f"`{record['command']}`, {record['date'][:10]}, torch {record['torch']},"
            f" {record['device']}, load of the machine {record['load']}\n"
        )
        parts += [Table(**table).markdown() for table in record["tables"]]
        parts += [f"- {'met' if met else 'not met'}: {aim}" for aim, met in record["aims"].items()]
        parts.append("")
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    failed = []
    for script in SCRIPTS:
        began = time.monotonic()
        print(f"== bench/{script}", flush=True)
        command = [sys.executable, str(Path(__file__).with_name(script))]
        status = subprocess.call(command + ["--quick"] * args.quick)
        seconds = time.monotonic() - began
        print(f"== {script}: {'failed' if status else 'done'} ({seconds:.0f} s)\n", flush=True)
        failed += [script] if status else []
    if not args.quick:
        (RESULTS / "README.md").write_text(summary(RESULTS))
        print(f"the figures are in {RESULTS}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
