#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace autosp {

// A minimum cut, or why there is no finite one.
struct MinCut {
  // The summed capacity of the edges that leave the source side, FlowNetwork::kInfinite if every
  // cut contains an infinite edge.
  std::int64_t value = 0;

  // Per node: on the source's side. Of all minimum cuts, the one with the fewest nodes on the
  // source's side: it is unique, and its source side is a subset of every other's. Empty when
  // the value is infinite.
  std::vector<bool> source_side;

  // When the value is infinite: a shortest path of infinite edges from the source to the sink, as
  // the ids of its edges in order. Otherwise empty.
  std::vector<int> infinite_path;
};

// A directed network with capacities, for minimum cuts.
//
// Nodes and edges are numbered from 0 in the order in which they are added. Parallel edges add up;
// an edge from a node to itself has no effect. The result depends on the network alone, not on the
// order of its edges (but for the choice among shortest infinite paths: lowest edge ids first).
//
// The algorithm is the first phase of highest-label push-relabel (Goldberg and Tarjan, "A new
// approach to the maximum-flow problem", J. ACM 35(4), 1988) with the periodic global relabelling
// and the gap heuristic of Cherkassky and Goldberg ("On implementing the push-relabel method for
// the maximum flow problem", Algorithmica 19, 1997). It runs from the sink towards the source, for
// what can then still reach the source is the smallest source side. O(n^2 sqrt(m)) time in the
// worst case for n nodes and m edges (Cheriyan and Maheshwari, SIAM J. Computing 18, 1989), about
// linear on layered graphs; O(n + m) memory.
class FlowNetwork {
 public:
  static constexpr std::int64_t kInfinite = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kMaxCapacity = std::int64_t{1} << 60;

  int add_node();
  int add_nodes(int count);  // the first one's id; the others follow

  // Capacities are between 0 and kMaxCapacity, or kInfinite (std::invalid_argument otherwise, and
  // for nodes that do not exist). reverse_capacity is that from `to` to `from`.
  int add_edge(int from, int to, std::int64_t capacity, std::int64_t reverse_capacity = 0);

  int node_count() const { return node_count_; }
  int edge_count() const { return static_cast<int>(edges_.size()); }

  // source and sink are different nodes (std::invalid_argument). Throws std::overflow_error when
  // the value is finite but above kMaxCapacity.
  MinCut minimum_cut(int source, int sink) const;

 private:
  struct Edge {
    int from, to;
    std::int64_t capacity, reverse_capacity;
  };

  std::vector<int> infinite_path(int source, int sink) const;
  void check_node(int node) const;

  int node_count_ = 0;
  std::vector<Edge> edges_;
};

}  // namespace autosp
