"""The checker of the text tests must itself be able to fail."""

import pathlib

import pytest
from run_text_tests import Mismatch, check, parse, run_case

OUTPUT = "%1 = a(%x)\n%2 = b(%1)   : S\n%3 = c(%2)\n"


def directives(text):
    return parse(pathlib.Path("t.test"), "// RUN: x\n" + text)[0].directives


@pytest.mark.parametrize(
    "text",
    [
        "// CHECK: a(%x)\n// CHECK: c(",
        "// CHECK: a(\n// CHECK-NEXT: b(%1) : S",
        "// CHECK: b(\n// CHECK-SAME: : S\n// CHECK-NOT: b(",
        "// CHECK-NOT: c(\n// CHECK: b(",
        "// CHECK: [[V:%[0-9]+]] = b(\n// CHECK: c([[V]])",
        "// CHECK: {{%[0-9]}} = a",
    ],
)
def test_accepts(text):
    check(directives(text), OUTPUT)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("// CHECK: d(", 2),
        ("// CHECK: c(\n// CHECK: a(", 3),
        ("// CHECK: a(\n// CHECK-NEXT: c(", 3),
        ("// CHECK: b(\n// CHECK-SAME: c(", 3),
        ("// CHECK: a(\n// CHECK-NOT: b(\n// CHECK: c(", 3),
        ("// CHECK-NOT: c(", 2),
        ("// CHECK: [[V:%[0-9]+]] = a(\n// CHECK: c([[V]])", 3),
        ("// CHECK: c([[V]])", 2),
    ],
)
def test_rejects(text, line):
    with pytest.raises(Mismatch) as failure:
        check(directives(text), OUTPUT)
    assert failure.value.line == line


@pytest.mark.parametrize("text", ["input", "// RUN: x\ninput", "// RUN: x\n// CHECK-NXT: a"])
def test_rejects_malformed_files(text):
    with pytest.raises(Mismatch):
        parse(pathlib.Path("t.test"), text)


def test_cases_inherit_run_and_keep_line_numbers():
    cases = parse(pathlib.Path("t.test"), "// RUN: x\na\n// CHECK: a\n// -----\nb\n// CHECK: b\n")
    assert [(case.run, case.line) for case in cases] == [("x", 1), ("x", 4)]
    assert cases[1].directives[0].line == 6
    assert cases[1].source == "\nb\n\n"


@pytest.mark.parametrize(
    ("body", "text", "passes"),
    [
        ("cat", "hello\n// CHECK: hello", True),
        ("cat", "hello\n// ERROR: hello", False),
        ("cat >&2; exit 1", "no such\n// ERROR: no such", True),
        ("cat >&2; exit 1", "no such\n// ERROR: other", False),
        ("cat; exit 1", "hello\n// CHECK: hello", False),
        ("kill -SEGV $$", "hello\n// ERROR: hello", False),
    ],
)
def test_runs_the_tool(tmp_path, body, text, passes):
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    case = parse(tmp_path / "t.test", "// RUN: --steps=x\n" + text)[0]
    failure = run_case(case, str(tool), seconds=10)
    assert (failure is None) == passes, failure
