// What the passes of rematerialization need to know of a joint graph, found once.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "cost/device.h"
#include "cost/kernel.h"
#include "remat/joint_graph.h"

namespace autosp {

enum class Phase : uint8_t {
  kInput,     // a primal, a tangent, a constant
  kForward,   // depends on no tangent: it can run in the forward, or again in the backward
  kLate,      // depends on no tangent, but stands behind the forward: runs in the backward alone
  kBackward,  // depends on a tangent
  kOutput,
};

// An attention of the forward: one operator, or the products and the softmax between them that it
// is written out in.
struct AttentionSpan {
  int begin = 0;  // the operator, or the product that makes the scores
  int end = 0;    // the operator, or the product with the values
};

// Linear in nodes and inputs. `graph` must outlive it and has been verified.
struct JointFacts {
  explicit JointFacts(const JointGraph& graph);

  std::span<const int> users(int node) const {
    return {user_.data() + user_begin_[node], user_.data() + user_begin_[node + 1]};
  }

  // Of all nodes but the output, as in the graph but close together in memory.
  std::span<const int> inputs(int node) const {
    return {input_.data() + input_begin_[node], input_.data() + input_begin_[node + 1]};
  }

  bool for_backward(int node) const {
    return phase[node] == Phase::kLate || phase[node] == Phase::kBackward;
  }

  int64_t storage_bytes(int node) const { return bytes[storage[node]]; }

  // A value can be kept at one node of its storage: where the storage is made, or where an exchange
  // into it has ended.
  bool can_keep(int node) const {
    return graph.nodes[node].bytes > 0 && keeper[storage[node]] == node &&
           phase[node] == Phase::kForward;
  }

  const JointGraph& graph;
  std::vector<int64_t> bytes;  // as in the graph
  std::vector<int> tangents;
  std::vector<Phase> phase;
  std::vector<Kernel> kernel;
  std::vector<bool> required;             // the forward's outputs need it
  std::vector<int> storage;               // per node the one whose storage its value lies in
  std::vector<int> keeper;                // per storage (by that node) the node at which it is kept
  std::vector<bool> several;              // an operator whose outputs are taken by getitem
  std::vector<bool> attention;            // part of an attention that costs much to make again
  std::vector<AttentionSpan> attentions;  // in order
  int forward_end = 0;                    // one past the last required node

 private:
  std::vector<int> user_begin_;
  std::vector<int> user_;
  std::vector<int> input_begin_;
  std::vector<int> input_;
};

// Nanoseconds per node. A fused operator reads what comes from outside of its neighbourhood of
// fused operators, and writes what leaves it. Linear.
std::vector<int64_t> node_nanoseconds(const JointFacts& facts, const Device& device, int64_t ranks);

}  // namespace autosp
