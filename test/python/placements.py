"""What each conversion between placements means, written on lists that hold one tensor per rank."""

import math
from collections.abc import Callable
from typing import NamedTuple

import autosp.collectives  # noqa: F401  registers torch.ops.autosp
import torch
import torch.distributed as dist

ops = torch.ops.autosp


class Parts:
    """A dimension of `size` rows in P parts of ceil(size / P)."""

    def __init__(self, ranks, dim, size):
        self.ranks, self.dim, self.size = ranks, dim, size
        self.length = math.ceil(size / ranks)
        self.exact = self.length * ranks == size
        self.other = (dim + 1) % 3  # another dimension of three, for exchanges

    def own(self, xs, edge=False):
        """Rows past the end are zeros, or copies of the last one."""
        more = self.ranks * self.length - self.size
        last = [x.narrow(self.dim, self.size - 1, 1) * edge for x in xs]
        padded = [torch.cat([x] + [y] * more, self.dim) for x, y in zip(xs, last, strict=True)]
        return [x.chunk(self.ranks, self.dim)[rank] for rank, x in enumerate(padded)]

    def join(self, xs):
        whole = torch.cat(xs, self.dim).narrow(self.dim, 0, self.size)
        return [whole] * self.ranks

    def place(self, xs):
        """Rank r holds zeros but for part r."""
        rows = [
            [x if at == rank else torch.zeros_like(x) for at in range(self.ranks)]
            for rank, x in enumerate(xs)
        ]
        return [self.join(row)[0] for row in rows]


def same(p, xs):
    return xs


def times_ranks(p, xs):
    return [x * p.ranks for x in xs]


def total(p, xs):
    return [torch.stack(xs).sum(0).to(xs[0].dtype)] * p.ranks


def first(p, xs):
    return [x if rank == 0 else torch.zeros_like(x) for rank, x in enumerate(xs)]


def own(p, xs):
    return p.own(xs)


def own_repeated(p, xs):
    return p.own(xs, edge=True)


def join(p, xs):
    return p.join(xs)


def place(p, xs):
    return p.place(xs)


def own_repeated_of_total(p, xs):
    return p.own(total(p, xs), edge=True)


def own_of_total(p, xs):
    return p.own(total(p, xs))


def exchange(p, xs):
    return p.own([torch.cat(xs, p.other)] * p.ranks, edge=True)


def exchange_back(p, xs):
    return [x.chunk(p.ranks, p.other)[rank] for rank, x in enumerate(p.join(xs))]


class Conversion(NamedTuple):
    run: Callable  # (x, parts, rank, group): the operator, on one rank
    forward: Callable  # (parts, xs): the results on all ranks
    adjoint: Callable  # (parts, cotangents): the cotangents of the arguments on all ranks
    of_parts: bool = False  # the argument is a part

    def arguments(self, parts, shape, dtype=torch.float64):
        shape = list(shape)
        shape[parts.dim] = parts.length if self.of_parts else parts.size
        return [strided(shape, rank, dtype) for rank in range(parts.ranks)]


CONVERSIONS = {
    "r_to_v": Conversion(lambda x, p, r, g: ops.r_to_v(x, p.ranks, g), same, total),
    "r_to_v unreduced": Conversion(
        lambda x, p, r, g: ops.r_to_v(x, p.ranks, g, False), same, times_ranks
    ),
    "r_to_s": Conversion(
        lambda x, p, r, g: ops.r_to_s(x, p.dim, p.length, p.exact, r, p.ranks, g),
        own_repeated,
        join,
    ),
    "v_to_s": Conversion(
        lambda x, p, r, g: ops.v_to_s(x, p.dim, p.length, p.exact, r, p.ranks, g),
        own_repeated,
        place,
    ),
    "s_to_r": Conversion(
        lambda x, p, r, g: ops.s_to_r(x, p.dim, p.size, p.exact, r, p.ranks, g), join, own, True
    ),
    "s_to_v": Conversion(
        lambda x, p, r, g: ops.s_to_v(x, p.dim, p.size, p.exact, r, p.ranks, g),
        join,
        own_of_total,
        True,
    ),
    "p_to_r": Conversion(lambda x, p, r, g: ops.p_to_r(x, g), total, same),
    "p_to_v": Conversion(lambda x, p, r, g: ops.p_to_v(x, g), total, total),
    "p_to_s": Conversion(
        lambda x, p, r, g: ops.p_to_s(x, p.dim, p.length, p.exact, r, p.ranks, g),
        own_repeated_of_total,
        join,
    ),
    "r_to_p": Conversion(lambda x, p, r, g: ops.r_to_p(x, r), first, same),
    "v_to_r": Conversion(lambda x, p, r, g: ops.v_to_r(x, r), same, first),
    "all_to_all": Conversion(
        lambda x, p, r, g: ops.all_to_all(
            [x],
            [p.dim],
            [p.length],
            [p.other],
            [x.size(p.other) * p.ranks],
            p.exact,
            p.ranks,
            g,
        )[0],
        exchange,
        exchange_back,
    ),
}


def group():
    return dist.group.WORLD.group_name


def strided(shape, seed, dtype=torch.float64):
    """Small whole numbers, in a layout that is nowhere contiguous."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(-20, 20, [2 * n for n in reversed(shape)], generator=generator).to(dtype)
    return x[::2, ::2, ::2].permute(2, 1, 0)
