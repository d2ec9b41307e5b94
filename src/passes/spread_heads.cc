#include "passes/spread_heads.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "ir/builder.h"
#include "ops/op.h"

namespace autosp {
namespace {

// Keys or values before their heads were repeated.
struct Heads {
  NodeId value = kNoNode;
  int64_t count = 0;
};

class Spreader {
 public:
  Spreader(const Graph& graph, const Axes& axes, int64_t ranks)
      : graph_(graph), axes_(axes), ranks_(ranks), builder_(graph) {}

  void copy(const Node& node) { builder_.copy(node); }

  // Whether the attention was written anew. `head`: the leaf that it is cut along so far, or -1.
  bool spread(const Node& node, const Call& call, FactorId head) {
    const Heads key = before_repeating(call.value("key"));
    const Heads value = before_repeating(call.value("value"));
    const std::optional<int64_t> queries = head_count(graph_.node(call.value("query")).type);
    if (!queries || key.count < 1 || key.count != value.count) return false;
    if (head >= 0 && (key.count == 1 || has_heads(key.value, head))) return false;
    const int64_t count = std::lcm(key.count, ranks_);
    if (count == key.count || *queries % count != 0) return false;
    std::vector<Arg> args = {builder_.mapped(*call.find("query"))};
    for (const Heads& heads : {key, value}) args.push_back(Arg::of(copies(heads, count, node)));
    Kwargs kwargs;
    if (call.op().scores) {  // groups heads by their numbers
      for (size_t i = args.size(); i < node.args.size(); ++i)
        args.push_back(builder_.mapped(node.args[i]));
    } else {
      kwargs.emplace_back("is_causal", Arg::bool_of(true));
      if (call.has("scale")) kwargs.emplace_back("scale", builder_.mapped(*call.find("scale")));
      if (count != *queries) kwargs.emplace_back("enable_gqa", Arg::bool_of(true));
    }
    builder_.map(node.id,
                 builder_.call(node.target, std::move(args), std::move(kwargs), node.type, &node));
    return true;
  }

  Graph finish() { return builder_.finish(graph_.outputs); }

 private:
  bool has_heads(NodeId value, FactorId head) const {
    const std::vector<FactorList> dims = axes_.value_leaves(value, 0);
    return std::any_of(dims.begin(), dims.end(), [head](const FactorList& dim) {
      return std::find(dim.begin(), dim.end(), head) != dim.end();
    });
  }

  static std::optional<int64_t> head_count(const Type& type) {
    if (!type.is_tensor() || type.shape.size() < 4) return std::nullopt;
    return type.shape[type.shape.size() - 3].as_constant();
  }

  // Goes up through what only moves elements, to the fewest heads of which those of the operand are
  // copies, each beside the next.
  Heads before_repeating(NodeId operand) const {
    Heads best{operand, head_count(graph_.node(operand).type).value_or(0)};
    const std::vector<FactorList> repeated = axes_.value_leaves(operand, 0);
    for (NodeId node = operand; moves_elements(node);) {
      node = axes_.application(node).operands[0].value;
      const std::optional<int64_t> count = head_count(graph_.node(node).type);
      if (count && *count < best.count && is_repeated(axes_.value_leaves(node, 0), repeated))
        best = {node, *count};
    }
    return best;
  }

  bool moves_elements(NodeId node) const {
    const OpDef* op = axes_.op(node);
    return graph_.node(node).kind == NodeKind::kCall && op != nullptr &&
           axes_.application(node).operands.size() == 1 &&
           (op->aliases || op->name == "repeat_interleave");
  }

  // Whether the second has the dimensions of the first and repeats its heads.
  static bool is_repeated(const std::vector<FactorList>& from, const std::vector<FactorList>& to) {
    if (from.size() != to.size()) return false;
    for (size_t dim = 0; dim < from.size(); ++dim) {
      const bool heads = dim + 3 == from.size();
      if (heads ? !std::equal(from[dim].begin(), from[dim].end(), to[dim].begin(),
                              to[dim].begin() + static_cast<std::ptrdiff_t>(
                                                    std::min(from[dim].size(), to[dim].size())))
                : from[dim] != to[dim])
        return false;
    }
    return true;
  }

  NodeId copies(const Heads& heads, int64_t count, const Node& near) {
    const NodeId value = builder_.mapped(heads.value);
    if (heads.count == count) return value;
    const auto [found, added] = copies_.emplace(std::pair(heads.value, count), kNoNode);
    if (!added) return found->second;
    Type type = graph_.node(heads.value).type;
    const size_t dim = type.shape.size() - 3;
    type.shape[dim] = Expr(count);
    return found->second = builder_.call("autosp.repeat_heads",
                                         {Arg::of(value), Arg::integer_of(count / heads.count),
                                          Arg::integer_of(static_cast<int64_t>(dim))},
                                         std::move(type), &near);
  }

  const Graph& graph_;
  const Axes& axes_;
  int64_t ranks_;
  GraphBuilder builder_;
  std::map<std::pair<NodeId, int64_t>, NodeId> copies_;  // (value, heads)
};

}  // namespace

bool spread_heads(Graph& graph, const Axes& axes, int ranks,
                  const std::vector<AttentionRegion>& regions) {
  std::map<NodeId, FactorId> candidates;
  for (const AttentionRegion& region : regions) {
    if (region.core.size() == 1) candidates.emplace(region.core[0], region.head);
  }
  if (candidates.empty()) return false;
  Spreader spreader(graph, axes, ranks);
  bool changes = false;
  for (const Node& node : graph.nodes) {
    const OpDef* op = candidates.contains(node.id) ? find_op(node.target) : nullptr;
    if (op != nullptr && (op->name == "sdpa" || op->scores)) {
      const Call call(graph, node, *op);
      if ((op->scores || call.boolean_or("is_causal", false)) &&
          spreader.spread(node, call, candidates.at(node.id))) {
        changes = true;
        continue;
      }
    }
    spreader.copy(node);
  }
  if (changes) graph = spreader.finish();
  return changes;
}

}  // namespace autosp
