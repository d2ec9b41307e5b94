"""Streams for a machine without an accelerator, on which torch's operators that move values to the
host really run: a copy happens as late as it may, when somebody waits for it. Until then the
destination holds nothing, and if the source is gone by then, the program was wrong.
"""

import contextlib
import weakref
from types import SimpleNamespace
from unittest.mock import patch

import torch
from autosp import offload
from torch._functorch._activation_offloading import offload_ops
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

# The functions behind torch's operators.
_OURS = {
    torch.ops.ao.offload.default: offload_ops.offload._init_fn,
    torch.ops.ao.reload.default: offload_ops.reload._init_fn,
}


class Transfers(TorchDispatchMode):
    """`log`: what happens, in order: "copy", "wait" and the names of matrix products. `sources`:
    the storages that were copied, as weak references, in order.
    """

    def __init__(self):
        super().__init__()
        self.log, self.sources = [], []
        self._streams = {False: _Stream(self), True: _Stream(self)}
        self._current = self._streams[False]
        self._begun = []  # copies that have not been made: (event or None, function)

    @classmethod
    def is_infra_mode(cls):
        return True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        if operator is torch.ops.aten.copy_.default and self._current is self._streams[True]:
            return self._begin(*args)
        if operator in _OURS and not isinstance(args[0], FakeTensor):
            with self:  # to see what the function calls
                return _OURS[operator](*args)
        if "mm" in str(operator):
            self.log.append(str(operator))
        return operator(*args, **(kwargs or {}))

    def _begin(self, to, source, non_blocking=False):
        assert non_blocking and to.is_contiguous() and source.is_contiguous()
        self.log.append("copy")
        to.fill_(float("nan") if to.is_floating_point() else 1)
        storage = weakref.ref(source.untyped_storage())
        self.sources.append(storage)
        shape, offset, nbytes = source.shape, source.storage_offset(), storage().nbytes()

        def copy():
            assert storage() is not None, "the source was freed before its copy had ended"
            assert storage().nbytes() == nbytes, "the source was emptied before its copy had ended"
            stride = to.stride()
            to.copy_(to.new_empty(0).set_(storage(), offset, shape, stride))

        self._begun.append([None, copy])
        return to

    def finish(self, event):
        """Makes the copy that this event is the end of, after those begun before, unless a wait for
        a later one has made it.
        """
        self.log.append("wait")
        events = [recorded for recorded, _ in self._begun]
        count = events.index(event) + 1 if event in events else 0
        for _, copy in self._begun[:count]:
            copy()
        del self._begun[:count]

    def record(self, event):
        self._begun[-1][0] = event

    def torch(self):
        """What the module of the operators sees as `torch`."""
        accelerator = SimpleNamespace(
            current_stream=lambda device: self._current,
            set_stream=lambda stream: setattr(self, "_current", stream),
        )

        def empty(*args, pin_memory=False, **kwargs):
            return torch.empty(*args, **kwargs)

        replaced = {
            "accelerator": accelerator,
            "Stream": lambda device: self._streams[True],
            "Event": object,
            "empty": empty,
        }
        return SimpleNamespace(**vars(torch) | replaced)


class _Stream:
    def __init__(self, transfers):
        self.transfers = transfers

    def wait_stream(self, stream):
        pass

    def wait_event(self, event):
        self.transfers.finish(event)

    def record_event(self, event):
        self.transfers.record(event)


@contextlib.contextmanager
def lazy_transfers():
    """Values on the CPU can be moved to "the host" meanwhile; gives the Transfers."""
    transfers = Transfers()
    with (
        patch.object(offload_ops, "torch", transfers.torch()),
        patch.object(offload_ops, "_transfer_streams", {}),
        patch.object(offload, "available", lambda device_type: True),
        transfers,
    ):
        yield transfers
    assert not transfers._begun, "a copy that nobody has waited for"
