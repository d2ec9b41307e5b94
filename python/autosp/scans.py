"""Scans of the user's own whose state the ranks pass on, each working on its rows in turn:
`torch.ops.autosp_scan.*`, defined for an operator of torch.library when it is first asked for.

To compilers, receiving a state, the operator, and sending on the state that it ends with are one
operator, and so is the backward. As three, a compiler could put another exchange between them, in
which the ranks whose turn is over would wait for those whose turn has not come.
"""

import functools
import threading

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from .rows import edge_rows

_library = torch.library.Library("autosp_scan", "DEF")
_native = torch.ops._c10d_functional

# Of each tensor that the operator takes and gives, the dimension of the rank's rows or -1; which of
# both are the states; the global number of rows.
_PLACE = (
    "int[] operand_dims_, int[] result_dims_, int[] first_, int[] last_, SymInt size_, bool exact_,"
    " int rank_, int ranks_, str group_, "
)
_PLACES = _PLACE.count(",")


_defining = threading.Lock()  # simulated ranks are threads, and an operator is defined once


def passing_state(op):
    """The operator of torch.library `op` (an OpOverload) on a rank's rows, with the arguments of
    `_PLACE` in front of its own. The states that it ends with are those of the last rank, on every
    rank; the states that it begins with count on the first rank alone, where their gradients go.
    """
    with _defining:
        return _defined(op)


@functools.cache
def _defined(op):
    name = op._schema.name.replace("::", "__") + f"__{op._overloadname}"
    own, results = str(op._schema).partition("(")[2].split(") -> ")

    def define(name, schema, function, key):
        _library.define(name + schema)
        _library.impl(name, function, key)
        return getattr(torch.ops.autosp_scan, name).default

    def part(arguments, kwargs):
        return _Part(op, arguments[:_PLACES], arguments[_PLACES:], kwargs)

    def run(*arguments, **kwargs):
        return part(arguments, kwargs).forward()

    def run_back(cotangents, received, wanted, *arguments, **kwargs):
        return part(arguments, kwargs).backward(cotangents, received, wanted)

    forward = define(
        f"{name}__run", f"({_PLACE}{own}) -> Tensor[]", run, "CompositeExplicitAutograd"
    )
    backward = define(
        f"{name}__back",
        f"(Tensor[] cotangents_, Tensor[] received_, bool[] wanted_, {_PLACE}{own}) -> Tensor[]",
        run_back,
        "CompositeExplicitAutograd",
    )
    torch.library.register_fake(
        forward, lambda *a, **kwargs: part(a, kwargs).fake_forward(), lib=_library
    )
    torch.library.register_fake(
        backward,
        lambda _g, _s, wanted, *a, **kwargs: part(a, kwargs).fake_backward(wanted),
        lib=_library,
    )

    def scan(*arguments, **kwargs):
        place, args = arguments[:_PLACES], arguments[_PLACES:]
        leaves, spec = tree_flatten((args, kwargs))
        made = _Scan.apply(forward, backward, place, spec, *leaves)
        _, dims, _, _, *rows = place
        made = tuple(
            y if dim < 0 else edge_rows(y, dim, *rows) for y, dim in zip(made, dims, strict=True)
        )
        return made if results.startswith("(") else made[0]

    return define(name, f"({_PLACE}{own}) -> {results}", scan, "CompositeImplicitAutograd")


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, forward, backward, place, spec, *leaves):
        args, kwargs = tree_unflatten(leaves, spec)
        made = forward(*place, *args, **kwargs)
        count = len(place[1])
        is_tensor = [isinstance(leaf, torch.Tensor) for leaf in leaves]
        ctx.save_for_backward(
            *made[count:], *(leaf for leaf, tensor in zip(leaves, is_tensor, strict=True) if tensor)
        )
        ctx.others = [None if t else leaf for leaf, t in zip(leaves, is_tensor, strict=True)]
        ctx.call = backward, place, spec, is_tensor
        return tuple(made[:count])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *cotangents):
        backward, place, spec, is_tensor = ctx.call
        states = len(place[2])
        received, tensors = ctx.saved_tensors[:states], iter(ctx.saved_tensors[states:])
        leaves = [next(tensors) if t else x for t, x in zip(is_tensor, ctx.others, strict=True)]
        args, kwargs = tree_unflatten(leaves, spec)
        needed = ctx.needs_input_grad[4:]
        wanted = [need for need, tensor in zip(needed, is_tensor, strict=True) if tensor]
        # of results that are no numbers there are none, and nobody reads what stands for them
        cotangents = [received[0].new_zeros(()) if g is None else g for g in cotangents]
        gradients = iter(backward(cotangents, received, wanted, *place, *args, **kwargs))
        return None, None, None, None, *(next(gradients) if need else None for need in needed)


class _Part:
    """One call on the rows that a rank has."""

    def __init__(self, op, place, args, kwargs):
        (
            dims,
            self.result_dims,
            first,
            self.last,
            self.size,
            _,
            self.rank,
            self.ranks,
            self.group,
        ) = place
        self.op = op
        self.leaves, self.spec = tree_flatten((args, kwargs))
        self.tensors = [i for i, x in enumerate(self.leaves) if isinstance(x, torch.Tensor)]
        self.dims = dict(zip(self.tensors, dims, strict=True))
        self.first = [self.tensors[i] for i in first]
        self.length = next(self.leaves[i].size(dim) for i, dim in self.dims.items() if dim >= 0)

    @property
    def rows(self):
        """How many of the rank's rows are before the end of the sequence."""
        return min(max(self.size - self.rank * self.length, 0), self.length)

    def forward(self):
        """The results and the states that this rank began with."""
        state = received = [self.leaves[i] for i in self.first]
        results = []
        for turn in range(self.ranks):
            if turn == self.rank:
                received = state
                results = self._call({i: self._own(i) for i in self.tensors}, received)
                if self.rows > 0:
                    state = [results[i] for i in self.last]
            state = self._of(turn, state)
        for i, x in zip(self.last, state, strict=True):
            results[i] = x
        return [
            *(self._extended(x, dim) for x, dim in zip(results, self.result_dims, strict=True)),
            *(x.clone(memory_format=torch.contiguous_format) for x in received),
        ]

    def backward(self, cotangents, received, wanted):
        """The gradients of the wanted tensors; those of the states on the first rank."""
        asked = [i for i, want in zip(self.tensors, wanted, strict=True) if want]
        own = {i: self._own(i).detach() for i in self.tensors}
        received = [x.detach().requires_grad_() for x in received]
        read = [own[i].requires_grad_() for i in asked if i not in self.first]
        with torch.enable_grad():
            results = self._call(own, received)
        given = [
            g if dim < 0 else g.narrow(dim, 0, self.rows)
            for g, dim in zip(cotangents, self.result_dims, strict=True)
        ]
        gradients = [torch.zeros_like(x) for x in read]
        passed = [cotangents[i] for i in self.last]
        for turn in reversed(range(self.ranks)):
            if turn == self.rank and self.rows > 0:
                for i, g in zip(self.last, passed, strict=True):
                    given[i] = g
                pulled = [i for i, y in enumerate(results) if y.requires_grad]
                found = torch.autograd.grad(
                    [results[i] for i in pulled],
                    [*read, *received],
                    [given[i] for i in pulled],
                    materialize_grads=True,
                )
                gradients, passed = found[: len(read)], found[len(read) :]
            passed = self._of(turn, passed)
        if self.rank > 0:
            passed = [torch.zeros_like(g) for g in passed]
        of_states = dict(zip(self.first, passed, strict=True))
        of_others = iter(gradients)
        return [
            of_states[i].contiguous()
            if i in of_states
            else self._extended(next(of_others), self.dims[i])
            for i in asked
        ]

    def fake_forward(self):
        made = self._call({}, [self.leaves[i] for i in self.first])
        made += [self.leaves[i] for i in self.first]
        return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in made]

    def fake_backward(self, wanted):
        return [
            torch.empty_like(self.leaves[i], memory_format=torch.contiguous_format)
            for i, want in zip(self.tensors, wanted, strict=True)
            if want
        ]

    def _own(self, i):
        """Its rows before the end. (A rank that has none works on all: what it makes of them is
        dropped.)
        """
        x, dim = self.leaves[i], self.dims[i]
        return x if dim < 0 or self.rows in (0, self.length) else x.narrow(dim, 0, self.rows)

    def _call(self, tensors, states):
        tensors = tensors | dict(zip(self.first, states, strict=True))
        leaves = [tensors.get(i, leaf) for i, leaf in enumerate(self.leaves)]
        args, kwargs = tree_unflatten(leaves, self.spec)
        results = self.op(*args, **kwargs)
        return [results] if isinstance(results, torch.Tensor) else list(results)

    def _extended(self, x, dim):
        """With as many rows as every rank has."""
        if dim < 0 or self.rows == self.length:
            return x.contiguous()
        shape = list(x.shape)
        shape[dim] = self.length
        full = x.new_zeros(shape)
        full.narrow(dim, 0, self.rows).copy_(x.narrow(dim, 0, self.rows))
        return full

    def _of(self, rank, tensors):
        """What that rank has of them."""
        return [
            _native.wait_tensor(_native.broadcast(x.contiguous(), rank, self.group))
            for x in tensors
        ]
