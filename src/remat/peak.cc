#include "remat/peak.h"

#include <algorithm>
#include <utility>

namespace autosp {

namespace {

constexpr uint8_t kUncounted = kPartNames.size();
using PartBytes = std::array<int64_t, kPartNames.size()>;

// The storages of one of the two programs while it runs; `parts` per storage.
class Memory {
 public:
  Memory(const JointFacts& facts, const std::vector<int>& order, const std::vector<uint8_t>& parts)
      : facts_(facts),
        order_(order),
        parts_(parts),
        last_use_(parts.size(), -1),
        next_dying_(parts.size(), -1),
        first_dying_(order.size(), -1),
        alive_(parts.size(), false) {
    for (int t = 0; t < static_cast<int>(order.size()); ++t) {
      for (const int input : facts.inputs(order[t])) {
        last_use_[facts.storage[input]] = t;
      }
      last_use_[facts.storage[order[t]]] = t;
    }
  }

  // A position of the order, -1 for none.
  int last_use(int node) const { return last_use_[facts_.storage[node]]; }

  void live_until(int node, int time) { last_use_[facts_.storage[node]] = time; }
  void live_to_the_end(int node) { live_until(node, kEnd); }

  // The node's storage lives from now on, if the program uses it.
  void make(int node) {
    const int base = facts_.storage[node];
    const int last_use = last_use_[base];
    if (alive_[base] || last_use < 0 || parts_[base] == kUncounted) return;
    alive_[base] = true;
    add(base, facts_.bytes[base]);
    if (last_use == kEnd) return;
    next_dying_[base] = first_dying_[last_use];
    first_dying_[last_use] = base;
  }

  // Calls `before` ahead of every operator, with its position, and `visit` while it runs, with the
  // operator and the bytes that live, in all and by part.
  template <typename Before, typename Visit>
  void run(Before before, Visit visit) {
    for (int t = 0; t < static_cast<int>(order_.size()); ++t) {
      const int node = order_[t];
      before(t);
      if (facts_.several[node]) {
        for (const int user : facts_.users(node)) {
          if (facts_.kernel[user] == Kernel::kItem) make(user);
        }
      }
      make(node);
      visit(node, total_, live_);
      for (int base = first_dying_[t]; base >= 0; base = next_dying_[base]) {
        add(base, -facts_.bytes[base]);
      }
    }
  }

 private:
  static constexpr int kEnd = 1 << 30;

  void add(int base, int64_t bytes) {
    live_[parts_[base]] += bytes;
    total_ += bytes;
  }

  const JointFacts& facts_;
  const std::vector<int>& order_;
  const std::vector<uint8_t>& parts_;
  std::vector<int> last_use_;     // per storage, a position of the order
  std::vector<int> next_dying_;   // per storage, the next that dies at the same time
  std::vector<int> first_dying_;  // per position of the order
  std::vector<bool> alive_;
  PartBytes live_ = {};
  int64_t total_ = 0;
};

// The nodes of the forward graph: what its outputs and the kept values need. Those alone run again.
std::vector<int> forward_order(const JointFacts& facts, Peak& peak) {
  std::vector<bool> needed = facts.required;
  for (const int node : peak.saved) needed[node] = true;
  std::vector<int> order;
  for (int i = static_cast<int>(needed.size()) - 1; i >= 0; --i) {
    if (!needed[i] || facts.phase[i] != Phase::kForward) continue;
    order.push_back(i);
    for (const int input : facts.inputs(i)) needed[input] = true;
  }
  std::reverse(order.begin(), order.end());
  std::erase_if(peak.recomputed, [&](int node) { return !needed[node]; });
  return order;
}

// The nodes of the backward graph in the order in which they run; fills in what is kept for them
// and what else of the forward they need.
std::vector<int> backward_order(const JointFacts& facts, const std::vector<Action>& actions,
                                Peak& peak) {
  const int count = static_cast<int>(actions.size());
  std::vector<bool> needed(count, false);
  const auto& outputs = facts.graph.nodes.back().inputs;
  for (size_t k = static_cast<size_t>(facts.graph.forward_outputs); k < outputs.size(); ++k) {
    if (outputs[k] >= 0) needed[outputs[k]] = true;
  }
  for (int i = count - 1; i >= 0; --i) {
    if (!needed[i] || facts.phase[i] == Phase::kInput) continue;
    if (facts.phase[i] == Phase::kForward && is_kept(actions[i])) {
      peak.saved.push_back(i);
      continue;
    }
    if (facts.phase[i] == Phase::kForward) peak.recomputed.push_back(i);
    for (const int input : facts.inputs(i)) needed[input] = true;
  }
  int first = count;
  for (const int tangent : facts.tangents) {
    for (const int user : facts.users(tangent)) {
      if (needed[user]) first = std::min(first, user);
    }
  }
  std::reverse(peak.saved.begin(), peak.saved.end());
  std::reverse(peak.recomputed.begin(), peak.recomputed.end());

  std::vector<bool> done(count, false);
  for (const int node : peak.saved) done[node] = true;
  std::vector<int> order;
  order.reserve(count);
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
      for (const int input : facts.inputs(node)) {
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

// Per segment the position at which the backward comes to it: where something of it runs again or
// is read that only it reads in the forward. Segments without anything have that of the one before.
std::vector<int> backward_begins(const JointFacts& facts, const Segments& segments,
                                 const Offloading& offloading, const std::vector<int>& order) {
  const int end = static_cast<int>(order.size());
  std::vector<int> begins(segments.begin.size(), end);
  for (int t = end - 1; t >= 0; --t) {
    const auto mark = [&](int node) {
      const int segment = segments.of[node];
      if (segment >= 0 && offloading.last_reader[node] == segment) begins[segment] = t;
    };
    mark(order[t]);
    for (const int input : facts.inputs(order[t])) mark(input);
  }
  for (size_t s = 1; s < begins.size(); ++s) {
    if (begins[s] == end) begins[s] = begins[s - 1];
  }
  for (size_t s = begins.size() - 1; s > 0; --s) begins[s - 1] = std::max(begins[s - 1], begins[s]);
  return begins;
}

class Simulation {
 public:
  Simulation(const JointFacts& facts, const Segments& segments, const Offloading& offloading,
             const std::vector<Action>& actions)
      : facts_(facts),
        nodes_(facts.graph.nodes),
        segments_(segments),
        offloading_(offloading),
        backward_(backward_order(facts, actions, peak_)),
        forward_(forward_order(facts, peak_)),
        parts_(nodes_.size()) {
    choose_offloaded(actions);
  }

  Peak run() {
    run_forward();
    run_backward();
    return std::move(peak_);
  }

 private:
  void choose_offloaded(const std::vector<Action>& actions) {
    std::vector<int> times_kept(nodes_.size(), 0);
    for (const int node : peak_.saved) ++times_kept[facts_.storage[node]];
    for (const int node : peak_.saved) {
      const int base = facts_.storage[node];
      const bool leaves = actions[node] == Action::kOffload && offloading_.possible[node];
      if (leaves && times_kept[base] == 1) {
        peak_.offloaded.push_back({.node = node});
        peak_.offloaded_bytes += facts_.bytes[base];
      } else if (times_kept[base] > 0) {
        peak_.kept_bytes += facts_.bytes[base];
      }
      times_kept[base] = 0;
    }
  }

  void set_part(int node, Part part) { parts_[facts_.storage[node]] = static_cast<uint8_t>(part); }

  // Of what the forward's operators make. `passing`: what is neither kept nor returned.
  void set_parts_of_forward(Part passing) {
    const int tail = segments_.has_tail ? segments_.count() - 1 : -1;
    std::fill(parts_.begin(), parts_.end(), kUncounted);
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (facts_.phase[facts_.storage[i]] == Phase::kForward) set_part(i, passing);
    }
    for (const int node : peak_.saved) set_part(node, Part::kKept);
    for (const Absence& absence : peak_.offloaded) set_part(absence.node, Part::kOffloaded);
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      if (segments_.of[i] >= 0 && segments_.of[i] == tail && facts_.storage[i] == i) {
        set_part(i, Part::kTail);
      }
    }
    for (int k = 0; k < facts_.graph.forward_outputs; ++k) {
      const int output = nodes_.back().inputs[k];
      if (output >= 0 && facts_.phase[facts_.storage[output]] == Phase::kForward) {
        set_part(output, Part::kOutputs);
      }
    }
  }

  void run_forward() {
    set_parts_of_forward(Part::kForward);
    Memory memory(facts_, forward_, parts_);
    for (int k = 0; k < facts_.graph.forward_outputs; ++k) {
      if (nodes_.back().inputs[k] >= 0) memory.live_to_the_end(nodes_.back().inputs[k]);
    }
    for (const int node : peak_.saved) memory.live_to_the_end(node);
    std::vector<int> ends(segments_.begin.size(), 0);
    for (int t = 0; t < static_cast<int>(forward_.size()); ++t) {
      ends[segments_.of[forward_[t]]] = t;
    }
    for (Absence& absence : peak_.offloaded) {
      const int time = ends[offloading_.last_reader[absence.node]];
      memory.live_until(absence.node, time);
      absence.freed_after = forward_[time];
    }
    memory.run([](int) {}, [this](int node, int64_t bytes,
                                  const PartBytes& parts) { consider(node, bytes, parts, false); });
  }

  void run_backward() {
    const std::vector<int> begins = backward_begins(facts_, segments_, offloading_, backward_);
    set_parts_of_forward(Part::kRecomputed);
    Memory memory(facts_, backward_, parts_);
    set_parts_of_backward(memory, begins);

    std::vector<bool> away(nodes_.size(), false);
    for (const Absence& absence : peak_.offloaded) away[absence.node] = true;
    for (const int node : peak_.saved) {
      if (!away[node]) memory.make(node);
    }
    for (const int node : facts_.tangents) memory.make(node);
    const std::vector<std::pair<int, int>> fetches = find_fetches(begins);
    size_t next = 0;
    memory.run(
        [&](int time) {
          for (; next < fetches.size() && fetches[next].first <= time; ++next) {
            memory.make(fetches[next].second);
          }
        },
        [this](int node, int64_t bytes, const PartBytes& parts) {
          consider(node, bytes, parts, true);
        });
  }

  // What lives only before the backward has come to the last block is the tail's.
  void set_parts_of_backward(const Memory& memory, const std::vector<int>& begins) {
    const size_t count = begins.size();
    const int tail_end = segments_.has_tail && count > 1 ? begins[count - 2] : 0;
    for (int t = 0; t < static_cast<int>(backward_.size()); ++t) {
      const int base = facts_.storage[backward_[t]];
      if (!facts_.for_backward(base)) continue;
      set_part(base, memory.last_use(base) < tail_end ? Part::kTail : Part::kGradients);
    }
    for (const int node : facts_.tangents) {
      set_part(node, memory.last_use(node) < tail_end ? Part::kTail : Part::kGradients);
    }
    const auto& outputs = nodes_.back().inputs;
    for (size_t k = static_cast<size_t>(facts_.graph.forward_outputs); k < outputs.size(); ++k) {
      if (outputs[k] >= 0) parts_[facts_.storage[outputs[k]]] = kUncounted;
    }
  }

  // Positions of the backward and what is copied back before them, in order.
  std::vector<std::pair<int, int>> find_fetches(const std::vector<int>& begins) {
    if (peak_.offloaded.empty()) return {};
    std::vector<int> first_use(nodes_.size(), static_cast<int>(backward_.size()));
    for (int t = static_cast<int>(backward_.size()) - 1; t >= 0; --t) {
      for (const int input : facts_.inputs(backward_[t])) first_use[facts_.storage[input]] = t;
    }
    std::vector<std::pair<int, int>> fetches;
    for (Absence& absence : peak_.offloaded) {
      const int earlier = begins[offloading_.last_reader[absence.node] + 1];
      const int time = std::min(earlier, first_use[facts_.storage[absence.node]]);
      absence.fetched_before = backward_[time];
      fetches.emplace_back(time, absence.node);
    }
    std::sort(fetches.begin(), fetches.end());
    return fetches;
  }

  void consider(int node, int64_t bytes, const PartBytes& parts, bool in_backward) {
    if (bytes <= peak_.peak_bytes) return;
    peak_.peak_bytes = bytes;
    peak_.parts = parts;
    peak_.at = node;
    peak_.in_backward = in_backward;
  }

  const JointFacts& facts_;
  const std::vector<JointNode>& nodes_;
  const Segments& segments_;
  const Offloading& offloading_;
  Peak peak_;
  const std::vector<int> backward_;
  const std::vector<int> forward_;
  std::vector<uint8_t> parts_;  // per storage
};

}  // namespace

Peak simulate(const JointFacts& facts, const Segments& segments, const Offloading& offloading,
              const std::vector<Action>& actions) {
  return Simulation(facts, segments, offloading, actions).run();
}

}  // namespace autosp
