// Names what the mask of an attention and the terms that are added to its scores compute:
//
//   key <= query, query - key < 6           causal, window 6
//   causal, and |query - key| <= 3          causal, two-sided window 3
//   query // 8 == key // 8                  chunks of 8
//   %seen[b, query] == %seen[b, key]        document by seen
//   %mask[b, key] != 0                      padding of keys
//   key < 4 or key <= query                 prefix 4
//   %slopes[h] * (key - query)              ALiBi
//   %table[bucket(query - key), h]          relative bias
//
// A name says what is computed, whatever it was written with; what isn't proved to be one of these
// is "as written". Nothing is decided by a name.
#pragma once

#include <string>
#include <vector>

#include "sharding/mask_elements.h"

namespace autosp {

struct MaskPlace {
  size_t query = 0;  // dimensions of the value
  size_t key = 0;
  NodeId scores = kNoNode;  // what the mask is put on, where the value is made of it too
};

// The names of the parts of a mask (truth values), or of what is added to scores (numbers), with
// commas between them; empty where nothing is hidden and nothing added. Linear in what the
// expression is made of, up to comparisons between its parts.
std::string mask_name(const Graph& graph, MaskElements& elements, NodeId value,
                      const MaskPlace& place);

}  // namespace autosp
