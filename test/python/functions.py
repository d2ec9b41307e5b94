"""torch.autograd.Functions in a model, with gradients that are not those of what they give."""

import torch
import torch.nn.functional as F
from torch.autograd import Function

FORMS = {}


def form(function):
    FORMS[function.__name__] = function
    return function


class Clipped(Function):
    """A backward that is not linear in its gradient, and parameters shaped in different ways."""

    @staticmethod
    def forward(ctx, x, scale, rows):
        ctx.save_for_backward(x, scale)
        ctx.factor = 3.0
        return x * scale * ctx.factor + rows[1]

    @staticmethod
    def backward(ctx, g):
        x, scale = ctx.saved_tensors
        rows = torch.stack([g.sum((0, 1)), -g.flatten(0, 1).sum(0), (g * x).mean((0, 1))])
        return (g * scale).clamp(-1e-3, 1e-3), (g * x).sum((0, 1)) * 2 - 1.5 * rows[0], rows


@form
def clipped(m, x, ids):
    return (Clipped.apply(x, m.vector, m.rows),)


class Gelu(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))

    @staticmethod
    def backward(ctx, g):
        x = ctx.saved_tensors[0]
        t = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
        return (0.5 * x * ((1 - t * t) * (0.79788456 + 0.1070322243 * x * x)) + 0.5 * (1 + t)) * g


@form
def gelu(m, x, ids):
    return (Gelu.apply(Gelu.apply(x) + x),)


class Linear(Function):
    """Tokens merged with the batch, by a view in the backward; a bias that may be missing."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() if bias is None else F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        flat = g.reshape(-1, g.shape[-1])
        bias = flat.sum(0) if ctx.needs_input_grad[2] else None
        return g @ weight, 2 * flat.t() @ x.reshape(-1, x.shape[-1]), bias


@form
def linear(m, x, ids):
    y = Linear.apply(x, m.out.weight, m.out.bias)
    return (Linear.apply(y.flatten(0, 1), m.out.weight, None).view_as(y),)


class Norm(Function):
    @staticmethod
    def forward(ctx, x, weight):
        scale = (x.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt().to(x.dtype)
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx, g):
        x, weight, scale = ctx.saved_tensors
        y = x * scale
        inner = (g * weight * y).mean(-1, keepdim=True)
        zeros = torch.zeros_like(g)
        zeros += scale * (g * weight - y * inner)
        return zeros, (g * y).sum(tuple(range(g.dim() - 1))).to(weight.dtype)


@form
def norm(m, x, ids):
    return (Norm.apply(x, m.vector),)


class Loss(Function):
    """Sums over the tokens beside a result for each; labels have no gradient."""

    @staticmethod
    def forward(ctx, logits, labels):
        losses = logits.logsumexp(-1) - logits.gather(-1, labels[..., None]).squeeze(-1)
        ctx.save_for_backward(logits, labels)
        valid = (labels != 3).to(logits.dtype)
        return (losses * valid).sum(), losses, valid.sum()

    @staticmethod
    def backward(ctx, total, losses, _):
        logits, labels = ctx.saved_tensors
        g = logits.softmax(-1) - F.one_hot(labels, logits.shape[-1])
        weight = (labels != 3).to(logits.dtype) * total + losses
        return g * weight[..., None] * 1.25, None


@form
def loss(m, x, ids):
    total, losses, count = Loss.apply(x @ m.token.weight.t(), ids)
    return x * total.detach().sin(), total.square() / count.detach(), losses


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g.sign() * 1e-2


@form
def quantized_parameter(m, x, ids):
    """All of it on every rank: the backward gets the whole gradient, and no part of one."""
    return (F.linear(x, Straight.apply(m.out.weight * 4) / 4) * Straight.apply(m.vector),)


class Positions(Function):
    @staticmethod
    def forward(ctx, x):
        positions = torch.arange(x.shape[1], dtype=x.dtype)[:, None]
        ctx.save_for_backward(x, positions)
        return x * positions

    @staticmethod
    def backward(ctx, g):
        x, positions = ctx.saved_tensors
        return torch.where(x > 0, g * positions, g.new_zeros(()))


@form
def positions(m, x, ids):
    return (Positions.apply(x),)
