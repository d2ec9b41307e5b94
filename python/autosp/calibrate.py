"""What the device at hand reaches, for the estimates of time on which plans depend.

    device = autosp.calibrate()             # a second or two; the same numbers on every rank
    model = autosp.compile(model, device=device)

All ranks measure at once, as they compute at once: what they share, such as cores or the way to the
host, is seen shared. The numbers are rank 0's. Ranks that don't all come here, or fail here, get
the same error on all sides, as in a call of a compiled model.
"""

import time
from functools import partial

import torch
import torch.distributed as dist

from . import _engine
from .agreement import Agreement
from .backend import Settings, _timeout_seconds
from .errors import AutoSPError, Unsupported

_LONG_ENOUGH_SECONDS = 0.03  # of one measurement
_LONG_SECONDS = 0.1
_DTYPES = {16: torch.bfloat16, 32: torch.float32, 64: torch.float64}
_MATRIX_BYTES = 2**27  # the largest
_MiB = 2**20


class MeasuredDevice(_engine.Device):
    """A device of the cost model. It has peak rates, of which the model takes the share that real
    programs reach; a measured one has those of which the shares are what was measured. Its text in
    Python shows what was measured.
    """

    @property
    def reached(self):
        """What was measured: {name of a rate: floating point operations or bytes per second}."""
        return {name: getattr(self, name) * share for name, share in _SHARES.items()}

    def __repr__(self):
        return self.reached_text


_SHARES = {
    **dict.fromkeys((f"flops_{bits}bit" for bits in _DTYPES), _engine.MATMUL_SHARE),
    "memory_bytes_per_second": _engine.MEMORY_SHARE,
    "link_bytes_per_second": _engine.LINK_SHARE,
    "host_bytes_per_second": _engine.HOST_SHARE,
}


def calibrate(group=None, device=None):
    """Measures the current accelerator, or the CPU where there is none, or `device`, for the ranks
    of `group` (default: the world, if there is one). With one rank there is no link to measure:
    it is that of the built-in device of this name, or else what reaches the host.
    """
    device = _resolve(device)
    if group is None and not dist.is_initialized():
        return _device_from(_measure(device), device)
    group, _ = Settings(group=group).resolve_group()
    agreement = Agreement(group, _timeout_seconds(group))
    agreement.agree("autosp.calibrate", {"kind of device": device.type})
    try:
        rates = _measure(device)
    except Exception as error:
        agreement.post_failure(f"{type(error).__name__}: {error}")
        raise
    if group.size() > 1 and dist.get_backend(group) != "fake":
        agreement.agree("autosp.calibrate, the exchange", {})
        rates["link_bytes_per_second"] = _link(group, device)
    text = _device_from(rates, device).text
    return _from_text(agreement.agree("autosp.calibrate, the result", {}, text)[0])


def _resolve(choice):
    if choice is None:
        choice = torch.accelerator.current_accelerator() or "cpu"
    try:
        device = torch.device(choice)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise Unsupported(f"calibrate can't measure the device {choice}: {error}") from None
    if device.type == "meta":
        raise Unsupported("calibrate can't measure the device meta: it computes nothing")
    return device


def _measure(device):
    """All rates but the link's, as reached."""
    rates = {f"flops_{bits}bit": _products(device, dtype) for bits, dtype in _DTYPES.items()}
    rates["memory_bytes_per_second"] = _memory(device)
    rates["host_bytes_per_second"] = 0 if device.type == "cpu" else _host(device)
    rates["launch_ns"] = _launch(device)
    if device.type != "cpu":
        torch.get_device_module(device).empty_cache()
    return rates


def _products(device, dtype):
    """Of the square matrices of a size beyond which the rate hardly grows."""
    best, size = 0, 128
    while True:
        a = torch.rand(size, size, device=device, dtype=dtype)
        multiply = partial(torch.mm, a, a, out=torch.empty_like(a))
        multiply()  # kernels are chosen
        seconds = min(_batch_seconds(multiply, 1, device) for _ in range(3))
        rate = 2 * size**3 / seconds
        if rate < 1.2 * best or seconds > _LONG_SECONDS or 4 * a.nbytes > _MATRIX_BYTES:
            return max(rate, best)
        best, size = rate, 2 * size


def _memory(device):
    count = (128 if device.type == "cpu" else 512) * _MiB
    source = torch.zeros(count, device=device, dtype=torch.uint8)
    to = torch.zeros_like(source)
    return 2 * count / _seconds(partial(to.copy_, source), device)


def _host(device):
    """Of the slower direction, between pinned memory and the device."""
    ours = torch.zeros(64 * _MiB, device=device, dtype=torch.uint8)
    host = torch.zeros(ours.shape, dtype=torch.uint8).pin_memory()
    directions = (partial(to.copy_, x, non_blocking=True) for to, x in ((ours, host), (host, ours)))
    return ours.nbytes / max(_seconds(copy, device) for copy in directions)


def _launch(device):
    x = torch.zeros(1, device=device)
    return max(1, round(_seconds(partial(x.add_, 1), device) * 1e9))


def _link(group, device):
    """Bytes that one rank sends per second while all exchange with all; the calls are as many on
    every rank.
    """
    ranks = group.size()
    if device.type == "cpu" or dist.get_backend(group) == "gloo":
        count = 4 * _MiB // ranks * ranks
    else:
        count = 128 * _MiB // ranks * ranks
    source = torch.zeros(count, device=device, dtype=torch.uint8)
    exchange = partial(dist.all_to_all_single, torch.empty_like(source), source, group=group)
    exchange()
    seconds = min(_batch_seconds(exchange, 2, device) for _ in range(3))
    return count * (ranks - 1) / ranks / seconds


def _seconds(function, device):
    """Of one call, the best of a few rows of calls; what a row costs once is hardly seen."""
    calls = 1
    while True:
        seconds = _batch_seconds(function, calls, device)
        if seconds * calls >= _LONG_ENOUGH_SECONDS:
            return min(seconds, *(_batch_seconds(function, calls, device) for _ in range(2)))
        calls *= max(2, min(100, int(_LONG_ENOUGH_SECONDS / (seconds * calls))))


def _batch_seconds(function, calls, device):
    _synchronize(device)
    began = time.perf_counter()
    for _ in range(calls):
        function()
    _synchronize(device)
    return (time.perf_counter() - began) / calls


def _synchronize(device):
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _device_from(rates, device):
    name, memory_bytes = "cpu", 0
    if device.type != "cpu":
        properties = torch.get_device_module(device).get_device_properties(device)
        name, memory_bytes = properties.name, properties.total_memory
    if "link_bytes_per_second" not in rates:
        rates["link_bytes_per_second"] = _link_of(name) or rates["host_bytes_per_second"]
    peaks = {rate: reached / _SHARES.get(rate, 1) for rate, reached in rates.items()}
    peaks["launch_ns"] = rates["launch_ns"]
    return MeasuredDevice(f"{name}, measured", **peaks, memory_bytes=memory_bytes)


def _link_of(name):
    """What the built-in device of this name reaches, None if there is none."""
    try:
        return _engine.device_for(name).link_bytes_per_second * _engine.LINK_SHARE
    except AutoSPError:
        return None


def _from_text(text):
    device = _engine.find_device(text)
    members = ("name", *_SHARES, "launch_ns", "memory_bytes")
    return MeasuredDevice(**{member: getattr(device, member) for member in members})
