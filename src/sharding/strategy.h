// Which attentions exchange heads and which gather keys and values instead, by what either moves
// and holds.
//
//   heads       moves queries, keys, values and results, a P-th of each to the other ranks; holds
//               every row of a mask, of a rank's own heads where it has heads
//   gather_kv   moves keys and values whole; holds them whole, and a P-th of a mask's rows
//
// Where heads that are copied for the ranks would be exchanged, what would be gathered instead is
// what they are copies of.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

#include "sharding/attention.h"

namespace autosp {

// Whether only a head's worth of all tokens will do: of an operator of the user's that says of its
// queries that they attend, nothing is known of a part of them, and the blocks of a
// flex_attention's mask are those of all.
bool needs_heads(const Axes& axes, const AttentionRegion& region);

// The regions, by their indices, for which gathering is cheaper: bytes moved in forward and
// backward plus bytes held by one rank, at the hinted lengths. Regions that read one mask hold it
// once and are decided together. A causal attention (is_causal) keeps its heads: spelled out for a
// part of the queries it would be a mask that no kernel skips a half of.
std::set<size_t> weigh_strategies(const Axes& axes, int ranks,
                                  const std::vector<AttentionRegion>& regions);

}  // namespace autosp
