#include "remat/peak.h"

#include <algorithm>

namespace autosp {

namespace {

// What a storage counts as.
enum class Class : uint8_t { kOther, kKept, kRecomputed, kIgnored };

struct Live {
  int64_t kept = 0;
  int64_t recomputed = 0;
  int64_t total = 0;

  void add(Class what, int64_t bytes) {
    total += bytes;
    if (what == Class::kKept) kept += bytes;
    if (what == Class::kRecomputed) recomputed += bytes;
  }
};

// The storages of one of the two programs while it runs; `classes` per storage.
class Memory {
 public:
  Memory(const JointFacts& facts, const std::vector<int>& order, const std::vector<Class>& classes)
      : facts_(facts), order_(order), classes_(classes), last_use_(classes.size(), -1) {
    const auto& nodes = facts.graph.nodes;
    for (int t = 0; t < static_cast<int>(order.size()); ++t) {
      for (const int input : nodes[order[t]].inputs) last_use_[facts.storage[input]] = t;
      last_use_[facts.storage[order[t]]] = t;
    }
  }

  void keep_to_the_end(int node) { last_use_[facts_.storage[node]] = kEnd; }

  // Runs the program, which begins with the storages of `before` (those of them that it reads), and
  // visits every operator with what lives then.
  template <typename Visit>
  void run(const std::vector<int>& before, Visit visit) {
    dying_.assign(order_.size(), {});
    alive_.assign(classes_.size(), false);
    for (const int node : before) make(facts_.storage[node]);
    for (size_t t = 0; t < order_.size(); ++t) {
      const int node = order_[t];
      if (facts_.several[node]) {
        for (const int user : facts_.users(node)) {
          if (facts_.kernel[user] == Kernel::kItem) make(facts_.storage[user]);
        }
      }
      make(facts_.storage[node]);
      visit(node, live_);
      for (const int base : dying_[t]) live_.add(classes_[base], -facts_.graph.nodes[base].bytes);
    }
  }

 private:
  static constexpr int kEnd = 1 << 30;

  void make(int base) {
    if (alive_[base] || last_use_[base] < 0 || classes_[base] == Class::kIgnored) return;
    alive_[base] = true;
    live_.add(classes_[base], facts_.graph.nodes[base].bytes);
    if (last_use_[base] != kEnd) dying_[last_use_[base]].push_back(base);
  }

  const JointFacts& facts_;
  const std::vector<int>& order_;
  const std::vector<Class>& classes_;
  std::vector<int> last_use_;  // per storage, a position of the order
  std::vector<std::vector<int>> dying_;
  std::vector<bool> alive_;
  Live live_;
};

// The nodes of the forward graph: what its outputs and the kept values need. Those alone run again.
std::vector<int> forward_order(const JointFacts& facts, Peak& peak) {
  std::vector<bool> needed = facts.required;
  for (const int node : peak.saved) needed[node] = true;
  std::vector<int> order;
  for (int i = static_cast<int>(needed.size()) - 1; i >= 0; --i) {
    if (!needed[i] || facts.phase[i] != Phase::kForward) continue;
    order.push_back(i);
    for (const int input : facts.graph.nodes[i].inputs) needed[input] = true;
  }
  std::reverse(order.begin(), order.end());
  std::erase_if(peak.recomputed, [&](int node) { return !needed[node]; });
  return order;
}

// The nodes of the backward graph in the order in which they run; fills in what is kept for them
// and what else of the forward they need.
std::vector<int> backward_order(const JointFacts& facts, const std::vector<Action>& actions,
                                Peak& peak) {
  const auto& nodes = facts.graph.nodes;
  const int count = static_cast<int>(nodes.size());
  std::vector<bool> needed(count, false);
  const auto& outputs = nodes.back().inputs;
  for (size_t k = static_cast<size_t>(facts.graph.forward_outputs); k < outputs.size(); ++k) {
    if (outputs[k] >= 0) needed[outputs[k]] = true;
  }
  int first = count;
  for (int i = count - 1; i >= 0; --i) {
    if (!needed[i] || facts.phase[i] == Phase::kInput) continue;
    if (facts.phase[i] == Phase::kForward && actions[i] == Action::kSave) {
      peak.saved.push_back(i);
      continue;
    }
    if (facts.phase[i] == Phase::kForward) peak.recomputed.push_back(i);
    for (const int input : nodes[i].inputs) {
      needed[input] = true;
      if (is_tangent(nodes[input])) first = i;
    }
  }
  std::reverse(peak.saved.begin(), peak.saved.end());
  std::reverse(peak.recomputed.begin(), peak.recomputed.end());

  std::vector<bool> done(count, false);
  for (const int node : peak.saved) done[node] = true;
  std::vector<int> order;
  std::vector<int> stack;
  std::vector<int> group;
  for (int i = first; i < count - 1; ++i) {
    if (!needed[i] || done[i] || facts.phase[i] == Phase::kInput) continue;
    stack = {i};
    group.clear();
    done[i] = true;
    while (!stack.empty()) {
      const int node = stack.back();
      stack.pop_back();
      group.push_back(node);
      for (const int input : nodes[node].inputs) {
        if (done[input] || facts.phase[input] == Phase::kInput) continue;
        done[input] = true;
        stack.push_back(input);
      }
    }
    std::sort(group.begin(), group.end());
    order.insert(order.end(), group.begin(), group.end());
  }
  return order;
}

}  // namespace

Peak simulate(const JointFacts& facts, const std::vector<Action>& actions) {
  Peak peak;
  const auto& nodes = facts.graph.nodes;
  const auto& outputs = nodes.back().inputs;
  const size_t forward_outputs = static_cast<size_t>(facts.graph.forward_outputs);
  const std::vector<int> backward = backward_order(facts, actions, peak);
  const std::vector<int> forward = forward_order(facts, peak);

  std::vector<Class> classes(nodes.size(), Class::kOther);
  std::vector<int> tangents;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (facts.phase[i] == Phase::kInput) classes[i] = Class::kIgnored;
    if (is_tangent(nodes[i])) tangents.push_back(i);
  }
  for (const int node : peak.saved) {
    Class& what = classes[facts.storage[node]];
    if (what != Class::kOther) continue;
    what = Class::kKept;
    peak.kept_bytes += facts.storage_bytes(node);
  }

  const auto consider = [&peak](int node, const Live& live, bool in_backward) {
    if (live.total <= peak.peak_bytes) return;
    peak.peak_bytes = live.total;
    peak.at = node;
    peak.in_backward = in_backward;
    peak.kept_at_peak = live.kept;
    peak.recomputed_at_peak = live.recomputed;
  };

  Memory in_forward(facts, forward, classes);
  for (size_t k = 0; k < forward_outputs; ++k) {
    if (outputs[k] >= 0) in_forward.keep_to_the_end(outputs[k]);
  }
  for (const int node : peak.saved) in_forward.keep_to_the_end(node);
  in_forward.run({}, [&](int node, const Live& live) { consider(node, live, false); });

  for (const int node : tangents) classes[node] = Class::kOther;
  for (const int node : peak.recomputed) {
    Class& what = classes[facts.storage[node]];
    if (what == Class::kOther) what = Class::kRecomputed;
  }
  for (size_t k = forward_outputs; k < outputs.size(); ++k) {
    if (outputs[k] >= 0) classes[facts.storage[outputs[k]]] = Class::kIgnored;
  }
  std::vector<int> before = peak.saved;
  before.insert(before.end(), tangents.begin(), tangents.end());
  Memory in_backward(facts, backward, classes);
  in_backward.run(before, [&](int node, const Live& live) { consider(node, live, true); });
  return peak;
}

}  // namespace autosp
