#include "sharding/work.h"

#include <algorithm>
#include <tuple>

namespace autosp {
namespace {

double elements(const Graph& graph, const Type& type) {
  double count = type.is_tensor() ? 1 : 0;
  for (const Expr& size : type.shape) count *= static_cast<double>(graph.hint(size));
  for (const Type& element : type.elements) count += elements(graph, element);
  return count;
}

bool stands_in(const TensorLetters& letters, LetterId letter) {
  return std::any_of(letters.begin(), letters.end(), [&](const DimLetters& dim) {
    return std::find(dim.begin(), dim.end(), letter) != dim.end();
  });
}

double arithmetic(const Axes& axes, const Node& node) {
  const Graph& graph = axes.graph();
  const OpDef* op = axes.op(node.id);
  if (op != nullptr && (op->aliases || op->copies)) return 0;
  const Application& rule = axes.application(node.id);
  double count = elements(graph, node.type);
  if (op != nullptr && op->einsum) {
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      // A row of grouped products meets the matrix of its group alone.
      const bool groups =
          std::any_of(rule.operands.begin(), rule.operands.end(), [&](const Operand& operand) {
            return operand.partial && stands_in(operand.letters, letter);
          });
      if (!groups && !stands_in(rule.results[0], letter))
        count *= static_cast<double>(graph.hint(rule.letters[letter].size));
    }
    return 2 * count;
  }
  const bool attends =
      std::any_of(rule.letters.begin(), rule.letters.end(),
                  [](const Letter& letter) { return letter.kind == LetterKind::kAttend; });
  if (attends && rule.operands.size() >= 3) {
    const auto size = [&](size_t operand, size_t from_end) {
      const std::vector<Expr>& shape = graph.node(rule.operands[operand].value).type.shape;
      return static_cast<double>(graph.hint(shape[shape.size() - from_end]));
    };
    return 2 * count / size(2, 1) * size(1, 2) * (size(0, 1) + size(2, 1));
  }
  for (const Operand& operand : rule.operands)
    count = std::max(count, elements(graph, graph.node(operand.value).type));
  return count;
}

bool on_activations(const Axes& axes, NodeId node) {
  const std::vector<Operand>& operands = axes.application(node).operands;
  return std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
    return axes.facts(operand.value).activation();
  });
}

}  // namespace

std::vector<RepeatedWork> repeated_work(const Placements& placements) {
  const Axes& axes = placements.axes();
  std::vector<RepeatedWork> rows;
  double total = 0;
  for (const Node& node : axes.graph().nodes) {
    if (node.kind == NodeKind::kInput || !on_activations(axes, node.id)) continue;
    const double work = arithmetic(axes, node);
    const bool sharded = placements.node(node.id).sharded.has_value();
    total += sharded ? work / placements.ranks() : work;
    if (sharded || work == 0) continue;
    const auto same = std::find_if(rows.begin(), rows.end(), [&](const RepeatedWork& row) {
      return row.target == node.target && row.source == node.source;
    });
    if (same != rows.end()) {
      same->share += work;
    } else {
      rows.push_back({node.target, node.source, work});
    }
  }
  for (RepeatedWork& row : rows) row.share /= total;
  std::sort(rows.begin(), rows.end(), [](const RepeatedWork& left, const RepeatedWork& right) {
    return std::tie(right.share, left.target, left.source) <
           std::tie(left.share, right.target, right.source);
  });
  return rows;
}

}  // namespace autosp
