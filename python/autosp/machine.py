"""What a rank has at hand for a plan: the device that its tensors are on, and free memory."""

import os

import torch
from torch.distributed.tensor import DTensor

from . import _engine
from .errors import Unsupported

_OPTIMIZER_BYTES = 8  # per trained element: two moments in float32, as Adam keeps


def device_of(tensors) -> torch.device:
    """Where a program with these tensors computes: on the accelerator, if one of them is there."""
    devices = [x.device for x in tensors] or [torch.device("cpu")]
    return next((device for device in devices if device.type != "cpu"), devices[0])


def cost_device(device: torch.device) -> str:
    """The name of the cost model's device for one of torch's, "" where it has none."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    try:
        return _engine.device_for(name).name
    except Unsupported:
        return ""


def memory_at_hand(device: torch.device, tensors) -> int:
    """Bytes that a step may take on this rank for everything but parameters, their gradients and an
    optimizer's states: the memory that is free now, less the gradients that the trained parameters
    among `tensors` don't have yet, and less 8 bytes for each of their elements here, for an
    optimizer that has no states yet. At least 1; 0 where nobody knows what is free: on devices
    other than CUDA and CPU.

    On CUDA, free is also what the caching allocator holds and doesn't use. On CPU, the processes of
    torchrun on this machine share what is available.
    """
    free = _free_bytes(device)
    if free is None:
        return 0
    for x in tensors:
        if isinstance(x, torch.nn.Parameter) and x.requires_grad:
            here = x.to_local() if isinstance(x, DTensor) else x
            free -= _OPTIMIZER_BYTES * here.numel() + (here.nbytes if x.grad is None else 0)
    return max(free, 1)


def rounded_down(nbytes: int) -> int:
    """At most an eighth less, and the same for all values close by: plans are cached by it."""
    shift = max(nbytes.bit_length() - 4, 0)
    return nbytes >> shift << shift


def _free_bytes(device):
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if device.type == "cpu":
        return _available_on_this_machine() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return None


def _available_on_this_machine():
    with open("/proc/meminfo") as lines:
        sizes = dict(line.split(":") for line in lines)
    return int(sizes["MemAvailable"].split()[0]) * 1024
