"""A call of every operator of docs/operators.md, in a program that has tokens.

A case is a function (g, t, x): it calls the operator as it is spelled in `t` on activations x [2,
tokens, 12] (generate.py), or on what it makes of them, and returns what is compared. Elementwise
operators need none: `elementwise` finds what they take. The cases stand by family in files of their
own, which this one doesn't import.
"""

CASES, REFUSED, ELSEWHERE = {}, {}, {}


def case(*names):
    def register(function):
        for name in names:
            CASES[name] = function
        return function

    return register


def refused(*names):
    """Along the sequence it is refused by name."""

    def register(function):
        for name in names:
            REFUSED[name] = function
        return function

    return register


def elsewhere(test, *names):
    """`test` is the file that has them."""
    ELSEWHERE.update(dict.fromkeys(names, test))


def tokens(g, x):
    return g.shape(x)[1]


def first(g, x):
    """[tokens, 12]"""
    return g.emit("_operator.getitem", x, (0,))


def column(g, x, at):
    """[tokens]"""
    return g.emit("_operator.getitem", x, (0, slice(None), at))


def ids(g, x, high):
    return g.ints((2, tokens(g, x)), high)


def lengthened(g, x):
    """[2, tokens, 3, 4]"""
    return g.emit("Tensor.unflatten", x, -1, (3, 4))


def writes(t):
    """Whether it changes its operand."""
    name = t.split(".")[-1]
    if t.startswith("_operator.i"):
        return name not in ("invert", "index")
    return (name.endswith("_") and not name.endswith("__")) or (
        name.startswith("__i") and name != "__invert__"
    )


def own(g, t, x):
    """x, of its own memory where the operator writes to it."""
    return g.emit("Tensor.clone", x) if writes(t) else x
