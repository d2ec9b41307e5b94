// Placement: which operators run sharded, along which letter, and what every value therefore is on
// a rank.
//
//   R  replicated: the same on every rank, used the same way there         cotangent R
//   V  varying: the same on every rank, but used by sharded computation    cotangent P
//   S  sharded: each rank holds a contiguous 1/P of one occurrence         cotangent S
//   P  partial: the value is the sum over the ranks                        cotangent V
//
// An operator runs sharded along at most one leaf of one letter; operands that have it are S there,
// all others are whole. So the choice is one bit an operator ("runs sharded"), and the cheapest
// assignment is a minimum cut: bytes held on every rank instead of on one, and bytes moved at each
// conversion, a gathered copy counted once for all its readers. Attention regions run sharded along
// heads and take part as fixed nodes; what they read of a table over queries and keys that differs
// by heads runs sharded along those too.
//
// The cut is deterministic and depends on the graph, its hinted lengths, `ranks` and the latency
// alone.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "flow/max_flow.h"
#include "sharding/attention.h"
#include "sharding/axes.h"

namespace autosp {

inline constexpr int64_t kLatencyBytes = int64_t{1} << 16;

struct Placement {
  enum class Kind : uint8_t { kReplicated, kVarying, kSharded, kPartial };
  Kind kind = Kind::kReplicated;
  Occurrence where;  // kSharded

  static Placement replicated() { return {}; }
  static Placement varying() { return {Kind::kVarying, {}}; }
  static Placement partial() { return {Kind::kPartial, {}}; }
  static Placement sharded(Occurrence where) { return {Kind::kSharded, where}; }
  bool is_sharded() const { return kind == Kind::kSharded; }
  bool operator==(const Placement&) const = default;
};

struct NodePlacement {
  std::optional<LetterLeaf> sharded;  // the leaf the node runs sharded along; none: it runs whole
  bool varying = false;               // read by sharded computation only: a whole node runs as V
  bool partial = false;               // works on what each rank counted: reads P and gives P
  bool held = false;                  // counts all rows that a rank holds, those past the end too
  int region = -1;                    // index of its attention region
};

class Placements {
 public:
  // A collective costs the time of at least `latency_bytes`. Throws Unsupported where a token axis
  // of an activation meets an operator that can't be cut along it.
  Placements(const Axes& axes, int ranks, const std::vector<AttentionRegion>& regions,
             int64_t latency_bytes = kLatencyBytes);

  // Of a body that runs on parts alone: `inputs` says what each of its inputs is, in order, and
  // nothing is converted. Operators that read no part are whole, as V; values made from sizes alone
  // are parts where their readers' other operands are. Throws Unsupported, with the operator's name
  // and line, where an operator would need more (sharding/body_placement.cc).
  Placements(const Axes& axes, int ranks, const std::vector<Placement>& inputs);

  const Axes& axes() const { return axes_; }
  int ranks() const { return ranks_; }
  const NodePlacement& node(NodeId node) const { return nodes_[node]; }
  // What the node's value is when it has just been computed; P only where the sharded letter was
  // summed.
  Placement produced(NodeId node, int element) const;
  // What a node needs of one of its operands.
  Placement needed(NodeId node, const Operand& operand) const;

 private:
  void follow(NodeId node);
  bool is_made_of_sizes(NodeId value) const;
  void cut_made_of_sizes(NodeId value, const Occurrence& where);
  void choose_candidates();
  std::vector<LetterLeaf> possible(NodeId node) const;
  std::optional<LetterLeaf> heads_of_table(NodeId node, int element, Occurrence where) const;
  bool can_shard(NodeId node, LetterLeaf leaf) const;
  bool offers_rows(NodeId node, LetterLeaf leaf) const;
  bool moves_elements(NodeId node) const;
  void refuse_unsplittable() const;
  void cut();
  void tie_bags(FlowNetwork& network, const std::vector<int>& variable, int sink);
  void refuse_whole_bags() const;
  void tie_extended(FlowNetwork& network, const std::vector<int>& variable, int sink);
  void refuse_whole_extended() const;
  void choose_varying();

  const Axes& axes_;
  int ranks_;
  int64_t latency_bytes_;
  std::vector<NodePlacement> nodes_;
  std::vector<std::optional<LetterLeaf>> candidates_;
  std::vector<Placement> given_;  // of a body: by value, those of inputs
  // Extended value -> a reader that wants it whole, and the dimension of its rows.
  std::map<NodeId, std::pair<NodeId, int>> extension_obstacles_;
  NodeId bag_obstacle_ = kNoNode;  // the first operator for whose sake sorted tokens stay whole
};

// Whether a rank's part of an operator's result needs rows of others along such a letter.
bool needs_other_rows(LetterKind kind);

// The dimension of `result` (element of a node) where a leaf of the node's rule stands, through a
// prefix link too.
std::optional<Occurrence> result_occurrence(const Axes& axes, NodeId node, int element,
                                            LetterLeaf leaf);

}  // namespace autosp
