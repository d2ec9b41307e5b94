// Attention regions: the operators between queries, keys and values on one side and the attended
// values on the other. A region runs whole along tokens and sharded along heads (DeepSpeed-Ulysses,
// arXiv 2309.14509): every rank has all tokens of its heads, and all-to-alls stand at the region's
// border.
//
//   sdpa(q, repeat_kv(k), repeat_kv(v))                core: sdpa; spread: the views of repeat_kv
//   softmax(q @ k.T * scale + mask) @ v                core: everything from the first product to
//   the second
//
// Scores may be a sum of more products than one, of queries and positions for example, whose
// columns are then brought in the order of the keys. These belong to the core too, from the
// products on:
//
//   softmax(q @ k.T + shift(q @ r.T)) @ v              core: both products and the shift
//
// An attention is found by its form: a fused operator (kAttend letters), or a softmax along a
// letter that one product of two activations made and a later product sums. Linear in nodes times
// regions they lie in.
#pragma once

#include <string>
#include <vector>

#include "sharding/axes.h"

namespace autosp {

struct AttentionRegion {
  std::vector<NodeId> core;  // in execution order; back() makes the attended values
  NodeId scores = kNoNode;   // the core's product of queries and keys
  std::vector<NodeId> more;  // what else makes scores; in the core once heads have been chosen
  std::vector<NodeId>
      spread;  // views above the core that repeat keys or values for several query heads
  FactorId head =
      -1;  // the leaf along which the region is sharded (heads; batch where heads don't fit)
  LetterId query = -1;  // the queries' letter in the rule of `scores`
};

// Finds the regions and declares their query and key lengths to be token axes (then closes the
// token axes).
std::vector<AttentionRegion> find_attention(Axes& axes);

// Chooses each region's head factor for `ranks` and grows `spread`; `more` joins the core where
// that factor goes through it. A region is left with head = -1 where no factor that queries, keys
// and values share is divisible by `ranks`, or an operator in it mixes heads.
void choose_heads(const Axes& axes, int ranks, std::vector<AttentionRegion>& regions);

// The letter leaf of the region's head factor in the rule of one of its nodes.
LetterLeaf head_letter(const Axes& axes, const AttentionRegion& region, NodeId node);

}  // namespace autosp
