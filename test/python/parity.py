"""A program over several ranks against the same program on one device: the loss, every output and
every gradient.
"""

import copy
import dataclasses

import autosp
import torch
from autosp.simulate import run_ranks
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves


@dataclasses.dataclass
class Step:
    """What one step gives. `outputs` are all tensors of the result, whole; `grads` those of the
    parameters by name and of the inputs that want one, None where there is none.
    """

    loss: torch.Tensor
    outputs: list[torch.Tensor]
    grads: dict[str, torch.Tensor | None]


def take_step(model, call, inputs, cotangents=False) -> Step:
    """Calls, takes the first tensor of the result as the loss and goes backward from it, or from
    all outputs with `cotangents`; the gradients are those that `model` has then, and no longer.
    """
    inputs = {name: _leaf(value) for name, value in inputs.items()}
    outputs = [_whole(x) for x in tree_leaves(call(**inputs)) if isinstance(x, torch.Tensor)]
    loss = outputs[0]
    if cotangents:
        loss = loss + sum(torch.sin(x).sum() for x in outputs[1:] if x.requires_grad)
    loss.backward()
    leaves = dict(model.named_parameters()) | {
        name: x for name, x in inputs.items() if getattr(x, "requires_grad", False)
    }
    grads = {name: None if x.grad is None else _whole(x.grad) for name, x in leaves.items()}
    model.zero_grad()
    return Step(outputs[0].detach(), [x.detach() for x in outputs], grads)


def differences(got: Step, want: Step, tolerance: float) -> list[str]:
    """What differs, in words. A gradient's error is judged against its own norm plus a small part
    of the model's largest gradient: a gradient that is zero in theory holds only rounding.
    """
    found = [
        f"output {i}: {text}"
        for i, (a, b) in enumerate(zip(got.outputs, want.outputs, strict=True))
        if (text := _difference(a, b, tolerance, 0.0))
    ]
    if got.grads.keys() != want.grads.keys():
        return [*found, f"gradients of {sorted(got.grads)} against {sorted(want.grads)}"]
    norms = [float(g.nan_to_num().double().norm()) for g in want.grads.values() if g is not None]
    floor = 1e-3 * max(norms, default=0.0)
    for name, grad in want.grads.items():
        if text := _difference(got.grads[name], grad, tolerance, floor):
            found.append(f"gradient of {name}: {text}")
    return found


def check(got: list[Step], want: Step, tolerance: float = 1e-9) -> None:
    """Every rank's step is the one device's."""
    found = [
        f"rank {rank}, {text}"
        for rank, step in enumerate(got)
        for text in differences(step, want, tolerance)
    ]
    assert not found, "\n".join(found)


def check_simulated(make, inputs, ranks: int, tolerance: float = 1e-9, **options) -> None:
    """One step of autosp.compile's module on simulated ranks against the module itself. The
    rewritten graph runs as it is unless `options` name a backend.
    """
    options.setdefault("backend", run_as_is)
    cotangents = options.pop("cotangents", False)
    model = make()
    want = take_step(model, model, inputs, cotangents)
    models = [copy.deepcopy(model) for _ in range(ranks)]

    def on_rank(rank):
        compiled = autosp.compile(models[rank], **options)
        return take_step(models[rank], compiled, inputs, cotangents)

    check(run_ranks(ranks, on_rank), want, tolerance)


def run_as_is(graph_module, example_inputs):
    """A backend that compiles nothing."""
    return graph_module


def _leaf(value):
    if isinstance(value, torch.Tensor) and value.requires_grad:
        return value.detach().clone().requires_grad_()
    return value


def _whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


def _difference(got, want, tolerance, floor):
    if got is None or want is None:
        return None if got is want else f"{_shape(got)} in place of {_shape(want)}"
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{_shape(got)} in place of {_shape(want)}"
    if not got.dtype.is_floating_point:
        return None if torch.equal(got, want) else "other values"
    if not torch.equal(got.isnan(), want.isnan()):
        return "not a number elsewhere"
    got, want = got.nan_to_num().double(), want.nan_to_num().double()
    error, norm = float((got - want).norm()), float(want.norm())
    if error <= tolerance * (norm + floor):
        return None
    return f"off by {error:.3g}, its norm is {norm:.3g}"


def _shape(x):
    return "nothing" if x is None else f"{x.dtype} {list(x.shape)}"
