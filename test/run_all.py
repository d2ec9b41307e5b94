#!/usr/bin/env python3
"""Runs every kind of test one after the other and sums up.

  --fast   leaves out the tests marked gloo, inductor or slow, and the fuzzing
  --asan   only the C++ and text tests, on the build with sanitizers

The last line is `N passed, M failed`; it is also written to build/results/summary. A kind of test
whose runner breaks (no counts, a crash, out of time) counts as one failure. The exit status is zero
when nothing failed and something ran.
"""

import argparse
import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build/results"
FUZZ_SECONDS = 10
WORKERS = 2  # more would need more memory than a small machine has


def run(command: list[str], minutes: float, **environment: str) -> int:
    """Runs a command in a process group of its own that is killed when its time is up."""
    print(f"\n== {' '.join(command)}", flush=True)
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        return process.wait(minutes * 60)
    except subprocess.TimeoutExpired:
        print(f"no end after {minutes:g} minutes: killed", flush=True)
        return -1
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def junit(path: pathlib.Path) -> tuple[int, int]:
    """(passed, failed) of a JUnit file; skipped tests are neither."""
    suites = list(xml.etree.ElementTree.parse(path).getroot().iter("testsuite"))
    keys = ("tests", "failures", "errors", "skipped", "disabled")
    tests, failures, errors, *rest = (sum(int(s.get(key) or 0) for s in suites) for key in keys)
    return tests - failures - errors - sum(rest), failures + errors


def unit_tests(build: str) -> tuple[int, int]:
    report = RESULTS / "unit.xml"
    command = ["ctest", "--test-dir", build, "--output-on-failure", "--timeout", "120"]
    command += ["--parallel", str(os.cpu_count()), "--output-junit", str(report)]
    status = run(command, minutes=10)
    return settle(status, *junit(report))


def text_tests(build: str) -> tuple[int, int]:
    report = RESULTS / "text"
    command = [sys.executable, "test/run_text_tests.py", "--opt", f"{build}/autosp-opt"]
    status = run([*command, "--counts", str(report)], minutes=10)
    return settle(status, *map(int, report.read_text().split()))


def python_tests(fast: bool) -> tuple[int, int]:
    report = RESULTS / "python.xml"
    command = [sys.executable, "-m", "pytest", "-q", "--durations=10", f"--junitxml={report}"]
    command += ["-n", str(WORKERS), "--dist", "worksteal"]
    command += ["-m", "not gloo and not inductor and not slow"] if fast else []
    # Tiny tensors gain nothing from threads, and the workers would take each other's cores.
    status = run(command, minutes=5 if fast else 40, OMP_NUM_THREADS="1")
    return settle(status, *junit(report))


def fuzz() -> tuple[int, int]:
    drivers = [source.stem for source in sorted(ROOT.glob("test/fuzz/*_fuzz.cc"))]
    build = ["cmake", "--build", "build/asan", "--target", *drivers]
    configure = ["cmake", "--preset", "asan", "--log-level=WARNING"]
    if run(configure, minutes=2) or run(build, minutes=20):
        return 0, 1
    results = [run([f"build/asan/{driver}", str(FUZZ_SECONDS)], minutes=5) for driver in drivers]
    return results.count(0), len(results) - results.count(0)


def settle(status: int, passed: int, failed: int) -> tuple[int, int]:
    """A runner that failed without a failed test (a crash, no tests) is a failure itself."""
    return passed, max(failed, int(status != 0))


def main() -> int:
    parser = argparse.ArgumentParser(description="Runs the tests.")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--asan", action="store_true")
    arguments = parser.parse_args()

    RESULTS.mkdir(parents=True, exist_ok=True)
    for old in RESULTS.iterdir():
        old.unlink()
    build = "build/asan" if arguments.asan else "build/dev"
    kinds = {"C++": lambda: unit_tests(build), "text": lambda: text_tests(build)}
    if not arguments.asan:
        kinds["Python"] = lambda: python_tests(arguments.fast)
    if not arguments.asan and not arguments.fast:
        kinds["fuzz"] = fuzz

    total, lines = [0, 0], []
    for name, kind in kinds.items():
        start = time.monotonic()
        try:
            passed, failed = kind()
        except (OSError, ValueError, xml.etree.ElementTree.ParseError) as error:
            print(f"{name} tests: the runner left no result: {error}", flush=True)
            passed, failed = 0, 1
        total = [total[0] + passed, total[1] + failed]
        seconds = time.monotonic() - start
        lines.append(f"{name:8} {passed:5} passed {failed:4} failed {seconds:7.1f} s")
    closing = f"{total[0]} passed, {total[1]} failed"
    print("\n== all\n" + "\n".join(lines) + "\n" + closing, flush=True)
    (RESULTS / "summary").write_text(closing + "\n")
    return 0 if total[0] and not total[1] else 1


if __name__ == "__main__":
    sys.exit(main())
