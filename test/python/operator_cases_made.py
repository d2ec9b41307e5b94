"""Values made from sizes, draws, facts and effects (operator_case.py)."""

import torch
from operator_case import CASES, case, elsewhere, lengthened, own, refused, tokens, writes

# ---- Values from sizes ----


@case("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones")
def _(g, t, x):
    value = (0.5,) if "full" in t else ()
    if writes(t):
        return g.emit("_operator.add", x, g.emit(t, g.emit("torch.sin", x)))
    if t.endswith("_like"):
        return g.emit("_operator.add", x, g.emit(t, x, *value))
    size = (2, tokens(g, x), 12)
    made = g.emit(t, x, size, *value) if ".new" in t else g.emit(t, size, *value)
    return g.emit("_operator.add", x, made)


CASES["new_full"] = CASES["full"]


@case("empty", "empty_like", "new_empty")
def _(g, t, x):
    """Whatever is in it: whole numbers are never not a number."""
    size = [] if "like" in t else [(2, tokens(g, x), 12)]
    given = [x] if "like" in t or ".new" in t else []
    made = g.emit(t, *given, *size, dtype=torch.int64)
    return g.emit("_operator.add", x, g.emit("torch.zeros_like", made))


@case("arange")
def _(g, t, x):
    numbers = g.emit("Tensor.unsqueeze", g.emit(t, tokens(g, x)), 1)
    return g.emit("_operator.mul", x, numbers)


@case("linspace")
def _(g, t, x):
    return g.emit("_operator.mul", x, g.emit(t, 0.0, 1.0, 12))


@case("eye")
def _(g, t, x):
    return g.emit("torch.matmul", x, g.emit(t, 12, dtype=torch.float64))


@case("tensor", "scalar_tensor", "new_tensor")
def _(g, t, x):
    return g.emit("_operator.mul", x, g.emit(t, *([x] if ".new" in t else []), 0.5))


@case("tril_indices")
def _(g, t, x):
    return g.emit("_operator.add", x, g.emit("torch.sum", g.emit(t, 3, 3)))


@case("tril", "triu")
def _(g, t, x):
    return g.emit(t, own(g, t, lengthened(g, x)))


@refused("tril", "triu")
def _(g, t, x):
    return g.emit(t, own(g, t, x))


# ---- Draws ----


@case("dropout", "dropout (torch)")
def _(g, t, x):
    """Which draws nothing in an evaluation."""
    return g.emit(t, own(g, t, x), 0.3, False)


@case("rrelu")
def _(g, t, x):
    return g.emit(t, x, 0.1, 0.3, False)


@refused("draws of other kinds")
def _(g, t, x):
    name = t.split(".")[-1]
    more = {
        "normal": (1.0,),
        "multinomial": (1,),
        "randint": (9, (2, tokens(g, x), 12)),
        "randperm": (12,),
        "randint_like": (9,),
        "geometric_": (0.5,),
        "random_": (9,),
    }.get(name, ())
    positive = g.emit("torch.sigmoid", x)
    if name == "multinomial":
        positive = g.emit("Tensor.flatten", positive, 0, 1)
    given = [] if name in ("randint", "randperm") else [own(g, t, positive)]
    return g.emit("torch.mean", g.emit("Tensor.double", g.emit(t, *given, *more)))


# Any number of ranks draws what one does.
elsewhere("test_dropout.py", "rand", "randn", "rand_like", "randn_like", "bernoulli", "uniform")
elsewhere("test_dropout.py", "normal", "exponential", "uniform (autosp)")
# What the compiler writes, and functions with a backward of their own.
elsewhere("test_copied_heads.py", "repeat_heads")
elsewhere("test_functions.py", "autograd function")
# Masks are made by torch.vmap.
elsewhere("test_flex.py", "flex_attention", "vmap_begin", "vmap_end", "vmap_prepare")


# ---- Facts and effects ----


def times(g, x, number):
    return g.emit("_operator.mul", x, number)


@case("item")
def _(g, t, x):
    return times(g, x, g.emit(t, g.constant(())))


@case("size")
def _(g, t, x):
    """Sizes of sequences are no calls in what is captured."""
    return times(g, x, g.emit(t, g.input((12, 3)), 0))


@case("numel", "dtype_of")
def _(g, t, x):
    return times(g, x, g.emit(t, g.input((12, 3))))


@refused("size")
def _(g, t, x):
    return times(g, x, g.emit(t, x, 1))


@refused("numel")
def _(g, t, x):
    return times(g, x, g.emit(t, x))


@case("torch_size")
def _(g, t, x):
    size = g.emit(t, [2, tokens(g, x), 12])
    return g.emit("_operator.add", x, g.emit("torch.ones", size))


@case("finfo")
def _(g, t, x):
    info = g.emit(t, torch.float64 if "finfo" in t else torch.int64)
    return times(g, x, g.emit("builtins.getattr", info, "bits"))


def length(g):
    return g.emit("Tensor.size", g.input((3, 12)), 0)


@case("sym_number")
def _(g, t, x):
    number = True if t.endswith("not") else length(g)
    return times(g, x, g.emit(t, number))


@case("sym_numbers")
def _(g, t, x):
    number, name = length(g), t.split(".")[-1]
    if name == "slice":
        rows = g.emit("_operator.getitem", g.input((5, 12)), g.emit(t, number))
        return g.emit("torch.matmul", x, g.emit("torch.t", rows))
    if name in ("sym_sum", "sum", "prod"):
        return times(g, x, g.emit(t, [number, 3]))
    if name in ("round", "log"):
        return times(g, x, g.emit(t, number))
    return times(g, x, g.emit(t, *([True] if name == "sym_ite" else []), number, 3))


@case("set_grad_enabled")
def _(g, t, x):
    g.emit(t, False)
    still = g.emit("torch.sin", x)
    g.emit(t, True)
    return g.emit("_operator.add", x, still)


@case("autocast_enter", "autocast_exit")
def _(g, t, x):
    """Which leaves float64 as it is."""
    name = "torch.amp.autocast_mode."
    mode = g.emit(name + "_enter_autocast", "cpu", torch.bfloat16, True, False)
    y = g.emit("torch.matmul", x, g.input((12, 3)))
    g.emit(name + "_exit_autocast", mode)
    return y


@case("set_autocast", "autocast_nesting", "log_api_usage", "record_function", "check")
def _(g, t, x):
    calls = {
        "set_autocast_enabled": [("cpu", False)],
        "set_autocast_dtype": [("cpu", torch.bfloat16)],
        "set_autocast_cache_enabled": [(True,)],
        "_log_api_usage_once": [("a",)],
        "_record_function_enter": [("a", None)],
        "_record_function_enter_new": [("a", None)],
        "_assert": [(True, "a")],
        "_assert_async": [(g.constant(()),)],
        "default": [(True, "a")],
        "msg": [(g.constant(()), "a")],
        "_check_with": [(ValueError, True, None)],
        "_check_is_size": [(3,)],
        "_constrain_as_size": [(3,)],
    }
    name = t.split(".")[-1]
    if "_nesting" in name:
        g.emit("torch.autocast_increment_nesting")
        g.emit("torch.autocast_decrement_nesting")
    elif name == "clear_autocast_cache":
        g.emit(t)
    elif name == "_record_function_exit":
        g.emit(t, g.emit("torch.ops.profiler._record_function_enter_new", "a", None))
    else:
        for arguments in calls.get(name, [(True,)]):
            g.emit(t, *arguments)
    return times(g, x, 2.0)
