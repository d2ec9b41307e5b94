"""Sequence parallelism by hand, after DeepSpeed-Ulysses: the peer that AutoSP is measured against.

It is what an expert would write for a Hugging Face causal language model, and for nothing else:

* tokens, positions and labels are cut into one contiguous part per rank, labels after their shift;
* every attention exchanges heads for tokens: one all-to-all for q, k and v together, before key and
  value heads are repeated, then causal attention on 1/P of the heads over the whole sequence (the
  flag, never a mask), then one all-to-all for the output;
* the loss is each rank's sum over the count of labels on all ranks, and gradients are summed over
  the ranks after the backward, in one flat bucket.

The all-to-alls are functional collectives, differentiable and traceable, so the same code runs
eagerly and compiled.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

IGNORE_INDEX = -100


class Ulysses(nn.Module):
    """Runs `model`, a Hugging Face causal language model, over the ranks of `group`.

    Every rank calls it with the full `input_ids` and `labels`, [batch, tokens], and gets the loss
    that one device would compute. After `loss.backward()` the gradients are partial sums: call
    `reduce_gradients()` before the optimizer. The number of ranks must divide the tokens and the
    heads; dropout and attention masks are refused. `backend` is torch.compile's, None runs eagerly.
    `model` itself keeps the exchanging attention and is of no use on its own afterwards.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        group: dist.ProcessGroup | None = None,
        backend: str | None = None,
    ):
        super().__init__()
        self.model = model
        self.group = group or dist.group.WORLD
        ranks, config = self.group.size(), model.config
        if config.num_attention_heads % ranks or config.num_key_value_heads % ranks:
            raise ValueError(
                f"{ranks} ranks do not divide {config.num_attention_heads} query and "
                f"{config.num_key_value_heads} key and value heads"
            )
        name = f"ulysses_{self.group.group_name}"
        AttentionInterface.register(name, _attention(self.group.group_name, ranks))
        model.set_attn_implementation(name)
        self._run = torch.compile(model, backend=backend, fullgraph=True) if backend else model

    def forward(self, input_ids: Tensor, labels: Tensor) -> Tensor:
        tokens, ranks, rank = input_ids.shape[1], self.group.size(), self.group.rank()
        if tokens % ranks:
            raise ValueError(f"{ranks} ranks do not divide {tokens} tokens")
        own = slice(tokens // ranks * rank, tokens // ranks * (rank + 1))
        shifted = F.pad(labels, (0, 1), value=IGNORE_INDEX)[:, 1:]
        positions = torch.arange(tokens, device=input_ids.device).unsqueeze(0)
        loss = self._run(
            input_ids=input_ids[:, own].contiguous(),
            position_ids=positions[:, own].contiguous(),
            labels=labels[:, own].contiguous(),
            shift_labels=shifted[:, own].contiguous(),
            num_items_in_batch=(shifted != IGNORE_INDEX).sum(),
        ).loss
        return _SumOverRanks.apply(loss, self.group)

    def reduce_gradients(self) -> None:
        """Sums every parameter's gradient over the ranks, as one flat tensor."""
        grads = [p.grad for p in self.model.parameters() if p.grad is not None]
        flat = torch.cat([grad.reshape(-1) for grad in grads])
        dist.all_reduce(flat, group=self.group)
        for grad, total in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
            grad.copy_(total.view_as(grad))


class _SumOverRanks(torch.autograd.Function):
    """The sum of a value over the ranks; each rank's summand receives the whole cotangent."""

    @staticmethod
    def forward(ctx, value, group):
        total = value.detach().clone()
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx, cotangent):
        return cotangent, None


def _attention(group: str, ranks: int):
    """An attention function for transformers that exchanges heads for tokens around attention."""

    def attention(
        module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs
    ) -> tuple[Tensor, None]:
        if attention_mask is not None or dropout:
            raise ValueError("only causal attention without mask and dropout is written here")
        heads = [x.shape[1] // ranks for x in (query, key, value)]
        joined = _tokens_to_heads([query, key, value], group, ranks)
        query, key, value = joined.split(heads, dim=1)
        grouped = module.num_key_value_groups > 1
        output = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=scaling, enable_gqa=grouped
        )
        return _heads_to_tokens(output, group, ranks), None

    return attention


def _tokens_to_heads(xs: list[Tensor], group: str, ranks: int) -> Tensor:
    """Each [batch, heads, own tokens, dim]; joined: [batch, own heads of each, tokens, dim]."""
    parts = torch.cat([x.unflatten(1, (ranks, -1)) for x in xs], dim=2)
    received = _all_to_all(parts.movedim(1, 0), group)
    return received.permute(1, 2, 0, 3, 4).flatten(2, 3)


def _heads_to_tokens(x: Tensor, group: str, ranks: int) -> Tensor:
    """[batch, own heads, tokens, dim] to [batch, own tokens, heads, dim], as transformers wants."""
    parts = x.unflatten(2, (ranks, -1)).permute(2, 0, 3, 1, 4)
    received = _all_to_all(parts, group)
    return received.permute(1, 2, 0, 3, 4).flatten(2, 3)


def _all_to_all(x: Tensor, group: str) -> Tensor:
    """Sends x[r] to rank r and returns what the ranks sent here, in rank order; self-adjoint."""
    lengths = [1] * x.shape[0]
    received = torch.ops._c10d_functional.all_to_all_single(x.contiguous(), lengths, lengths, group)
    return torch.ops._c10d_functional.wait_tensor(received)
