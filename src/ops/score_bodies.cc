#include "ops/score_bodies.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "support/error.h"

namespace autosp {
namespace {

// Arguments of the call; the mask of blocks ends with its function.
constexpr size_t kScoreMod = 3;
constexpr size_t kBlockMask = 4;
constexpr size_t kScoreTensors = 7;
constexpr size_t kMaskTensors = 8;

size_t body_of(const Arg& arg) {
  ensure(arg.kind == Arg::Kind::kGraph, "an attention is not given its functions as graphs");
  return static_cast<size_t>(arg.integer);
}

}  // namespace

NodeId input_at(const Graph& function, int place) {
  for (const Node& node : function.nodes) {
    if (node.kind == NodeKind::kInput && place-- == 0) return node.id;
  }
  throw InternalError("a function on the scores of an attention takes fewer inputs");
}

bool has_one_row(const Call& call) {
  bool out = true;
  for_each_value(*call.find("block_mask"), [&](NodeId operand) {
    const std::vector<Expr>& shape = call.graph().node(operand).type.shape;
    out &= shape.size() >= 3 && shape[2] == Expr(1);
  });
  return out;
}

std::vector<ScoreBody> score_bodies(const Call& call) {
  const std::vector<Arg>& args = call.node().args;
  return {{body_of(args.at(kScoreMod)), 1, 5, kScoreTensors},
          {body_of(args.at(kBlockMask).items.back()), 0, 4, kMaskTensors}};
}

std::vector<NodeId> score_tensors(const Call& call, const ScoreBody& body) {
  std::vector<NodeId> out;
  for_each_value(call.node().args.at(body.tensors_argument),
                 [&](NodeId value) { out.push_back(value); });
  return out;
}

ScoreReads score_reads(const Call& call, const ScoreBody& body) {
  const Graph& function = *call.graph().subgraphs[body.index].second;
  const std::vector<NodeId> tensors = score_tensors(call, body);
  const std::vector<Expr>& query = call.tensor("query")->shape;
  std::map<NodeId, int> numbers;
  std::map<NodeId, size_t> places;  // of the tensors
  for (int i = 0; i < kNumbers; ++i) numbers[input_at(function, body.numbers + i)] = i;
  for (size_t i = 0; i < tensors.size(); ++i)
    places[input_at(function, body.tensors + static_cast<int>(i))] = i;

  // (tensor, number) where a node does nothing but t[number] and there is a row for each.
  const auto lookup = [&](const Node& node) -> std::optional<std::pair<size_t, int>> {
    if (node.target != "_operator.getitem" || !node.args.at(0).is_value()) return std::nullopt;
    const Arg& index = node.args.at(1).items.size() == 1 ? node.args[1].items[0] : node.args[1];
    const auto place = places.find(node.args[0].value);
    const auto number = index.is_value() ? numbers.find(index.value) : numbers.end();
    if (place == places.end() || number == numbers.end()) return std::nullopt;
    const std::vector<Expr>& shape = call.graph().node(tensors[place->second]).type.shape;
    if (shape.empty() || shape[0] != query[static_cast<size_t>(number->second)])
      return std::nullopt;
    return std::pair(place->second, number->second);
  };

  ScoreReads out;
  std::vector<std::set<int>> indices(tensors.size());  // of each tensor; -1 for other reads
  for (const Node& node : function.nodes) {
    if (const auto found = lookup(node)) {
      indices[found->first].insert(found->second);
      continue;
    }
    for_each_operand(node, [&](NodeId value) {
      if (const auto place = places.find(value); place != places.end())
        indices[place->second].insert(-1);
    });
  }
  for (const std::set<int>& found : indices)
    out.index.push_back(found.size() == 1 ? *found.begin() : -1);
  const auto reads = [&](NodeId value) {
    if (const auto number = numbers.find(value); number != numbers.end())
      out.looked_up[number->second] = false;
  };
  for (const Node& node : function.nodes) {
    const auto found = lookup(node);
    if (!found || out.index[found->first] != found->second) for_each_operand(node, reads);
  }
  for (const Arg& output : function.outputs) for_each_value(output, reads);
  return out;
}

}  // namespace autosp
