// prove-causal: an attention mask that is exactly "key <= query" becomes the kernel's causal flag.
//
//   before  %le: bool[1, 1, s, s] = kv <= q; … %mask = %le & (packed[q] == packed[kv]) …
//           sdpa(%q, %k, %v, attn_mask=%mask, is_causal=False)
//   after   sdpa(%q, %k, %v, attn_mask=None, is_causal=True)           and the mask's operators are
//   dead
//
// A mask is evaluated as an expression over its own index variables, operator by operator; only
// what is proved for every index is replaced, and everything else stays as written. So the
// packed-sequence detection of Hugging Face models vanishes where positions are the default ones,
// and stays where the user passes positions.
#pragma once

#include "ir/graph.h"

namespace autosp {

bool prove_causal(Graph& graph);

}  // namespace autosp
