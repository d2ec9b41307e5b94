#include "passes/spell_causal.h"

#include <map>
#include <string>
#include <utility>

#include "ir/builder.h"
#include "ops/op.h"
#include "passes/count_rows.h"

namespace autosp {
namespace {

class Speller {
 public:
  explicit Speller(const Graph& graph) : builder_(graph) {}

  void copy(const Node& node) { builder_.copy(node); }

  void spell(const Node& node, const Call& call) {
    const Expr queries = length_of(call, "query");
    const Expr keys = length_of(call, "key");
    const NodeId query = builder_.mapped(call.value("query"));
    const NodeId mask = mask_of(queries, keys, query, node);
    std::vector<Arg> args;
    for (const std::string_view name : {"query", "key", "value"})
      args.push_back(builder_.mapped(*call.find(name)));
    Kwargs kwargs = {{"attn_mask", Arg::of(mask)}};
    for (const std::string_view name : {"scale", "enable_gqa"}) {
      if (call.has(name)) kwargs.emplace_back(std::string(name), builder_.mapped(*call.find(name)));
    }
    const NodeId out =
        builder_.call(node.target, std::move(args), std::move(kwargs), node.type, &node);
    builder_.map(node.id, out);
  }

  Graph finish(const Graph& graph) { return builder_.finish(graph.outputs); }

 private:
  static Expr length_of(const Call& call, std::string_view parameter) {
    const std::vector<Expr>& shape = call.tensor(parameter)->shape;
    return shape[shape.size() - 2];
  }

  NodeId mask_of(const Expr& queries, const Expr& keys, NodeId like, const Node& near) {
    const auto key = std::pair(queries.to_string(), keys.to_string());
    if (const auto found = masks_.find(key); found != masks_.end()) return found->second;
    const NodeId columns = count_rows(builder_, keys, DType::kInt64, like, near);
    const NodeId numbers = count_rows(builder_, queries, DType::kInt64, like, near);
    const NodeId rows = builder_.call("Tensor.unsqueeze", {Arg::of(numbers), Arg::integer_of(-1)},
                                      Type::tensor(DType::kInt64, {queries, Expr(1)}), &near);
    return masks_[key] = builder_.call("torch.le", {Arg::of(columns), Arg::of(rows)},
                                       Type::tensor(DType::kBool, {queries, keys}), &near);
  }

  GraphBuilder builder_;
  std::map<std::pair<std::string, std::string>, NodeId> masks_;  // (queries, keys)
};

}  // namespace

bool spell_causal(Graph& graph, const std::set<NodeId>& attentions) {
  Speller speller(graph);
  bool changes = false;
  for (const Node& node : graph.nodes) {
    const OpDef* op = attentions.contains(node.id) ? find_op(node.target) : nullptr;
    if (op != nullptr && op->name == "sdpa") {
      const Call call(graph, node, *op);
      if (call.boolean_or("is_causal", false)) {
        speller.spell(node, call);
        changes = true;
        continue;
      }
    }
    speller.copy(node);
  }
  if (changes) graph = speller.finish(graph);
  return changes;
}

}  // namespace autosp
