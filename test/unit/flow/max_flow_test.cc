#include "flow/max_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace autosp {
namespace {

constexpr std::int64_t kInfinite = FlowNetwork::kInfinite;

struct Edge {
  int from, to;
  std::int64_t capacity, reverse_capacity;
};

struct Graph {
  int nodes;
  std::vector<Edge> edges;

  FlowNetwork network() const {
    FlowNetwork result;
    result.add_nodes(nodes);
    for (const Edge& e : edges) result.add_edge(e.from, e.to, e.capacity, e.reverse_capacity);
    return result;
  }
};

// Edmonds and Karp's algorithm on a capacity matrix: the reference.
struct Reference {
  bool infinite = false;
  std::int64_t value = 0;
  std::vector<bool> source_side;
};

Reference edmonds_karp(const Graph& graph, int source, int sink) {
  // Far above every finite cut of the test graphs.
  constexpr std::int64_t kHuge = std::int64_t{1} << 58;
  std::vector<std::vector<std::int64_t>> residual(graph.nodes,
                                                  std::vector<std::int64_t>(graph.nodes, 0));
  for (const Edge& e : graph.edges) {
    for (const auto& [u, v, c] :
         {std::tuple(e.from, e.to, e.capacity), std::tuple(e.to, e.from, e.reverse_capacity)}) {
      residual[u][v] = std::min(kHuge, residual[u][v] + std::min(c, kHuge));
    }
  }
  Reference result;
  for (;;) {
    std::vector<int> parent(graph.nodes, -1);
    std::vector<int> queue = {source};
    parent[source] = source;
    for (std::size_t i = 0; i < queue.size(); ++i) {
      for (int v = 0; v < graph.nodes; ++v) {
        if (parent[v] < 0 && residual[queue[i]][v] > 0) {
          parent[v] = queue[i];
          queue.push_back(v);
        }
      }
    }
    if (parent[sink] < 0) {
      for (const int p : parent) result.source_side.push_back(p >= 0);
      return result;
    }
    std::int64_t amount = std::numeric_limits<std::int64_t>::max();
    for (int v = sink; v != source; v = parent[v]) {
      amount = std::min(amount, residual[parent[v]][v]);
    }
    for (int v = sink; v != source; v = parent[v]) {
      residual[parent[v]][v] -= amount;
      residual[v][parent[v]] += amount;
    }
    result.value += amount;
    if (result.value >= kHuge) {
      result.infinite = true;
      return result;
    }
  }
}

Graph random_graph(std::mt19937& random) {
  const auto pick = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Graph graph{pick(0, 9) == 0 ? pick(15, 60) : pick(2, 14), {}};
  const int edges = pick(0, 4 * graph.nodes);
  const int capacity_bits = pick(0, 3) == 0 ? 50 : pick(0, 4);
  const int infinite_percent = pick(0, 1) * pick(0, 30);
  const auto capacity = [&]() -> std::int64_t {
    if (pick(0, 99) < infinite_percent) return kInfinite;
    return std::uniform_int_distribution<std::int64_t>(0, std::int64_t{1} << capacity_bits)(random);
  };
  for (int i = 0; i < edges; ++i) {
    graph.edges.push_back({pick(0, graph.nodes - 1), pick(0, graph.nodes - 1), capacity(),
                           pick(0, 3) == 0 ? capacity() : 0});
  }
  return graph;
}

// The value recomputed from the sides.
std::int64_t crossing_capacity(const Graph& graph, const std::vector<bool>& source_side) {
  std::int64_t sum = 0;
  for (const Edge& e : graph.edges) {
    if (source_side[e.from] && !source_side[e.to]) sum += e.capacity;
    if (source_side[e.to] && !source_side[e.from]) sum += e.reverse_capacity;
  }
  return sum;
}

// Walks the path; every edge must be infinite in the direction in which it is taken.
void expect_infinite_path(const Graph& graph, int source, int sink, const std::vector<int>& path) {
  int node = source;
  for (const int id : path) {
    const Edge& e = graph.edges.at(id);
    ASSERT_TRUE((e.from == node && e.capacity == kInfinite) ||
                (e.to == node && e.reverse_capacity == kInfinite));
    node = e.from == node && e.capacity == kInfinite ? e.to : e.from;
  }
  ASSERT_EQ(node, sink);
}

TEST(MaxFlow, AgreesWithEdmondsKarpOnRandomGraphs) {
  std::mt19937 random(7);
  int finite = 0;
  int infinite = 0;
  for (int round = 0; round < 10000; ++round) {
    const Graph graph = random_graph(random);
    const int source = static_cast<int>(random() % graph.nodes);
    const int sink = (source + 1 + static_cast<int>(random() % (graph.nodes - 1))) % graph.nodes;
    const Reference expected = edmonds_karp(graph, source, sink);
    const MinCut cut = graph.network().minimum_cut(source, sink);
    if (expected.infinite) {
      ++infinite;
      ASSERT_EQ(cut.value, kInfinite);
      ASSERT_TRUE(cut.source_side.empty());
      expect_infinite_path(graph, source, sink, cut.infinite_path);
      continue;
    }
    finite += expected.value > 0 ? 1 : 0;
    ASSERT_EQ(cut.value, expected.value) << "round " << round;
    ASSERT_EQ(cut.source_side, expected.source_side) << "round " << round;
    ASSERT_EQ(crossing_capacity(graph, cut.source_side), cut.value);
    ASSERT_TRUE(cut.infinite_path.empty());
  }
  EXPECT_GT(finite, 3000);
  EXPECT_GT(infinite, 250);
}

TEST(MaxFlow, OrderOfEdgesDoesNotMatter) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    Graph graph = random_graph(random);
    const MinCut first = graph.network().minimum_cut(0, graph.nodes - 1);
    const MinCut again = graph.network().minimum_cut(0, graph.nodes - 1);
    EXPECT_EQ(first.infinite_path, again.infinite_path);
    std::shuffle(graph.edges.begin(), graph.edges.end(), random);
    const MinCut shuffled = graph.network().minimum_cut(0, graph.nodes - 1);
    EXPECT_EQ(first.value, shuffled.value);
    EXPECT_EQ(first.source_side, shuffled.source_side);
    EXPECT_EQ(first.infinite_path.size(), shuffled.infinite_path.size());
  }
}

TEST(MaxFlow, OfEqualCutsTheOneAtTheSourceIsTaken) {
  FlowNetwork network;
  network.add_nodes(5);
  for (int v = 0; v < 4; ++v) network.add_edge(v, v + 1, v == 1 ? 9 : 4);
  const MinCut cut = network.minimum_cut(0, 4);
  EXPECT_EQ(cut.value, 4);
  EXPECT_EQ(cut.source_side, (std::vector<bool>{true, false, false, false, false}));
}

TEST(MaxFlow, DisconnectedNodesCostNothing) {
  FlowNetwork network;
  network.add_nodes(4);
  network.add_edge(0, 1, kInfinite);
  network.add_edge(2, 3, kInfinite);
  const MinCut cut = network.minimum_cut(0, 3);
  EXPECT_EQ(cut.value, 0);
  EXPECT_EQ(cut.source_side, (std::vector<bool>{true, true, false, false}));
}

TEST(MaxFlow, ParallelEdgesAddUpAndLoopsDoNothing) {
  FlowNetwork network;
  const int a = network.add_node();
  const int b = network.add_node();
  EXPECT_EQ(network.add_edge(a, b, 3), 0);
  EXPECT_EQ(network.add_edge(a, b, 4), 1);
  network.add_edge(b, a, 100, 5);
  network.add_edge(a, a, kInfinite);
  EXPECT_EQ(network.minimum_cut(a, b).value, 12);
  EXPECT_EQ(network.minimum_cut(b, a).value, 100);
}

TEST(MaxFlow, InfinitePathIsTheShortestOne) {
  FlowNetwork network;
  network.add_nodes(5);
  network.add_edge(0, 1, kInfinite);     // 0
  network.add_edge(1, 2, kInfinite);     // 1
  network.add_edge(2, 4, kInfinite);     // 2
  network.add_edge(3, 0, 1, kInfinite);  // 3: 0 -> 3 against the edge
  network.add_edge(3, 4, kInfinite);     // 4
  network.add_edge(0, 4, FlowNetwork::kMaxCapacity);
  const MinCut cut = network.minimum_cut(0, 4);
  EXPECT_EQ(cut.value, kInfinite);
  EXPECT_EQ(cut.infinite_path, (std::vector<int>{3, 4}));
}

TEST(MaxFlow, ManyInfiniteEdgesAroundAFiniteCut) {
  // Their sum is far beyond 64 bits.
  FlowNetwork network;
  const int source = network.add_node();
  const int sink = network.add_node();
  for (int i = 0; i < 1000; ++i) {
    const int middle = network.add_nodes(2);
    network.add_edge(source, middle, kInfinite);
    network.add_edge(middle, middle + 1, std::int64_t{1} << 50, kInfinite);
    network.add_edge(middle + 1, sink, kInfinite);
  }
  EXPECT_EQ(network.minimum_cut(source, sink).value, 1000 * (std::int64_t{1} << 50));
}

TEST(MaxFlow, WrongInputIsRefused) {
  FlowNetwork network;
  network.add_nodes(2);
  EXPECT_THROW(network.add_nodes(-1), std::invalid_argument);
  EXPECT_THROW(network.add_edge(0, 2, 1), std::invalid_argument);
  EXPECT_THROW(network.add_edge(-1, 1, 1), std::invalid_argument);
  EXPECT_THROW(network.add_edge(0, 1, -1), std::invalid_argument);
  EXPECT_THROW(network.add_edge(0, 1, 1, kInfinite - 1), std::invalid_argument);
  EXPECT_THROW(network.minimum_cut(0, 0), std::invalid_argument);
  EXPECT_THROW(network.minimum_cut(0, 7), std::invalid_argument);
  network.add_edge(0, 1, FlowNetwork::kMaxCapacity);
  EXPECT_EQ(network.minimum_cut(0, 1).value, FlowNetwork::kMaxCapacity);
  network.add_edge(0, 1, 1);
  EXPECT_THROW(network.minimum_cut(0, 1), std::overflow_error);
}

// 5,000 layers of 20 nodes, each with four edges to the next layer; layer 3,000 is narrow.
TEST(MaxFlow, LongLayeredGraphIsCutAtItsNarrowLayer) {
  constexpr int kWidth = 20;
  constexpr int kLayers = 5000;
  constexpr int kNarrow = 3000;
  std::mt19937 random(3);
  Graph graph{kWidth * kLayers + 2, {}};
  const int source = kWidth * kLayers;
  const int sink = source + 1;
  std::int64_t narrow_capacity = 0;
  for (int layer = 0; layer + 1 < kLayers; ++layer) {
    for (int i = 0; i < kWidth; ++i) {
      for (int k = 0; k < 4; ++k) {
        const std::int64_t wide = (1 << 20) + static_cast<std::int64_t>(random() % 1000000);
        const std::int64_t capacity = layer == kNarrow ? 1 + wide % 100 : wide;
        if (layer == kNarrow) narrow_capacity += capacity;
        // The first edge keeps every node on a path from the source to the sink.
        const int next = k == 0 ? i : static_cast<int>(random() % kWidth);
        graph.edges.push_back({layer * kWidth + i, (layer + 1) * kWidth + next, capacity, 0});
      }
    }
  }
  for (int i = 0; i < kWidth; ++i) {
    graph.edges.push_back({source, i, kInfinite, 0});
    graph.edges.push_back({(kLayers - 1) * kWidth + i, sink, kInfinite, 0});
  }
  const MinCut cut = graph.network().minimum_cut(source, sink);
  EXPECT_EQ(cut.value, narrow_capacity);
  ASSERT_EQ(crossing_capacity(graph, cut.source_side), cut.value);
  for (int v = 0; v < kWidth * kLayers; ++v) {
    ASSERT_EQ(cut.source_side[v], v / kWidth <= kNarrow) << v;
  }
}

}  // namespace
}  // namespace autosp
