#include "remat/segment_cut.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "flow/max_flow.h"
#include "support/error.h"

namespace autosp {

namespace {

int64_t elements(const JointNode& node) {
  int64_t count = 1;
  for (const int64_t size : node.shape) count *= size;
  return count;
}

class Hash {
 public:
  void add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 29;
  }
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<uint64_t>(static_cast<unsigned char>(c)));
  }
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xCBF29CE484222325u;
};

// Costs as capacities. Where one kind of cost comes first the other only breaks ties: it gets what
// is below one unit of the first, rounded.
class Capacities {
 public:
  Capacities(const CutWeights& weights, int64_t total_bytes, int64_t total_ns) {
    const double bytes = static_cast<double>(std::max<int64_t>(total_bytes, 1));
    const double ns = static_cast<double>(std::max<int64_t>(total_ns, 1));
    if (weights.ns == 0) {
      byte_ = kTieUnits;
      ns_ = kTieTotal / ns;
    } else if (weights.byte == 0) {
      ns_ = kTieUnits;
      byte_ = kTieTotal / bytes;
    } else {
      const double scale = kTotal / (weights.byte * bytes + weights.ns * ns);
      byte_ = weights.byte * scale;
      ns_ = weights.ns * scale;
    }
  }

  int64_t of_bytes(int64_t bytes) const { return capacity(static_cast<double>(bytes) * byte_); }
  int64_t of_ns(double ns) const { return capacity(ns * ns_); }

 private:
  static constexpr double kTieUnits = 1 << 16;
  static constexpr double kTieTotal = 1 << 12;
  static constexpr double kTotal = static_cast<double>(int64_t{1} << 56);

  static int64_t capacity(double cost) {
    return static_cast<int64_t>(std::ceil(std::min(cost, 2 * kTotal)));
  }

  double byte_ = 0;
  double ns_ = 0;
};

}  // namespace

SegmentCut::SegmentCut(const JointFacts& facts, const Segments& segments,
                       const Offloading& offloading, const std::vector<int64_t>& ns, int segment,
                       std::vector<int> nodes)
    : facts_(facts),
      segments_(segments),
      offloading_(offloading),
      nodes_(std::move(nodes)),
      values_(nodes_.size()) {
  if (nodes_.empty()) return;
  const int first = nodes_.front();
  std::vector<int> local_of(static_cast<size_t>(nodes_.back() - first + 1), -1);
  for (size_t k = 0; k < nodes_.size(); ++k) local_of[nodes_[k] - first] = static_cast<int>(k);
  for (size_t k = 0; k < nodes_.size(); ++k) {
    Value& value = values_[k];
    value.ns = ns[nodes_[k]];
    describe(static_cast<int>(k), local_of);
    any_may_leave_ = any_may_leave_ || value.may_leave;
    total_ns_ += value.ns;
    total_bytes_ += std::max<int64_t>(value.bytes, 0);
    // An operator runs again with all of its outputs or with none: torch knows no other way.
    if (value.outside && facts.kernel[nodes_[k]] == Kernel::kItem && !value.inputs.empty()) {
      values_[value.inputs[0]].pinned = true;
    }
  }
  signature_.push_back(segments.has_tail && segment == segments.count() - 1 ? 1 : 0);
  for (size_t k = 0; k < nodes_.size(); ++k) {
    const Value& value = values_[k];
    const JointNode& node = facts.graph.nodes[nodes_[k]];
    Hash hash;
    hash.add(node.target);
    hash.add(static_cast<uint64_t>(value.bytes));
    hash.add(static_cast<uint64_t>(value.ns));
    for (const bool flag :
         {value.outside, value.left, value.pinned, value.may_leave, value.alias, value.size,
          value.for_backward, node.random, node.mutates, facts.several[nodes_[k]]}) {
      hash.add(flag ? 1 : 0);
    }
    for (const int input : value.inputs) hash.add(static_cast<uint64_t>(input) + 1);
    signature_.push_back(hash.value());
  }
}

void SegmentCut::describe(int local, const std::vector<int>& local_of) {
  const int node = nodes_[local];
  const JointNode& joint = facts_.graph.nodes[node];
  Value& value = values_[local];
  value.size = joint.bytes == 0 && joint.dtype.empty() && !facts_.several[node];
  value.alias = facts_.keeper[facts_.storage[node]] != node;
  if (facts_.can_keep(node)) {
    value.bytes = joint.bytes;
  } else if (joint.bytes > 0 || facts_.several[node]) {
    value.bytes = -1;
  }
  value.outside = joint.tagged || joint.mutates || segments_.crossing[node];
  value.may_leave = offloading_.possible[node];
  value.left = value.size || joint.tagged;
  for (const int user : facts_.users(node)) {
    const bool is_users_own = facts_.graph.nodes[user].tagged;
    // What leaves a checkpoint region for a later segment is that segment's input.
    if (segments_.crossing[node] && facts_.phase[user] == Phase::kForward && !is_users_own) {
      value.left = value.size;
    }
    // What the user made a checkpoint region runs again, from these.
    if (facts_.for_backward(user) || is_users_own) value.for_backward = true;
    if (facts_.phase[user] != Phase::kOutput) continue;
    const auto& outputs = facts_.graph.nodes[user].inputs;
    value.for_backward |= std::find(outputs.begin() + facts_.graph.forward_outputs, outputs.end(),
                                    node) != outputs.end();
  }
  value.after_attention = facts_.attention[node];
  const int first = nodes_.front();
  for (const int input : joint.inputs) {
    if (input < first || input - first >= static_cast<int>(local_of.size())) continue;
    const int position = local_of[input - first];
    if (position < 0) continue;
    value.inputs.push_back(position);
    value.after_attention = value.after_attention || values_[position].after_attention;
  }
}

bool SegmentCut::banned(const Bans& bans, int local) const {
  const int node = nodes_[local];
  const JointNode& joint = facts_.graph.nodes[node];
  const Kernel kernel = facts_.kernel[node];
  if (joint.random || values_[local].pinned) return true;
  if (kernel == Kernel::kAttention || facts_.attention[node]) return bans.attention;
  if (kernel == Kernel::kMatmul) return bans.products;
  if (kernel == Kernel::kCollective) {
    return bans.exchanges || (bans.exchanges_before_attention && !values_[local].after_attention);
  }
  if (!bans.reductions || kernel != Kernel::kFused) return false;
  int64_t read = 0;
  for (const int input : joint.inputs) {
    read = std::max(read, elements(facts_.graph.nodes[input]));
  }
  return elements(joint) * 4 <= read;
}

CutSolution SegmentCut::solve(const Bans& bans, const CutWeights& weights) const {
  const Capacities capacities(weights, total_bytes_, total_ns_);
  const int count = static_cast<int>(nodes_.size());
  FlowNetwork network;
  const int source = network.add_nodes(2);
  const int sink = source + 1;
  std::vector<int> made(count, -1);
  for (int k = 0; k < count; ++k) {
    const Value& value = values_[k];
    if (value.outside) continue;
    made[k] = network.add_nodes(2);
    const int at_hand = made[k] + 1;
    int64_t keeping = value.bytes < 0 ? FlowNetwork::kInfinite : capacities.of_bytes(value.bytes);
    if (value.may_leave && weights.leaving_ns >= 0) {
      keeping = std::min(keeping,
                         capacities.of_ns(weights.leaving_ns * static_cast<double>(value.bytes)));
    }
    network.add_edge(made[k], at_hand, keeping);
    if (banned(bans, k)) {
      network.add_edge(source, made[k], FlowNetwork::kInfinite);
    } else if (value.ns > 0) {
      network.add_edge(source, made[k], capacities.of_ns(static_cast<double>(value.ns)));
    }
    if (value.for_backward) network.add_edge(at_hand, sink, FlowNetwork::kInfinite);
    for (const int input : value.inputs) {
      if (made[input] >= 0) network.add_edge(made[input] + 1, made[k], FlowNetwork::kInfinite);
    }
  }
  const MinCut cut = network.minimum_cut(source, sink);
  ensure(cut.infinite_path.empty(), "a value that the backward needs can be neither kept nor made");

  CutSolution solution;
  solution.actions.assign(count, Action::kSave);
  for (int k = 0; k < count; ++k) {
    const Value& value = values_[k];
    if (value.left) {
      solution.actions[k] = Action::kLeave;
    } else if (value.outside) {
      if (!value.may_leave) continue;
      solution.bytes += value.bytes;
      solution.may_leave.push_back(k);
    } else if (!cut.source_side[made[k]]) {
      solution.actions[k] = Action::kRecompute;
      solution.ns += value.ns;
    } else if (!cut.source_side[made[k] + 1]) {
      solution.bytes += value.bytes;
      if (value.may_leave) solution.may_leave.push_back(k);
    } else if (value.alias && facts_.kernel[nodes_[k]] != Kernel::kCollective) {
      // Not needed here; if a later segment reads it, it is there with its storage.
      solution.actions[k] = Action::kRecompute;
    }
  }
  return solution;
}

void SegmentCut::send_away(CutSolution& solution, const HostLink& link,
                           const CutWeights& weights) const {
  std::vector<int> order = solution.may_leave;
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::pair(-values_[a].bytes, a) < std::pair(-values_[b].bytes, b);
  });
  int64_t waiting = link.wait_ns(solution.away_bytes, forward_ns());
  for (const int k : order) {
    const int64_t bytes = values_[k].bytes;
    const int64_t longer = link.wait_ns(solution.away_bytes + bytes, forward_ns());
    const double gain = weights.byte * static_cast<double>(bytes) -
                        weights.ns * static_cast<double>(longer - waiting);
    const bool is_free = longer == waiting;
    if (gain <= 0 && !is_free) continue;
    solution.actions[k] = Action::kOffload;
    solution.bytes -= bytes;
    solution.away_bytes += bytes;
    solution.ns += longer - waiting;
    waiting = longer;
  }
}

std::vector<SegmentCut> make_cuts(const JointFacts& facts, const Segments& segments,
                                  const Offloading& offloading, const std::vector<int64_t>& ns) {
  std::vector<std::vector<int>> nodes(segments.begin.size());
  for (int i = 0; i < static_cast<int>(segments.of.size()); ++i) {
    if (segments.of[i] >= 0) nodes[segments.of[i]].push_back(i);
  }
  std::vector<SegmentCut> cuts;
  for (int s = 0; s < segments.count(); ++s) {
    cuts.emplace_back(facts, segments, offloading, ns, s, std::move(nodes[s]));
  }
  return cuts;
}

}  // namespace autosp
