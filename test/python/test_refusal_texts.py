"""What users read when a program is refused, word for word: the operator, the line of their own
source, the dimension that carries the sequence, what it would need, and what to do instead.

Nothing runs: `autosp.explain` says what `autosp.compile` would on every rank.
"""

import linecache
import re

import autosp
import pytest
import torch
import torch.nn.functional as F
from torch import nn

# What every text of an operator that would have to see all tokens says.
WHOLE = " It would need the whole sequence on every rank, 2 times the work and memory. "
ALL = "and this operator must see all of it at once."
WORK = (
    "Work on each token alone, reduce over the tokens (sum, mean, max, logsumexp), or move the "
    "operator out of the compiled function."
)
TAKEN = "and the rows that this operator takes out of it lie on some of the ranks only."
KEEP = (
    "Keep all rows and give those that are not wanted a weight of zero (torch.where), or pick a "
    "few of them by their numbers (torch.index_select)."
)
REFUSED = {}


def refused(text):
    """`text` is what an ending of the model is refused with; {} stands for the line."""

    def register(ending):
        REFUSED[ending.__name__] = (ending, text)
        return ending

    return register


class Model(nn.Module):
    """Attention over tokens, then `ending` on the activations [batch, tokens, 8]."""

    def __init__(self, ending):
        super().__init__()
        self.qkv = nn.Linear(8, 24)
        self.ending = ending

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (4, 2)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = heads.transpose(1, 2).flatten(-2)
        return self.ending(mixed).sin().sum()


@refused(f"Tensor.median at {{}}: dimension 1 of %mixed carries the sequence, {ALL}{WHOLE}{WORK}")
def middle(y):
    return y.median(1).values


@refused(
    f"_operator.getitem at {{}}: dimension 1 of %mixed carries the sequence, {TAKEN}{WHOLE}{KEEP}"
)
def every_second_token(y):
    return y[:, ::2]


@refused(f"Tensor.chunk at {{}}: dimension 1 of %mixed carries the sequence, {TAKEN}{WHOLE}{KEEP}")
def halves(y):
    return y.chunk(2, 1)[0]


@refused(
    "torch._C._special.special_bessel_j0 at {}: dimension 1 of %mixed carries the sequence, and "
    f"AutoSP has no rule for this operator.{WHOLE}Express it with operators from the "
    "supported list, give it a rule if it is an operator of your own (autosp.register_rule), or "
    "move it out of the compiled function."
)
def unknown(y):
    return torch.special.bessel_j0(y)


@refused(
    "_operator.getitem at {}: dimension 0 of %flatten_1 carries the sequence, and this operator "
    "needs rows of other ranks, which it can't ask for where the sequence shares its dimension "
    f"with another axis.{WHOLE}Give the sequence a dimension of its own first (unflatten)."
)
def rows_of_batch_and_tokens(y):
    return y.flatten(0, 1)[1:]


@refused(
    "torch._C._nn.pad at {}: dimension 1 of %mixed carries the sequence, and the rows of this "
    f"operator's result are divided among the ranks at other places.{WHOLE}Keep the sequence's "
    "length: mask the rows that are not wanted, and pad or cut the program's inputs instead."
)
def to_a_multiple(y):
    return F.pad(y, (0, 0, 0, -y.shape[1] % 5)).unflatten(1, (-1, 5)).sum(2)


@refused(
    "torch._C._nn.scaled_dot_product_attention at {}: dimension 0 of %keys carries the sequence, "
    "and its queries see all of it, so that each rank would take some of its heads: it needs a "
    f"number of heads that the ranks divide.{WHOLE}Use as many ranks as divide it, or more heads."
)
def one_query_without_heads(y):
    keys = y[0]
    return F.scaled_dot_product_attention(keys.mean(0, keepdim=True), keys, keys)


@refused(
    "Tensor.sum at {}: dimension 1 of %padded carries the sequence with rows made up at its ends, "
    f"which two ranks hold and which this operator would count twice.{WHOLE}Cut those rows off "
    "first, or work on each row alone."
)
def sum_of_padded_rows(y):
    padded = F.pad(y, (0, 0, 3, 0))
    return padded.sum(1)


@refused(
    "_operator.matmul at {}: dimension 2 of %columns carries the sequence with rows made up at "
    "its ends, which two ranks hold, and this operator doesn't take each rank's as they are."
    f"{WHOLE}Cut those rows off first."
)
def padded_columns(y):
    columns = F.pad(y, (0, 0, 3, 0)).mT
    return y @ columns


@refused(
    "Tensor.cumsum at {}: dimension 0 of %sorted_1 carries the sequence, in the order in which the "
    "program has sorted it, and this operator depends on that order, which no rank knows alone."
    f"{WHOLE}Pick the rows back into their own order first, or work on each row alone."
)
def running_total_of_sorted_tokens(y):
    y = y.flatten(0, 1)
    sorted = y[y.detach()[:, 0].argsort()]
    return sorted.cumsum(0)


@refused(
    "Tensor.gather at {}: dimension 0 of %keys carries the sequence, and this operator depends on "
    "the order in which the program has sorted it (%gather), which no rank knows alone."
    f"{WHOLE}Sort by a small key (an expert's number), pick rows with the sorted indices, "
    "work on each row or on groups whose ends are the running total of torch.histc over the sorted "
    "key, and pick the rows back with the inverse permutation."
)
def sorted_by_what_it_holds(y):
    keys = y.flatten(0, 1)[:, 0]
    return keys.gather(0, keys.argsort())


@refused(
    "at {}: the size u0 depends on data, so no rank can know its part of it before the program "
    "runs. Keep all rows and give those that are not wanted a weight of zero (torch.where), or "
    "pick them outside of the compiled function."
)
def rows_by_a_mask(y):
    return y[y > 0]


class Totals(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y):
        return y.sin()

    @staticmethod
    def backward(ctx, g):
        return g.cumsum(1)


@refused(
    "torch.ops.higher_order.autograd_function_apply at {}: dimension 1 of %mixed carries the "
    "sequence, and this torch.autograd.Function can't run on a part of it: Tensor.cumsum at {}: "
    "needs more than a part of the sequence (scan). Let its forward and backward work on each "
    "token alone, or sum over tokens."
)
def own_backward(y):
    return Totals.apply(y)


@pytest.mark.parametrize("name", REFUSED)
def test_text(name):
    ending, text = REFUSED[name]
    with pytest.raises(autosp.Unsupported) as raised:
        autosp.explain(Model(ending), {"x": torch.ones(2, 12, 8)}, sp=2)
    assert masked(str(raised.value)) == text


def masked(text):
    """With {} for each line that it names, which must be the one that it quotes."""

    def check(match):
        number, quoted = match.groups()
        assert linecache.getline(__file__, int(number)).strip() == quoted
        return ("" if match.start() == 0 else " ") + "at {}: "

    line = r"(?:^| )at test_refusal_texts\.py:(\d+) in \w+: "
    source = r"(.*?)(?:: (?=dimension|the size)| (?=needs))"
    return re.sub(line + source, check, text)
