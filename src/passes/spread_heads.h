// Fewer key heads than ranks, or a number that the ranks don't divide: each is copied for as many
// ranks as need it, so that heads can be exchanged.
//
//   32 query heads, 8 key heads, 16 ranks: keys and values are copied to 16 heads, which is what
//   the ranks need of them, and each rank then has 2 query heads and 1 key head.
//
//   sdpa(q, repeat_kv(k), …, is_causal)     sdpa(q, repeat_heads(k), …, is_causal, enable_gqa)
//   softmax(q @ repeat_kv(k).T + mask)      softmax(q @ repeat(repeat_heads(k), …).T + mask)
//
// Before: attentions have been found and heads chosen. Those whose key heads were not chosen, and
// whose query heads are a multiple of the least number that both ranks and key heads divide, read
// copies: by way of the kernel's own grouping where it has one for such a call, else repeated to
// the number of query heads as the program did. Views that repeated keys may be left dead. One key
// head for all is left to be gathered where queries have heads to be cut along. Others stay as they
// are. Linear.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "sharding/attention.h"

namespace autosp {

// The regions, by their indices, that read copies now; those in `keep` never do. Where there are
// any, axes and regions are those of another graph than `graph` is now, whose regions stand in the
// same order.
std::set<size_t> spread_heads(Graph& graph, const Axes& axes, int ranks,
                              const std::vector<AttentionRegion>& regions,
                              const std::set<size_t>& keep);

}  // namespace autosp
