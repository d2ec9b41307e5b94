#include "passes/check_calls.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

namespace autosp {

bool mentions_rank(const Node& node) {
  const auto in_arg = [](const Arg& arg) {
    if (arg.kind != Arg::Kind::kSize) return false;
    const std::vector<std::string> symbols = arg.size.symbols();
    return std::find(symbols.begin(), symbols.end(), kRankSymbol) != symbols.end();
  };
  return std::any_of(node.args.begin(), node.args.end(), in_arg) ||
         std::any_of(node.kwargs.begin(), node.kwargs.end(),
                     [&](const auto& pair) { return in_arg(pair.second); });
}

std::string wrong_spelled_sizes(const Axes& axes, const Node& node) {
  const Graph& graph = axes.graph();
  const OpDef* op = axes.op(node.id);
  const auto spells = [op](std::string_view word) {
    return op->signature.find(word) != std::string_view::npos;
  };
  if (op == nullptr || !node.type.is_tensor() || !(spells("size") || spells("shape"))) return {};
  const Call call(graph, node, *op);
  for (const std::string_view parameter : {"size", "shape"}) {
    const Arg* given = call.find(parameter);
    if (given == nullptr) continue;
    const std::vector<Arg>& items = given->items.size() == 1 && !given->items[0].items.empty()
                                        ? given->items[0].items
                                        : given->items;
    if (items.size() != node.type.shape.size()) continue;
    for (size_t dim = 0; dim < items.size(); ++dim) {
      if (!items[dim].is_integral() || items[dim].as_expr() == Expr(-1)) continue;
      if (graph.hint(items[dim].as_expr()) != graph.hint(node.type.shape[dim])) {
        return "is told to give " + items[dim].as_expr().to_string() + " in dimension " +
               std::to_string(dim) + ", which has " + node.type.shape[dim].to_string();
      }
    }
  }
  return {};
}

std::string wrong_sorted_mask(const Axes& axes, const Node& node, const std::string& part) {
  const NodeId x = node.args.at(0).value;
  if (node.type.shape != axes.graph().node(x).type.shape) return "changes its operand's shape";
  const FactorList rows = axes.value_leaves(x, 0).at(static_cast<size_t>(node.args[2].integer));
  const std::optional<Axes::Order> order = rows.size() == 1 ? axes.order_of(rows[0]) : std::nullopt;
  if (!order) return "masks rows that are not sorted tokens";
  if (!axes.is_order(node.args[1].value, *order)) return "takes other positions than its rows'";
  // [.., part, inner], however the two are made up.
  Expr inner = axes.factors().size(order->rows[order->tokens]);
  for (size_t i = order->tokens + 1; i < order->rows.size(); ++i)
    inner *= axes.factors().size(order->rows[i]);
  if (node.args[3].as_expr() * node.args[4].as_expr() != inner ||
      !divide_exact(node.args[4].as_expr(), Expr::symbol(part)))
    return "takes the tokens for another dimension";
  if (node.args[7].as_expr() != Expr::symbol(kRankSymbol)) return "masks another rank's rows";
  return {};
}

bool may_be_singular(const Axes& axes, const Node& node, const Operand& operand) {
  const OpDef* op = axes.op(node.id);
  if (op == nullptr || op->singular == nullptr) return false;
  const Graph& graph = axes.graph();
  const Node* value = &graph.node(operand.value);
  while (value->target == "torch.reshape") value = &graph.node(value->args.at(0).value);
  return value->target != "autosp.edge_rows" && op->singular(Call(graph, node, *op), operand.value);
}

}  // namespace autosp
