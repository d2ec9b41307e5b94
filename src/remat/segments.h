// The parts of the forward that are recomputed on their own.
//
// A plan that recomputes across the whole forward keeps little and yet peaks high: the backward
// would begin by making everything again. So recomputation stays inside of segments, and what
// crosses their boundaries is kept. Boundaries are narrow positions of the forward: for every
// attention the last one, between the attention before it and its own inputs, that the fewest bytes
// cross, which is where the residual stream alone does. Values that cross many boundaries (rotary
// tables, masks) count everywhere, and so do not matter.
//
//   x0 = embedding        | x1 = x0 + attention(…) … | … | xn = … | logits, loss
//   segment 0             | 1                        |   | n      | tail
//
// The tail is what follows the last block: it ends where the block before says that a block ends,
// or, where no block is like the last, before the last product of matrices.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/facts.h"

namespace autosp {

struct Segments {
  std::vector<int> begin;      // per segment its first position; the first is 0
  std::vector<int> of;         // per node its segment; -1 for what is not of the forward
  std::vector<bool> crossing;  // per node: kept because a later segment reads its storage
  std::vector<int64_t> width;  // per segment: bytes that its beginning is crossed by
  bool has_tail = false;       // the last segment is the tail

  int count() const { return static_cast<int>(begin.size()); }
};

// Linear in nodes and inputs but for the comparison of the last blocks.
Segments find_segments(const JointFacts& facts);

}  // namespace autosp
