#!/usr/bin/env python3
"""Runs the text tests: textual IR in, expected lines out.

A test is a file test/**/*.test. A line `// -----` splits it into independent cases. A case reads

    // RUN: --steps=place,elaborate --sp=2
    graph ... {                                  the input, everything that is not a directive
    }
    // CHECK: all_to_all %q                      the next output line that contains this
    // CHECK-NEXT: all_to_all %k                 the line right after the one matched before
    // CHECK-SAME: bytes                         further on in the line matched before
    // CHECK-NOT: all_gather                     in no line between the matches around it
    // ERROR: length 7 is not divisible by 2     the run fails and says this

and runs `autosp-opt <RUN arguments> -` with the case on standard input (the directives blanked, so
that line numbers in messages are those of the case). A case without RUN takes the RUN of the case
before it. With an ERROR line the run must fail, without one it must succeed. Blanks match any
number of blanks. `{{...}}` is a regular expression; `[[NAME:regex]]` also remembers what matched
and `[[NAME]]` asks for the same text again (NAME in capitals).

Prints each failure (file and line of the expectation, the output) and the counts.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import subprocess
import sys

DIRECTIVE = re.compile(r"^\s*//\s*(RUN|CHECK(?:-[A-Z]+)?|ERROR):\s?(.*)$")
KINDS = {"CHECK", "CHECK-NEXT", "CHECK-SAME", "CHECK-NOT"}
PIECE = re.compile(r"\{\{(.*?)\}\}|\[\[([A-Z][A-Z0-9_]*)(?::(.*?))?\]\]")


class Mismatch(Exception):
    """The reason why a case fails; `line` is the file's line that asked for it."""

    def __init__(self, line: int, reason: str):
        super().__init__(reason)
        self.line = line


@dataclasses.dataclass
class Directive:
    line: int
    kind: str
    text: str


@dataclasses.dataclass
class Case:
    path: pathlib.Path
    line: int
    run: str
    source: str
    directives: list[Directive]


def parse(path: pathlib.Path, text: str) -> list[Case]:
    """Splits a test file into cases. Raises Mismatch on a malformed one."""
    cases, run, first = [], None, 1
    for chunk in re.split(r"(?m)^// -----.*$", text):
        directives, source = [], []
        for offset, line in enumerate(chunk.split("\n")):
            match = DIRECTIVE.match(line)
            source.append("" if match else line)
            if not match:
                continue
            kind, rest = match.group(1), match.group(2).strip()
            if kind == "RUN":
                run = rest
            elif (kind in KINDS or kind == "ERROR") and rest:
                directives.append(Directive(first + offset, kind, rest))
            else:
                raise Mismatch(first + offset, f"unknown or empty directive {kind}")
        if run is None:
            raise Mismatch(first, "no RUN line")
        if not directives:
            raise Mismatch(first, "the case checks nothing")
        cases.append(Case(path, first, run, "\n".join(source), directives))
        first += chunk.count("\n")
    return cases


def squeeze(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip()


def pattern(text: str, names: dict[str, str]) -> re.Pattern[str]:
    """The expression that finds `text` in a squeezed line, given what was remembered so far."""
    text, parts, end, defined = squeeze(text), [], 0, set()
    for match in PIECE.finditer(text):
        parts.append(re.escape(text[end : match.start()]))
        regex, name, definition = match.groups()
        if regex is not None:
            parts.append(f"(?:{regex})")
        elif definition is not None:
            parts.append(f"(?P<{name}>{definition})")
            defined.add(name)
        elif name in defined:
            parts.append(f"(?P={name})")
        elif name in names:
            parts.append(re.escape(names[name]))
        else:
            raise KeyError(name)
        end = match.end()
    return re.compile("".join([*parts, re.escape(text[end:])]))


def check(directives: list[Directive], output: str) -> None:
    """Raises Mismatch at the first directive that the output does not meet."""
    lines = [squeeze(line) for line in output.splitlines()]
    names: dict[str, str] = {}
    row, column = -1, 0  # the line matched last, and where in it the match ended
    forbidden: list[tuple[Directive, re.Pattern[str]]] = []

    def reject(until: int) -> None:
        for directive, expression in forbidden:
            for index in range(row + 1, until):
                if expression.search(lines[index]):
                    raise Mismatch(directive.line, f"forbidden line: {lines[index]}")
        forbidden.clear()

    for directive in directives:
        try:
            expression = pattern(directive.text, names)
        except KeyError as error:
            raise Mismatch(directive.line, f"[[{error.args[0]}]] was never set") from None
        if directive.kind == "CHECK-NOT":
            forbidden.append((directive, expression))
            continue
        if directive.kind == "CHECK":
            candidates = range(row + 1, len(lines))
        elif directive.kind == "CHECK-NEXT":
            candidates = range(row + 1, min(row + 2, len(lines)))
        else:
            candidates = range(max(row, 0), row + 1)
        start = column if directive.kind == "CHECK-SAME" else 0
        for index in candidates:
            if match := expression.search(lines[index], start):
                break
        else:
            seen = f"; the line is: {lines[candidates[0]]}" if len(candidates) == 1 else ""
            raise Mismatch(directive.line, f"not found: {directive.text}{seen}")
        reject(index)
        row, column = index, match.end()
        names.update(match.groupdict())
    reject(len(lines))


def run_case(case: Case, opt: str, seconds: float) -> str | None:
    """None when the case passes, else what to print."""
    output = ""
    try:
        result = subprocess.run(
            [opt, *shlex.split(case.run), "-"],
            input=case.source,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        output = result.stdout + result.stderr
        errors = [d for d in case.directives if d.kind == "ERROR"]
        if result.returncode < 0 or result.returncode > 125 or "Sanitizer" in result.stderr:
            raise Mismatch(case.line, f"the run crashed (exit status {result.returncode})")
        if errors and result.returncode == 0:
            raise Mismatch(errors[0].line, "the run succeeded where an error was expected")
        if not errors and result.returncode != 0:
            raise Mismatch(case.line, f"the run failed (exit status {result.returncode})")
        for error in errors:
            if not pattern(error.text, {}).search(squeeze(result.stderr.replace("\n", " "))):
                raise Mismatch(error.line, f"the error does not say: {error.text}")
        check([d for d in case.directives if d.kind != "ERROR"], result.stdout)
    except subprocess.TimeoutExpired:
        return f"{case.path}:{case.line}: no end after {seconds:g} seconds"
    except (Mismatch, re.error) as failure:
        line = getattr(failure, "line", case.line)
        command = f"autosp-opt {case.run}"
        return f"{case.path}:{line}: {failure}\n--- {command}\n{output}---"
    return None


def main() -> int:
    root = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Runs the text tests.")
    parser.add_argument("--opt", default=str(root.parent / "build/dev/autosp-opt"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=60, help="seconds per case")
    parser.add_argument("--counts", type=pathlib.Path, help="file that gets: passed failed")
    parser.add_argument("paths", nargs="*", type=pathlib.Path, help="files or folders")
    arguments = parser.parse_args()

    files: list[pathlib.Path] = []
    for path in arguments.paths or [root]:
        files += sorted(path.rglob("*.test")) if path.is_dir() else [path]
    cases, failures = [], []
    for path in files:
        try:
            cases += parse(path, path.read_text())
        except Mismatch as failure:
            failures.append(f"{path}:{failure.line}: {failure}")
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        results = list(pool.map(lambda c: run_case(c, arguments.opt, arguments.timeout), cases))
    failures += [result for result in results if result is not None]
    passed = results.count(None)
    for failure in failures:
        print(f"FAIL {failure}\n")
    print(f"text tests: {passed} passed, {len(failures)} failed in {len(files)} files")
    if arguments.counts:
        arguments.counts.write_text(f"{passed} {len(failures)}\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
