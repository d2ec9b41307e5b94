"""Names of masks are true: what a name says is compared with the mask itself, for masks that are
random expressions of the numbers of queries and keys.
"""

import random
import re

import autosp
import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.slow
LENGTH = 12


class Masks:
    """Random expressions of q, k and segments s, as text."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def mask(self):
        return self.truth(2) + self.random.choice(["", " & (k <= q)"])

    def number(self):
        n = self.random.randint(1, 4)
        x = self.random.choice("qk")
        forms = [f"{x}", f"({x} + {n})", f"({x} // {n})", f"({x} % {n})"]
        forms += ["(q - k)", "(q - k).abs()", f"(torch.minimum(q, k) + {n})"]
        return self.random.choice(forms)

    def truth(self, depth):
        kind = self.random.random()
        if depth == 0 or kind < 0.3:
            return self.comparison()
        left = self.truth(depth - 1)
        if kind < 0.7:
            return f"({left} {'&' if kind < 0.55 else '|'} {self.truth(depth - 1)})"
        if kind < 0.85:
            return f"~{left}"
        low = f"torch.ones({LENGTH}, {LENGTH}).bool().tril({self.random.randint(-2, 3)})"
        return f"torch.where({left}, {low}, False)"

    def comparison(self):
        kind, n = self.random.random(), self.random.randint(0, 6)
        if kind < 0.15:
            return "(s[:, :, None] == s[:, None])"
        if kind < 0.3:
            common = ["k <= q", f"k < q + {n}", f"k > q - {n}", f"(q - k).abs() <= {n}"]
            return f"({self.random.choice(common)})"
        if kind < 0.45:
            return f"(q // {n + 2} == k // {n + 2})"
        if kind < 0.55:
            return f"(s[{self.random.choice([':, None', ':, :, None'])}] != {n})"
        right = self.number() if self.random.random() < 0.5 else str(n)
        sign = self.random.choice(["<=", "<", ">=", ">", "==", "!="])
        return f"({self.number()} {sign} {right})"


class Attention(torch.nn.Module):
    def __init__(self, mask, additive):
        super().__init__()
        self.mask, self.additive = mask, additive

    def forward(self, x, segments):
        index = torch.arange(LENGTH)
        mask = self.mask(index[:, None], index, segments)
        mask = mask[:, None] if mask.dim() == 3 else mask.expand(LENGTH, LENGTH)
        if self.additive:
            mask = torch.where(mask, 0.0, float("-inf"))
        return F.scaled_dot_product_attention(x, x, x, attn_mask=mask).sum()


def shown(name, segments):
    """Where a part of a name lets a query see a key: one mask or several that it may be; None
    where it doesn't say.
    """
    q, k = torch.arange(LENGTH)[:, None], torch.arange(LENGTH)
    kind, *numbers = re.fullmatch(r"(.*?)(?: (-?\d+))?", name).groups()
    n = int(numbers[0]) if numbers[0] else 0
    if kind == "chunks of":
        return [(q + i) // n == (k + i) // n for i in range(n)]
    mask = {
        "causal": k <= q,
        "causal offset": k <= q + n,
        "window": k > q - n,
        "two-sided window": (q - k).abs() <= n,
        "document by segments": segments[:, :, None] == segments[:, None],
        "prefix": (k <= q) | (k < n),
    }.get(kind)
    return mask if mask is None else [mask]


@pytest.mark.parametrize("seed", range(100))
def test_what_a_name_says_is_what_is_computed(seed):
    segments = torch.randint(0, 3, (2, LENGTH), generator=torch.Generator().manual_seed(seed))
    index = torch.arange(LENGTH)
    text = Masks(seed).mask()
    function = eval(f"lambda q, k, s: {text}")
    mask = function(index[:, None], index, segments)
    model = Attention(function, additive=seed % 2)
    torch._dynamo.reset()
    report = autosp.explain(model, (torch.ones(2, 4, LENGTH, 8), segments), sp=2)
    if not report.masks:
        assert mask.all(), text
        return
    (row,) = report.masks
    parts = [shown(name, segments) for name in row.name.split(", ")]
    said = torch.ones(2, LENGTH, LENGTH, dtype=torch.bool)
    for part in filter(None, parts):
        # Of several masks that it may be, the one that hides nothing which is shown.
        fitting = [choice for choice in part if not (mask & ~choice).any()]
        assert fitting, (row.name, text)
        said = said & min(fitting, key=lambda choice: int(choice.sum()))
    if None not in parts:
        assert (mask == said).all(), (row.name, text)
