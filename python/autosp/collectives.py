"""The operators that convert values between placements: `torch.ops.autosp.*`, defined when this
module is imported.

Placements over the P ranks of a group: R is the same on every rank and used the same way on every
rank; V is the same on every rank but used by sharded computation, so that its cotangent is a
partial sum; S(dim) is split in contiguous parts of equal length; P is one summand per rank.
`x_to_y` converts a value from X to Y and its cotangent from the dual of Y to the dual of X, where R
and S are their own duals and V and P are each other's. So an adjoint is another conversion, and
most operators come in pairs:

    r_to_v <-> p_to_r   r_to_s <-> s_to_r   s_to_v <-> p_to_s   v_to_s <-> s_to_p
    r_to_p <-> v_to_r   p_to_v and all_to_all are their own

Arguments, the same everywhere: `group` is the name of a process group, `ranks` its size P, `rank`
this rank's number in it. `dim` is non-negative. `size` is the global length n of a sharded
dimension, `length` the length u = ceil(n / P) of one part; rows n .. P*u are padding, and `exact`
promises P*u == n. Results have exactly those sizes, also where they are symbols: P*(s//P) is not s
to the compiler. Results are contiguous, except those of conversions that move nothing.

Every operator is a composite of autograd functions over functional collectives, so that a compiler
traces through it: its graphs hold plain functional collectives, in the backward too, with the
adjoints defined here. Nothing that differs between ranks is looked up while tracing, since compiler
caches are keyed by the graph's text. And the ranks' graphs differ in numbers alone: what a rank
needs of an exchange the others need too, or a plan that makes it again in the backward would make
ranks wait in exchanges that others leave out.
"""

import math

import torch
import torch.distributed._functional_collectives  # registers torch.ops._c10d_functional
import torch.nn.functional as F

from .errors import InternalError

_library = torch.library.Library("autosp", "DEF")
_native = torch.ops._c10d_functional


def _operator(schema: str):
    """Registers the decorated function as `torch.ops.autosp.<schema>`."""

    def register(function):
        name = _library.define(schema)
        _library.impl(name, function, "CompositeImplicitAutograd")
        return getattr(torch.ops.autosp, name).default

    return register


class _WithAdjoint(torch.autograd.Function):
    """`forward(*xs)`, a linear function of tensors, whose adjoint is `backward(*cotangents)`: one
    result for each of the xs.
    """

    @staticmethod
    def forward(ctx, forward, backward, *xs):
        ctx.adjoint = backward
        return forward(*xs)

    @staticmethod
    def backward(ctx, *cotangents):
        results = ctx.adjoint(*cotangents)
        return None, None, *(results if isinstance(results, tuple) else (results,))


# ---- Building blocks, without gradients of their own ----


def _same(x):
    return x.view_as(x)


def _regroup(x, dim, count, *sizes):
    """x with `count` dimensions from `dim` on replaced by dimensions of `sizes`: as many elements,
    perhaps known only at run time.
    """
    return x.reshape(*x.shape[:dim], *sizes, *x.shape[dim + count :])


def _pad(x, dim, before, after, fill=0.0):
    return F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [before, after], value=fill)


def _along(mask, x, dim):
    """A mask of one dimension for dimension `dim` of x."""
    return mask.view(-1, *[1] * (x.dim() - 1 - dim))


def _extend(x, dim, length, exact, ranks, edge):
    """Rows behind the n rows of x, so that there are P*u: copies of the last one (`edge`), or
    zeros. Exact: there are none to add, n and P*u are two names of one number. (Not exact, but none
    to add: a compiler makes a graph of its own for such lengths.)
    """
    if exact:
        return x
    if not edge:
        return _pad(x, dim, 0, ranks * length - x.size(dim))
    rows = torch.arange(ranks * length, device=x.device)
    return x.index_select(dim, rows.clamp(max=x.size(dim) - 1))


def _own_part(x, dim, length, rank):
    return x.narrow(dim, rank * length, length).contiguous()


def _gather(x, dim, size, exact, ranks, group):
    parts = _native.all_gather_into_tensor(x.contiguous().unsqueeze(0), ranks, group)
    return _join(_native.wait_tensor(parts), dim, size, exact)


def _reduce(x, group):
    return _native.wait_tensor(_native.all_reduce(x.contiguous(), "sum", group))


def _reduce_scatter(x, dim, length, ranks, group):
    part = _native.reduce_scatter_tensor(_split(x, dim, length, ranks), "sum", ranks, group)
    return _native.wait_tensor(part).squeeze(0)


def _split(x, dim, length, ranks):
    """[.., P*u, ..] -> [P, .., u, ..]"""
    return _regroup(x, dim, 1, ranks, length).movedim(dim, 0).contiguous()


def _join(parts, dim, size, exact):
    """[P, .., u, ..] -> [.., size, ..]; rows beyond `size` are dropped."""
    ranks, length = parts.size(0), parts.size(dim + 1)
    return _first_rows(_regroup(parts.movedim(0, dim), dim, 2, ranks * length), dim, size, exact)


def _first_rows(x, dim, size, exact):
    """Where all rows stay too: then for the size, P*(s//P) not being s to a compiler."""
    return x if exact and isinstance(size, int) else x.narrow(dim, 0, size).contiguous()


# ---- Conversions ----


@_operator("r_to_v(Tensor x, int ranks, str group, bool reduce=True) -> Tensor")
def r_to_v(x, ranks, group, reduce=True):
    """Without `reduce`, someone else averages over the ranks later: the cotangent is only
    multiplied by P.
    """
    return _WithAdjoint.apply(
        _same, (lambda g: p_to_r(g, group)) if reduce else (lambda g: g * ranks), x
    )


@_operator("p_to_r(Tensor x, str group) -> Tensor")
def p_to_r(x, group):
    return _WithAdjoint.apply(lambda x: _reduce(x, group), lambda g: r_to_v(g, 1, group), x)


@_operator("p_to_v(Tensor x, str group) -> Tensor")
def p_to_v(x, group):
    return _WithAdjoint.apply(lambda x: _reduce(x, group), lambda g: p_to_v(g, group), x)


@_operator("r_to_p(Tensor x, int rank) -> Tensor")
def r_to_p(x, rank):
    def keep(x):
        elsewhere = torch.arange(1, device=x.device) + rank > 0
        return x.masked_fill(elsewhere.view(()), 0)

    return _WithAdjoint.apply(keep, lambda g: v_to_r(g, rank), x)


@_operator("v_to_r(Tensor x, int rank) -> Tensor")
def v_to_r(x, rank):
    return _WithAdjoint.apply(_same, lambda g: r_to_p(g, rank), x)


@_operator(
    "r_to_s(Tensor x, int dim, SymInt length, bool exact, int rank, int ranks, str group,"
    " bool edge=True) -> Tensor"
)
def r_to_s(x, dim, length, exact, rank, ranks, group, edge=True):
    size = x.size(dim)
    return _WithAdjoint.apply(
        lambda x: _own_part(_extend(x, dim, length, exact, ranks, edge), dim, length, rank),
        lambda g: s_to_r(g, dim, size, exact, rank, ranks, group),
        x,
    )


@_operator(
    "s_to_r(Tensor x, int dim, SymInt size, bool exact, int rank, int ranks, str group) -> Tensor"
)
def s_to_r(x, dim, size, exact, rank, ranks, group):
    length = x.size(dim)
    return _WithAdjoint.apply(
        lambda x: _gather(x, dim, size, exact, ranks, group),
        lambda g: r_to_s(g, dim, length, exact, rank, ranks, group, edge=False),
        x,
    )


@_operator(
    "v_to_s(Tensor x, int dim, SymInt length, bool exact, int rank, int ranks, str group,"
    " bool edge=True) -> Tensor"
)
def v_to_s(x, dim, length, exact, rank, ranks, group, edge=True):
    size = x.size(dim)
    return _WithAdjoint.apply(
        lambda x: _own_part(_extend(x, dim, length, exact, ranks, edge), dim, length, rank),
        lambda g: _s_to_p(g, dim, size, exact, rank, ranks, group),
        x,
    )


def _s_to_p(x, dim, size, exact, rank, ranks, group):
    """The own part placed, zeros elsewhere."""
    length = x.size(dim)

    def place(x):
        x = _pad(x, dim, rank * length, (ranks - 1 - rank) * length)
        return _first_rows(x, dim, size, exact)

    return _WithAdjoint.apply(
        place, lambda g: v_to_s(g, dim, length, exact, rank, ranks, group, edge=False), x
    )


@_operator(
    "s_to_v(Tensor x, int dim, SymInt size, bool exact, int rank, int ranks, str group) -> Tensor"
)
def s_to_v(x, dim, size, exact, rank, ranks, group):
    length = x.size(dim)
    return _WithAdjoint.apply(
        lambda x: _gather(x, dim, size, exact, ranks, group),
        lambda g: p_to_s(g, dim, length, exact, rank, ranks, group, edge=False),
        x,
    )


@_operator(
    "p_to_s(Tensor x, int dim, SymInt length, bool exact, int rank, int ranks, str group,"
    " bool edge=True) -> Tensor"
)
def p_to_s(x, dim, length, exact, rank, ranks, group, edge=True):
    size = x.size(dim)
    return _WithAdjoint.apply(
        lambda x: _reduce_scatter(
            _extend(x, dim, length, exact, ranks, edge), dim, length, ranks, group
        ),
        lambda g: s_to_v(g, dim, size, exact, rank, ranks, group),
        x,
    )


@_operator(
    "all_to_all(Tensor[] xs, int[] split_dims, SymInt[] lengths, int[] concat_dims, SymInt[] sizes,"
    " bool exact, int ranks, str group, bool edge=True) -> Tensor[]"
)
def all_to_all(xs, split_dims, lengths, concat_dims, sizes, exact, ranks, group, edge=True):
    """One exchange for the whole list: the i-th tensor goes from whole along `split_dims[i]` to
    parts of `lengths[i]`, and from parts along `concat_dims[i]` to whole, `sizes[i]`. The backward
    is one exchange too, of the cotangents that are needed.
    """
    if len({x.dtype for x in xs}) > 1:
        raise InternalError(
            f"all_to_all: the tensors of one exchange differ in dtype: {[x.dtype for x in xs]}"
        )
    wholes = [x.size(dim) for x, dim in zip(xs, split_dims, strict=True)]
    parts = [x.size(dim) for x, dim in zip(xs, concat_dims, strict=True)]
    wanted = [i for i, x in enumerate(xs) if x.requires_grad]

    def exchange(*xs):
        pieces = [
            _split(_extend(x, dim, length, exact, ranks, edge), dim, length, ranks)
            for x, dim, length in zip(xs, split_dims, lengths, strict=True)
        ]
        rows = (
            torch.cat([piece.reshape(ranks, -1) for piece in pieces], 1)
            if len(pieces) > 1
            else pieces[0].reshape(ranks, -1)
        )
        rows = _native.wait_tensor(_native.all_to_all_single(rows, [1] * ranks, [1] * ranks, group))
        received = rows.split([math.prod(piece.shape[1:]) for piece in pieces], 1)
        return tuple(
            _join(row.reshape(piece.shape), dim, size, exact)
            for row, piece, dim, size in zip(received, pieces, concat_dims, sizes, strict=True)
        )

    def exchange_back(*cotangents):
        def only_wanted(items):
            return [items[i] for i in wanted]

        back = all_to_all(
            *map(only_wanted, (cotangents, concat_dims, parts, split_dims, wholes)),
            exact,
            ranks,
            group,
            edge=False,
        )
        results = [None] * len(cotangents)
        for i, result in zip(wanted, back, strict=True):
            results[i] = result
        return tuple(results)

    return list(_WithAdjoint.apply(exchange, exchange_back, *xs))


@_operator(
    "uniform(Tensor like, Tensor seed, int stream, int rows, int dims, int dim=0,"
    " SymInt? size=None, SymInt start=0) -> Tensor"
)
def uniform(like, seed, stream, rows, dims, dim=0, size=None, start=0):
    """See src/ops/draw.h. A row's number and the seed give a multiplier and an offset, once for all
    draws; column and stream go through both and a 32-bit finalizer. Nothing of the size of the
    result is shared between draws, or it would be kept for the backward.
    """

    def numbers(first, last):
        number, stride = torch.zeros((), dtype=torch.int64, device=like.device), 1
        for d in reversed(range(first, last)):
            place, count = torch.arange(like.size(d), device=like.device), like.size(d)
            if size is not None and d == dim:
                place, count = (place + start).clamp(max=size - 1), size
            number = number + (place * stride).view(-1, *[1] * (like.dim() - 1 - d))
            stride = stride * count
        return number

    seed, row = seed.to(like.device), numbers(0, rows)
    first = _mixed((row & _WORD) ^ (seed & _WORD))
    second = _mixed(first ^ (((row >> 32) + (seed >> 32)) & _WORD))
    column = numbers(rows, dims) + (stream * 0x9E3779B9 & _WORD)
    word = _signed(column & _WORD) * _signed(first | 1) + _signed(second)
    for bits, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        word = (word ^ ((word >> bits) & (_WORD >> bits))) * factor
    word = word ^ ((word >> 15) & (_WORD >> 15))
    return (((word >> 8) & 0xFFFFFF).to(torch.float32) * 2.0**-24).expand(like.shape)


_WORD = 0xFFFFFFFF


def _mixed(x):
    """A bijection of 32-bit words whose every input bit flips every output bit half of the time
    (constants of the hash-prospector project, public domain).
    """
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _WORD
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _WORD
    return x ^ (x >> 15)


def _signed(x):
    """32-bit words as int32, shifted by half of their range."""
    return (x - 2**31).to(torch.int32)


@_operator("mask_tail(Tensor x, int dim, SymInt size, float fill, int rank) -> Tensor")
def mask_tail(x, dim, size, fill, rank):
    """The rows of this rank's part of x that lie at or beyond `size` globally become `fill`."""
    length = x.size(dim)
    rows = torch.arange(length, device=x.device) + rank * length
    return x.masked_fill(_along(rows >= size, x, dim), fill)


@_operator(
    "mask_sorted(Tensor x, Tensor order, int dim, SymInt inner, SymInt length, SymInt size,"
    " float fill, int rank) -> Tensor"
)
def mask_sorted(x, order, dim, inner, length, size, fill, rank):
    """The same of rows in another order: the i-th was number `order[i]` of a dimension that is
    [.., length, inner] flattened, `length` this rank's part of `size` rows.
    """
    rows = order // inner % length + rank * length
    return x.masked_fill(_along(rows >= size, x, dim), fill)


@_operator("repeat_heads(Tensor x, int times, int dim) -> Tensor")
def repeat_heads(x, times, dim):
    """S -> S: heads of keys, one copy for each of the ranks that need them."""
    return x.repeat_interleave(times, dim)


from . import rows as _rows  # noqa: E402, F401  registers the operators on rows
