#include "passes/functionalize.h"

#include <vector>

#include "ir/builder.h"
#include "ops/op.h"
#include "support/error.h"

namespace autosp {
namespace {

class Functionalizer {
 public:
  explicit Functionalizer(const Graph& graph) : graph_(graph), builder_(graph) {
    for (const Node& node : graph.nodes) {
      root_.push_back(node.id);
      const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
      // An operator nobody knows may return a view.
      const bool aliases = node.kind == NodeKind::kCall && (op == nullptr || op->aliases || !op->functional.empty());
      if (aliases && !node.args.empty() && node.args[0].is_value()) root_[node.id] = root_[node.args[0].value];
    }
    last_read_.assign(graph.nodes.size(), kNoNode);
    for (const Node& node : graph.nodes) {
      for_each_operand(node, [&](NodeId operand) { last_read_[operand] = node.id; });
    }
    for (const Arg& output : graph.outputs) {
      for_each_value(output, [&](NodeId value) { last_read_[value] = graph.size(); });
    }
  }

  bool run(Graph& out) {
    bool changed = false;
    for (const Node& node : graph_.nodes) {
      const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
      if (op == nullptr || op->functional.empty()) {
        builder_.copy(node);
        continue;
      }
      write(node, *op);
      changed = true;
    }
    out = builder_.finish(graph_.outputs);
    return changed;
  }

 private:
  [[noreturn]] void refuse(const Node& node, const std::string& why) const {
    throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) + ": " + why);
  }

  void write(const Node& node, const OpDef& op) {
    ensure(!node.args.empty() && node.args[0].is_value(), "an in-place call without a tensor to write to");
    const NodeId target = node.args[0].value;
    const NodeId memory = root_[target];
    const Node& owner = graph_.node(memory);
    if (owner.kind == NodeKind::kInput) {
      refuse(node, "it changes the program's input " + owner.target +
                       " in place, which is not supported; compute a new tensor, or update it outside the compiled function");
    }
    // Whatever else shares the memory must not be read afterwards: it would have to show the change.
    for (NodeId other = memory; other < node.id; ++other) {
      if (root_[other] != memory || same_tensor(other, target) || last_read_[other] <= node.id) continue;
      refuse(node, "it writes through %" + graph_.node(target).name + ", which shares memory with %" +
                       graph_.node(other).name + " that is read afterwards; this is not supported. Write to a tensor of its "
                       "own (call .clone() first), or use the out-of-place form");
    }
    Node functional = node;
    functional.target = std::string(op.functional);
    functional.origin = -1;
    const Type& written = graph_.node(target).type;
    const NodeId value = builder_.copy(functional);
    builder_.graph().node(value).type = node.type.is_tensor() ? node.type : written;
    builder_.map(node.id, value);
    builder_.map(target, value);
    // Earlier in-place results are the same tensor as what they wrote to.
    for (NodeId other = memory; other < node.id; ++other) {
      if (builder_.is_mapped(other) && same_tensor(other, target)) builder_.map(other, value);
    }
  }

  // Whether two values are one tensor object: a tensor and the results of in-place calls on it.
  bool same_tensor(NodeId a, NodeId b) const { return object(a) == object(b); }

  NodeId object(NodeId value) const {
    for (;;) {
      const Node& node = graph_.node(value);
      const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
      if (op == nullptr || op->functional.empty()) return value;
      value = node.args[0].value;
    }
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::vector<NodeId> root_;       // value -> the value whose memory it may share
  std::vector<NodeId> last_read_;  // value -> its last reader; graph.size() when it is returned
};

}  // namespace

bool functionalize(Graph& graph) {
  Graph out;
  const bool changed = Functionalizer(graph).run(out);
  if (changed) graph = std::move(out);
  return changed;
}

}  // namespace autosp
