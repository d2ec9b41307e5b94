"""Reductions, norms and losses (operator_case.py)."""

from operator_case import case, ids, refused

# ---- Reductions, norms, losses ----


@case("sum", "mean", "amax", "prod", "var", "logsumexp", "norm", "vector_norm")
def _(g, t, x):
    if t.endswith("_mean"):
        return g.emit_parts(t, x, dim=1)[0]
    return g.emit(t, x, dim=1)


@case("max", "argmax", "cummax")
def _(g, t, x):
    if "arg" in t:
        return g.emit(t, x, 1)
    if t.endswith("logcumsumexp"):
        return g.emit(t, x, 1)
    return g.emit_parts(t, x, 1)[0]


@case("count_nonzero")
def _(g, t, x):
    return g.emit(t, g.emit("torch.relu", x), 1)


@case("any")
def _(g, t, x):
    return g.emit(t, g.emit("torch.gt", x, 0.5), 1)


@refused("nansum")
def _(g, t, x):
    return g.emit(t, x, dim=1)


@case("nansum")
def _(g, t, x):
    return g.emit(t, x, dim=2)


@refused("median", "mode")
def _(g, t, x):
    return g.emit_parts(t, x, 1)[0]


@case("median", "mode")
def _(g, t, x):
    return g.emit_parts(t, x, 2)[0]


@case("layer_norm", "rms_norm")
def _(g, t, x):
    return g.emit(t, x, (12,), g.input((12,)))


@case("group_norm")
def _(g, t, x):
    flat = g.emit("Tensor.reshape", x, -1, 12, 1)
    return g.emit(t, flat, 3, g.input((12,)))


@refused("group_norm")
def _(g, t, x):
    return g.emit(t, g.emit("Tensor.transpose", x, 1, 2), 3)


def _instance_norm(g, t, x):
    more = (None, None, None, None, True, 0.1, 1e-5) + (False,) * (t == "torch.instance_norm")
    return g.emit(t, x, *more)


@refused("instance_norm")
def _(g, t, x):
    return _instance_norm(g, t, g.emit("Tensor.transpose", x, 1, 2))


@case("instance_norm")
def _(g, t, x):
    return _instance_norm(g, t, g.emit("Tensor.reshape", x, -1, 3, 4))


@case("batch_norm")
def _(g, t, x):
    flat = g.emit("Tensor.reshape", x, -1, 12)
    return g.emit(t, flat, g.constant((12,)), g.constant((12,)), g.input((12,)), g.input((12,)))


@case("softmax", "softmax (torch)", "log_softmax", "log_softmax (torch)")
def _(g, t, x):
    return g.emit(t, x, 1)


@case("normalize")
def _(g, t, x):
    return g.emit(t, x, dim=-1)


@case("cosine_similarity")
def _(g, t, x):
    return g.emit(t, x, g.input((12,)), dim=-1)


@case("cross_entropy", "nll_loss")
def _(g, t, x):
    y = g.emit("Tensor.reshape", g.emit("torch.log_softmax", x, -1), -1, 12)
    return g.emit(t, y, g.emit("Tensor.view", ids(g, x, 12), -1), ignore_index=3)


@case("mse_loss", "smooth_l1_loss", "huber_loss")
def _(g, t, x):
    return g.emit(t, x, g.input(g.shape(x)))


@case("kl_div")
def _(g, t, x):
    target = g.emit("torch.softmax", g.input(g.shape(x)), -1)
    return g.emit(t, g.emit("torch.log_softmax", x, -1), target, reduction="sum")


@case("binary_cross_entropy")
def _(g, t, x):
    return g.emit(t, g.emit("torch.sigmoid", x), g.emit("torch.sigmoid", g.constant(g.shape(x))))


@case("binary_cross_entropy_with_logits")
def _(g, t, x):
    return g.emit(t, x, g.constant(g.shape(x)))
