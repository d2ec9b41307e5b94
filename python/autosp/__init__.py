"""AutoSP: a compiler that turns a single-device PyTorch program into the program that one of P
ranks runs, so that P devices together train one long sequence.

    model = autosp.compile(model)     # under torchrun
    autosp.explain(model, ids, sp=4)  # what it would do, on one machine
    autosp.check(model, ids, sp=4)    # whether the ranks compute what one device does
"""

from .api import compile
from .calibrate import calibrate
from .check import Mismatch, check
from .errors import AutoSPError, InternalError, RanksDisagree, Unsupported
from .explain import explain

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
]
