#include "passes/separate_counts.h"

#include <algorithm>
#include <map>
#include <optional>

#include "ir/builder.h"

namespace autosp {
namespace {

// From the ends of groups that a product reads to what counts, if that is what they are.
std::vector<NodeId> chain_of(const Axes& axes, const Node& node, const Operand& operand) {
  const Application& rule = axes.application(node.id);
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    for (const FactorId leaf : axes.letter_leaves(node.id, letter)) {
      std::vector<NodeId> chain;
      if (axes.is_bag(leaf) && axes.ends_of_groups(operand.value, leaf, &chain)) return chain;
    }
  }
  return {};
}

}  // namespace

bool separate_counts(Graph& graph, const Axes& axes) {
  const std::vector<std::vector<NodeId>> readers = users(graph);
  // Whether something reads the node that is neither the next of the chain nor a product.
  const auto is_shared = [&](NodeId node, NodeId next) {
    return std::any_of(readers[node].begin(), readers[node].end(), [&](NodeId reader) {
      if (reader == next) return false;
      if (next != kNoNode || reader >= graph.size()) return true;
      const std::vector<Operand>& operands = axes.application(reader).operands;
      return std::any_of(operands.begin(), operands.end(), [node](const Operand& operand) {
        return operand.value == node && !operand.partial;
      });
    });
  };
  GraphBuilder builder(graph);
  std::map<NodeId, NodeId> own;  // ends of groups -> those that only products read
  for (const Node& node : graph.nodes) {
    std::optional<std::pair<NodeId, NodeId>> replaced;
    for (const Operand& operand : axes.application(node.id).operands) {
      if (!operand.partial) continue;
      const std::vector<NodeId> chain = chain_of(axes, node, operand);
      bool shared = false;
      for (size_t i = 0; i < chain.size(); ++i)
        shared |= is_shared(chain[i], i == 0 ? kNoNode : chain[i - 1]);
      if (!shared) continue;
      replaced = {operand.value, builder.mapped(operand.value)};
      if (!own.contains(operand.value)) {
        std::map<NodeId, NodeId> before;
        for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
          before[*link] = builder.mapped(*link);
          Node copy = graph.node(*link);
          copy.origin = -1;
          own[*link] = builder.copy(copy);
        }
        for (const auto& [old, value] : before) builder.map(old, value);
      }
      builder.map(operand.value, own[operand.value]);
    }
    builder.copy(node);
    if (replaced) builder.map(replaced->first, replaced->second);
  }
  if (own.empty()) return false;
  graph = builder.finish(graph.outputs);
  return true;
}

}  // namespace autosp
