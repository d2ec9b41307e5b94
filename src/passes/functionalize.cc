#include "passes/functionalize.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"
#include "ops/write_back.h"
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
  if (!op->functional.empty() || op->assigns) return true;
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

// The tensors of a program and which of them share memory.
//
// A tensor is named by the first value that is it: the results of in-place calls on it, and a
// second look at the same element of a tuple, are other names. Each tensor that looks at memory of
// another one knows which; so those that share memory are a tree, whose root owns it.
class Tensors {
 public:
  explicit Tensors(const Graph& graph) : graph_(graph) {
    const auto count = graph.nodes.size();
    tensor_.resize(count, kNoNode);
    base_.resize(count, kNoNode);
    sharing_.resize(count, Sharing::kNo);
    tree_.resize(count, kNoNode);
    trees_.resize(count);
    names_.resize(count);
    for (const Node& node : graph.nodes) add(node);
    last_read_.resize(count, kNoNode);
    const auto read = [&](NodeId value, NodeId reader) {
      last_read_[tensor_[value]] = std::max(last_read_[tensor_[value]], reader);
    };
    // The next call of the program reads what this one leaves in a buffer.
    for (const Node& node : graph.nodes) {
      if (node.kind == NodeKind::kInput) read(node.id, graph.size());
    }
    for (const Node& node : graph.nodes)
      for_each_operand(node, [&](NodeId operand) { read(operand, node.id); });
    for (const Arg& output : graph.outputs)
      for_each_value(output, [&](NodeId value) { read(value, graph.size()); });
  }

  NodeId of(NodeId value) const { return tensor_[value]; }
  NodeId base(NodeId tensor) const { return base_[tensor]; }
  Sharing sharing(NodeId tensor) const { return sharing_[tensor]; }  // with its base
  // The tensor that owns the memory.
  NodeId owner(NodeId tensor) const {
    while (base_[tensor] != kNoNode) tensor = base_[tensor];
    return tensor;
  }
  // Those that look at the same memory as `tensor`, and itself, in order.
  std::vector<NodeId> sharers(NodeId tensor) const {
    std::vector<NodeId> out;
    for (const NodeId other : trees_[tree_[tensor]]) {
      if (owner(other) == owner(tensor)) out.push_back(other);
    }
    return out;
  }
  const std::vector<NodeId>& names(NodeId tensor) const { return names_[tensor]; }
  bool is_read_after(NodeId tensor, NodeId node) const { return last_read_[tensor] > node; }
  // The topmost tensor that surely shares the memory.
  NodeId top(NodeId tensor) const {
    while (sharing_[tensor] == Sharing::kYes) tensor = base_[tensor];
    return tensor;
  }
  // From now on `tensor` is the only one that looks at its memory.
  void separate(NodeId tensor) {
    base_[tensor] = kNoNode;
    sharing_[tensor] = Sharing::kNo;
  }

 private:
  void add(const Node& node) {
    tensor_[node.id] = node.id;
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    const NodeId first =
        !node.args.empty() && node.args[0].is_value() ? node.args[0].value : kNoNode;
    if (node.kind == NodeKind::kCall && first != kNoNode) {
      if (writes(graph_, node)) {
        if (node.type.is_tensor()) tensor_[node.id] = tensor_[first];
      } else if (node.target == "_operator.getitem" &&
                 graph_.node(first).type.kind == Type::Kind::kTuple) {
        element(node, first);
      } else if (op == nullptr || op->aliases) {
        // An operator nobody knows may return a view.
        base_[node.id] = tensor_[first];
        sharing_[node.id] = op == nullptr || op->shares == nullptr
                                ? Sharing::kMaybe
                                : op->shares(Call(graph_, node, *op));
      }
    }
    const NodeId tensor = tensor_[node.id];
    names_[tensor].push_back(node.id);
    if (tensor != node.id) return;
    if (sharing_[tensor] == Sharing::kNo) base_[tensor] = kNoNode;
    tree_[tensor] = base_[tensor] == kNoNode ? tensor : tree_[base_[tensor]];
    trees_[tree_[tensor]].push_back(tensor);
  }

  // Tuples of views look at one memory, what other operators return has memory of its own.
  void element(const Node& node, NodeId tuple) {
    for (const NodeId other : elements_[tuple]) {
      if (graph_.node(other).args[1] == node.args[1]) tensor_[node.id] = tensor_[other];
    }
    elements_[tuple].push_back(node.id);
    if (tensor_[node.id] != node.id || sharing_[tuple] == Sharing::kNo) return;
    base_[node.id] = tensor_[tuple];
    sharing_[node.id] = sharing_[tuple];
    // Where each element comes from an argument of its own, all that is known is that it may.
    const std::vector<Arg>& sources = graph_.node(tuple).args;
    const auto values = std::count_if(sources.begin(), sources.end(),
                                      [](const Arg& arg) { return arg.is_value(); });
    if (values <= 1) return;
    sharing_[node.id] = Sharing::kMaybe;
    const int64_t index = node.args[1].is_integral() ? node.args[1].integer : 0;
    if (index >= 0 && index < values) base_[node.id] = tensor_[sources[index].value];
  }

  const Graph& graph_;
  std::vector<NodeId> tensor_;              // value -> its tensor
  std::vector<NodeId> base_;                // tensor -> the tensor it looks at
  std::vector<Sharing> sharing_;            // tensor -> whether it surely does
  std::vector<NodeId> tree_;                // tensor -> the root of its tree, as the program begins
  std::vector<std::vector<NodeId>> trees_;  // root -> all tensors of its tree, in order
  std::vector<std::vector<NodeId>> names_;  // tensor -> values that are it
  std::vector<NodeId> last_read_;           // tensor -> graph.size() when it is returned
  std::map<NodeId, std::vector<NodeId>> elements_;  // tuple -> looks at its elements
};

class Functionalizer {
 public:
  explicit Functionalizer(const Graph& graph)
      : graph_(graph), builder_(graph), tensors_(graph), seen_(graph.nodes.size(), 0) {
    versions_.resize(graph.nodes.size(), 0);
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
        seen_[node.id] = versions_[tensors_.owner(tensors_.of(node.id))];
      }
    }
    for (const auto& [buffer, write] : written_) {
      const NodeId value = builder_.mapped(buffer);
      const NodeId copy = builder_.call("Tensor.copy_", {Arg::of(write.buffer), Arg::of(value)},
                                        graph_.node(buffer).type, &graph_.node(write.last));
      builder_.graph().node(copy).checkpoint = -1;  // done once
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
    if (!graph_.node(node.args[0].value).type.is_tensor()) {
      builder_.copy(out_of_place(node));  // a number has no memory
      return;
    }
    const OpDef& op = *find_op(node.target);
    if (!op.functional.empty() && op.refuse != nullptr) {
      if (const auto reason = op.refuse(Call(graph_, node, op))) refuse(node, *reason);
    }
    if (reshapes(node)) {
      refuse(node,
             "it changes the shape of a tensor in place, after which nothing says any more what "
             "shape the tensor had before. Use the out-of-place form, " +
                 std::string(op.functional));
    }
    const NodeId target = tensors_.of(node.args[0].value);
    refuse_write(node, target);
    if (assigns_itself(node)) return;
    const std::vector<NodeId> others = read_afterwards(node, target);
    note_buffer(node, tensors_.owner(target));
    const NodeId value = new_value(node);
    if (node.type.is_tensor()) builder_.map(node.id, value);
    if (others.empty()) {
      tensors_.separate(target);
      set(target, value);
      return;
    }
    for (NodeId tensor = target; tensors_.sharing(tensor) == Sharing::kYes;
         tensor = tensors_.base(tensor))
      take_anew(tensors_.base(tensor), node);
    ++versions_[tensors_.owner(target)];
    set(target, value);
    for (NodeId tensor = target; tensors_.sharing(tensor) == Sharing::kYes;
         tensor = tensors_.base(tensor))
      tensor = write_through(tensor, node);
    for (const NodeId other : others) take_anew(other, node);
  }

  void refuse_write(const Node& node, NodeId target) const {
    const NodeId memory = tensors_.owner(target);
    const Node& owner = graph_.node(memory);
    if (owner.kind == NodeKind::kInput) {
      if (owner.input == InputKind::kBuffer && !owner.requires_grad) return;
      if (owner.input == InputKind::kBuffer) {
        refuse(node, "it gives the buffer " + owner.target +
                         " a value that has a gradient, which the next step would go back through; "
                         "use .detach() or no_grad");
      }
      refuse(node, "it changes the program's input " + owner.target +
                       " in place, which is not supported; compute a new tensor, or update it "
                       "outside the compiled function");
    }
    if (!grad_enabled_ && made_with_grad_[memory] && is_floating(graph_.node(target).type.dtype)) {
      refuse(node, "it changes %" + owner.name +
                       " in place while gradients are disabled, so that its gradient would not see "
                       "the change; this is not supported. Compute a new tensor");
    }
  }

  void note_buffer(const Node& node, NodeId owner) {
    if (graph_.node(owner).kind != NodeKind::kInput) return;
    const auto [entry, is_new] = written_.try_emplace(owner, Written{kNoNode, node.id});
    if (is_new) entry->second.buffer = builder_.mapped(owner);
    entry->second.last = node.id;
  }

  // x[i] += y is read, changed in place and assigned to where it was.
  bool assigns_itself(const Node& node) const {
    if (node.target != "_operator.setitem" || !node.args[2].is_value()) return false;
    const NodeId value = tensors_.of(node.args[2].value);
    return tensors_.sharing(value) == Sharing::kYes &&
           tensors_.base(value) == tensors_.of(node.args[0].value) &&
           graph_.node(value).target == "_operator.getitem" &&
           graph_.node(value).args[1] == node.args[1];
  }

  // A change of the shape alone (unsqueeze_): the captured tensor itself has changed by then.
  static bool reshapes(const Node& node) {
    const OpDef* functional = find_op(find_op(node.target)->functional);
    return functional != nullptr && functional->aliases && functional->draws == nullptr;
  }

  // The other tensors that must show the change.
  std::vector<NodeId> read_afterwards(const Node& node, NodeId target) const {
    std::vector<NodeId> others;
    const NodeId top = tensors_.top(target);
    for (const NodeId other : tensors_.sharers(target)) {
      if (other >= node.id || other == target || !tensors_.is_read_after(other, node.id)) continue;
      if (tensors_.top(other) != top) refuse_other(node, target, other);
      others.push_back(other);
    }
    return others;
  }

  [[noreturn]] void refuse_other(const Node& node, NodeId target, NodeId other) const {
    refuse(node, "it writes through %" + graph_.node(target).name +
                     ", which may share memory with %" + graph_.node(other).name +
                     " that is read afterwards; this is not supported. Write to a tensor of its "
                     "own (call .clone() first), or use the out-of-place form");
  }

  NodeId new_value(const Node& node) {
    const NodeId target = node.args[0].value;
    const Type& written = graph_.node(target).type;
    const OpDef& op = *find_op(node.target);
    if (op.assigns)
      return assigned(Call(graph_, node, op), {builder_, node, builder_.mapped(target)});
    const NodeId value = builder_.copy(out_of_place(node));
    builder_.graph().node(value).type = node.type.is_tensor() ? node.type : written;
    if (!may_promote(node, written.dtype)) return value;
    // In place the tensor keeps its dtype; a new value has the dtype that torch promotes to.
    const Type kept = builder_.graph().node(value).type;
    return builder_.call("Tensor.to", {Arg::of(value), Arg::literal_of(torch_dtype(written.dtype))},
                         kept, &node);
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

  void set(NodeId tensor, NodeId value) {
    for (const NodeId name : tensors_.names(tensor)) {
      if (builder_.is_mapped(name)) builder_.map(name, value);
    }
    seen_[tensor] = versions_[tensors_.owner(tensor)];
  }

  // Gives what `tensor` looks at the value that it has after the write to `tensor`, and returns the
  // last tensor in between: an element of a tuple of views and the tuple are one view.
  NodeId write_through(NodeId tensor, const Node& node) {
    NodeId view = tensor;
    WriteBack back{builder_, node, kNoNode, builder_.mapped(tensor)};
    if (graph_.node(tensors_.base(tensor)).type.kind == Type::Kind::kTuple) {
      view = tensors_.base(tensor);
      const Expr element = graph_.node(tensor).args[1].as_expr();
      const auto count = static_cast<int64_t>(graph_.node(view).type.elements.size());
      const int64_t index = element.constant_value();
      back.element = static_cast<int>(index < 0 ? index + count : index);
    }
    const NodeId base = tensors_.base(view);
    if (tensors_.sharing(view) != Sharing::kYes || base == kNoNode) return view;
    refuse_other_grad_mode(tensor, node);
    back.base = builder_.mapped(base);
    const Node& call = graph_.node(view);
    const OpDef* op = find_op(call.target);
    const NodeId value = op == nullptr || op->write_back == nullptr
                             ? kNoNode
                             : op->write_back(Call(graph_, call, *op), back);
    if (value == kNoNode) {
      refuse(node, "it writes through %" + graph_.node(tensor).name + ", a view made by " +
                       call.target + ", and AutoSP does not know what %" + graph_.node(base).name +
                       " becomes by that. Write to a tensor of its own (call .clone() first), or "
                       "use the out-of-place form");
    }
    set(base, value);
    return view;
  }

  // A tensor that looks at memory which has been written to, taken again from what it looks at.
  void take_anew(NodeId tensor, const Node& node) {
    if (seen_[tensor] == versions_[tensors_.owner(tensor)]) return;
    ensure(tensors_.sharing(tensor) == Sharing::kYes, "a tensor's memory has lost its value");
    take_anew(tensors_.base(tensor), node);
    refuse_other_grad_mode(tensor, node);
    Node view = graph_.node(tensor);
    view.origin = -1;
    set(tensor, builder_.copy(view));
  }

  // A view that was made while gradients were disabled has none, whatever it looks at.
  void refuse_other_grad_mode(NodeId tensor, const Node& node) const {
    if (made_with_grad_[tensor] == grad_enabled_ || !is_floating(graph_.node(tensor).type.dtype))
      return;
    refuse(node, "it changes what %" + graph_.node(tensor).name + " looks at, which was made " +
                     (grad_enabled_ ? "without" : "with") + " gradients while this is done " +
                     (grad_enabled_ ? "with" : "without") +
                     " them; this is not supported. Compute a new tensor");
  }

  const Graph& graph_;
  GraphBuilder builder_;
  Tensors tensors_;
  std::vector<int> versions_;  // owner -> how often its memory has been written to
  std::vector<int> seen_;      // tensor -> the version that its value shows
  std::vector<bool> made_with_grad_;
  struct Written {
    NodeId buffer;  // in the new graph, as the program begins
    NodeId last;    // the write that gave it its last value
  };
  std::map<NodeId, Written> written_;  // buffers, which get their new values when all is done
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
