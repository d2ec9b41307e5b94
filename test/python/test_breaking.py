"""The compiler broken in one place at a time (tools/autosp_break.cc): every plan that comes out
otherwise is rejected by the checker, or its values show it, or it is another right one.
"""

import collections
import pathlib
import re
import subprocess

import pytest
import torch
from autosp import fx
from broken_plans import Plan, what_differs
from generate_program import generate
from on_ranks import Outcome, Reference, prepare

pytestmark = pytest.mark.slow

TOOL = pathlib.Path(__file__).resolve().parents[2] / "build/dev/autosp-break"
RANKS = 2
ROWS = (  # what sees other rows
    *("sliced", "narrowed", "gathered", "row_of_each", "padded", "rolled", "differences"),
    *("by_cat", "scanned", "convolution", "reduction", "extreme", "softmax", "in_place"),
    *("masked_mean", "binary", "unfolded"),
)
SOURCES = [
    (range(1, 120), ()),
    (range(1000, 1140), ROWS),
    (range(2000, 2030), ("scanned",)),
    (range(2100, 2140), ("reduction", "binary")),
]

# Which rows are taken, in what order, and which heads are copied, the checker cannot know: a plan
# does not say what it was made from.
BY_VALUES = re.compile(
    r"plan: autosp\.(halo|\w+_rows|rows_at|scan_extremes|repeat_heads), "
    r"|rule: .*, (window|shift|prefix|pick) as "
)
# Of a few plans that such a change gives, one is wrong at least: others may be right by chance.
EVERY_TIME = re.compile(r"left out$|, as autosp\.| as (pass|sum)$")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """By change: (accepted, what differs from one device) of each of its plans."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("broken")
    references = {}
    for seed, only in [(seed, only) for seeds, only in SOURCES for seed in seeds]:
        program = generate(seed, only)
        options = program.options.keys() - {"ranks", "latency_bytes"}
        if program.ranks != RANKS or options or isinstance(prepare(program), Outcome):
            continue
        reference = Reference(program)
        path = folder / f"{seed}.ir"
        path.write_text(fx.read(program.graph(reference.values)).text)
        references[str(path)] = reference
    command = [TOOL, f"--ranks={RANKS}", "--each=4", f"--out={folder}", *references]
    subprocess.run(command, check=True, capture_output=True, text=True)
    found = collections.defaultdict(list)
    for path in sorted(folder.glob("*.plan"), key=lambda path: int(path.stem)):
        plan = Plan.read(path.read_text())
        difference = what_differs(plan, references[plan.program])
        found[plan.change].append((plan.accepted, difference))
    return found


def test_what_the_checker_accepts_is_right(results):
    wrong = {
        change: difference
        for change, plans in results.items()
        for accepted, difference in plans
        if accepted and difference and not BY_VALUES.match(change)
    }
    assert not wrong


def test_what_is_broken_is_found(results):
    missed = [
        change
        for change, plans in results.items()
        if EVERY_TIME.search(change) and not BY_VALUES.match(change)
        if sum(not accepted for accepted, _ in plans) > 2
        if not any(difference for _, difference in plans)
    ]
    assert not missed


def test_every_operator_of_the_engine_and_many_rules_are_broken(results):
    found = {change for change, plans in results.items() if any(wrong for _, wrong in plans)}
    plans = {re.match(r"plan: autosp\.(\w+)", change)[1] for change in found if "plan:" in change}
    assert plans >= {
        *("r_to_v", "r_to_s", "v_to_s", "s_to_r", "s_to_v", "p_to_r", "all_to_all"),
        *("mask_tail", "halo", "take_rows", "rows_at", "merge_rows", "index_rows", "edge_rows"),
        *("softmax_rows", "scan_rows", "scan_extremes", "reduce_rows", "variance_rows"),
    }
    rules = {change for change in found if "rule:" in change}
    kinds = {change for change in rules if re.search(r" as (pass|sum)$", change)}
    print("\n".join(sorted(found)))
    assert len(rules) > 80 and len(kinds) > 15
