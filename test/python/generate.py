"""The vocabulary of random programs: choices that fit what a program has so far.

Operators register themselves with `operator`; they choose operands and arguments by what fits, and
a choice that torch rejects, or that leaves the range of numbers that compare well, is taken back.
"""

import random

import torch
from generated import Call, Input, Ref, run_call

OPERATORS = []  # (weight, function)
_LARGEST, _ELEMENTS = 1e4, 4000


class Skip(Exception):
    """This choice fits nothing."""


def operator(weight=1.0):
    """Registers a function of a Generator that emits calls; raises Skip where nothing fits."""

    def register(function):
        OPERATORS.append((weight, function))
        return function

    return register


class Sizes:
    """Of a program: batch, tokens of two sequences, heads and their width."""

    def __init__(self, g):
        pick = g.random.choice
        self.ranks = pick((2, 2, 3, 4))
        self.batch = pick((1, 2, 2, 3))
        self.heads, self.head = pick((1, 2, 3, 4, 4, 6)), pick((2, 3, 4))
        self.width = self.heads * self.head
        self.tokens, self.others = self._length(g), self._length(g)

    def is_length(self, size):
        return any(abs(size - n) < 3 for n in (self.tokens, self.others)) and size != self.width

    def _length(self, g):
        kind = g.random.random()
        if kind < 0.5:
            return self.ranks * g.random.randint(1, 4)
        if kind < 0.6:
            return g.either(self.width, max(self.batch, 2), self.heads * self.ranks)
        return g.random.randint(2, 14)


class Generator:
    """The program so far. `x[name]` is a value's tensor."""

    def __init__(self, seed):
        self.seed, self.random = seed, random.Random(seed)
        self.sizes = Sizes(self)
        self.inputs, self.calls, self.x = [], [], {}
        self.used = set()

    # ---- Values ----

    def shape(self, name):
        return tuple(self.x[name].shape)

    def rank(self, name):
        return self.x[name].dim()

    def names(self, fits):
        return [name for name, x in self.x.items() if isinstance(x, torch.Tensor) and fits(x)]

    def pick(self, fits=lambda x: True, floating=True):
        """A value that computations gave, the latest most likely."""
        made = {call.name for call in self.calls}
        names = [
            name
            for name in self.names(lambda x: x.is_floating_point() is floating and fits(x))
            if name in made or not floating
        ]
        if not names:
            raise Skip
        return self.random.choices(names, [2.0**-i for i in range(len(names), 0, -1)])[0]

    def some(self, least=1, most=5):
        return self.pick(lambda x: least <= x.dim() <= most)

    def features(self, least=1):
        """A value whose last dimension is mostly no sequence."""
        hard = self.maybe(0.1)
        return self.pick(
            lambda x: x.dim() >= least and (hard or not self.sizes.is_length(x.shape[-1]))
        )

    def dim(self, name, least=1, tokens=None):
        """One of at least that size; with `tokens` mostly that of a sequence or none such."""
        dims = [i for i, size in enumerate(self.shape(name)) if size >= least]
        if tokens is not None and self.maybe(0.9):
            dims = [i for i in dims if self.sizes.is_length(self.shape(name)[i]) is tokens]
        if not dims:
            raise Skip
        return self.random.choice(dims)

    def maybe(self, chance=0.5):
        return self.random.random() < chance

    def either(self, *choices):
        return self.random.choice(choices)

    def signed(self, name, dim):
        """A dimension as it is or counted from the end."""
        return dim - self.rank(name) if self.maybe() else dim

    # ---- New ones ----

    def input(self, shape, values="normal", high=0, stem=None):
        stem = (
            stem
            or {"normal": "w", "ints": "i", "bools": "b", "order": "o", "positive": "c"}[values]
        )
        name = Ref(f"{stem}{len(self.inputs)}")
        self.inputs.append(Input(name, tuple(shape), values, high))
        self.x[name] = self.inputs[-1].make(self.seed).detach()
        return name

    def constant(self, shape):
        """Numbers of no gradient."""
        return self.input(shape, "positive")

    def ints(self, shape, high):
        return self.input(shape, "ints", high)

    def emit(self, target, *args, **kwargs):
        """The name of target(*args, **kwargs)."""
        call = Call(Ref(f"v{len(self.calls)}"), target, args, kwargs)
        try:
            result = run_call(call, self.x)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError) as error:
            raise Skip from error
        for x in result if isinstance(result, tuple | list) else [result]:
            if isinstance(x, torch.Tensor) and not _is_tame(x):
                raise Skip
        self.calls.append(call)
        self.x[call.name] = result
        self.used.update(call.refs())
        return call.name

    def emit_parts(self, target, *args, **kwargs):
        """The names of all elements of a tuple."""
        name = self.emit(target, *args, **kwargs)
        return [
            self.emit("_operator.getitem", name, i)
            for i, x in enumerate(self.x[name])
            if isinstance(x, torch.Tensor)
        ]

    def attempt(self, function):
        """Whether the function found something that fits; what it did before it didn't is undone.
        Values that it wrote into may have changed, which concerns nothing but ranges of numbers.
        """
        before = len(self.inputs), len(self.calls), dict(self.x), set(self.used)
        try:
            function(self)
        except Skip:
            del self.inputs[before[0] :], self.calls[before[1] :]
            self.x, self.used = before[2:]
            return False
        return True


def _is_tame(x):
    if x.numel() > _ELEMENTS:
        return False
    if not x.is_floating_point() or not x.numel():
        return x.numel() > 0
    finite = x[x.isfinite()]
    return not x.isnan().any() and finite.numel() > 0 and float(finite.abs().max()) < _LARGEST
