#include "passes/number_scores.h"

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "ops/score_bodies.h"
#include "passes/count_rows.h"

namespace autosp {
namespace {

constexpr std::string_view kNames[kNumbers] = {"batch_numbers", "head_numbers", "query_numbers"};

class Numberer {
 public:
  explicit Numberer(const Graph& graph) : graph_(graph), builder_(graph) {}

  void copy(const Node& node) { builder_.copy(node); }

  // Returns true when the call was changed.
  bool number(const Node& node, const Call& call) {
    Node changed = node;
    for (Arg& arg : changed.args) arg = builder_.mapped(arg);
    bool changes = false;
    const std::vector<Expr>& query = tensor_type(call, "query").shape;
    for (const ScoreBody& body : score_bodies(call)) {
      for (const int which : numbered(call, body)) {
        const Graph& function = *graph_.subgraphs[body.index].second;
        const DType dtype = function.node(input_at(function, body.numbers + which)).type.dtype;
        const NodeId numbers = count(query[static_cast<size_t>(which)], dtype,
                                     builder_.mapped(call.value("query")), node);
        changed.args.at(body.tensors_argument).items.push_back(Arg::of(numbers));
        changes = true;
      }
    }
    builder_.map(node.id, builder_.add(std::move(changed)));
    return changes;
  }

  Graph finish() { return builder_.finish(graph_.outputs); }

 private:
  // The numbers that a body gets a tensor for, which it reads from then on. Calls may share one.
  const std::vector<int>& numbered(const Call& call, const ScoreBody& body) {
    const auto [found, added] = numbered_.try_emplace(body.index);
    if (!added) return found->second;
    const ScoreReads reads = score_reads(call, body);
    const std::vector<Expr>& query = tensor_type(call, "query").shape;
    for (int which = 0; which < kNumbers; ++which) {
      if (which == kQueries && !has_one_row(call)) continue;
      if (!reads.looked_up[which] && query[static_cast<size_t>(which)] != Expr(1))
        found->second.push_back(which);
    }
    if (!found->second.empty()) {
      auto& function = builder_.graph().subgraphs[body.index].second;
      function = std::make_shared<Graph>(with_numbers(*function, body, found->second, query));
    }
    return found->second;
  }

  static Graph with_numbers(const Graph& function, const ScoreBody& body,
                            const std::vector<int>& which, const std::vector<Expr>& query) {
    GraphBuilder builder(function);
    for (const Node& node : function.nodes) {
      if (node.kind == NodeKind::kInput) builder.copy(node);
    }
    std::vector<NodeId> numbers;
    for (const int i : which) {
      const Type& number = function.node(input_at(function, body.numbers + i)).type;
      numbers.push_back(builder.input(std::string(kNames[i]), InputKind::kUser,
                                      Type::tensor(number.dtype, {query[static_cast<size_t>(i)]})));
    }
    for (size_t i = 0; i < which.size(); ++i) {
      const NodeId old = input_at(function, body.numbers + which[i]);
      const Node& number = function.node(old);
      builder.map(old, builder.call("_operator.getitem",
                                    {Arg::of(numbers[i]), Arg::of(builder.mapped(old))},
                                    number.type, &number));
    }
    for (const Node& node : function.nodes) {
      if (node.kind != NodeKind::kInput) builder.copy(node);
    }
    return builder.finish(function.outputs);
  }

  // 0, 1, … on the device of `like`.
  NodeId count(const Expr& length, DType dtype, NodeId like, const Node& near) {
    const auto [found, added] = counts_.try_emplace({length.to_string(), dtype}, kNoNode);
    if (!added) return found->second;
    const NodeId rows = count_rows(builder_, length, dtype, like, near);
    return found->second = builder_.call("_operator.sub", {Arg::of(rows), Arg::integer_of(1)},
                                         Type::tensor(dtype, {length}), &near);
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::map<size_t, std::vector<int>> numbered_;             // by body
  std::map<std::pair<std::string, DType>, NodeId> counts_;  // by length
};

}  // namespace

bool number_scores(Graph& graph) {
  Numberer numberer(graph);
  bool changes = false;
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    if (op != nullptr && op->scores && numberer.number(node, Call(graph, node, *op))) {
      changes = true;
      continue;
    }
    numberer.copy(node);
  }
  if (changes) graph = numberer.finish();
  return changes;
}

}  // namespace autosp
