// Fewer key heads than ranks, or a number that the ranks don't divide: each is copied for as many
// ranks as need it, so that heads can be exchanged.
//
//   32 query heads, 8 key heads, 16 ranks: keys and values are copied to 16 heads, which is what
//   the ranks need of them, and each rank then has 2 query heads and 1 key head.
//
// Before: attentions have been found and heads chosen. Fused causal attentions and flex_attentions
// whose key heads were not chosen, and whose query heads are a multiple of the least number that
// both ranks and key heads divide, read copies, by way of the kernel's own grouping; views that
// repeated their keys may be left dead. One key head for all is left to be gathered where queries
// have heads to be cut along. Others stay as they are. Linear.
#pragma once

#include <vector>

#include "sharding/attention.h"

namespace autosp {

// Returns true when the graph was changed: axes and regions are then those of another graph.
bool spread_heads(Graph& graph, const Axes& axes, int ranks,
                  const std::vector<AttentionRegion>& regions);

}  // namespace autosp
