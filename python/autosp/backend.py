"""The Dynamo backend: a captured graph in, a callable that runs this rank's part of it out.

Nothing is exchanged between ranks while a graph is compiled: compilers restart, and hit caches on
some ranks alone. The ranks meet outside: before the first graph (when the group for the exchanges
is made), and in the callable at every call, before its first collective. A call posts the shapes of
its inputs, the gradient mode and the program it is about to run, and goes on when all ranks have
posted the same.
"""

import dataclasses
import json
import os
import traceback
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._dynamo.exc import RestartAnalysis
from torch._subclasses.fake_tensor import unset_fake_temporarily

from . import (
    _engine,
    checkpointing,
    collectives,  # noqa: F401  registers the operators that plans are written in
    fx,
    machine,
    offload,
    outputs,
)
from .agreement import Agreement
from .errors import AutoSPError, InternalError, Unsupported

_own_groups = weakref.WeakKeyDictionary()  # user's group -> the group of the exchanges
_sessions = {}  # (world, group, choices) -> what graphs from torch.compile(backend="autosp") share


def autosp(gm, example_inputs, *, options=None):
    """The backend behind `torch.compile(model, backend="autosp", fullgraph=True, options={…})` and
    `model.compile(backend="autosp", …)`; `options` are the keyword arguments of `autosp.compile`.
    """
    settings = Settings(**(options or {}))
    group, _ = settings.resolve_group()
    choices = tuple(sorted((name, str(value)) for name, value in vars(settings).items()))
    key = (dist.group.WORLD, group, choices)
    for stale in [k for k in _sessions if k[0] is not dist.group.WORLD]:
        del _sessions[stale]  # the process groups have been made anew
    if key not in _sessions:
        _sessions[key] = Session(settings)
    return _sessions[key].compile(gm, example_inputs)


class Settings:
    """The user's choices, checked. See `autosp.compile` for their meaning."""

    def __init__(self, **choices):
        defaults = {
            "group": None,
            "seq_dims": None,
            "attention": "auto",
            "checkpointing": "auto",
            "offload": "auto",
            "device": None,
            "backend": "inductor",
            "grad_sync": True,
            "outputs": "auto",
        }
        unknown = sorted(choices.keys() - defaults.keys())
        if unknown:
            raise Unsupported(
                f"unknown option {', '.join(unknown)}; the options are {', '.join(defaults)}"
            )
        vars(self).update(defaults | choices)
        if self.backend not in ("inductor", "aot_eager") and not callable(self.backend):
            raise Unsupported(
                f'backend={self.backend!r} is not "inductor", "aot_eager" or a callable that takes'
                " a graph"
            )
        self.recomputation = checkpointing.choose(
            self.checkpointing, self.backend, self.device, self.offload
        )
        try:
            _engine.check_options(**self.plan_options())
        except TypeError:
            raise Unsupported(
                "seq_dims maps names of inputs to dimensions, grad_sync is a bool, attention and"
                f" outputs are strings; not seq_dims={self.seq_dims!r},"
                f" grad_sync={self.grad_sync!r}, attention={self.attention!r},"
                f" outputs={self.outputs!r}"
            ) from None

    def plan_options(self):
        return {
            "seq_dims": self.seq_dims or {},
            "attention": self.attention,
            "grad_sync": self.grad_sync,
            "outputs": self.outputs,
        }

    def resolve_group(self):
        """The process group, and the DeviceMesh when the user gave one."""
        if isinstance(self.group, dist.DeviceMesh):
            if self.group.ndim != 1:
                raise Unsupported(
                    f"group is a mesh of {self.group.ndim} dimensions; pass one of them, for"
                    ' example mesh["sp"]'
                )
            return self.group.get_group(), self.group
        if self.group is not None:
            return self.group, None
        if not dist.is_initialized():
            raise AutoSPError(
                "There is no process group: start the program with torchrun and call"
                " torch.distributed.init_process_group() before compiling, or look at the program"
                " without one with autosp.explain(model, inputs, sp=4)."
            )
        return dist.group.WORLD, None


class Session:
    """What the compiled graphs of one model share: the group, the agreement of its ranks, the
    user's choices.
    """

    def __init__(self, settings, parameters=()):
        self.settings = settings
        self._parameters = parameters
        self._group, self._mesh = settings.resolve_group()
        self._recomputation = None  # once the ranks have met
        self._agreement = Agreement(self._group, _timeout_seconds(self._group))
        self._alone = self._group.size() == 1 or dist.get_backend(self._group) == "fake"
        self._posted = False  # whether this call of the model has posted to the other ranks

    def meet(self, tensors):
        """Makes the group for the exchanges, once all ranks are here, and settles what plans depend
        on. `tensors()` are those that the program computes with. Does nothing after the first time.
        """
        if self._recomputation is not None:
            return
        if not self._alone and self._group not in _own_groups:
            self._agree("first call", {"ranks": str(self._group.size())})
            _own_groups[self._group] = dist.new_group(
                dist.get_process_group_ranks(self._group),
                timeout=timedelta(seconds=_timeout_seconds(self._group)),
                backend=dist.distributed_c10d.get_backend_config(self._group),
                use_local_synchronization=True,
                group_desc="autosp",
            )
        choice = dataclasses.replace(self.settings.recomputation, ranks=self._group.size())
        if choice.policy != "off":
            choice = self._settle(choice, tensors)
        self._recomputation = checkpointing.Recomputation(self.settings.backend, choice)

    def _settle(self, choice, tensors):
        """The choice with the first rank's device, unless the user named one, and the least memory
        that a rank has at hand. A device that the cost model doesn't know is measured.
        """
        from .calibrate import calibrate  # which imports this module

        try:
            tensors = tensors()
            device = machine.device_of(tensors)
            offload.check(choice.offload, device.type)
            name = choice.device or machine.cost_device(device)
            memory = machine.memory_at_hand(device, tensors) if choice.policy == "auto" else 0
        except Exception as error:
            self.begin_call()
            self.failed(error)
            raise
        if not offload.available(device.type):
            choice = dataclasses.replace(choice, offload="off")
        mine = json.dumps([name, memory])
        all_ranks = self._agreement.agree("first call of a model with checkpointing", {}, mine)
        names, memories = zip(*map(json.loads, all_ranks), strict=True)
        memory = machine.rounded_down(min(memories)) or choice.memory_bytes
        name = names[0] or calibrate(self._group, device).text
        return dataclasses.replace(choice, device=name, memory_bytes=memory)

    def begin_call(self):
        self._posted = False

    def failed(self, error):
        """Tells the ranks that wait for this one that it will not come, unless it has come."""
        if not self._posted:
            self._posted = True
            self._agreement.post_failure(f"{type(error).__name__}: {error}")

    def compile(self, gm, example_inputs):
        self.meet(lambda: [x for x in example_inputs if isinstance(x, torch.Tensor)])
        self.begin_call()
        try:
            return self._compile(gm, example_inputs)
        except RestartAnalysis:
            raise  # Dynamo captures the same call again
        except Exception as error:
            self.failed(error)
            raise

    def _compile(self, gm, example_inputs):
        _refuse_broken_graph(gm)
        rank, ranks = self._group.rank(), self._group.size()
        printed = os.environ.get("AUTOSP_PRINT", "") if rank == 0 else ""
        partitioner = self._recomputation.partitioner(gm)
        try:
            program = fx.read(gm, self._parameters)
            plan = program.plan(ranks, print=printed, **self.settings.plan_options())
        except Unsupported:
            if ranks == 1 and not printed:  # nothing has to be cut into parts
                return self._recomputation.compile(gm, example_inputs, partitioner)
            raise
        for size in plan.divisible:
            bool(
                size % ranks == 0
            )  # a guard: another length comes back here and is refused by name
        text, code, dims, draws, user_inputs = (
            plan.unnamed_text,
            plan.hash,
            plan.sharded_dims,
            plan.draws,
            program.user_inputs,
        )
        partitioner.regions = plan.regions
        gm = plan.write(rank, _own_groups.get(self._group, self._group).group_name)
        example_inputs = [*example_inputs, *fx.seeds(draws)]
        compiled = self._recomputation.compile(gm, example_inputs, partitioner)
        has_shards = self.settings.outputs == "auto" and any(dim is not None for dim in dims)
        known = False

        def run(*args):
            nonlocal known
            inputs = ", ".join(
                f"{name}: {_describe(args[position])}" for position, name in user_inputs
            )
            # Sizes of the inputs and the plan's text fix every shape of every exchange. The text is
            # long: once is enough. The seed is the first rank's.
            said = self._agree(
                "call of the model",
                {
                    "inputs": inputs,
                    "gradient mode": str(torch.is_grad_enabled()),
                    "step": "run" if known else "compile",
                    "program": code if known else text,
                    "checkpointing": "" if known else str(partitioner),
                },
                json.dumps([fx.drawn_number() if draws else 0, partitioner.exchanges]),
            )
            known = True
            seeds, exchanges = zip(*map(json.loads, said), strict=True)
            # What a compiler's cache gave has not been seen.
            if len(set(exchanges) - {""}) > 1:
                raise InternalError("the ranks were compiled to exchange in different orders")
            results = compiled(*args, *fx.seeds(draws, seeds[0]))
            return outputs.as_dtensors(results, dims, self._mesh_for) if has_shards else results

        return run

    def _agree(self, kind, details, value=""):
        self._posted = True
        return self._agreement.agree(kind, details, value)

    def _mesh_for(self, tensor):
        if self._mesh is None:
            with unset_fake_temporarily():  # a mesh holds a real tensor of ranks
                self._mesh = dist.DeviceMesh.from_group(self._group, tensor.device.type)
        return self._mesh


def _describe(value):
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, torch.Tensor) else str(value)


def _refuse_broken_graph(gm):
    reason = getattr(gm, "compile_subgraph_reason", None)
    if reason is not None and reason.graph_break:
        raise Unsupported(broken_graph(reason.reason, reason.user_stack))


def broken_graph(reason, stack):
    """The text for a program that Dynamo can't capture as one graph."""
    line = _engine.source_line("".join(traceback.format_list(stack)), fx.PACKAGES)
    return (
        "The program can't be captured as one graph, and a piece of it has no meaning for the other"
        f" ranks{' (at ' + line + ')' if line else ''}. Dynamo's reason: {reason}"
    )


def _timeout_seconds(group):
    """How long the group's own collectives would wait."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        if options is not None:
            return options._timeout.total_seconds()
    return dist.default_pg_timeout.total_seconds()
