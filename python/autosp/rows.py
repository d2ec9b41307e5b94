"""The operators that need rows of other ranks along a sharded dimension: `torch.ops.autosp.*`, with
the placements and arguments of collectives.py.

    halo                                    S -> S   neighbours' rows
    scan_rows, scan_extremes                S -> S   running totals and extremes
    softmax_rows, flip_rows, edge_rows      S -> S
    rows_at, merge_rows                     V -> S   rows at positions of the whole dimension
    take_rows, index_rows, gather_rows      S -> P   the same, read
    reduce_rows, variance_rows, extreme_rows  S -> R
"""

import math

import torch

from .collectives import (
    _along,
    _extend,
    _gather,
    _native,
    _operator,
    _own_part,
    _pad,
    _reduce,
    _reduce_scatter,
    _WithAdjoint,
    p_to_r,
    p_to_v,
    r_to_v,
    s_to_r,
    s_to_v,
)
from .errors import InternalError


@_operator(
    "halo(Tensor x, int dim, int before, int after, SymInt size, bool exact, bool wrap, bool far,"
    " float fill, int rank, int ranks, str group) -> Tensor"
)
def halo(x, dim, before, after, size, exact, wrap, far, fill, rank, ranks, group):
    """S -> S with neighbours' rows: rank r, whose part is the rows r*u .. (r+1)*u, gets the rows
    r*u - before .. (r+1)*u + after; negative amounts leave rows out. Rows outside of 0 .. size are
    `fill`, or with `wrap` (as many rows as before) those of the other end. The
    cotangents of a row's copies go back to its owner, who adds them up.

    What comes from others lies in the next ranks' parts, else it is `far` and all rows are
    gathered.
    """
    length = x.size(dim)
    if length < max(before, after) and not far:
        raise InternalError(f"halo: {before} and {after} rows of neighbours that have {length}")
    place = _Halo(dim, before, after, length, size, exact, wrap, far, rank, ranks, group)
    return _WithAdjoint.apply(lambda x: place.read(x, fill), lambda g: _halo_back(g, place), x)


def _halo_back(g, place):
    return _WithAdjoint.apply(place.add_back, lambda x: place.read(x, 0.0), g)


class _Halo:
    """Where rows come from and go back to: `read` and its adjoint `add_back`."""

    def __init__(self, dim, before, after, length, size, exact, wrap, far, rank, ranks, group):
        self.dim, self.before, self.after, self.length = dim, before, after, length
        self.size, self.exact, self.wrap, self.far = size, exact, wrap, far
        self.rank, self.ranks, self.group = rank, ranks, group
        self.left, self.right = max(before, 0), max(after, 0)  # rows of neighbours

    def read(self, x, fill):
        read = self._read_far if self.far else self._read_near
        return self._without_outside(read(x), fill)

    def add_back(self, g):
        g = self._without_outside(g, 0.0)
        return self._add_back_far(g) if self.far else self._add_back_near(g)

    def _without_outside(self, y, fill):
        """Where parts are exact there is nothing outside but what neighbours would give."""
        if self.wrap or (self.exact and not self.left and not self.right):
            return y
        first = self.rank * self.length - self.before
        rows = torch.arange(y.size(self.dim), device=y.device) + first
        outside = (rows < 0) | (rows >= self.size)
        return y.masked_fill(_along(outside, y, self.dim), fill)

    def _neighbour(self, step):
        """Around the ends too: what the first and the last rank get there is outside, or nothing
        comes back from it.
        """
        return (self.rank + step) % self.ranks

    def _everyones(self, pieces):
        """The pieces of all ranks, one behind the other: [P, ...]"""
        rows = torch.cat(pieces, self.dim).contiguous().unsqueeze(0)
        return _native.wait_tensor(_native.all_gather_into_tensor(rows, self.ranks, self.group))

    def _read_near(self, x):
        dim, left, right, u = self.dim, self.left, self.right, self.length
        pieces = [x]
        if left or right:
            parts = self._everyones([x.narrow(dim, 0, right), x.narrow(dim, u - left, left)])
            for step, start, count in ((-1, right, left), (1, 0, right)):
                rows = parts[self._neighbour(step)].narrow(dim, start, count)
                pieces.insert(0, rows) if step < 0 else pieces.append(rows)
        y = torch.cat(pieces, dim)
        return y.narrow(dim, left - self.before, u + self.before + self.after).contiguous()

    def _add_back_near(self, g):
        dim, left, right, u = self.dim, self.left, self.right, self.length
        g = _pad(g, dim, left - self.before, right - self.after)  # [left | u | right]
        own = g.narrow(dim, left, u)
        if left or right:
            parts = self._everyones([g.narrow(dim, 0, left), g.narrow(dim, left + u, right)])
            for step, start, count, at in ((1, 0, left, u - left), (-1, left, right, 0)):
                if count:
                    rows = parts[self._neighbour(step)].narrow(dim, start, count)
                    own = own + _pad(rows, dim, at, u - count - at)
        return own.contiguous()

    def _read_far(self, x):
        whole = _gather(x, self.dim, self.size, self.exact, self.ranks, self.group)
        if self.wrap:
            whole = whole.roll(self.before, self.dim)
            whole = _extend(whole, self.dim, self.length, self.exact, self.ranks, False)
            return _own_part(whole, self.dim, self.length, self.rank)
        tail = self.ranks * self.length - self.size + self.right
        whole = _pad(whole, self.dim, self.left, tail)
        start = self.rank * self.length + self.left - self.before
        return whole.narrow(self.dim, start, self.length + self.before + self.after).contiguous()

    def _add_back_far(self, g):
        dim, u, total = self.dim, self.length, self.ranks * self.length
        if self.wrap:
            placed = _pad(g, dim, self.rank * u, total - (self.rank + 1) * u)
            placed = placed.narrow(dim, 0, self.size).roll(-self.before, dim)
            placed = _extend(placed, dim, u, self.exact, self.ranks, False)
        else:
            start = self.rank * u - self.before + self.left
            placed = _pad(g, dim, start, total + self.left + self.right - start - g.size(dim))
            placed = placed.narrow(dim, self.left, total)
        return _reduce_scatter(placed, dim, u, self.ranks, self.group)


def _own_rows(positions, x, dim, rank):
    """Positions in the whole dimension as those in this rank's part, and which lie elsewhere."""
    rows = positions - rank * x.size(dim)
    return rows.clamp(0, x.size(dim) - 1), (rows < 0) | (rows >= x.size(dim))


@_operator(
    "rows_at(Tensor x, int dim, SymInt length, int extra, SymInt start, int rank, bool edge=False)"
    " -> Tensor"
)
def rows_at(x, dim, length, extra, start, rank, edge=False):
    """V -> S: the rows of x at `start` .. of a sharded dimension; the part's rows and `extra` ones
    of the next. Elsewhere zeros, or copies of the last row without gradient (`edge`).
    """
    rows = torch.arange(length + extra, device=x.device) + rank * length - start
    outside = _along((rows < 0) | (rows >= x.size(dim)), x, dim)
    part = x.index_select(dim, rows.clamp(0, x.size(dim) - 1))
    return torch.where(outside, part.detach(), part) if edge else part.masked_fill(outside, 0)


@_operator(
    "merge_rows(Tensor x, Tensor y, int dim, SymInt start, SymInt count, int rank) -> Tensor"
)
def merge_rows(x, y, dim, start, count, rank):
    """S -> S: x with those of y's rows that stand at `start` .. `start` + `count`."""
    rows = torch.arange(x.size(dim), device=x.device) + rank * x.size(dim)
    return torch.where(_along((rows >= start) & (rows < start + count), x, dim), y, x)


@_operator("take_rows(Tensor x, int dim, SymInt start, SymInt count, int rank) -> Tensor")
def take_rows(x, dim, start, count, rank):
    """S -> P: the rows `start` .. `start` + `count`, zeros for those of other ranks."""
    rows, foreign = _own_rows(torch.arange(count, device=x.device) + start, x, dim, rank)
    return x.index_select(dim, rows).masked_fill(_along(foreign, x, dim), 0)


@_operator("index_rows(Tensor x, int dim, Tensor?[] indices, SymInt size, int rank) -> Tensor")
def index_rows(x, dim, indices, size, rank):
    """S -> P: x[indices], None standing for all of a dimension and `indices[dim]` for positions in
    the whole dimension of `size` rows; zeros where those are another rank's.
    """
    positions = indices[dim]
    positions = torch.where(positions < 0, positions + size, positions)
    rows, foreign = _own_rows(positions, x, dim, rank)
    indices = list(indices)
    indices[dim] = rows
    y = torch.ops.aten.index.Tensor(x, indices)
    at = [i for i, index in enumerate(indices) if index is not None]
    adjacent = at[-1] - at[0] + 1 == len(at)
    block = max(indices[i].dim() for i in at)
    behind = y.dim() - block - (at[0] if adjacent else 0)
    return y.masked_fill(foreign.view(*foreign.shape, *[1] * behind), 0)


@_operator("gather_rows(Tensor x, int dim, Tensor index, int rank) -> Tensor")
def gather_rows(x, dim, index, rank):
    """S -> P: torch.gather at positions in the whole dimension, zeros where those are another
    rank's.
    """
    rows, foreign = _own_rows(index, x, dim, rank)
    return x.gather(dim, rows).masked_fill(foreign, 0)


# ---- Every row needs others ----


def _each_rank(x, dim, ranks, rank, group, varying):
    """What each rank gives, [.., 1, ..], one behind the other: [.., P, ..]."""
    gather = s_to_v if varying else s_to_r
    return gather(x, dim, ranks, True, rank, ranks, group)


def _full(x):
    """Half types round once, at the end, as on one device."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _rows_past_end(x, dim, size, rank):
    rows = torch.arange(x.size(dim), device=x.device) + rank * x.size(dim)
    return _along(rows >= size, x, dim)


def _before(totals, dim, rank, identity):
    """Of the totals [.., P, ..] those of the ranks before this one."""
    later = torch.arange(totals.size(dim), device=totals.device) >= rank
    return totals.masked_fill(_along(later, totals, dim), identity)


_SCANS = {
    "cumsum": (torch.cumsum, 0.0, lambda x, dim: x.sum(dim, True), torch.add),
    "cumprod": (torch.cumprod, 1.0, lambda x, dim: x.prod(dim, True), torch.mul),
    "logcumsumexp": (
        torch.logcumsumexp,
        float("-inf"),
        lambda x, dim: x.logsumexp(dim, True),
        torch.logaddexp,
    ),
}


@_operator("scan_rows(Tensor x, str kind, int dim, int rank, int ranks, str group) -> Tensor")
def scan_rows(x, kind, dim, rank, ranks, group):
    """S -> S: a running total, after those of the ranks before."""
    scan, identity, reduce, combine = _SCANS[kind]
    dtype = x.dtype
    y = scan(_full(x), dim)
    totals = _each_rank(y.narrow(dim, y.size(dim) - 1, 1), dim, ranks, rank, group, True)
    return combine(y, reduce(_before(totals, dim, rank, identity), dim)).to(dtype)


@_operator(
    "scan_extremes(Tensor x, bool largest, int dim, int rank, int ranks, str group)"
    " -> (Tensor, Tensor)"
)
def scan_extremes(x, largest, dim, rank, ranks, group):
    """S -> S, S: the running maximum or minimum and its position. Of equal ones the last."""
    values, places = (torch.cummax if largest else torch.cummin)(x, dim)
    places = places + rank * x.size(dim)
    last = x.size(dim) - 1
    totals = _each_rank(values.narrow(dim, last, 1), dim, ranks, rank, group, True)
    where = _gather(places.narrow(dim, last, 1), dim, ranks, True, ranks, group)
    worst = float("-inf") if largest else float("inf")
    before, place = (torch.cummax if largest else torch.cummin)(
        _before(totals, dim, rank, worst), dim
    )
    before, place = before.narrow(dim, ranks - 1, 1), place.narrow(dim, ranks - 1, 1)
    own = (values >= before if largest else values <= before) | values.isnan()
    return (
        torch.where(own, values, before),
        torch.where(own, places, where.gather(dim, place)),
    )


@_operator(
    "softmax_rows(Tensor x, bool log, int dim, SymInt size, bool exact, int rank, int ranks,"
    " str group) -> Tensor"
)
def softmax_rows(x, log, dim, size, exact, rank, ranks, group):
    """S -> S"""
    dtype, x = x.dtype, _full(x)
    top, powers, total = _exponentials(x, [dim], dim, size, exact, rank, ranks, group)
    total = p_to_v(total, group)
    return (x - top - total.log() if log else powers / total).to(dtype)


def _exponentials(x, dims, cut, size, exact, rank, ranks, group):
    """The largest row, exp(x - largest), and its sum: a P. All of a rank's rows may be -inf."""
    rows = _contenders(x, True, cut, size, exact, rank)
    each = _gather(rows.amax(dims, True), cut, ranks, True, ranks, group)
    top = each.amax(cut, True)
    top = top.masked_fill(~top.isfinite(), 0.0)
    if exact:
        powers = (x - top).exp()
        return top, powers, powers.sum(dims, True)
    past = _rows_past_end(x, cut, size, rank)
    # of the rows past the end they may be infinite
    powers = (x - top).masked_fill(past, 0.0).exp()
    return top, powers, powers.masked_fill(past, 0.0).sum(dims, True)


@_operator(
    "edge_rows(Tensor x, int dim, SymInt size, bool exact, int rank, int ranks, str group)"
    " -> Tensor"
)
def edge_rows(x, dim, size, exact, rank, ranks, group):
    """S -> S: rows at or beyond `size` become copies of the last before, without gradient."""
    if exact:
        return x
    last = torch.full((1,), size - 1, device=x.device)
    own = (last - rank * x.size(dim)).clamp(0, x.size(dim) - 1)
    every = _gather(x.detach().index_select(dim, own), dim, ranks, True, ranks, group)
    edge = every.index_select(dim, last // x.size(dim))
    return torch.where(_rows_past_end(x, dim, size, rank), edge, x)


@_operator(
    "flip_rows(Tensor x, int dim, SymInt size, bool exact, int rank, int ranks, str group)"
    " -> Tensor"
)
def flip_rows(x, dim, size, exact, rank, ranks, group):
    """S -> S: the last row first. It gathers all rows."""
    length = x.size(dim)

    def flip(x):
        whole = _gather(x, dim, size, exact, ranks, group).flip(dim)
        return _own_part(_extend(whole, dim, length, exact, ranks, False), dim, length, rank)

    return _WithAdjoint.apply(flip, lambda g: flip_rows(g, dim, size, exact, rank, ranks, group), x)


# ---- All rows make one ----


_IDENTITIES = {"prod": 1.0, "norm": 0.0}


@_operator(
    "reduce_rows(Tensor x, str kind, int[] dims, int cut, bool keepdim, float p, SymInt size,"
    " bool exact, int rank, int ranks, str group) -> Tensor"
)
def reduce_rows(x, kind, dims, cut, keepdim, p, size, exact, rank, ranks, group):
    """S -> R, over dimensions of which `cut` is the sharded one: amax, amin, prod, logsumexp, norm
    of order p.
    """
    dims, dtype = list(dims), x.dtype
    if kind in ("amax", "amin"):
        result = _extreme(x, kind == "amax", dims, cut, size, exact, rank, ranks, group)
    elif kind == "norm" and p == math.inf:
        result = _extreme(x.abs(), True, dims, cut, size, exact, rank, ranks, group)
    elif kind == "logsumexp":
        top, _, total = _exponentials(_full(x), dims, cut, size, exact, rank, ranks, group)
        result = (top + p_to_r(total, group).log()).to(dtype)
    else:
        x = _full(x)
        reduce = {
            "prod": _product,
            "norm": lambda x, dims, keep: torch.linalg.vector_norm(x, p, dims, keep),
        }[kind]
        if not exact:
            x = x.masked_fill(_rows_past_end(x, cut, size, rank), _IDENTITIES[kind])
        each = _each_rank(reduce(x, dims, True), cut, ranks, rank, group, False)
        result = reduce(each, [cut], True).to(dtype)
    return result if keepdim else result.squeeze(dims)


def _product(x, dims, keep):
    for dim in dims:
        x = x.prod(dim, keep)
    return x


def _contenders(x, largest, dim, size, exact, rank):
    """The rows without gradient; those past the end can't be extreme."""
    if exact:
        return x.detach()
    worst = float("-inf") if largest else float("inf")
    return x.detach().masked_fill(_rows_past_end(x, dim, size, rank), worst)


def _extreme(x, largest, dims, cut, size, exact, rank, ranks, group):
    """Equal extremes share the gradient, wherever they are. (As torch has it, one that is no number
    is every row's.)
    """
    find = torch.amax if largest else torch.amin
    rows = _contenders(x, largest, cut, size, exact, rank)
    each = _gather(find(rows, dims, True), cut, ranks, True, ranks, group)
    extreme = find(each, [cut], True)
    hits = rows == extreme
    count = _reduce(hits.sum(dims, True), group)
    return _WithAdjoint.apply(lambda x: extreme.clone(), lambda g: g * hits / count, x)


@_operator(
    "variance_rows(Tensor x, int[] dims, int cut, bool keepdim, bool root, float correction,"
    " SymInt count, SymInt size, bool exact, int rank, int ranks, str group) -> (Tensor, Tensor)"
)
def variance_rows(x, dims, cut, keepdim, root, correction, count, size, exact, rank, ranks, group):
    """S -> R, R: variance, or its root, and mean of `count` elements each."""
    dims, dtype, x = list(dims), x.dtype, _full(x)

    def total(x):
        if not exact:
            x = x.masked_fill(_rows_past_end(x, cut, size, rank), 0.0)
        return p_to_r(x.sum(dims, True), group)

    mean = total(x) / count
    variance = total((x - r_to_v(mean, ranks, group)).square()) / (count - correction)
    if root:
        # the root's slope at 0 is infinite; torch's standard deviation has none there
        still = variance == 0
        variance = variance.masked_fill(still, 1.0).sqrt().masked_fill(still, 0.0)
    results = variance.to(dtype), mean.to(dtype)
    return results if keepdim else tuple(result.squeeze(dims) for result in results)


@_operator(
    "extreme_rows(Tensor x, bool largest, int dim, bool keepdim, SymInt size, bool exact, int rank,"
    " int ranks, str group) -> (Tensor, Tensor)"
)
def extreme_rows(x, largest, dim, keepdim, size, exact, rank, ranks, group):
    """S -> R, R: the maximum or minimum and its position. Of equal ones the first rank's."""
    find = torch.max if largest else torch.min
    rows = _contenders(x, largest, dim, size, exact, rank)
    values, places = find(rows, dim, True)
    every = _gather(values, dim, ranks, True, ranks, group)
    where = _gather(places + rank * x.size(dim), dim, ranks, True, ranks, group)
    index = where.gather(dim, find(every, dim, True)[1])
    value = p_to_r(gather_rows(x, dim, index, rank), group)
    results = value, index
    return results if keepdim else tuple(result.squeeze(dim) for result in results)
