// What the attentions of a program mask and add to their scores, by name, and the values of a
// rank's program that hold it.
//
//   sdpa(%q, %k, %v, attn_mask=%m)                    held: %m
//   softmax(where(%seen, %q @ %k.T + %bias, -inf))    held: %seen, %bias
//
// Linear in the nodes that masks and scores are made of.
#pragma once

#include <string>
#include <vector>

#include "sharding/attention.h"

namespace autosp {

// One attention's mask.
struct MaskUse {
  struct Read {
    NodeId node;     // that reads it
    size_t operand;  // which of the node's operands it is
    NodeId value;
  };
  std::string name;        // sharding/mask_names.h
  bool exchanged = false;  // heads for tokens; else keys and values are gathered
  bool sequences = false;  // whole ones in place of heads
  bool flag = false;       // the kernel is told that it is causal
  std::vector<Read> reads = {};
};

// Of a program that isn't cut yet, with all attentions that are going to be; those that see
// everything are left out.
std::vector<MaskUse> name_masks(const Axes& axes, const std::vector<AttentionRegion>& regions);

enum class MaskCut : uint8_t {
  kNone,       // the kernel is told that it is causal, and there is no mask
  kWhole,      // heads are exchanged for tokens, and the mask has none
  kHeads,      // heads are exchanged for tokens: those of the rank
  kSequences,  // the same where whole sequences are exchanged
  kQueries,    // keys are gathered: the queries of the rank
};

struct HeldMask {
  std::string name;
  MaskCut cut = MaskCut::kNone;
  std::vector<NodeId> values = {};  // of the program of a rank
};

// The same in the program that was made of it: `locals` has its value for each of `global`'s.
std::vector<HeldMask> held_masks(const std::vector<MaskUse>& masks, const Graph& global,
                                 const Graph& local, const std::vector<NodeId>& locals);

}  // namespace autosp
