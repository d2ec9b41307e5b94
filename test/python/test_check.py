"""`autosp.check`: says parity where there is, and nothing else."""

import autosp
import pytest
import torch
from autosp import collectives
from autosp.check import Mismatch, check
from programs import PROGRAMS
from torch import nn


@pytest.mark.parametrize("name", ["rotary", "encoder", "encoder decoder"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_parity(name, ranks, capsys):
    program = PROGRAMS[name]
    report = check(program.make(), program.inputs(), sp=ranks)
    assert report.parity
    assert report.dtype == torch.float64
    assert all(row.error < 1e-10 for row in report.rows)
    assert {row.name.split()[0] for row in report.rows} == {"output", "gradient"}
    assert f"parity: {ranks} ranks against one device" in capsys.readouterr().out
