"""`autosp.check` says parity where there is, and nothing else."""

import pickle
import textwrap

import autosp
import pytest
import torch
from autosp import __main__ as command_line
from autosp import collectives
from autosp.check import Reference
from programs import PROGRAMS
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize("name", ["rotary", "encoder", "encoder decoder"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_parity(name, ranks, capsys):
    program = PROGRAMS[name]
    report = autosp.check(program.make(), program.inputs(), sp=ranks)
    assert report.parity
    assert (report.dtype, report.tolerance) == (torch.float64, 1e-10)
    assert all(row.error < 1e-10 for row in report.rows)
    assert {row.name.split()[0] for row in report.rows} == {"output", "gradient"}
    assert f"parity: {ranks} ranks against one device" in capsys.readouterr().out


def test_every_parameter_has_a_row():
    program = PROGRAMS["rotary"]
    model = program.make()
    report = autosp.check(model, program.inputs(), sp=2)
    rows = {row.name for row in report.rows if row.name.startswith("gradient")}
    assert rows == {f"gradient of {name}" for name, _ in model.named_parameters()}


@pytest.mark.parametrize(
    ("operator", "wrong", "row", "verdict"),
    [
        ("_reduce", lambda x, group: x.clone(), "gradient of", "WRONG"),
        ("_reduce", lambda x, group: torch.zeros_like(x), "gradient of", "zero"),
        ("_reduce", lambda x, group: x * float("nan"), "gradient of", "not a number elsewhere"),
    ],
)
def test_wrong_programs(operator, wrong, row, verdict, monkeypatch, capsys):
    monkeypatch.setattr(collectives, operator, wrong)
    program = PROGRAMS["rotary"]
    with pytest.raises(autosp.Mismatch) as caught:
        autosp.check(program.make(), program.inputs(), sp=2)
    report = caught.value.report
    assert not report.parity
    assert any(r.name.startswith(row) and r.verdict == verdict for r in report.rows)
    assert not report.rows[0].right  # the worst come first
    assert "MISMATCH" in capsys.readouterr().out
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


class Scores(nn.Module):
    """Its key bias has a gradient that is zero in theory; it returns no scalar, counts its calls,
    and has a parameter that nothing uses.
    """

    def __init__(self):
        super().__init__()
        self.qkv = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.unused = nn.Parameter(torch.ones(3))

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (4, 4)).transpose(1, 2) for layer in self.qkv)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return {"mixed": mixed.transpose(1, 2).flatten(2), "length": torch.tensor(x.shape[1])}


@pytest.fixture
def scores():
    torch.manual_seed(0)
    return Scores().double(), torch.randn(2, 8, 16, dtype=torch.float64, requires_grad=True)


def test_gradients_that_are_zero_in_theory(scores):
    model, x = scores
    report = autosp.check(model, x, sp=4)
    assert {"gradient of x", "output ['mixed']"} <= {row.name for row in report.rows}
    assert x.grad is None
    assert all(p.grad is None for p in model.parameters())


def test_functions(scores):
    model, x = scores
    assert autosp.check(lambda x: model(x)["mixed"].pow(2).mean(), (x,), sp=2).parity


def test_tolerance_follows_the_narrowest_type():
    program = PROGRAMS["rotary"]
    report = autosp.check(program.make().float(), program.inputs(), sp=2)
    assert (report.dtype, report.tolerance) == (torch.float32, 2e-5)
    with pytest.raises(autosp.Mismatch, match="agree to 1e-12"):
        autosp.check(program.make().float(), program.inputs(), sp=2, tolerance=1e-12)


def test_what_can_t_be_sharded_is_refused(scores):
    model, x = scores
    with pytest.raises(autosp.Unsupported, match="median"):
        autosp.check(lambda x: model(x)["mixed"].median(1).values.square().sum(), x, sp=2)
    with pytest.raises(autosp.Unsupported, match="wants a gradient"):
        autosp.check(lambda x: model(x)["mixed"].detach(), x, sp=2)


class Chunks(Scores):
    """Its tokens in groups of four, filled up; `labels` have a batch that is half of that of x."""

    def forward(self, x, labels):
        x = super().forward(x)["mixed"]
        batch, tokens, width = x.shape
        missing = (4 - tokens % 4) % 4
        chunks = F.pad(x, (0, 0, 0, missing)).reshape(batch, -1, 4, width)
        chunks = chunks - chunks.mean(2, keepdim=True)
        x = chunks.reshape(batch, -1, width)
        if missing > 0:
            x = x[:, :tokens]
        x = x.reshape(batch // 2, 2, tokens, width)[:, 0]
        return F.cross_entropy(x.reshape(-1, width), labels.reshape(-1))


def test_what_guards_say_of_sizes():
    torch.manual_seed(0)
    x = torch.randn(6, 24, 16, dtype=torch.float64)
    inputs = {"x": x, "labels": torch.randint(16, (3, 24))}
    reference = Reference(Chunks().double(), inputs, dynamic=True)
    for ranks in (2, 3):
        report = reference.compare(ranks)
        assert report.parity
        assert not report.plan.repeated


def test_command_line(tmp_path, capsys):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import torch
            from torch import nn

            class Model(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.qkv = nn.Linear(16, 48)

                def forward(self, x):
                    q, k, v = self.qkv(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
                    return nn.functional.scaled_dot_product_attention(q, k, v).pow(2).mean()

            def make():
                return Model(), {"x": torch.randn(2, 8, 16)}
            """
        )
    )
    assert command_line.main(["check", f"{script}:make", "--sp", "2"]) == 0
    assert "parity: 2 ranks" in capsys.readouterr().out
    assert command_line.main(["check", f"{script}:made"]) == 1
    assert "no function 'made'" in capsys.readouterr().err
    assert command_line.main(["check", "nothing"]) == 1
