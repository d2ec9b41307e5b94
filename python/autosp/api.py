"""`autosp.compile`: the one line."""

import functools
import inspect
import itertools
import logging
import sys
import warnings

import torch
from torch.utils._pytree import tree_leaves

from .backend import Session, Settings, broken_graph
from .errors import AutoSPError, Unsupported

_RANGES = 64  # of lengths from 16 to a million, in little memory
_numbers = itertools.count()  # of the functions made for Dynamo


def compile(
    model,
    *,
    group=None,
    seq_dims=None,
    attention="auto",
    checkpointing="auto",
    offload="auto",
    device=None,
    backend="inductor",
    grad_sync=True,
    outputs="auto",
):
    """Compiles a model, or a function that calls models, so that the ranks of a group compute it
    together: each holds 1/P of the tokens. Call the result as before, on every rank, with the full
    inputs.

        model = autosp.compile(model)
        loss = model(input_ids=ids, labels=ids).loss  # ids [batch, tokens] on every rank;
                                                      # the loss of the whole batch on every rank
        loss.backward()                               # p.grad on every rank is one device's

    For a module the result is a module that shares everything with `model`: state_dict, parameters,
    attributes, train and eval are those of `model`, and assigning to one assigns to the other.
    Copies and pickles of it are of `model`, not compiled. For a function it is a function. Nothing
    is compiled before the first call.

    Which dimensions carry tokens is found from the attentions of the program. The number of tokens
    must be a multiple of P, and lengths may change from call to call. In a group of one rank any
    program will do: what can't be cut into parts is compiled as it is.

    Gradients: whatever leaves the compiled function as a plain tensor (a loss, statistics) is the
    same on every rank, and so must be the cotangent that comes back for it. A loss computed outside
    from plain outputs is right when every rank computes all of it; from sharded outputs, let the
    DTensor gather it, or better compile the loss in: a function `step(ids, labels)` that calls the
    model and returns the loss is as good as a model.

    Random numbers (dropout, rand, …) come from one number a call, the first rank's, which
    torch.manual_seed sets: any number of ranks draws what a group of one does.

    Args:
        model: an nn.Module, or a function whose tensors are its arguments, parameters and buffers.

        group: the ranks that share a sequence, a ProcessGroup or a one-dimensional DeviceMesh.
            Default: the world.

        seq_dims: names of inputs mapped to the dimension that carries tokens, for programs in which
            no attention, scan or convolution shows it: {"x": 1}.

        attention: "auto", heads are exchanged for tokens around every attention whose number of
            key heads the ranks divide, unless "gather_kv" moves and holds fewer bytes: every rank
            attends from its own queries to all keys and values, which are gathered. That is so for
            few key heads without a causal flag, and for masks that are computed: of those a rank
            then makes only its queries' rows.

        checkpointing: what the forward keeps for the backward; the rest is computed again.
            "auto": the fastest that fits into the memory at hand when the model is first called,
                which is the least of all ranks. On CUDA that is free memory, and on CPU the
                available memory divided by the processes of torchrun; less the gradients that
                don't exist yet, and 8 bytes for each trained element, for an optimizer's states.
            {"memory_bytes": n}: the fastest that takes at most n bytes on a rank, at the peak of a
                step, for all but parameters, their gradients and an optimizer's states.
            {"overhead": x}: the least memory for at most x of a step's time more (0.07: 7%).
            "sac": every block's input, attention's output and what is drawn at random is kept;
                exchanges are repeated.
            "sac+exchanges": what was exchanged ahead of attentions is kept, too.
            "full": only every block's input is kept; attentions run again.
            "off": torch's own partitioner decides.
            All give the same gradients, dropout included. A plan is for lengths from a fourth of
            some length up to it; others are planned for when they come.
            Regions of `torch.utils.checkpoint` in the model stay what they are under all of these:
            their inputs are kept, what they compute and exchange is done again in the backward, and
            the rest is planned around them. A region inside of a region is a part of it, and what a
            region writes to buffers and modules is written once. A `context_fn` is refused on
            several ranks.

        offload: whether kept values wait in the host's memory between forward and backward, on
            devices with memory of their own. "auto": where it lets a plan fit, or run faster, with
            the checkpointings that ask for memory or time; "all": whatever can; "off".

        device: what the estimates of time are for: "a100", "h100", "h200", "mi250", "mi300", "cpu"
            or what `autosp.calibrate()` has measured. Default: what the model is on.

        backend: "inductor"; "aot_eager", the same graphs run operator by operator; or a callable
            backend(graph_module, example_inputs) that gets this rank's Torch-IR graph and returns a
            callable. What is kept is then its own affair; nodes of the user's regions say so in
            their meta, as torch's partitioners expect it ("recompute", "ac_graph_id").

        grad_sync: True, gradients of parameters are summed over the group inside the program.
            False, they are left for a reducer that averages over all data and sequence ranks (DDP,
            FSDP), which then gives exactly one device's gradient.

        outputs: "auto", an output with a token dimension is a DTensor sharded along it
            (`.full_tensor()` gathers it), or gathered where tokens are merged with another
            dimension; "full", every output is gathered; "local", this rank's part. Others, and all
            in a group of one rank, are plain tensors, the same on every rank.

    Raises, at this call: Unsupported for options that don't exist or don't fit each other,
    AutoSPError when there is no process group.
    At the model's calls: Unsupported when the program can't be run in parts (an operator that has
    to see all tokens, a length that P does not divide, no attention, a graph break), with the
    operator and the line of the model, or when no plan fits the bytes that were asked for, with the
    least that one needs; RanksDisagree when ranks differ in program, shapes, options or gradient
    mode, or one doesn't call. Both on every rank, before any data is exchanged.
    """
    settings = Settings(
        group=group,
        seq_dims=seq_dims,
        attention=attention,
        checkpointing=checkpointing,
        offload=offload,
        device=device,
        backend=backend,
        grad_sync=grad_sync,
        outputs=outputs,
    )
    model = unwrap(model)
    if not callable(model):
        raise AutoSPError(
            f"autosp.compile takes a module or a function, not {type(model).__name__}"
        )
    function, names = traceable(model)
    compiled = _Compiled(function, Session(settings, names), functools.partial(_tensors, model))
    if isinstance(model, torch.nn.Module):
        return _module(model, compiled)
    return functools.wraps(model)(lambda *args, **kwargs: compiled(*args, **kwargs))


class _Compiled:
    """A function compiled by Dynamo into one graph, called as the ranks agree."""

    def __init__(self, function, session, tensors):
        self._session, self._tensors = session, tensors
        self._function = torch.compile(function, backend=session.compile, fullgraph=True)

    def __call__(self, *args, **kwargs):
        session = self._session
        session.meet(lambda: self._tensors(args, kwargs))
        session.begin_call()
        try:
            with capture_settings():
                return self._function(*args, **kwargs)
        except torch._dynamo.exc.Unsupported as error:
            refusal = Unsupported(broken_graph(error.msg, error.real_stack))
            session.failed(refusal)
            raise refusal from None
        except Exception as error:
            session.failed(error)
            raise


def traceable(model):
    """The function for Dynamo to capture in place of a module or callable, and the names of the
    arguments that reach it through *args.
    """
    if inspect.isfunction(model):
        return model, ()

    def call(*args, **kwargs):
        return model(*args, **kwargs)

    # Dynamo caches compilations per code object, and remembers by the code's name which sizes have
    # changed between calls: each model gets its own, so that what it compiles to is its own affair.
    call.__code__ = call.__code__.replace(co_name=f"call_{next(_numbers)}")
    signature = inspect.signature(model.forward if isinstance(model, torch.nn.Module) else model)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return call, [p.name for p in signature.parameters.values() if p.kind in kinds]


def _tensors(model, args, kwargs):
    """Those that a call computes with, as far as they can be found without it."""
    values = [model, getattr(model, "__self__", None), args, kwargs]
    if not isinstance(model, torch.nn.Module):
        try:
            variables = inspect.getclosurevars(model)
            values += [variables.nonlocals, variables.globals]
        except (TypeError, ValueError):  # not a function, or one with an empty cell
            values.append(getattr(model, "__dict__", None))
    found = {}
    for value in tree_leaves(values):
        if isinstance(value, torch.nn.Module):
            found |= {id(x): x for x in (*value.parameters(), *value.buffers())}
        elif isinstance(value, torch.Tensor):
            found[id(value)] = value
    return list(found.values())


def capture_settings():
    """Dynamo's configuration while a program may be captured: one graph under DDP, no breaks at
    warnings and library log messages, plans for as many ranges of lengths as there are, and what a
    checkpointed region assigns to a module is assigned once.
    """
    return torch._dynamo.config.patch(
        optimize_ddp=False,
        skip_fwd_side_effects_in_bwd_under_checkpoint=True,
        recompile_limit=max(torch._dynamo.config.recompile_limit, _RANGES),
        ignore_logging_functions=torch._dynamo.config.ignore_logging_functions
        | _library_loggers()
        | {warnings.warn},
    )


def _library_loggers():
    """The logging methods of transformers, when it is imported; its models warn while they run."""
    if "transformers" not in sys.modules:
        return frozenset()
    return _logging_methods(len(logging.Logger.manager.loggerDict))


@functools.lru_cache(maxsize=1)
def _logging_methods(_number_of_loggers):
    names = ("debug", "info", "warning", "warning_once", "warning_advice", "error", "info_once")
    return frozenset(
        getattr(logger, name)
        for key, logger in logging.Logger.manager.loggerDict.items()
        if key.partition(".")[0] == "transformers" and isinstance(logger, logging.Logger)
        for name in names
        if hasattr(logger, name)
    )


# ---- The thin module ----


class _ThinModule:
    """A module that shares its dictionary with the module it stands for, and is called compiled.
    What only it has is in slots.
    """

    __slots__ = ("_autosp_call", "_autosp_wrapped")

    def __call__(self, *args, **kwargs):
        return self._autosp_call(*args, **kwargs)

    def __reduce_ex__(self, protocol):
        return _itself, (self._autosp_wrapped,)


def _itself(module):
    return module


@functools.cache
def _thin_class(kind):
    @functools.wraps(kind.forward)
    def forward(self, *args, **kwargs):
        return self(*args, **kwargs)

    names = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__slots__": (),
    }
    return type(kind)(kind.__name__, (_ThinModule, kind), names | {"forward": forward})


def _module(model, call):
    kind = _thin_class(type(model))
    thin = kind.__new__(kind)
    object.__setattr__(thin, "__dict__", model.__dict__)
    object.__setattr__(thin, "_autosp_wrapped", model)
    object.__setattr__(thin, "_autosp_call", call)
    return thin


def unwrap(model):
    """The module behind a compiled one; anything else as it is."""
    return model._autosp_wrapped if isinstance(model, _ThinModule) else model
