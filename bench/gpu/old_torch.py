"""What AutoSP needs of torch 2.13 and torch 2.11 lacks, for machines where no newer one is at hand.

Only measurements use this: the package asks for torch 2.13. Imported before autosp, it adds

* the operators ao.offload, ao.reload and ao.wait_tensor, with the meaning that newer torch gives
  them: copies between a device and pinned memory on a stream of their own, which only the last of
  the three waits for;
* the name `backed_var_to_val` of a ShapeEnv's table of sizes.
"""

import contextlib
import importlib

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv


def add_operators() -> None:
    library = torch.library.Library("ao", "DEF")
    library.define("offload(Tensor tensor) -> Tensor")
    library.define("reload(Tensor tensor, Device device) -> Tensor")
    library.define(
        "wait_tensor(Tensor(a) tensor, Tensor? keepalive=None, Tensor? last_use_of_storage=None)"
        " -> Tensor(a)"
    )
    streams, events = {}, {}

    def copy(to, source, device):
        stream = streams.setdefault(device, torch.cuda.Stream(device))
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            to.copy_(source, non_blocking=True)
        events[to.data_ptr()] = stream.record_event(), device
        return to

    def offload(tensor):
        to = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return copy(to, tensor, tensor.device)

    def reload(tensor, device):
        return copy(torch.empty_like(tensor, device=device), tensor, device)

    def wait_tensor(tensor, keepalive=None, last_use_of_storage=None):
        event, device = events.pop(tensor.data_ptr())
        torch.cuda.current_stream(device).wait_event(event)
        return tensor

    for function in (offload, reload, wait_tensor):
        library.impl(function.__name__, function, "CompositeExplicitAutograd")
    fakes = {
        "offload": lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu"),
        "reload": lambda tensor, device: torch.empty_like(tensor, device=device),
        "wait_tensor": lambda tensor, keepalive=None, last_use_of_storage=None: tensor,
    }
    for name, fake in fakes.items():
        torch.library.register_fake(f"ao::{name}", fake, lib=library)
    torch.fx.node.has_side_effect(torch.ops.ao.wait_tensor.default)
    add_operators.library = library  # operators live as long as it does


def prepare() -> None:
    with contextlib.suppress(ImportError):
        importlib.import_module("torch._functorch._activation_offloading.offload_ops")
    if not hasattr(torch.ops.ao, "offload"):
        add_operators()
    if "backed_var_to_val" not in ShapeEnv().__dict__:
        ShapeEnv.backed_var_to_val = property(lambda self: self.var_to_val)


prepare()
