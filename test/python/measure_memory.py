"""Bytes that a training step keeps and needs at its peak, counted exactly and without any memory.

Models live on fake tensors, which have storages with sizes and no data. `kept_bytes` adds up the
storages that autograd keeps for the backward. `Lifetimes` sees every storage come and go, so that
the peak of a whole step is known to the byte.
"""

import contextlib
import weakref

import torch
import torch.distributed as dist
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.debugging import boxed_nop
from torch._inductor.compile_fx import select_decomp_table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode


@contextlib.contextmanager
def fake_ranks(ranks):
    """This process is rank 0 of `ranks`; the others don't exist, and what they send is garbage."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def fake_llama(layers, vocabulary=128256):
    """A Llama with the widths of the 8B model, so many layers and words, in bfloat16, on fake
    tensors; every tensor that is made meanwhile is fake too.
    """
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        vocab_size=vocabulary,
        max_position_embeddings=1 << 20,
        rope_theta=500000.0,
        use_cache=False,
        attn_implementation="sdpa",
    )
    with FakeTensorMode(allow_non_fake_inputs=True):
        yield AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def kept_bytes(model, loss_of) -> int:
    """Bytes of the storages that `loss_of()` keeps for its backward; parameters and buffers are no
    part of them.
    """
    own = {x.untyped_storage()._cdata for x in (*model.parameters(), *model.buffers())}
    kept = {}

    def see(x):
        storage = x.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return x

    with torch.autograd.graph.saved_tensors_hooks(see, lambda x: x):
        loss = loss_of()
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


class Lifetimes(TorchDispatchMode):
    """Every storage that operators make while this mode is on: its bytes, when it came, when it
    went. Dynamo does not see the mode; compiled graphs that run operator by operator do.
    """

    def __init__(self, there_before=()):
        super().__init__()
        self.clock = 0
        self.storages = []  # [bytes, came, went or None, the operator]
        self._before = {x.untyped_storage()._cdata for x in there_before}
        self._numbers = {}

    @classmethod
    def is_infra_mode(cls):
        return True

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        results = operator(*args, **(kwargs or {}))
        for x in torch.utils._pytree.tree_leaves(results):
            if isinstance(x, torch.Tensor):
                self._see(x.untyped_storage(), operator)
        return results

    def _see(self, storage, operator):
        if storage._cdata in self._numbers or storage._cdata in self._before:
            return
        number = len(self.storages)
        self.clock += 1
        self.storages.append([storage.nbytes(), self.clock, None, str(operator)])

        def gone(_, key=storage._cdata):
            self.clock += 1
            self.storages[number][2] = self.clock
            del self._numbers[key]

        self._numbers[storage._cdata] = number, weakref.ref(storage, gone)

    def number(self, x):
        """Which of `storages` x lies in, None for one that was there before."""
        return self._numbers.get(x.untyped_storage()._cdata, (None,))[0]

    def live(self):
        """The rows of `storages` that live now, by number."""
        return {n: row for n, row in enumerate(self.storages) if row[2] is None}

    def live_at_peak(self, aside=()):
        """The storages that live when their bytes are most, without those whose numbers are
        `aside`.
        """
        rows = [row for number, row in enumerate(self.storages) if number not in aside]
        events = [(came, nbytes) for nbytes, came, _, _ in rows]
        events += [(went, -nbytes) for nbytes, _, went, _ in rows if went is not None]
        live = most = when = 0
        for time, change in sorted(events):
            live += change
            if live > most:
                most, when = live, time
        return [row for row in rows if row[1] <= when and (row[2] is None or row[2] > when)]


def peak_bytes(model, loss_of) -> int:
    """Bytes at the peak of a step, forward and backward, parameters and their gradients aside."""
    lifetimes, grads = trace_step(model, loss_of)
    return sum(row[0] for row in lifetimes.live_at_peak(grads))


def trace_step(model, loss_of):
    """The storages of a step, and the numbers of those that are gradients of parameters."""
    lifetimes = Lifetimes([*model.parameters(), *model.buffers()])
    with lifetimes:
        loss_of().backward()
        grads = {lifetimes.number(p.grad) for p in model.parameters() if p.grad is not None}
    model.zero_grad()
    return lifetimes, grads


def as_inductor_splits(partitioner):
    """A backend whose graphs are those of Inductor before it fuses them, split by `partitioner`,
    and run operator by operator.
    """

    def backend(gm, example_inputs):
        compiler = aot_autograd(
            fw_compiler=boxed_nop,
            bw_compiler=boxed_nop,
            decompositions=select_decomp_table(),
            partition_fn=partitioner,
        )
        return compiler(gm, example_inputs)

    return backend
