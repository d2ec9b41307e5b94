"""AutoSP: a compiler that turns a single-device PyTorch program into the program that one of P
ranks runs, so that P devices together train one long sequence.

    model = autosp.compile(model)     # under torchrun
    autosp.explain(model, ids, sp=4)  # what it would do, on one machine
    autosp.check(model, ids, sp=4)    # whether the ranks compute what one device does
    autosp.frontier(model, ids, sp=4) # what memory costs in time
    autosp.longest(model, ids, sp=8)  # the longest sequence that fits
"""

from ._engine import register_rule
from .api import compile
from .calibrate import calibrate
from .check import Mismatch, check
from .errors import AutoSPError, InternalError, RanksDisagree, Unsupported
from .explain import explain
from .frontier import frontier
from .longest import longest

__all__ = [
    "AutoSPError",
    "InternalError",
    "Mismatch",
    "RanksDisagree",
    "Unsupported",
    "calibrate",
    "check",
    "compile",
    "explain",
    "frontier",
    "longest",
    "register_rule",
]
