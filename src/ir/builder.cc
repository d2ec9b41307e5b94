#include "ir/builder.h"

#include "support/error.h"

namespace autosp {
namespace {

// "view_3" -> "view": numbers are given anew, or they would pile up pass after pass.
std::string_view without_suffix(std::string_view name) {
  const size_t end = name.find_last_not_of("0123456789");
  if (end == std::string_view::npos || end == 0 || end + 1 == name.size() || name[end] != '_') {
    return name;
  }
  return name.substr(0, end);
}

std::string_view last_component(std::string_view target) {
  const size_t dot = target.rfind('.');
  return dot == std::string_view::npos ? target : target.substr(dot + 1);
}

template <class Map>
void replace_values(Arg& arg, Map&& map) {
  if (arg.is_value()) arg.value = map(arg.value);
  for (Arg& item : arg.items) replace_values(item, map);
}

template <class Map>
void replace_operands(Node& node, Map&& map) {
  for (Arg& arg : node.args) replace_values(arg, map);
  for (auto& [key, arg] : node.kwargs) replace_values(arg, map);
}

}  // namespace

GraphBuilder::GraphBuilder(const Graph& from) : map_(from.nodes.size(), kNoNode) {
  graph_.hints = from.hints;
  graph_.definitions = from.definitions;
  graph_.subgraphs = from.subgraphs;
  graph_.nodes.reserve(from.nodes.size());
  for (const Node& node : from.nodes) {
    names_.insert(node.name);
    reserved_.insert(node.name);
  }
}

NodeId GraphBuilder::append(Node node) {
  const NodeId id = graph_.size();
  node.id = id;
  graph_.nodes.push_back(std::move(node));
  return id;
}

NodeId GraphBuilder::copy(const Node& node) {
  Node result = node;
  replace_operands(result, [&](NodeId value) { return mapped(value); });
  const NodeId id = add(std::move(result));
  map(node.id, id);
  return id;
}

NodeId GraphBuilder::add(Node node) {
  if (reserved_.erase(node.name) == 0) node.name = unique_name(node.name);
  return append(std::move(node));
}

NodeId GraphBuilder::call(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type,
                          const Node* near) {
  Node node;
  node.name = unique_name(near != nullptr ? std::string_view(near->name) : last_component(target));
  node.target = std::move(target);
  node.args = std::move(args);
  node.kwargs = std::move(kwargs);
  node.type = std::move(type);
  if (near != nullptr) {
    node.source = near->source;
    node.checkpoint = near->checkpoint;
  }
  return append(std::move(node));
}

NodeId GraphBuilder::input(std::string name, InputKind kind, Type type) {
  Node node;
  node.kind = NodeKind::kInput;
  node.input = kind;
  node.name = unique_name(name);
  node.target = std::move(name);
  node.type = std::move(type);
  return append(std::move(node));
}

void GraphBuilder::map(NodeId old_value, NodeId new_value) {
  const size_t index = static_cast<size_t>(old_value);
  ensure(index < map_.size(), "a rewriting pass maps a value that the old graph does not have");
  map_[index] = new_value;
}

bool GraphBuilder::is_mapped(NodeId old_value) const {
  const size_t index = static_cast<size_t>(old_value);
  return index < map_.size() && map_[index] != kNoNode;
}

NodeId GraphBuilder::mapped(NodeId old_value) const {
  ensure(is_mapped(old_value), "a rewriting pass reads a value that it has not written");
  return map_[static_cast<size_t>(old_value)];
}

Arg GraphBuilder::mapped(const Arg& arg) const {
  Arg result = arg;
  replace_values(result, [&](NodeId value) { return mapped(value); });
  return result;
}

Graph GraphBuilder::finish(const std::vector<Arg>& old_outputs) {
  graph_.outputs.clear();
  for (const Arg& output : old_outputs) graph_.outputs.push_back(mapped(output));
  return std::move(graph_);
}

std::string GraphBuilder::unique_name(std::string_view stem) {
  std::string base(without_suffix(stem));
  if (names_.insert(base).second) return base;
  int& suffix = next_suffix_[base];
  for (;;) {
    std::string name = base + "_" + std::to_string(++suffix);
    if (names_.insert(name).second) return name;
  }
}

bool remove_dead_code(Graph& graph, bool (*is_effect)(const Node&)) {
  std::vector<bool> live(graph.nodes.size(), false);
  const auto mark = [&](NodeId value) { live[static_cast<size_t>(value)] = true; };
  for (const Arg& output : graph.outputs) for_each_value(output, mark);
  for (size_t i = graph.nodes.size(); i-- > 0;) {
    const Node& node = graph.nodes[i];
    if (node.kind == NodeKind::kInput || is_effect(node)) live[i] = true;
    if (live[i]) for_each_operand(node, mark);
  }

  std::vector<NodeId> new_id(graph.nodes.size(), kNoNode);
  size_t count = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (!live[i]) continue;
    new_id[i] = static_cast<NodeId>(count);
    Node& node = graph.nodes[i];
    node.id = new_id[i];
    replace_operands(node, [&](NodeId value) { return new_id[static_cast<size_t>(value)]; });
    if (count != i) graph.nodes[count] = std::move(node);
    ++count;
  }
  if (count == graph.nodes.size()) return false;
  graph.nodes.resize(count);
  for (Arg& output : graph.outputs) {
    replace_values(output, [&](NodeId value) { return new_id[static_cast<size_t>(value)]; });
  }
  return true;
}

}  // namespace autosp
