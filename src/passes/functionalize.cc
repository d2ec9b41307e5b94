#include "passes/functionalize.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"
#include "support/error.h"

namespace autosp {
namespace {

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) + ": " + why);
}

// Whether the call overwrites its first operand in a way that has an out-of-place form.
bool writes(const Graph& graph, const Node& node) {
  const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
  if (op == nullptr) return false;
  if (!op->functional.empty()) return true;
  return op->signature.find("inplace") != std::string_view::npos &&
         Call(graph, node, *op).boolean_or("inplace", false);
}

// By torch's naming: "Tensor.add_", "torch.ops.aten.add_.Tensor"; not "Tensor.__and__",
// "_operator.and_".
bool is_named_in_place(std::string_view target) {
  if (target.starts_with("_operator.")) return false;
  while (!target.empty()) {
    const std::string_view part = target.substr(0, target.find('.'));
    if (part.size() > 1 && part.ends_with('_') && !part.ends_with("__")) return true;
    target.remove_prefix(std::min(part.size() + 1, target.size()));
  }
  return false;
}

// Later steps read dataflow alone, so a write that they can't see must not pass.
void refuse_unknown_write(const Graph& graph, const Node& node) {
  if (node.kind == NodeKind::kInput) return;
  const std::string& name = node.target;
  if (is_named_in_place(name)) {
    const OpDef* op = find_op(name);
    const auto reason =
        op == nullptr || op->refuse == nullptr ? std::nullopt : op->refuse(Call(graph, node, *op));
    refuse(node, reason.value_or("it changes a tensor in place, and AutoSP doesn't know the "
                                 "operator that gives the new value "
                                 "instead; use the out-of-place form"));
  }
  for (const auto& [key, arg] : node.kwargs) {
    if (key == "out" && !arg.is_none())
      refuse(node,
             "it writes into the tensor given as out=, which is not supported; use its result");
  }
}

class Functionalizer {
 public:
  explicit Functionalizer(const Graph& graph) : graph_(graph), builder_(graph) {
    for (const Node& node : graph.nodes) {
      root_.push_back(node.id);
      const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
      // An operator nobody knows may return a view.
      const bool aliases =
          node.kind == NodeKind::kCall && (op == nullptr || op->aliases || writes(graph, node));
      if (aliases && !node.args.empty() && node.args[0].is_value())
        root_[node.id] = root_[node.args[0].value];
    }
    last_read_.assign(graph.nodes.size(), kNoNode);
    for (const Node& node : graph.nodes) {
      for_each_operand(node, [&](NodeId operand) { last_read_[operand] = node.id; });
    }
    for (const Arg& output : graph.outputs) {
      for_each_value(output, [&](NodeId value) { last_read_[value] = graph.size(); });
    }
  }

  Graph run() {
    for (const Node& node : graph_.nodes) {
      if (node.target == "torch._C._set_grad_enabled" && !node.args.empty())
        grad_enabled_ = node.args[0].integer != 0;
      made_with_grad_.push_back(grad_enabled_);
      if (writes(graph_, node)) {
        write(node);
      } else {
        builder_.copy(node);
      }
    }
    return builder_.finish(graph_.outputs);
  }

 private:
  // The out-of-place call of a write.
  Node out_of_place(const Node& node) const {
    const OpDef& op = *find_op(node.target);
    Node out = node;
    out.origin = -1;
    if (!op.functional.empty()) {
      out.target = std::string(op.functional);
      return out;
    }
    const Call call(graph_, node, op);
    out.args.clear();
    out.kwargs.clear();
    for (const auto& [parameter, arg] : call.bound()) {
      if (parameter == "inplace") continue;
      if (out.args.empty()) {
        out.args.push_back(arg);
      } else {
        out.kwargs.emplace_back(parameter, arg);
      }
    }
    return out;
  }

  void write(const Node& node) {
    ensure(!node.args.empty() && node.args[0].is_value(),
           "an in-place call without a tensor to write to");
    const NodeId target = node.args[0].value;
    const NodeId memory = root_[target];
    const Node& owner = graph_.node(memory);
    if (owner.kind == NodeKind::kInput) {
      refuse(node, "it changes the program's input " + owner.target +
                       " in place, which is not supported; compute a new tensor, or update it "
                       "outside the compiled function");
    }
    if (!grad_enabled_ && made_with_grad_[memory] && is_floating(owner.type.dtype)) {
      refuse(node, "it changes %" + owner.name +
                       " in place while gradients are disabled, so that its gradient would not see "
                       "the change; this is not supported. Compute a new tensor");
    }
    // Whatever else shares the memory must not be read afterwards: it would have to show the
    // change.
    for (NodeId other = memory; other < node.id; ++other) {
      if (root_[other] != memory || same_tensor(other, target) || last_read_[other] <= node.id)
        continue;
      refuse(node, "it writes through %" + graph_.node(target).name +
                       ", which shares memory with %" + graph_.node(other).name +
                       " that is read afterwards; this is not supported. Write to a tensor of its "
                       "own (call .clone() first), or use the out-of-place form");
    }
    const Type& written = graph_.node(target).type;
    NodeId value = builder_.copy(out_of_place(node));
    builder_.graph().node(value).type = node.type.is_tensor() ? node.type : written;
    if (may_promote(node, written.dtype)) {
      // In place the tensor keeps its dtype; a new value has the dtype that torch promotes to.
      const Type kept = builder_.graph().node(value).type;
      value = builder_.call(
          "Tensor.to", {Arg::of(value), Arg::literal_of(torch_dtype(written.dtype))}, kept, &node);
    }
    builder_.map(node.id, value);
    builder_.map(target, value);
    // Earlier in-place results are the same tensor as what they wrote to.
    for (NodeId other = memory; other < node.id; ++other) {
      if (builder_.is_mapped(other) && same_tensor(other, target)) builder_.map(other, value);
    }
  }

  bool may_promote(const Node& node, DType dtype) const {
    bool other = false;
    for_each_operand(node, [&](NodeId operand) {
      const Type& type = graph_.node(operand).type;
      other |= type.is_tensor() && type.dtype != dtype && type.dtype != DType::kBool &&
               !type.shape.empty() && is_floating(type.dtype) == is_floating(dtype);
    });
    return other;
  }

  // Whether two values are one tensor object: a tensor and the results of in-place calls on it.
  bool same_tensor(NodeId a, NodeId b) const { return object(a) == object(b); }

  NodeId object(NodeId value) const {
    for (;;) {
      const Node& node = graph_.node(value);
      if (!writes(graph_, node)) return value;
      value = node.args[0].value;
    }
  }

  const Graph& graph_;
  GraphBuilder builder_;
  std::vector<NodeId> root_;       // value -> the value whose memory it may share
  std::vector<NodeId> last_read_;  // value -> its last reader; graph.size() when it is returned
  std::vector<bool> made_with_grad_;
  bool grad_enabled_ = true;
};

}  // namespace

bool functionalize(Graph& graph) {
  bool changes = false;
  for (const Node& node : graph.nodes) {
    if (writes(graph, node)) {
      changes = true;
    } else {
      refuse_unknown_write(graph, node);
    }
  }
  if (changes) graph = Functionalizer(graph).run();
  return changes;
}

}  // namespace autosp
