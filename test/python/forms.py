"""Things that models do around an attention, each a short function: losses, masks, positions,
reductions, exotic layouts. All are `Program`s like those of `programs.py`.

A form gets a module with a few parameters and methods, token ids and labels [2, 16]; it returns the
loss first and whatever else it wants to be compared.
"""

import torch
import torch.nn.functional as F
from programs import VOCABULARY, Program
from torch import nn

FORMS = {}
LENGTH, WIDTH, HEADS = 16, 16, 4


class Toolbox(nn.Module):
    """The module that a form is the forward of."""

    def __init__(self, form):
        super().__init__()
        self.form = form
        self.token = nn.Embedding(VOCABULARY, WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.position = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.1)
        self.mixer = nn.Parameter(torch.randn(LENGTH, LENGTH) * 0.1)
        self.distance = nn.Embedding(2 * LENGTH, HEADS)
        self.layers = nn.Parameter(torch.randn(3))

    def forward(self, ids, labels):
        return self.form(self, ids, labels)

    def split(self, x):
        """q, k, v [batch, heads, tokens, width of a head]"""
        return (t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))

    def merge(self, y):
        return self.out(y.transpose(1, 2).flatten(2))

    def attend(self, x, mask=None):
        y = F.scaled_dot_product_attention(*self.split(x), mask, is_causal=mask is None)
        return self.merge(y)

    def body(self, ids):
        x = self.token(ids)
        return x + self.attend(x)

    def loss(self, x, labels):
        return F.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())

    def masked(self, ids, labels, mask):
        x = self.token(ids)
        return self.loss(x + self.attend(x, mask), labels)


def form(function):
    def make():
        torch.manual_seed(0)
        return Toolbox(function).double()

    def inputs():
        generator = torch.Generator().manual_seed(1)
        ids = torch.randint(0, VOCABULARY, (2, LENGTH), generator=generator)
        return {"ids": ids, "labels": ids.roll(-1, 1)}

    FORMS[function.__name__] = Program(make, inputs)
    return function


def query_and_key(ids):
    """Positions of queries, as rows, and of keys."""
    positions = torch.arange(ids.shape[1])
    return positions[:, None], positions[None]


# ---- Losses ----


@form
def z_loss(m, ids, labels):
    logits = m.head(m.body(ids))
    each = logits.logsumexp(-1)
    return F.cross_entropy(logits.transpose(1, 2), labels) + 1e-2 * each.pow(2).mean(), each


@form
def weighted_tokens(m, ids, labels):
    weights = torch.arange(ids.shape[1], dtype=torch.float64) + 1
    each = F.cross_entropy(m.head(m.body(ids)).transpose(1, 2), labels, reduction="none")
    return (each * weights).sum() / weights.sum(), each


@form
def soft_targets(m, ids, labels):
    targets = F.one_hot(labels, VOCABULARY).double() * 0.9 + 0.1 / VOCABULARY
    logits = m.head(m.body(ids))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(0, 1)), logits


@form
def several_tokens_ahead(m, ids, labels):
    logits = m.head(m.body(ids))
    losses = [F.cross_entropy(logits[:, :-k].mT, ids[:, k:]) for k in (1, 2, 3)]
    return sum(losses), losses


@form
def labels_by_cat(m, ids, labels):
    targets = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], -100)], 1)
    return m.loss(m.body(ids), targets)[None].sum(), targets


@form
def sizes_as_numbers(m, ids, labels):
    x = m.body(ids)
    each = F.cross_entropy(m.head(x).transpose(1, 2), labels, reduction="sum")
    return each / ids.shape[1] / ids.numel() * ids.shape[1] ** 0.5 + x.sum() / x.numel(), x


@form
def a_row_at_a_time(m, ids, labels):
    x = m.body(ids)
    return sum(F.cross_entropy(m.head(x[row]), labels[row]) for row in range(2)), x


@form
def penalty_on_parameters(m, ids, labels):
    penalty = sum(p.square().sum() for p in m.parameters())
    return m.loss(m.body(ids), labels) + 1e-3 * penalty, penalty


@form
def metrics(m, ids, labels):
    logits = m.head(m.body(ids))
    right = logits.argmax(-1) == labels
    return (
        F.cross_entropy(logits.transpose(1, 2), labels),
        right.float().mean(),
        (labels != 3).sum(),
        logits.topk(3, -1).indices,
    )


# ---- Masks and scores ----


@form
def window(m, ids, labels):
    q, k = query_and_key(ids)
    return (m.masked(ids, labels, (k <= q) & (k > q - 5)),)


@form
def prefix(m, ids, labels):
    q, k = query_and_key(ids)
    return (m.masked(ids, labels, (k <= q) | (k < 5)),)


@form
def documents_by_position(m, ids, labels):
    q, k = query_and_key(ids)
    return (m.masked(ids, labels, (k <= q) & ((k >= 7) == (q >= 7))),)


@form
def documents_by_token(m, ids, labels):
    document = (ids == ids[:, :1]).cumsum(1)
    q, k = query_and_key(ids)
    same = document[:, :, None] == document[:, None]
    return (m.masked(ids, labels, ((k <= q) & same)[:, None]),)


@form
def an_empty_row(m, ids, labels):
    q, k = query_and_key(ids)
    x = m.token(ids)
    return (m.loss(x + m.attend(x, (k <= q) & (q != 3)).nan_to_num(), labels),)


@form
def slopes(m, ids, labels):
    q, k = query_and_key(ids)
    bias = -(q - k).abs() * 2.0 ** -torch.arange(1, HEADS + 1, dtype=torch.float64)[:, None, None]
    return (m.masked(ids, labels, bias.masked_fill(k > q, float("-inf"))[None]),)


@form
def learned_distances(m, ids, labels):
    q, k = query_and_key(ids)
    bias = m.distance((q - k).clamp(-LENGTH, LENGTH - 1) + LENGTH).permute(2, 0, 1)
    return (m.masked(ids, labels, bias[None]),)


@form
def capped_scores(m, ids, labels):
    x = m.token(ids)
    q, k, v = m.split(x)
    scores = 5 * torch.tanh(q @ k.transpose(-1, -2) / 10)
    rows, columns = query_and_key(ids)
    weights = scores.masked_fill(columns > rows, -1e30).softmax(-1)
    return m.loss(x + m.merge(weights @ v), labels), weights


@form
def heads_in_the_batch(m, ids, labels):
    x = m.token(ids)
    q, k, v = (t.reshape(-1, *t.shape[2:]) for t in m.split(x))
    weights = torch.bmm(q, k.transpose(1, 2)).float().softmax(-1).double()
    y = torch.bmm(weights, v).view(ids.shape[0], HEADS, *v.shape[1:])
    return (m.loss(x + m.merge(y), labels),)


@form
def no_heads(m, ids, labels):
    x = m.token(ids)
    q, k, v = m.qkv(x).chunk(3, -1)
    return (m.loss(x + F.scaled_dot_product_attention(q, k, v, is_causal=True), labels),)


@form
def two_lengths(m, ids, labels):
    """Queries of one sequence, keys of a shorter one, and both on their own."""
    x, y = m.body(ids), m.body(labels[:, :8])
    q, _, _ = m.split(x)
    _, k, v = m.split(y)
    x = x + m.merge(F.scaled_dot_product_attention(q, k, v))
    return m.loss(x, labels) + (x.mean(1) - y.mean(1)).square().sum(), y


# ---- Around the attention ----


@form
def positions_from_a_cumulative_sum(m, ids, labels):
    positions = ((ids > 3).cumsum(-1) - 1).clamp(min=0)
    x = m.token(ids) + m.position[positions]
    return m.loss(x + m.attend(x), labels), positions


@form
def positions_as_a_whole_parameter(m, ids, labels):
    x = m.token(ids) + m.position
    return m.loss(x + m.attend(x), labels), x


@form
def tokens_mixed_by_a_matrix(m, ids, labels):
    x = m.body(ids)
    return m.loss(x + m.mixer @ x, labels), F.linear(x.transpose(1, 2), m.mixer)


@form
def pairs_of_tokens(m, ids, labels):
    x = m.body(ids)
    pairs = x[:, :, None] - x[:, None]
    return m.loss(x, labels) + pairs.square().mean(), x @ x.transpose(1, 2)


@form
def masked_mean(m, ids, labels):
    x, kept = m.body(ids), (ids > 10).double()[..., None]
    pooled = (x * kept).sum(1) / kept.sum(1).clamp(min=1)
    return F.cross_entropy(m.head(pooled), ids.sum(1) % VOCABULARY), pooled


@form
def parts_without_gradient(m, ids, labels):
    x = m.token(ids)
    with torch.no_grad():
        y = m.attend(x)
    return m.loss(x + y + m.attend(x.detach()), labels), y


@form
def layers_weighted(m, ids, labels):
    states = [m.token(ids)]
    for _ in range(2):
        states.append(states[-1] + m.attend(states[-1]))
    stacked = torch.stack(states)
    x = (stacked * m.layers.softmax(0).view(3, 1, 1, 1)).sum(0)
    return m.loss(x, labels), stacked


@form
def updates_in_place(m, ids, labels):
    x = m.token(ids)
    y = m.attend(x)
    y += x
    z = y.sin()
    z.mul_(0.5).add_(y)
    return m.loss(F.relu(z, inplace=True), labels), y


@form
def embedding_by_one_hot(m, ids, labels):
    x = F.one_hot(ids, VOCABULARY).double() @ m.token.weight
    return F.cross_entropy((x + m.attend(x)).matmul(m.token.weight.T).mT, labels), x


@form
def shifted_ids(m, ids, labels):
    x = m.token(ids) + m.token(ids.roll(1, 1)) + m.token(ids.sort(1)[0])
    return m.loss(x + m.attend(x), labels), x


@form
def everything_flat(m, ids, labels):
    x = m.body(ids).flatten()
    return x.square().mean() + x.sum(), x
