#include "ir/verify.h"

#include <optional>
#include <stdexcept>
#include <unordered_set>

#include "ir/text.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

bool is_name(std::string_view text, bool dots) {
  if (text.empty() || !is_letter(text[0])) return false;
  for (const char c : text) {
    if (!is_letter(c) && !(c >= '0' && c <= '9') && !(dots && c == '.')) return false;
  }
  return true;
}

class Verifier {
 public:
  explicit Verifier(const Graph& graph) : graph_(graph) {}

  void run() {
    definitions();
    for (const auto& [name, body] : graph_.subgraphs) subgraph(name, body.get());
    names_.reserve(graph_.nodes.size());
    for (NodeId id = 0; id < graph_.size(); ++id) {
      node_ = &graph_.node(id);
      limit_ = id;
      node();
    }
    node_ = nullptr;
    limit_ = graph_.size();
    for (const Arg& output : graph_.outputs) arg(output);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    if (node_ == nullptr) throw InternalError("the graph's outputs: " + what);
    std::string where = "%" + node_->name;
    if (!node_->target.empty()) where += " (" + node_->target + ")";
    if (!node_->source.empty()) where += " from " + node_->source;
    throw InternalError(where + ": " + what);
  }

  void definitions() const {
    std::unordered_set<std::string_view> names;
    for (const auto& [name, length] : graph_.definitions) {
      if (!is_name(name, false))
        throw InternalError("the length '" + name + "' is not well formed");
      if (!names.insert(name).second)
        throw InternalError("the length " + name + " is defined twice");
      if (differ(Expr::symbol(name), length)) {
        throw InternalError("the hint of the length " + name + " is not that of " +
                            length.to_string());
      }
    }
  }

  static void subgraph(const std::string& name, const Graph* body) {
    if (body == nullptr) throw InternalError("the subgraph " + name + " is missing");
    verify(*body);
  }

  void node() {
    if (node_->id != limit_) {
      fail("its id is " + std::to_string(node_->id) + ", its place " + std::to_string(limit_));
    }
    if (!is_name(node_->name, true)) fail("the name is not well formed");
    if (!names_.insert(node_->name).second) fail("two nodes have this name");
    type(node_->type);
    if (node_->kind == NodeKind::kInput) {
      if (!node_->args.empty() || !node_->kwargs.empty()) fail("an input with arguments");
      return;
    }
    if (node_->target.empty()) fail("a call of nothing");
    for (const Arg& argument : node_->args) arg(argument);
    for (size_t i = 0; i < node_->kwargs.size(); ++i) {
      const auto& [key, argument] = node_->kwargs[i];
      if (!is_name(key, false)) fail("the keyword '" + key + "' is not well formed");
      for (size_t j = 0; j < i; ++j) {
        if (node_->kwargs[j].first == key) fail("the keyword " + key + " is given twice");
      }
      arg(argument);
    }
    if (node_->target == "_operator.getitem") element();
    if (node_->target == "Tensor.view" || node_->target == "Tensor.reshape" ||
        node_->target == "torch.reshape") {
      view();
    }
  }

  void arg(const Arg& arg) const {
    switch (arg.kind) {
      case Arg::Kind::kValue:
        if (arg.value < 0 || arg.value >= graph_.size()) fail("an argument names no node");
        if (arg.value >= limit_) {
          fail("reads %" + graph_.node(arg.value).name + " before its definition");
        }
        break;
      case Arg::Kind::kSlice:
        if (arg.items.size() != 3) fail("a slice without three parts");
        break;
      case Arg::Kind::kSize:
        if (arg.size.is_constant()) fail("a constant size that is not written as an integer");
        break;
      case Arg::Kind::kGraph:
        if (arg.integer < 0 || arg.integer >= static_cast<int64_t>(graph_.subgraphs.size())) {
          fail("an argument names no subgraph");
        }
        break;
      default:
        break;
    }
    for (const Arg& item : arg.items) this->arg(item);
  }

  void type(const Type& type) const {
    for (const Expr& size : type.shape) {
      if (size.is_constant() && size.constant_value() < 0) {
        fail("a negative size in " + print(type));
      }
    }
    for (const Type& element : type.elements) this->type(element);
  }

  // An element of a tuple.
  void element() const {
    if (node_->args.size() != 2 || !node_->args[0].is_value()) return;
    const Type& tuple = graph_.node(node_->args[0].value).type;
    if (tuple.kind != Type::Kind::kTuple || node_->args[1].kind != Arg::Kind::kInt) return;
    const auto count = static_cast<int64_t>(tuple.elements.size());
    int64_t index = node_->args[1].integer;
    if (index < 0) index += count;
    if (index < 0 || index >= count) fail("no such element in " + print(tuple));
    const Type& element = tuple.elements[static_cast<size_t>(index)];
    if (!(element == node_->type)) {
      fail("has type " + print(node_->type) + ", the element is " + print(element));
    }
  }

  void view() const {
    const Type& result = node_->type;
    if (node_->args.empty() || !node_->args[0].is_value() || !result.is_tensor()) return;
    const Type& operand = graph_.node(node_->args[0].value).type;
    const std::optional<std::vector<Arg>> sizes = written_sizes();
    if (!operand.is_tensor() || !sizes) return;
    if (differ(element_count(operand), element_count(result))) {
      fail(print(operand) + " has not as many elements as " + print(result));
    }
    if (sizes->size() != result.shape.size())
      fail("writes out another number of sizes than " + print(result));
    for (size_t i = 0; i < sizes->size(); ++i) {
      const Arg& size = (*sizes)[i];
      const bool inferred = size.kind == Arg::Kind::kInt && size.integer == -1;
      if (!inferred && size.is_integral() && differ(size.as_expr(), result.shape[i])) {
        fail("writes out the size " + print(graph_, size) + " in dimension " + std::to_string(i) +
             " of " + print(result));
      }
    }
  }

  // The sizes of a view as they are written, whatever the call style; nothing for a view as another
  // dtype.
  std::optional<std::vector<Arg>> written_sizes() const {
    std::vector<Arg> sizes(node_->args.begin() + 1, node_->args.end());
    for (const auto& [key, argument] : node_->kwargs) {
      if (key == "size" || key == "shape") sizes.push_back(argument);
    }
    if (sizes.size() == 1 &&
        (sizes[0].kind == Arg::Kind::kList || sizes[0].kind == Arg::Kind::kTuple)) {
      return sizes[0].items;
    }
    if (sizes.empty() || sizes[0].kind == Arg::Kind::kLiteral) return std::nullopt;
    return sizes;
  }

  // True when the two sizes cannot be the same. Two forms that are equal under a guard of the
  // program look different, so the hinted lengths, at which every guard holds, decide.
  bool differ(const Expr& a, const Expr& b) const {
    if (a == b) return false;
    try {
      if ((a - b).is_constant()) return true;
      return graph_.hint(a) != graph_.hint(b);
    } catch (const std::out_of_range&) {  // a symbol without a hint
      return false;
    } catch (const std::overflow_error&) {
      return false;
    } catch (const std::domain_error&) {
      return false;
    }
  }

  const Graph& graph_;
  const Node* node_ = nullptr;
  NodeId limit_ = 0;  // arguments must be defined before it
  std::unordered_set<std::string_view> names_;
};

}  // namespace

void verify(const Graph& graph) { Verifier(graph).run(); }

}  // namespace autosp
