"""Random programs on simulated ranks: right or refused, and the search itself finds what is wrong
and makes it small. `python test/python/random_programs.py --count 20000` runs more of them.
"""

import pytest
from autosp import collectives, rows
from generate_program import generate
from on_ranks import run_one
from random_programs import shrunk, sweep

COUNT = 300


def test_right_or_refused():
    summary = sweep(range(1, 1 + COUNT))
    for outcome in summary.failures[:3]:
        print(f"{shrunk(outcome)}\n")
    print(summary)
    assert not summary.failures, summary.line()
    assert summary.refusal_rate < 0.3, "so many refusals prove little"
    assert summary.kinds["invalid"] < COUNT / 50
    assert summary.kinds["unstable"] < COUNT / 50


def test_a_seed_is_a_program():
    assert str(generate(7)) == str(generate(7)) != str(generate(8))


# What every rank does wrong, the seeds that show it, and how small the shown program is at most.
WRONG = {
    "sums that are not added up": (
        collectives,
        "_reduce",
        lambda x, group: x.clone(),
        range(1, 9),
        12,
    ),
    "the wrong part": (
        collectives,
        "_own_part",
        lambda x, dim, length, rank: x.narrow(dim, 0, length).contiguous(),
        range(1, 9),
        12,
    ),
    "scans without the ranks before": (
        rows,
        "_before",
        lambda totals, dim, rank, identity: totals.new_full(totals.shape, identity),
        range(100, 220),
        14,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_found_and_made_small(name, monkeypatch):
    module, function, wrong, seeds, calls = WRONG[name]
    monkeypatch.setattr(module, function, wrong)
    failures = sweep(seeds).failures
    assert failures and failures[0].kind == "mismatch"
    small = shrunk(failures[0])
    assert small.kind == "mismatch" and len(small.program.calls) <= calls, small
    assert f"seed {failures[0].program.seed};" in str(small.program)
    monkeypatch.undo()
    assert run_one(small.program).kind == "parity"
