"""The most memory that a piece of a program needed, on CPU and on CUDA."""

import ctypes
import gc
from pathlib import Path

import torch


class PeakMemory:
    """`start()`, run something, and `mebibytes()` says how far memory use rose above the start.

    On CUDA that is the allocator's peak. On CPU it is the resident set of the process: what earlier
    work has freed is handed back to the system first, or it would be reused and not be seen; Linux
    alone can restart the peak.
    """

    def __init__(self, device: torch.device):
        self.device = device

    def start(self) -> None:
        gc.collect()
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            self.before = torch.cuda.memory_allocated(self.device)
        else:
            ctypes.CDLL(None).malloc_trim(0)
            Path("/proc/self/clear_refs").write_text("5")  # the peak restarts from here
            self.before = _resident("VmRSS")

    def mebibytes(self) -> float:
        if self.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(self.device)
        else:
            peak = _resident("VmHWM")
        return (peak - self.before) / 2**20


def _resident(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status does not have {field}")
