"""Small training programs that sequence parallelism has to get right: plain torch, no tricks for
our benefit.

Each is a `Program`: how to build the module (deterministically), and the inputs of one step. The
loss is the module's first result. Everything is float64 unless a program says otherwise, so that a
parity to 1e-9 means equality.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 61


@dataclasses.dataclass(frozen=True)
class Program:
    make: Callable[[], nn.Module]
    inputs: Callable[[], dict]
    tolerance: float = 1e-9


class Attention(nn.Module):
    """Causal self-attention; `style` says how the program writes it."""

    def __init__(self, width, heads, kv_heads, style, rotary):
        super().__init__()
        self.heads, self.kv_heads, self.style, self.rotary = heads, kv_heads, style, rotary
        self.head_width = width // heads
        self.q = nn.Linear(width, heads * self.head_width)
        self.k = nn.Linear(width, kv_heads * self.head_width, bias=False)
        self.v = nn.Linear(width, kv_heads * self.head_width)
        self.out = nn.Linear(heads * self.head_width, width)

    def rotate(self, x, positions):
        if not self.rotary:
            return x
        half = self.head_width // 2
        frequencies = 1.0 / 100 ** (torch.arange(half, dtype=x.dtype) / half)
        angles = positions[:, None, :, None].to(x.dtype) * frequencies
        a, b = x.chunk(2, dim=-1)
        return torch.cat(
            (a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()), dim=-1
        )

    def forward(self, x, positions, mask=None):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.head_width).transpose(1, 2)
        k = self.k(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        v = self.v(x).view(batch, length, self.kv_heads, self.head_width).transpose(1, 2)
        q, k = self.rotate(q, positions), self.rotate(k, positions)
        repeats = self.heads // self.kv_heads
        if repeats > 1 and not self.style.startswith("gqa"):
            k = k[:, :, None].expand(-1, -1, repeats, -1, -1).reshape(batch, self.heads, length, -1)
            v = v.repeat_interleave(repeats, dim=1)
        if self.style == "gqa":
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        elif self.style == "eager":
            scores = q @ k.transpose(-2, -1) / math.sqrt(self.head_width)
            hidden = torch.ones(length, length, dtype=torch.bool).tril().logical_not()
            y = torch.softmax(scores.masked_fill(hidden, float("-inf")), dim=-1) @ v
        elif self.style == "einsum":
            scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * self.head_width**-0.5
            seen = torch.arange(length)[None, :] <= torch.arange(length)[:, None]
            weights = torch.where(seen, scores, torch.finfo(x.dtype).min).softmax(-1)
            y = torch.einsum("bhqk,bhkd->bhqd", weights, v)
        elif self.style == "mask":
            y = F.scaled_dot_product_attention(q, k, v, mask)
        elif self.style == "gqa mask":
            y = F.scaled_dot_product_attention(q, k, v, mask, scale=0.3, enable_gqa=True)
        elif self.style == "mask_keyword":
            y = F.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=mask)
        elif self.style == "full":
            y = F.scaled_dot_product_attention(q, k, v)
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, width, *attention):
        super().__init__()
        self.first = nn.LayerNorm(width)
        self.attention = Attention(width, *attention)
        self.second = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x, positions, mask=None):
        x = x + self.attention(self.first(x), positions, mask)
        return x + self.down(F.gelu(self.up(self.second(x))))


class PlainLM(nn.Module):
    """A decoder-only language model with its loss inside.

    loss: a function (model, logits [B, S, V], labels [B, S]) -> scalar; None returns the logits.
    """

    def __init__(
        self,
        width=16,
        heads=4,
        kv_heads=4,
        layers=2,
        style="causal",
        positions="learned",
        loss=None,
        tied=False,
    ):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(64, width) if positions == "learned" else None
        self.blocks = nn.ModuleList(
            Block(width, heads, kv_heads, style, positions == "rotary") for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.head.weight = self.token.weight
        self.loss = loss

    def forward(self, ids, labels=None, positions=None, mask=None):
        if positions is None:
            positions = torch.arange(ids.shape[1])[None]
        x = self.token(ids)
        if self.position is not None:
            x = x + self.position(positions)
        for block in self.blocks:
            x = block(x, positions, mask)
        logits = self.head(self.norm(x))
        if labels is None:
            return logits
        return self.loss(self, logits, labels), logits


def shifted_pad(ignore_index=-100, **options):
    def loss(model, logits, labels):
        labels = F.pad(labels, (0, 1), value=ignore_index)[..., 1:]
        return F.cross_entropy(
            logits.reshape(-1, VOCABULARY), labels.reshape(-1), ignore_index=ignore_index, **options
        )

    return loss


def shifted_slice(ignore_index=-100, **options):
    def loss(model, logits, labels):
        logits, labels = logits[..., :-1, :].contiguous(), labels[..., 1:].contiguous()
        return F.cross_entropy(
            logits.view(-1, VOCABULARY), labels.view(-1), ignore_index=ignore_index, **options
        )

    return loss


def unshifted(ignore_index=-100, **options):
    def loss(model, logits, labels):
        return F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=ignore_index, **options)

    return loss


def summed_none(model, logits, labels):
    each = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-100
    )
    return each.sum() / 7


def class_weights(model, logits, labels, **options):
    weights = torch.linspace(0.5, 2.0, VOCABULARY, dtype=logits.dtype)
    return F.cross_entropy(logits.view(-1, VOCABULARY), labels.view(-1), weight=weights, **options)


def class_weights_smoothed(model, logits, labels):
    return class_weights(model, logits, labels, label_smoothing=0.1)


def both_losses(model, logits, labels):
    return shifted_pad()(model, logits, labels) + 0.3 * unshifted()(model, logits, labels)


def log_likelihood(model, logits, labels):
    log_probabilities = torch.log_softmax(logits, -1)
    picked = -F.nll_loss(
        log_probabilities.flatten(0, 1), labels.clamp(min=0).flatten(), reduction="none"
    )
    return -picked.mean()


def lm(
    length=16,
    batch=2,
    ignored=(),
    ignore_index=-100,
    inputs=None,
    seed=0,
    dtype=torch.float64,
    **model,
):
    """A PlainLM program; `ignored` are (row, start, stop) ranges of labels that don't count."""

    def make():
        torch.manual_seed(seed)
        model.setdefault("loss", shifted_pad())
        return PlainLM(**model).to(dtype)

    def build():
        generator = torch.Generator().manual_seed(seed + 1)
        ids = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
        labels = ids.clone()
        for row, start, stop in ignored:
            labels[row, start:stop] = ignore_index
        extra = {} if inputs is None else inputs(batch, length, dtype, model.get("heads", 4))
        return {"ids": ids, "labels": labels, **extra}

    return Program(make, build)


class Encoder(nn.Module):
    """torch's own encoder with a token-wise loss; `batch_first` picks [B, S, D] or [S, B, D]."""

    def __init__(self, batch_first, masked):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.masked = masked

    def forward(self, x, target):
        mask = None
        if self.masked:
            length = x.shape[1] if self.encoder.layers[0].self_attn.batch_first else x.shape[0]
            mask = torch.ones(length, length, dtype=torch.bool).triu(3)
        y = self.encoder(x, mask=mask, is_causal=False)
        return ((y - target) ** 2).mean(), y


def encoder(batch_first=True, masked=False, length=12, batch=2):
    """The input wants a gradient too."""

    def make():
        torch.manual_seed(0)
        return Encoder(batch_first, masked).double()

    def build():
        generator = torch.Generator().manual_seed(1)
        shape = (batch, length, 16) if batch_first else (length, batch, 16)
        x = torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
        return {"x": x, "target": torch.randn(shape, generator=generator, dtype=torch.float64)}

    return Program(make, build)


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(16, 4, 1, 1, 32, dropout=0.0, batch_first=True)

    def forward(self, source, target):
        y = self.model(source, target)
        return y.pow(2).sum() / y.numel(), y


def encoder_decoder(source=16, target=8):
    def make():
        torch.manual_seed(0)
        return EncoderDecoder().double()

    def build():
        generator = torch.Generator().manual_seed(1)
        new = lambda n: torch.randn(2, n, 16, generator=generator, dtype=torch.float64)  # noqa: E731
        return {"source": new(source), "target": new(target)}

    return Program(make, build)


class Flat(nn.Module):
    """[B*S, D] through every linear layer, [B, S] only inside the attention: tokens are merged with
    the batch.
    """

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.head = nn.Linear(width, VOCABULARY)
        self.heads = heads

    def forward(self, ids, labels):
        batch, length = ids.shape
        h = self.token(ids).view(batch * length, -1)
        q, k, v = self.qkv(h).view(batch, length, 3, self.heads, -1).unbind(2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        h = h + self.out(y.transpose(1, 2).reshape(batch * length, -1))
        logits = self.head(F.relu(h))
        return F.cross_entropy(logits, labels.view(-1)), logits


class Shared(nn.Module):
    """sdpa(x, x, x), k is v, keys shared by two layers, and a query that is also used elsewhere."""

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, width)
        self.heads = heads
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        split = lambda t: t.unflatten(-1, (self.heads, -1)).transpose(1, 2)  # noqa: E731
        merge = lambda t: t.transpose(1, 2).flatten(2)  # noqa: E731
        x = x * self.scale
        a = merge(F.scaled_dot_product_attention(split(x), split(x), split(x), is_causal=True))
        shared = split(self.kv(a))
        q = split(self.q(a))
        b = merge(F.scaled_dot_product_attention(q, shared, shared))
        c = merge(F.scaled_dot_product_attention(split(b), shared, shared, is_causal=True))
        # The scale is used on tokens above and on itself here: both contributions count once.
        return (b + c + merge(q)).square().mean() + self.scale.square().sum() * 0.1, c


class Modern(nn.Module):
    """Fused projections, a norm and a gate written by hand, a learned position table that is cut to
    the length, a buffer that is read, a frozen embedding, and inputs that are activations.
    """

    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads = heads
        self.table = nn.Parameter(torch.randn(1, 64, width) * 0.1)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 64)[:, None].double())
        self.token = nn.Embedding(VOCABULARY, width).requires_grad_(False)
        self.gain = nn.Parameter(torch.ones(width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain

    def forward(self, ids, labels):
        length = ids.size(1)
        x = (self.token(ids) + self.table[:, :length]) * self.scale[:length]
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (t.reshape(*t.shape[:2], self.heads, -1).permute(0, 2, 1, 3) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).permute(0, 2, 1, 3)
        x = x + self.out(y.flatten(2))
        gate, up = torch.split(self.gate_up(self.norm(x)), self.down.in_features, dim=-1)
        logits = (x + self.down(F.silu(gate) * up)) @ self.token.weight.t()
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()), logits


class Preference(nn.Module):
    """Log-likelihoods of whole sequences, and a loss that is not linear in them."""

    def __init__(self):
        super().__init__()
        self.lm = PlainLM(layers=1)

    def forward(self, ids, mask):
        logits = self.lm(ids)[:, :-1].log_softmax(-1)
        each = logits.gather(-1, ids[:, 1:, None]).squeeze(-1)
        sums = (each * mask[:, 1:]).sum(1) / mask[:, 1:].sum(1)
        chosen, rejected = sums.chunk(2)
        return -F.logsigmoid(chosen - rejected).mean(), sums


class Pooled(nn.Module):
    """A classifier over the mean of the tokens."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder(True, False)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        y = self.encoder(x, torch.zeros_like(x))[1]
        logits = self.head(y.mean(1))
        return F.cross_entropy(logits, torch.arange(x.shape[0])), logits


def preference():
    def make():
        torch.manual_seed(0)
        return Preference().double()

    def build():
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(0, VOCABULARY, (4, 16), generator=generator)
        counts = torch.tensor([13, 3, 6, 2])
        return {"ids": ids, "mask": (torch.arange(16) <= counts[:, None]).double()}

    return Program(make, build)


def plain(module, *, ids=False, batch=2, length=16, width=16):
    def make():
        torch.manual_seed(0)
        return module().double()

    def build():
        generator = torch.Generator().manual_seed(1)
        if not ids:
            return {
                "x": torch.randn(batch, length, width, generator=generator, dtype=torch.float64)
            }
        tokens = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
        return {"ids": tokens, "labels": tokens.roll(-1, 1)}

    return Program(make, build)


def bool_mask(batch, length, dtype, heads):
    mask = torch.ones(length, length, dtype=torch.bool).tril()
    return {"mask": (mask | (torch.arange(length) < 3))[None, None]}


def float_mask(batch, length, dtype, heads):
    generator = torch.Generator().manual_seed(5)
    return {"mask": torch.randn(1, 1, length, length, generator=generator, dtype=dtype)}


def head_mask(batch, length, dtype, heads):
    generator = torch.Generator().manual_seed(6)
    return {"mask": torch.randn(batch, heads, length, length, generator=generator, dtype=dtype)}


def restarting_positions(batch, length, dtype, heads):
    return {"positions": (torch.arange(length) % 5)[None].expand(batch, -1)}


# Named programs; the tests and the benchmarks pick from here.
PROGRAMS = {
    "pad shift": lm(),
    "unequal labels": lm(layers=1, ignored=[(0, 0, 8), (1, 0, 15)]),
    "one shard ignored": lm(layers=1, ignored=[(0, 0, 9), (1, 0, 9)]),
    "all ignored": lm(layers=1, ignored=[(0, 0, 16), (1, 0, 16)]),
    "all ignored, sum": lm(
        layers=1, ignored=[(0, 0, 16), (1, 0, 16)], loss=shifted_pad(reduction="sum")
    ),
    "ignore index -1": lm(layers=1, ignored=[(0, 2, 5)], ignore_index=-1, loss=shifted_pad(-1)),
    "class weights": lm(layers=1, loss=class_weights, ignored=[(0, 1, 4)]),
    "class weights smoothed": lm(layers=1, loss=class_weights_smoothed, ignored=[(0, 1, 4)]),
    "label smoothing": lm(layers=1, loss=shifted_pad(label_smoothing=0.1), ignored=[(1, 2, 9)]),
    "reduction sum": lm(layers=1, loss=shifted_pad(reduction="sum")),
    "reduction none": lm(layers=1, loss=summed_none, ignored=[(1, 3, 6)]),
    "slice shift": lm(layers=1, loss=shifted_slice(), ignored=[(0, 0, 3)]),
    "slice shift sum": lm(layers=1, loss=shifted_slice(reduction="sum")),
    "slice shift smoothing": lm(layers=1, loss=shifted_slice(label_smoothing=0.2)),
    "two losses": lm(layers=1, loss=both_losses),
    "log likelihood": lm(layers=1, loss=log_likelihood),
    "class dimension second": lm(layers=1, loss=unshifted()),
    "preference": preference(),
    "rotary": lm(positions="rotary"),
    "explicit positions": lm(layers=1, positions="rotary", inputs=restarting_positions),
    "heads that two does not divide": lm(layers=1, heads=3, kv_heads=3, width=12),
    "one key head": lm(layers=1, heads=4, kv_heads=1),
    "one key head in sdpa": lm(layers=1, heads=4, kv_heads=1, style="gqa"),
    "grouped heads": lm(heads=8, kv_heads=4, width=32),
    "grouped heads in sdpa": lm(layers=1, heads=8, kv_heads=4, width=32, style="gqa"),
    "eager attention": lm(style="eager"),
    "einsum attention": lm(style="einsum"),
    "eager grouped": lm(layers=1, style="eager", heads=8, kv_heads=4, width=32),
    "mask bool": lm(style="mask", inputs=bool_mask),
    "mask float": lm(layers=1, style="mask_keyword", inputs=float_mask),
    "mask per head": lm(layers=1, style="mask", inputs=head_mask),
    "no mask": lm(layers=1, style="full"),
    "tied": lm(layers=1, tied=True),
    "length is hidden is batch": lm(length=16, width=16, batch=16, layers=1),
    "length is heads": lm(length=4, heads=4, batch=3),
    "batch of three": lm(layers=1, batch=3),
    "modern": plain(Modern, ids=True),
    "encoder": encoder(),
    "encoder tokens first": encoder(batch_first=False),
    "encoder masked": encoder(masked=True),
    "encoder decoder": encoder_decoder(),
    "pooled": plain(Pooled),
    "flat": plain(Flat, ids=True, batch=3),
    "shared": plain(Shared),
}

# The same kinds of programs with heads and lengths that three divides.
PROGRAMS_OF_THREE = {
    "pad shift": lm(heads=3, kv_heads=3, width=12, length=15),
    "unequal labels": lm(
        layers=1, heads=3, kv_heads=3, width=12, length=15, ignored=[(0, 0, 7), (1, 3, 15)]
    ),
    "slice shift": lm(layers=1, heads=3, kv_heads=3, width=12, length=15, loss=shifted_slice()),
    "class weights": lm(layers=1, heads=3, kv_heads=3, width=12, length=15, loss=class_weights),
    "rotary grouped": lm(layers=1, heads=6, kv_heads=3, width=24, length=15, positions="rotary"),
    "eager grouped": lm(layers=1, heads=6, kv_heads=3, width=24, length=15, style="eager"),
    "mask bool": lm(
        layers=1, heads=6, kv_heads=6, width=24, length=15, style="mask", inputs=bool_mask
    ),
    "one token each": lm(layers=1, heads=3, kv_heads=3, width=12, length=3, batch=1),
    "flat": plain(lambda: Flat(12, 3), ids=True, batch=3, length=15),
    "shared": plain(lambda: Shared(18, 3), width=18, length=15),
}
