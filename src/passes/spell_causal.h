// Gives attentions with the causal flag the mask that the flag stands for, so that their queries
// can be cut: a part of the queries doesn't start at position 0, which the flag can't say.
//
//   %o = sdpa(%q, %k, %v, is_causal=True)
//   -> %m = (0, 1, …, keys - 1) <= (0, 1, …, queries - 1)[:, None]
//      %o = sdpa(%q, %k, %v, attn_mask=%m)
#pragma once

#include <set>

#include "ir/graph.h"

namespace autosp {

// `attentions`: the nodes to change. Attentions of equal lengths share a mask. Returns whether any
// had the flag. Linear.
bool spell_causal(Graph& graph, const std::set<NodeId>& attentions);

}  // namespace autosp
