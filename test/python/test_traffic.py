"""What the report says that a rank sends, against the collectives that a step runs."""

import autosp
import pytest
import scans
import windows
from autosp.simulate import run_ranks
from small import program
from torch.utils._python_dispatch import TorchDispatchMode

pytestmark = pytest.mark.slow

# Bytes that one of P ranks sends, as multiples of its operand's.
SENDS = {
    "all_gather_into_tensor": lambda ranks: ranks - 1,
    "reduce_scatter_tensor": lambda ranks: (ranks - 1) / ranks,
    "all_to_all_single": lambda ranks: (ranks - 1) / ranks,
    "all_reduce": lambda ranks: 2 * (ranks - 1) / ranks,
}


class CountSent(TorchDispatchMode):
    def __init__(self, ranks):
        super().__init__()
        self.ranks, self.bytes = ranks, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace == "_c10d_functional":
            sends = SENDS.get(function._opname.rstrip("_"))
            if sends is not None:
                self.bytes += args[0].nbytes * sends(self.ranks)
        return function(*args, **kwargs or {})


ROWS = {f"autosp.{name}" for name in ("halo", "scan_rows", "softmax_rows", "reduce_rows")}
FORMS = windows.FORMS | scans.FORMS
COUNTED = (
    "causal_convolution",
    "shifts",
    "far_shifts",
    "rolls",
    "running_totals",
    "both_directions",
    "norms_and_products",
    "pooled_by_attention",
    "one_row_of_many",
)


@pytest.mark.parametrize("form", COUNTED)
def test_bytes_sent(form, ranks=3, length=12):
    made = program(FORMS[form], length)
    report = autosp.explain(made.make(), made.inputs(), sp=ranks)
    assert ROWS.intersection(row.target for row in report.operators), "nothing to count"
    said = sum(row.count * (row.bytes + row.backward_bytes) for row in report.exchanges)

    def step(rank):
        sent = CountSent(ranks)

        def backend(graph_module, example_inputs):
            def run(*args):
                with sent:
                    return graph_module(*args)

            return run

        loss = autosp.compile(made.make(), backend=backend)(**made.inputs())[0]
        with sent:
            loss.backward()
        return sent.bytes

    assert run_ranks(ranks, step) == [pytest.approx(said, rel=0.001)] * ranks
