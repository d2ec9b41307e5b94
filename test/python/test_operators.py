"""Every operator of the table in the documentation, in every spelling, over ranks against one
device; and the table itself is what the compiler knows.
"""

import pathlib
import subprocess

import generate_attention
import operator_cases_made  # noqa: F401  each registers its cases
import operator_cases_places  # noqa: F401
import operator_cases_reduced  # noqa: F401
import pytest
import torch
from generate import Generator
from generated import Program, resolve
from on_ranks import run
from operator_case import CASES, ELSEWHERE, REFUSED
from operator_cases import elementwise

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = ROOT / "docs/operators.md"
ELEMENTWISE = "Elementwise"


def rows():
    """(family, name, spellings) of every operator."""
    family, found = "", []
    for line in TABLE.read_text().splitlines():
        if line.startswith("## "):
            family = line[3:]
        elif family and line.startswith("| ") and not line.startswith("| operator |"):
            name, _, spelled = (cell.strip() for cell in line.split(" | ")[:3])
            found.append((family, name.removeprefix("| "), spelled.split(", ")))
    return found


ROWS = {name: (family, spelled) for family, name, spelled in rows()}


# What changes a tensor in a way that the compiler can't follow is refused wherever it stands.
IN_PLACE = ["unsqueeze_", "squeeze_", "transpose_", "swapaxes_", "swapdims_", "t_", "logical_and_"]
IN_PLACE += ["logical_not_", "logical_or_", "logical_xor_"]


def exists(t):
    """Torch has not all that a family could have; and a program stays on its device."""
    try:
        target = resolve(t)
    except (AttributeError, KeyError):
        return False
    return t != "Tensor.cuda" and (not isinstance(target, str) or hasattr(torch.Tensor, target))


def program(case, spelled, ranks, length):
    """Tokens see each other, then the operator works on them."""
    g = Generator(length)
    g.sizes.batch, g.sizes.tokens, g.sizes.heads, g.sizes.head = 2, length, 6, 2
    g.sizes.width = 12
    x = g.emit("torch.mul", g.input((2, length, 12), stem="x"), g.input((12,)))
    x = generate_attention.attend_plainly(g, x)
    y = case(g, spelled, x)
    real = g.emit("Tensor.double", g.emit("torch.real", y))
    loss = g.emit(
        "_operator.add", *(g.emit("torch.sum", g.emit("torch.sin", v)) for v in (real, x))
    )
    options = {"ranks": ranks, "latency_bytes": 0}
    return Program(length, g.inputs, g.calls, [loss, g.emit("Tensor.detach", real), x], options)


def judge(case, spellings, kind):
    """On 2, 3 and 4 ranks, which don't divide the length and do; one spelling is enough there."""
    outcomes = run([program(case, spelled, 2, 7) for spelled in spellings])
    for spelled, outcome in zip(spellings, outcomes, strict=True):
        if outcome.kind == "invalid" and "derivative" in outcome.text:
            continue  # torch has no gradient of some in-place forms
        expected = "refused" if spelled.split(".")[-1] in IN_PLACE else kind
        assert outcome.kind == expected, outcome
        if expected == "refused":
            assert spelled.split(".")[-1].rstrip("_") in outcome.text.split(" at ")[0]
    for ranks, length in ((3, 6), (4, 7)):
        outcome = run([program(case, spellings[0], ranks, length)])[0]
        assert outcome.kind == kind, outcome


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_operator(name):
    family, spelled = ROWS[name]
    if name in ELSEWHERE:
        assert (ROOT / "test/python" / ELSEWHERE[name]).exists()
        assert f"`{ELSEWHERE[name]}`" in TABLE.read_text()
        return
    case = CASES.get(name, elementwise if family == ELEMENTWISE else None)
    assert case or name in REFUSED, "no test has this operator"
    spelled = [t for t in spelled if exists(t)]
    if case:
        judge(case, spelled, "parity")
    if name in REFUSED:
        judge(REFUSED[name], spelled, "refused")


def test_the_table_is_what_the_compiler_knows():
    command = [ROOT / "build/dev/autosp-opt", "--operators"]
    table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert table == TABLE.read_text(), f"run {' '.join(map(str, command))} > {TABLE}"
