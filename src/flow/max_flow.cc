#include "flow/max_flow.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace autosp {

namespace {

constexpr int kNone = -1;

// Larger than every accepted cut value: a cut of at most kMaxCapacity contains no infinite edge.
constexpr std::int64_t kUnbounded = FlowNetwork::kMaxCapacity + 1;

// A sum over nodes of capacities, which 64 bits may not hold.
__extension__ using Excess = __int128;

std::int64_t bounded(std::int64_t capacity) { return std::min(capacity, kUnbounded); }

// One computation of a maximum preflow from `root` to `target`.
//
// Invariants: no residual arc leads down more than one label; a label is a lower bound of the
// residual distance to the target, and node_count ("dead") once the target is out of reach.
class PushRelabel {
 public:
  struct Arc {
    int head;
    int reverse;  // the opposite arc's index
    std::int64_t residual;
  };

  // first_arc: per node, the index of its first arc; one entry more than nodes.
  PushRelabel(std::vector<int> first_arc, std::vector<Arc> arcs, int root, int target)
      : node_count_(static_cast<int>(first_arc.size()) - 1),
        root_(root),
        target_(target),
        first_arc_(std::move(first_arc)),
        arcs_(std::move(arcs)),
        current_arc_(first_arc_.begin(), first_arc_.end() - 1),
        label_(nodes(), 0),
        excess_(nodes(), 0),
        layer_(nodes(), kNone),
        next_in_layer_(nodes(), kNone),
        previous_in_layer_(nodes(), kNone),
        active_(nodes(), kNone),
        next_active_(nodes(), kNone) {
    queue_.reserve(nodes());
  }

  void run() {
    for (int a = first_arc_[root_]; a < first_arc_[root_ + 1]; ++a)
      push(root_, a, arcs_[a].residual);
    relabel_globally();
    // Cherkassky and Goldberg's constants: a global relabelling for every 2(6n + m) units of work,
    // of which a relabelling costs 12 and its arcs one each.
    const std::int64_t period = 2 * (6 * std::int64_t{node_count_} + std::ssize(arcs_) / 2);
    while (highest_active_ >= 0) {
      const int node = active_[highest_active_];
      if (node == kNone) {
        --highest_active_;
        continue;
      }
      active_[highest_active_] = next_active_[node];
      discharge(node);
      if (work_ > period) relabel_globally();
    }
  }

  Excess value() const { return excess_[target_]; }

  // The nodes from which a residual path leads to the target.
  std::vector<bool> reaching_target() {
    relabel_globally();
    std::vector<bool> result(nodes());
    for (int v = 0; v < node_count_; ++v) result[v] = label_[v] < node_count_;
    return result;
  }

 private:
  std::size_t nodes() const { return static_cast<std::size_t>(node_count_); }

  void push(int from, int a, std::int64_t amount) {
    Arc& arc = arcs_[a];
    arc.residual -= amount;
    arcs_[arc.reverse].residual += amount;
    excess_[from] -= amount;
    excess_[arc.head] += amount;
  }

  void activate(int node) {
    const int label = label_[node];
    next_active_[node] = active_[label];
    active_[label] = node;
    highest_active_ = std::max(highest_active_, label);
  }

  void enter_layer(int node) {
    const int label = label_[node];
    const int next = layer_[label];
    next_in_layer_[node] = next;
    previous_in_layer_[node] = kNone;
    if (next != kNone) previous_in_layer_[next] = node;
    layer_[label] = node;
    highest_layer_ = std::max(highest_layer_, label);
  }

  void leave_layer(int node) {
    const int next = next_in_layer_[node];
    const int previous = previous_in_layer_[node];
    if (next != kNone) previous_in_layer_[next] = previous;
    (previous != kNone ? next_in_layer_[previous] : layer_[label_[node]]) = next;
  }

  void discharge(int node) {
    for (;;) {
      const int end = first_arc_[node + 1];
      for (int& a = current_arc_[node]; a < end; ++a) {
        const Arc& arc = arcs_[a];
        if (arc.residual == 0 || label_[arc.head] + 1 != label_[node]) continue;
        if (excess_[arc.head] == 0 && arc.head != target_) activate(arc.head);
        push(node, a, static_cast<std::int64_t>(std::min<Excess>(arc.residual, excess_[node])));
        if (excess_[node] == 0) return;
      }
      if (!relabel(node)) return;
    }
  }

  // Raises the label of a node without admissible arcs; false when the target is out of its reach.
  bool relabel(int node) {
    const int old_label = label_[node];
    leave_layer(node);
    if (layer_[old_label] == kNone) {
      label_[node] = node_count_;
      bury_above(old_label);
      return false;
    }
    work_ += 12 + first_arc_[node + 1] - first_arc_[node];
    int label = node_count_;
    for (int a = first_arc_[node]; a < first_arc_[node + 1]; ++a) {
      if (arcs_[a].residual > 0 && label_[arcs_[a].head] + 1 < label) {
        label = label_[arcs_[a].head] + 1;
        current_arc_[node] = a;
      }
    }
    label_[node] = label;
    if (label == node_count_) return false;
    enter_layer(node);
    return true;
  }

  // The gap heuristic: with no node at some label, what lies above has lost the target.
  void bury_above(int empty_label) {
    for (int label = empty_label + 1; label <= highest_layer_; ++label) {
      for (int v = layer_[label]; v != kNone; v = next_in_layer_[v]) label_[v] = node_count_;
      layer_[label] = kNone;
      active_[label] = kNone;
    }
    highest_layer_ = empty_label;
    highest_active_ = std::min(highest_active_, empty_label);
  }

  // Sets all labels to the exact residual distance to the target.
  void relabel_globally() {
    work_ = 0;
    std::fill(label_.begin(), label_.end(), node_count_);
    std::fill(layer_.begin(), layer_.end(), kNone);
    std::fill(active_.begin(), active_.end(), kNone);
    highest_layer_ = highest_active_ = -1;
    queue_.assign(1, target_);
    label_[target_] = 0;
    for (std::size_t i = 0; i < queue_.size(); ++i) {
      const int node = queue_[i];
      for (int a = first_arc_[node]; a < first_arc_[node + 1]; ++a) {
        const int tail = arcs_[a].head;
        if (label_[tail] < node_count_ || tail == root_ || arcs_[arcs_[a].reverse].residual == 0) {
          continue;
        }
        label_[tail] = label_[node] + 1;
        current_arc_[tail] = first_arc_[tail];
        queue_.push_back(tail);
        enter_layer(tail);
        if (excess_[tail] > 0) activate(tail);
      }
    }
  }

  int node_count_;
  int root_;
  int target_;
  std::vector<int> first_arc_;
  std::vector<Arc> arcs_;
  std::vector<int> current_arc_;
  std::vector<int> label_;
  std::vector<Excess> excess_;
  std::vector<int> layer_;  // per label: first node of a doubly linked list
  std::vector<int> next_in_layer_;
  std::vector<int> previous_in_layer_;
  std::vector<int> active_;  // per label: first node with excess of a singly linked list
  std::vector<int> next_active_;
  std::vector<int> queue_;
  int highest_layer_ = -1;
  int highest_active_ = -1;
  std::int64_t work_ = 0;
};

}  // namespace

int FlowNetwork::add_node() { return add_nodes(1); }

int FlowNetwork::add_nodes(int count) {
  if (count < 0 || count > std::numeric_limits<int>::max() - node_count_) {
    throw std::invalid_argument("flow network: " + std::to_string(count) + " nodes to add");
  }
  return std::exchange(node_count_, node_count_ + count);
}

void FlowNetwork::check_node(int node) const {
  if (node < 0 || node >= node_count_) {
    throw std::invalid_argument("flow network: no node " + std::to_string(node));
  }
}

int FlowNetwork::add_edge(int from, int to, std::int64_t capacity, std::int64_t reverse_capacity) {
  check_node(from);
  check_node(to);
  for (const std::int64_t c : {capacity, reverse_capacity}) {
    if (c < 0 || (c > kMaxCapacity && c != kInfinite)) {
      throw std::invalid_argument("flow network: capacity " + std::to_string(c));
    }
  }
  edges_.push_back({from, to, capacity, reverse_capacity});
  return edge_count() - 1;
}

std::vector<int> FlowNetwork::infinite_path(int source, int sink) const {
  // Per node, its infinite edges in the order of their ids.
  std::vector<std::vector<int>> leaving(node_count_);
  for (int e = 0; e < edge_count(); ++e) {
    if (edges_[e].capacity == kInfinite) leaving[edges_[e].from].push_back(e);
    if (edges_[e].reverse_capacity == kInfinite) leaving[edges_[e].to].push_back(e);
  }
  const auto other_end = [this](int e, int node) { return edges_[e].from ^ edges_[e].to ^ node; };
  std::vector<int> entered_by(node_count_, kNone);
  std::vector<int> queue = {source};
  for (std::size_t i = 0; i < queue.size() && entered_by[sink] == kNone; ++i) {
    for (const int e : leaving[queue[i]]) {
      const int next = other_end(e, queue[i]);
      if (next == source || entered_by[next] != kNone) continue;
      entered_by[next] = e;
      queue.push_back(next);
    }
  }
  std::vector<int> path;
  if (entered_by[sink] == kNone) return path;
  for (int node = sink; node != source; node = other_end(entered_by[node], node)) {
    path.push_back(entered_by[node]);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

MinCut FlowNetwork::minimum_cut(int source, int sink) const {
  check_node(source);
  check_node(sink);
  if (source == sink) throw std::invalid_argument("flow network: the source is the sink");
  MinCut cut;
  cut.infinite_path = infinite_path(source, sink);
  if (!cut.infinite_path.empty()) {
    cut.value = kInfinite;
    return cut;
  }

  // All arcs reversed: flow is pushed from the sink to the source.
  std::vector<int> first_arc(node_count_ + 2, 0);
  for (const Edge& e : edges_) {
    if (e.from == e.to) continue;
    ++first_arc[e.from + 2];
    ++first_arc[e.to + 2];
  }
  for (int v = 2; v <= node_count_ + 1; ++v) first_arc[v] += first_arc[v - 1];
  std::vector<PushRelabel::Arc> arcs(first_arc.back());
  for (const Edge& e : edges_) {
    if (e.from == e.to) continue;
    const int out = first_arc[e.to + 1]++;
    const int back = first_arc[e.from + 1]++;
    arcs[out] = {e.from, back, bounded(e.capacity)};
    arcs[back] = {e.to, out, bounded(e.reverse_capacity)};
  }
  first_arc.pop_back();

  PushRelabel flow(std::move(first_arc), std::move(arcs), sink, source);
  flow.run();
  if (flow.value() > kMaxCapacity) {
    throw std::overflow_error("flow network: the minimum cut's value is too large");
  }
  cut.value = static_cast<std::int64_t>(flow.value());
  cut.source_side = flow.reaching_target();
  return cut;
}

}  // namespace autosp
