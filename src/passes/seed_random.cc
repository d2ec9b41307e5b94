#include "passes/seed_random.h"

#include <algorithm>

#include "ir/builder.h"
#include "ops/draw.h"
#include "ops/op.h"

namespace autosp {

bool seed_random(Graph& graph) {
  const auto draws = [&](const Node& node) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    return op != nullptr && op->draw != nullptr && op->draws(Call(graph, node, *op));
  };
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), draws)) return false;
  GraphBuilder builder(graph);
  const NodeId seed = builder.input("seed", InputKind::kSeed, Type::tensor(DType::kInt64, {}));
  int64_t stream = 0;
  for (const Node& node : graph.nodes) {
    if (draws(node)) {
      const Call call(graph, node, *find_op(node.target));
      builder.map(node.id, call.op().draw(call, {builder, node, seed, stream}));
    } else {
      builder.copy(node);
    }
  }
  graph = builder.finish(graph.outputs);
  return true;
}

}  // namespace autosp
