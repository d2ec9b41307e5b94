#include "passes/prove_causal.h"

#include <optional>
#include <vector>

#include "ops/op.h"
#include "sharding/mask_elements.h"

namespace autosp {
namespace {

// Whether a mask over [..., queries, keys] is true exactly where key <= query.
bool is_causal(const Graph& graph, const MaskElements& elements, NodeId mask, const Expr& queries,
               const Expr& keys) {
  const Type& type = graph.node(mask).type;
  const size_t rank = type.shape.size();
  if (!type.is_tensor() || rank < 2 || type.dtype != DType::kBool ||
      type.shape[rank - 2] != queries || type.shape[rank - 1] != keys || queries != keys) {
    return false;
  }
  const std::optional<Elements>& known = elements.of(mask);
  if (!known || !known->is_truth()) return false;
  const Formula causal = Formula::at_least_zero(index_along(rank - 2) - index_along(rank - 1));
  bool found = false;
  for (const Formula& part : known->truth.parts_of(Formula::Kind::kAll)) {
    if (part == causal) {
      found = true;
    } else if (part.kind != Formula::Kind::kAtLeast || !is_never_negative(part.value, type.shape)) {
      return false;
    }
  }
  return found;
}

}  // namespace

bool prove_causal(Graph& graph) {
  std::vector<NodeId> attentions;
  std::vector<NodeId> masks;
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    if (op == nullptr || op->name != "sdpa") continue;
    const Call call(graph, node, *op);
    if (call.value("attn_mask") == kNoNode || call.boolean_or("is_causal", false)) continue;
    attentions.push_back(node.id);
    masks.push_back(call.value("attn_mask"));
  }
  if (attentions.empty()) return false;
  const MaskElements elements(graph, masks, MaskElements::Floats::kOnes,
                              [](NodeId) { return false; });
  bool changed = false;
  for (size_t i = 0; i < attentions.size(); ++i) {
    Node& node = graph.node(attentions[i]);
    const Call call(graph, node, *find_op(node.target));
    const auto length = [&](std::string_view parameter) {
      const std::vector<Expr>& shape = call.tensor(parameter)->shape;
      return shape[shape.size() - 2];
    };
    if (!is_causal(graph, elements, masks[i], length("query"), length("key"))) continue;
    Kwargs kwargs;
    for (const auto& [parameter, arg] : call.bound()) {
      if (parameter == "attn_mask") {
        kwargs.emplace_back(parameter, Arg::none());
      } else if (parameter == "is_causal") {
        kwargs.emplace_back(parameter, Arg::bool_of(true));
      } else {
        kwargs.emplace_back(parameter, arg);
      }
    }
    node.args.clear();
    node.kwargs = std::move(kwargs);
    changed = true;
  }
  return changed;
}

}  // namespace autosp
