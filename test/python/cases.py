"""Programs that sequence-parallel systems get wrong, as their users reported them: losses over
several ranks' tokens, lengths and heads that don't fit, masks, things around an attention.

Each is a short function of a module with a few parameters (forms.py); it returns the loss first and
whatever else is to be compared.
"""

import torch
import torch.nn.functional as F
from forms import HEADS, LENGTH, Toolbox, query_and_key
from programs import VOCABULARY, Program

CASES = {}


def case(batch=2, length=LENGTH):
    def register(function):
        def make():
            torch.manual_seed(0)
            return Toolbox(function).double()

        def inputs():
            generator = torch.Generator().manual_seed(1)
            ids = torch.randint(0, VOCABULARY, (batch, length), generator=generator)
            return {"ids": ids, "labels": ids.roll(-1, 1)}

        CASES[function.__name__] = Program(make, inputs)
        return function

    return register


def documents(ids, *lengths):
    """The document of each position, and the positions in it."""
    numbers = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    positions = torch.cat([torch.arange(n) for n in lengths])
    return numbers.expand_as(ids), positions.expand_as(ids)


# ---- Losses ----


@case(batch=4)
def policy_gradient(m, ids, labels):
    """Completions of 13, 3, 6 and 2 tokens: exp and clip of each sequence's mean log-ratio."""
    logits = m.head(m.body(ids))[:, :-1].log_softmax(-1)
    each = logits.gather(-1, ids[:, 1:, None]).squeeze(-1)
    valid = (torch.arange(15) < torch.tensor([13, 3, 6, 2])[:, None]).double()
    ratio = (((each - 0.9 * each.detach()) * valid).sum(1) / valid.sum(1)).exp()
    advantage = torch.tensor([1.0, -0.5, 0.3, 2.0], dtype=torch.float64)
    clipped = ratio.clamp(0.8, 1.2)
    return -torch.minimum(ratio * advantage, clipped * advantage).mean(), ratio


@case()
def a_loss_in_chunks(m, ids, labels):
    """Of 6 tokens each, the last one of 4; the second has no valid label."""
    chunk = torch.arange(16) // 6
    labels = labels.masked_fill(chunk == 1, -100)
    each = F.cross_entropy(m.head(m.body(ids)).mT, labels, reduction="none")
    chunks = F.one_hot(chunk, 3).double()
    sums, counts = (each @ chunks).sum(0), ((labels != -100).double() @ chunks).sum(0)
    return sums.sum() / counts.sum(), sums / counts.clamp(min=1), counts


@case()
def a_loss_in_groups(m, ids, labels):
    """Of 4 tokens each."""
    labels = labels.masked_fill(torch.arange(16) // 4 == 1, -100).unflatten(1, (4, 4))
    logits = m.head(m.body(ids)).unflatten(1, (4, 4))
    each = F.cross_entropy(logits.flatten(0, 2), labels.flatten(), reduction="none")
    sums, counts = each.view_as(labels).sum(2), (labels != -100).sum(2)
    return sums.sum() / counts.sum(), sums, counts


@case()
def several_tokens_ahead_in_documents(m, ids, labels):
    """Shifts of 1, 2 and 3; the seam of documents of 7 and 9 tokens is at another place than the
    ranks'.
    """
    number, _ = documents(ids, 7, 9)
    logits = m.head(m.body(ids))
    losses = []
    for k in (1, 2, 3):
        other = number[:, k:] != number[:, :-k]
        target = ids[:, k:].masked_fill(other, -100)
        losses.append(F.cross_entropy(logits[:, :-k].mT, target))
    return sum(losses), losses


@case()
def balance_of_experts(m, ids, labels):
    """Fraction times probability of each sequence, then the mean over sequences; and counters."""
    x = m.body(ids)
    probabilities = m.head(x)[..., :8].softmax(-1)
    chosen = F.one_hot(probabilities.topk(2, -1).indices, 8).sum(2)
    balance = (chosen.double().mean(1) * probabilities.mean(1)).sum(-1).mean() * 8
    return m.loss(x, labels) + 0.1 * balance, balance, chosen.sum((0, 1))


# ---- Masks and positions ----


def padded(ids, left):
    """A mask over tokens: rows of full and half length."""
    lengths = torch.tensor([ids.shape[1], ids.shape[1] // 2 + 1])[:, None]
    positions = torch.arange(ids.shape[1])
    return positions >= ids.shape[1] - lengths if left else positions < lengths


def with_padding(m, ids, labels, left):
    seen = padded(ids, left)
    q, k = query_and_key(ids)
    mask = torch.where((k <= q) & seen[:, None, None], 0.0, torch.finfo(torch.float32).min)
    positions = (seen.long().cumsum(-1) - 1).clamp(min=0)
    x = m.token(ids) + m.position[positions]
    return m.loss(x + m.attend(x, mask.double()), labels.masked_fill(~seen, -100)), positions


@case()
def padding_on_the_right(m, ids, labels):
    return with_padding(m, ids, labels, False)


@case()
def padding_on_the_left(m, ids, labels):
    return with_padding(m, ids, labels, True)


@case()
def windows_on_alternate_layers(m, ids, labels):
    q, k = query_and_key(ids)
    x = m.token(ids)
    for layer in range(4):
        mask = (k <= q) & (k > q - 4) if layer % 2 else k <= q
        x = x + m.attend(x, mask)
    return m.loss(x, labels), x


@case()
def chunked_attention(m, ids, labels):
    q, k = query_and_key(ids)
    return (m.masked(ids, labels, (k <= q) & (k // 5 == q // 5)),)


@case(batch=1, length=20)
def five_packed_documents(m, ids, labels):
    """By positions that restart."""
    _, positions = documents(ids, 5, 2, 6, 1, 6)
    number = (positions == 0).cumsum(1)
    q, k = query_and_key(ids)
    mask = (k <= q) & (number[:, :, None] == number[:, None])
    x = m.token(ids) + m.position[positions]
    return m.loss(x + m.attend(x, mask[:, None]), labels), x


@case()
def a_row_that_sees_nothing(m, ids, labels):
    q, k = query_and_key(ids)
    x = m.token(ids)
    y = m.attend(x, (k <= q) & (q != 3))
    return m.loss(x + y[:, 4:].mean(), labels), y


@case()
def a_learned_sink(m, ids, labels):
    x = m.token(ids)
    q, k, v = m.split(x)
    rows, columns = query_and_key(ids)
    scores = (q @ k.mT / 2).masked_fill(columns > rows, -1e30)
    sink = (1 + m.position[0, :HEADS]).view(1, HEADS, 1, 1).expand(len(ids), -1, LENGTH, 1)
    weights = torch.cat([scores, sink], -1).softmax(-1)[..., :-1]
    return m.loss(x + m.merge(weights @ v), labels), weights


# ---- Around the attention ----


@case()
def soft_prompts(m, ids, labels):
    """Four learned rows in front of the tokens."""
    prompt = m.position[:4].expand(len(ids), -1, -1)
    x = torch.cat([prompt, m.token(ids)], 1)
    x = (x + m.attend(x))[:, 4:]
    return m.loss(x, labels), x


@case()
def a_convolution_that_reaches_far(m, ids, labels):
    """Six tokens each way: further than a neighbour's part on four ranks."""
    x = m.body(ids)
    kernel = m.position[:, :13, None].mT.reshape(16, 1, 13)
    y = F.conv1d(x.mT, kernel, padding=6, groups=16).mT
    return m.loss(x + y, labels), y


@case()
def adapters(m, ids, labels):
    """Low rank, beside layers that are frozen."""
    x = m.token(ids).detach()
    x = x + F.linear(x, m.out.weight.detach()) + x @ m.position[:, :2] @ m.mixer[:2]
    return m.loss(x + m.attend(x), labels), x


@case()
def a_frozen_embedding(m, ids, labels):
    x = F.embedding(ids, m.token.weight.detach())
    return m.loss(x + m.attend(x), labels), x


@case()
def images_put_between_tokens(m, ids, labels):
    """Rows of another tensor, where an id says so."""
    image = (ids % 7 == 0)[..., None]
    x = torch.where(image, m.position, m.token(ids))
    return m.loss(x + m.attend(x), labels), x
