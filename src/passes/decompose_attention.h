// decompose-attention: opens torch.nn.functional.multi_head_attention_forward, which Dynamo
// captures as one call.
//
//   before  %t: (f32[T, B, E], none) = torch.nn.functional.multi_head_attention_forward(%q, %k, %v,
//   E, H, …) after   linear (in_proj), views to heads, scaled_dot_product_attention, linear
//   (out_proj)
//
// The opened form computes what the call computes, in the same order of operations as torch's own
// body. Forms that are not opened (bias_k, add_zero_attn, averaged weights, static keys, dropout)
// are refused by name.
#pragma once

#include "ir/graph.h"

namespace autosp {

bool decompose_attention(Graph& graph);

}  // namespace autosp
