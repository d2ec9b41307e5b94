// What the tests of operator rules share: a rule's letters from a graph's text, and a local form
// without elaboration.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/text.h"
#include "ops/op.h"
#include "support/error.h"

namespace autosp::test {

// The last node of a graph given as text without its `return`.
struct LastCall {
  explicit LastCall(std::string_view text)
      : graph(parse_graph(std::string(text) + "\nreturn ()\n")) {
    op = find_op(graph.nodes.back().target);
    ensure(op != nullptr, "the test's operator is unknown");
  }
  Call call() const { return Call(graph, graph.nodes.back(), *op); }

  Graph graph;
  const OpDef* op = nullptr;
};

// "(x0)(x1) -> (x1)(x0)", the letters of the text's last call.
inline std::string rule_of(std::string_view text) {
  const LastCall last(text);
  return to_string(apply_rule(last.call()));
}

inline std::string refusal_of(std::string_view text) {
  const LastCall last(text);
  return last.op->refuse == nullptr ? "" : last.op->refuse(last.call()).value_or("");
}

// A rank's form of the text's last call, sharded along one letter whose local length is `u`. Local
// values have the names of the global ones.
class FakeLocalForm final : public LocalForm {
 public:
  FakeLocalForm(std::string_view text, std::string_view letter)
      : last_(text), call_(last_.call()), application_(apply_rule(call_)), graph_(last_.graph) {
    const auto found =
        std::find_if(application_.letters.begin(), application_.letters.end(),
                     [letter](const Letter& candidate) { return candidate.name == letter; });
    ensure(found != application_.letters.end(), "the test's letter is unknown");
    letter_ = static_cast<LetterId>(found - application_.letters.begin());
    graph_.nodes.pop_back();
  }

  // The line of what the operator's local form returns: the node it emitted, or the operand's name.
  std::string run() {
    const NodeId node =
        last_.op->localize == nullptr ? emit_same(local_type()) : last_.op->localize(*this).node;
    if (node < last_.graph.size() - 1) return "%" + graph_.node(node).name;
    return print(graph_, graph_.node(node));
  }

  const Call& call() const override { return call_; }
  LetterId letter() const override { return letter_; }
  const Application& application() const override { return application_; }
  Arg local(std::string_view parameter) const override { return *call_.find(parameter); }
  std::vector<Expr> local_shape(int result) const override {
    return sizes(application_.results[static_cast<size_t>(result)], call_.result().shape);
  }
  std::vector<Expr> local_operand_shape(std::string_view parameter) const override {
    for (const Operand& operand : application_.operands) {
      if (operand.value == call_.value(parameter))
        return sizes(operand.letters, call_.tensor(parameter)->shape);
    }
    throw InternalError("the test's operand is unknown");
  }
  NodeId emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) override {
    Node node;
    node.id = graph_.size();
    node.name = "local" + std::to_string(node.id - last_.graph.size() + 2);
    node.target = std::move(target);
    node.args = std::move(args);
    node.kwargs = std::move(kwargs);
    node.type = std::move(type);
    graph_.nodes.push_back(std::move(node));
    return graph_.size() - 1;
  }
  NodeId emit_same(Type type) override {
    const Node& node = last_.graph.nodes.back();
    return emit(node.target, node.args, node.kwargs, std::move(type));
  }
  NodeId all_reduce(NodeId partial) override { return partial; }
  Arg without_padding(std::string_view parameter, double) override { return local(parameter); }

 private:
  Type local_type() const { return Type::tensor(call_.result().dtype, local_shape(0)); }

  std::vector<Expr> sizes(const TensorLetters& letters, const std::vector<Expr>& global) const {
    std::vector<Expr> out;
    for (size_t dim = 0; dim < letters.size(); ++dim) {
      Expr size(1);
      for (LetterId letter : letters[dim]) {
        const Letter& entry = application_.letters[static_cast<size_t>(letter)];
        size *= letter == letter_ || entry.link == letter_ ? Expr::symbol("u") : entry.size;
      }
      out.push_back(letters[dim].empty() ? global[dim] : size);
    }
    return out;
  }

  LastCall last_;
  Call call_;
  Application application_;
  Graph graph_;
  LetterId letter_ = -1;
};

inline std::string local_of(std::string_view text, std::string_view letter) {
  return FakeLocalForm(text, letter).run();
}

}  // namespace autosp::test
