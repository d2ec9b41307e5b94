// Writes a graph node by node, keeping names unique; how every rewriting pass makes its result.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/graph.h"

namespace autosp {

class GraphBuilder {
 public:
  // The new graph takes over hints and subgraphs of `from`. Names of `from` stay reserved for
  // copies.
  explicit GraphBuilder(const Graph& from);

  // Appends a copy of `node` (of the old graph, or a changed copy of it) whose values are given as
  // old ids and are mapped, and maps `node.id` to it. The first copy keeps the name.
  NodeId copy(const Node& node);
  // Appends a node of the old graph whose values are new ids already. It keeps its name where that
  // is free.
  NodeId add(Node node);
  // Appends a call made by the engine; its values are new ids. `near` (a node of the old graph, or
  // nullptr) gives name stem, source and region.
  NodeId call(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type,
              const Node* near);
  NodeId call(std::string target, std::vector<Arg> args, Type type, const Node* near) {
    return call(std::move(target), std::move(args), {}, std::move(type), near);
  }

  // Appends an input of the engine's own.
  NodeId input(std::string name, InputKind kind, Type type);

  // Old value -> new value. Reading an unmapped value is an internal error.
  void map(NodeId old_value, NodeId new_value);
  bool is_mapped(NodeId old_value) const;
  NodeId mapped(NodeId old_value) const;
  Arg mapped(const Arg& arg) const;

  const Graph& graph() const { return graph_; }
  Graph& graph() { return graph_; }
  // Maps the old outputs and returns the finished graph.
  Graph finish(const std::vector<Arg>& old_outputs);

 private:
  NodeId append(Node node);
  std::string unique_name(std::string_view stem);

  Graph graph_;
  std::vector<NodeId> map_;
  std::unordered_set<std::string> names_;     // taken or reserved
  std::unordered_set<std::string> reserved_;  // names of old nodes that were not copied yet
  std::unordered_map<std::string, int> next_suffix_;
};

// Removes calls whose value nobody uses, except those that act by being called (grad mode,
// autocast, …). `is_effect(node)` says which. Returns true when something was removed. Linear.
bool remove_dead_code(Graph& graph, bool (*is_effect)(const Node&));

}  // namespace autosp
