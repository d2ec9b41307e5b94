// Programs that the tests of passes and sharding share, in text form.
#pragma once

#include <string>

namespace autosp::programs {

// A transformer layer with embedding, head and a loss over s-1 rows; the embedding is tied to the
// head.
inline constexpr const char* kLayer = R"(symbols s=16
%ids: i64[2, s] = input user "ids"
%emb: f32[32, 8] = input parameter "emb" grad
%norm: f32[8] = input parameter "norm" grad
%wq: f32[8, 8] = input parameter "wq" grad
%wk: f32[8, 8] = input parameter "wk" grad
%wv: f32[8, 8] = input parameter "wv" grad
%wo: f32[8, 8] = input parameter "wo" grad
%x: f32[2, s, 8] = torch.nn.functional.embedding(%ids, %emb)
%i: i64[s] = torch.arange(s)
%f: f32[s] = Tensor.float(%i)
%p: f32[s, 1] = Tensor.unsqueeze(%f, 1)
%h: f32[2, s, 8] = _operator.add(%x, %p)
%n: f32[2, s, 8] = torch.nn.functional.layer_norm(%h, (8,), %norm)
%q0: f32[2, s, 8] = torch._C._nn.linear(%n, %wq)
%k0: f32[2, s, 8] = torch._C._nn.linear(%n, %wk)
%v0: f32[2, s, 8] = torch._C._nn.linear(%n, %wv)
%q1: f32[2, s, 4, 2] = Tensor.view(%q0, 2, s, 4, 2)
%k1: f32[2, s, 4, 2] = Tensor.view(%k0, 2, s, 4, 2)
%v1: f32[2, s, 4, 2] = Tensor.view(%v0, 2, s, 4, 2)
%q: f32[2, 4, s, 2] = Tensor.transpose(%q1, 1, 2)
%k: f32[2, 4, s, 2] = Tensor.transpose(%k1, 1, 2)
%v: f32[2, 4, s, 2] = Tensor.transpose(%v1, 1, 2)
%a: f32[2, 4, s, 2] = torch._C._nn.scaled_dot_product_attention(%q, %k, %v, is_causal=True)
%t: f32[2, s, 4, 2] = Tensor.transpose(%a, 1, 2)
%m: f32[2, s, 8] = Tensor.reshape(%t, 2, s, 8)
%o: f32[2, s, 8] = torch._C._nn.linear(%m, %wo)
%y: f32[2, s, 8] = _operator.add(%h, %o)
%logits: f32[2, s, 32] = torch._C._nn.linear(%y, %emb)
%cut: f32[2, s - 1, 32] = _operator.getitem(%logits, (slice(None, None, None), slice(None, -1, None)))
%next: i64[2, s - 1] = _operator.getitem(%ids, (slice(None, None, None), slice(1, None, None)))
%flat: f32[2*s - 2, 32] = Tensor.reshape(%cut, -1, 32)
%labels: i64[2*s - 2] = Tensor.reshape(%next, -1)
%ce: f32[] = torch.nn.functional.cross_entropy(%flat, %labels)
%size: f32[8, 8] = torch.square(%wo)
%decay: f32[] = torch.sum(%size)
%loss: f32[] = _operator.add(%ce, %decay)
return (%loss, %logits, %flat)
)";

// Grouped heads: keys and values are repeated for two query heads each. The mean is over all
// tokens.
inline constexpr const char* kGrouped = R"(symbols s=16
%x: f32[2, s, 16] = input user "x" grad
%wq: f32[16, 16] = input parameter "wq" grad
%wk: f32[8, 16] = input parameter "wk" grad
%wv: f32[8, 16] = input parameter "wv" grad
%q0: f32[2, s, 16] = torch._C._nn.linear(%x, %wq)
%k0: f32[2, s, 8] = torch._C._nn.linear(%x, %wk)
%v0: f32[2, s, 8] = torch._C._nn.linear(%x, %wv)
%q1: f32[2, s, 8, 2] = Tensor.view(%q0, 2, s, 8, 2)
%k1: f32[2, s, 4, 2] = Tensor.view(%k0, 2, s, 4, 2)
%v1: f32[2, s, 4, 2] = Tensor.view(%v0, 2, s, 4, 2)
%q: f32[2, 8, s, 2] = Tensor.transpose(%q1, 1, 2)
%k: f32[2, 4, s, 2] = Tensor.transpose(%k1, 1, 2)
%v: f32[2, 4, s, 2] = Tensor.transpose(%v1, 1, 2)
%k2: f32[2, 4, 1, s, 2] = _operator.getitem(%k, (slice(None, None, None), slice(None, None, None), None))
%k3: f32[2, 4, 2, s, 2] = Tensor.expand(%k2, 2, 4, 2, s, 2)
%kr: f32[2, 8, s, 2] = Tensor.reshape(%k3, 2, 8, s, 2)
%v2: f32[2, 4, 1, s, 2] = _operator.getitem(%v, (slice(None, None, None), slice(None, None, None), None))
%v3: f32[2, 4, 2, s, 2] = Tensor.expand(%v2, 2, 4, 2, s, 2)
%vr: f32[2, 8, s, 2] = Tensor.reshape(%v3, 2, 8, s, 2)
%a: f32[2, 8, s, 2] = torch._C._nn.scaled_dot_product_attention(%q, %kr, %vr, is_causal=True)
%t: f32[2, s, 8, 2] = Tensor.transpose(%a, 1, 2)
%m: f32[2, s, 16] = Tensor.reshape(%t, 2, s, 16)
%y: f32[2, s, 16] = _operator.add(%x, %m)
%sum: f32[2, 16] = torch.sum(%y, 1)
%mean: f32[] = torch.mean(%sum)
return (%mean,)
)";

// Attention in single operators, with a bias of its own for every head and a mask of padding.
inline constexpr const char* kEager = R"(symbols s=16
%x: f32[2, s, 4, 8] = input user "x" grad
%keep: bool[2, s] = input user "keep"
%bias: f32[1, 4, s, s] = input parameter "bias" grad
%w: f32[8, 8] = input parameter "w" grad
%p: f32[2, s, 4, 8] = torch._C._nn.linear(%x, %w)
%q: f32[2, 4, s, 8] = Tensor.transpose(%p, 1, 2)
%k: f32[2, 4, 8, s] = Tensor.permute(%p, 0, 2, 3, 1)
%products: f32[2, 4, s, s] = torch.matmul(%q, %k)
%scaled: f32[2, 4, s, s] = _operator.mul(%products, 0.35)
%biased: f32[2, 4, s, s] = _operator.add(%scaled, %bias)
%keys: bool[2, 1, 1, s] = _operator.getitem(%keep, (slice(None, None, None), None, None, slice(None, None, None)))
%scores: f32[2, 4, s, s] = torch.where(%keys, %biased, -inf)
%soft: f32[2, 4, s, s] = torch.nn.functional.softmax(%scores, dim=-1)
%a: f32[2, 4, s, 8] = torch.matmul(%soft, %q)
%t: f32[2, s, 4, 8] = Tensor.transpose(%a, 1, 2)
%y: f32[2, s, 4, 8] = _operator.add(%p, %t)
return (%y, %soft)
)";

// A decoder that attends to an encoder of another length.
inline constexpr const char* kTwoLengths = R"(symbols s=16, t=8
%x: f32[2, s, 4, 8] = input user "x" grad
%y: f32[2, t, 4, 8] = input user "y" grad
%w: f32[8, 8] = input parameter "w" grad
%wk: f32[8, 8] = input parameter "wk" grad
%xp: f32[2, s, 4, 8] = torch._C._nn.linear(%x, %w)
%xq: f32[2, 4, s, 8] = Tensor.transpose(%xp, 1, 2)
%e: f32[2, 4, s, 8] = torch._C._nn.scaled_dot_product_attention(%xq, %xq, %xq)
%et: f32[2, s, 4, 8] = Tensor.transpose(%e, 1, 2)
%ek: f32[2, s, 4, 8] = torch._C._nn.linear(%et, %wk)
%k: f32[2, 4, s, 8] = Tensor.transpose(%ek, 1, 2)
%yp: f32[2, t, 4, 8] = torch._C._nn.linear(%y, %w)
%q: f32[2, 4, t, 8] = Tensor.transpose(%yp, 1, 2)
%c: f32[2, 4, t, 8] = torch._C._nn.scaled_dot_product_attention(%q, %k, %k)
%out: f32[2, t, 4, 8] = Tensor.transpose(%c, 1, 2)
%z: f32[2, t, 4, 8] = _operator.add(%out, %yp)
return (%z,)
)";

}  // namespace autosp::programs
