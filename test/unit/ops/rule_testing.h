// What the tests of operator families share: rules from text, and local forms that record what they
// emit.
#pragma once

#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/text.h"
#include "ops/local_form.h"
#include "ops/op.h"
#include "support/error.h"

namespace autosp {

// The last node of a program without its return line. Lines may end with ";", and inputs may be
// written in short: "%x: f32[4]".
class Program {
 public:
  explicit Program(std::string_view text) : graph_(parse_graph(complete(text))) {}

  const Graph& graph() const { return graph_; }
  const Node& node() const { return graph_.nodes.back(); }
  const OpDef& op() const {
    const OpDef* op = find_op(node().target);
    if (op == nullptr) throw std::runtime_error("no operator " + node().target);
    return *op;
  }
  Call call() const { return Call(graph_, node(), op()); }

 private:
  static std::string complete(std::string_view text) {
    std::string out;
    while (!text.empty()) {
      const size_t end = text.find_first_of(";\n");
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      out += line;
      if (line.find('%') != std::string_view::npos && line.find('=') == std::string_view::npos) {
        out += " = input user \"" +
               std::string(line.substr(line.find('%') + 1, line.find(':') - line.find('%') - 1)) +
               "\"";
      }
      out += '\n';
    }
    return out + "return ()\n";
  }

  Graph graph_;
};

// "(b)(s) -> (b)  sum s" for the last line of the program.
inline std::string rule_of(std::string_view text) {
  const Program program(text);
  return to_string(apply_rule(program.call()));
}

// What the last line is refused with, or "".
inline std::string refusal_of(std::string_view text) {
  const Program program(text);
  const OpDef& op = program.op();
  return op.refuse == nullptr ? "" : op.refuse(program.call()).value_or("");
}

// Writes the local form of a program's last node for `ranks` ranks, sharded along one letter. An
// operand whose padding is replaced shows as test.fill(%x, value); without `ragged` there is none.
class RecordingForm : public LocalForm {
 public:
  RecordingForm(const Program& program, std::string_view letter, int64_t ranks = 2,
                bool ragged = false)
      : call_(program.call()), application_(apply_rule(call_)), ranks_(ranks), ragged_(ragged) {
    for (size_t i = 0; i < application_.letters.size(); ++i) {
      if (application_.letters[i].name == letter) letter_ = static_cast<LetterId>(i);
    }
    if (letter_ < 0)
      throw std::runtime_error("no letter " + std::string(letter) + " in " +
                               to_string(application_));
    for (const Node& node : program.graph().nodes) {
      if (node.kind != NodeKind::kInput) break;
      graph_.nodes.push_back(node);
      for (const Operand& operand : application_.operands) {
        if (operand.value == node.id)
          graph_.nodes.back().type.shape = cut(node.type.shape, operand.letters);
      }
    }
    inputs_ = graph_.nodes.size();
  }

  const Call& call() const override { return call_; }
  LetterId letter() const override { return letter_; }
  bool in_body() const override { return false; }
  bool in_bag() const override { return false; }
  bool is_ragged() const override { return false; }
  const Application& application() const override { return application_; }
  Arg local(std::string_view parameter) const override { return *call_.find(parameter); }
  std::vector<Expr> local_shape(int result) const override {
    const Type& type = call_.result();
    const auto index = static_cast<size_t>(result);
    return cut(type.is_tensor() ? type.shape : type.elements[index].shape,
               application_.results[index]);
  }
  std::vector<Expr> local_operand_shape(std::string_view parameter) const override {
    return graph_.node(call_.value(parameter)).type.shape;
  }
  NodeId emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) override {
    Node node;
    node.id = graph_.size();
    node.name = std::to_string(static_cast<size_t>(node.id) - inputs_);
    node.name.insert(0, "n");
    node.target = std::move(target);
    node.args = std::move(args);
    node.kwargs = std::move(kwargs);
    node.type = std::move(type);
    graph_.nodes.push_back(std::move(node));
    return graph_.nodes.back().id;
  }
  NodeId emit_same(Type type) override {
    return emit(call_.node().target, call_.node().args, call_.node().kwargs, std::move(type));
  }
  NodeId all_reduce(NodeId partial) override {
    const Type type = graph_.node(partial).type;
    return emit("autosp.p_to_r", {Arg::of(partial)}, {}, type);
  }
  Isolated isolated(std::string_view parameter) override {
    const NodeId value = call_.value(parameter);
    const std::vector<Expr>& shape = graph_.node(value).type.shape;
    for (const Operand& operand : application_.operands) {
      for (size_t dim = 0; operand.value == value && dim < operand.letters.size(); ++dim) {
        if (operand.letters[dim] != DimLetters{letter_}) continue;
        return {value, shape, static_cast<int>(dim), call_.tensor(parameter)->shape[dim],
                Expr::symbol(kRankSymbol) * shape[dim]};
      }
    }
    throw std::runtime_error("the letter is no dimension of its own");
  }
  Arg without_padding(std::string_view parameter, double fill) override {
    const NodeId value = call_.value(parameter);
    bool cut_here = false;
    for (const Operand& operand : application_.operands) {
      if (operand.value != value) continue;
      for (const DimLetters& dim : operand.letters) {
        for (const LetterId letter : dim) cut_here |= letter == letter_;
      }
    }
    if (!ragged_ || !cut_here) return Arg::of(value);
    const Type type = graph_.node(value).type;
    return Arg::of(emit("test.fill", {Arg::of(value), Arg::float_of(fill)}, {}, type));
  }

  void append_ranks(std::vector<Arg>& args) const override { args.push_back(Arg::integer_of(0)); }
  NodeId operand(size_t operand) const override { return application_.operands[operand].value; }
  bool is_cut(size_t operand) const override { return cut_dim(operand) >= 0; }
  int64_t cut_dim(size_t operand) const override {
    const TensorLetters& letters = application_.operands[operand].letters;
    for (size_t dim = 0; dim < letters.size(); ++dim) {
      for (const LetterId letter : letters[dim]) {
        const Letter& its = application_.letters[static_cast<size_t>(letter)];
        const bool follows = its.kind == LetterKind::kShift && its.link == letter_;
        if (letter == letter_ || follows) return static_cast<int64_t>(dim);
      }
    }
    return -1;
  }
  Expr extent(size_t operand) const override {
    const Operand& read = application_.operands[operand];
    const auto dim = static_cast<size_t>(cut_dim(operand));
    return application_.letters[static_cast<size_t>(read.letters[dim][0])].size;
  }
  bool is_exact(size_t) const override { return !ragged_; }
  int64_t extra() const override { return 0; }
  int64_t extra_of(size_t) const override { return 0; }
  Expr part() const override {
    return floor_div(application_.letters[static_cast<size_t>(letter_)].size, Expr(ranks_));
  }
  NodeId window(size_t operand, int64_t before, int64_t after, double, bool) override {
    const NodeId x = this->operand(operand);
    if (before == 0 && after == 0) return x;
    return emit("test.window", {Arg::of(x), Arg::integer_of(before), Arg::integer_of(after)}, {},
                graph_.node(x).type);
  }
  NodeId rows_at(size_t operand, const Expr& start) override {
    const NodeId x = this->operand(operand);
    return emit("test.rows_at", {Arg::of(x), Arg::size_of(start)}, {}, graph_.node(x).type);
  }
  NodeId as_result(NodeId rows) override { return rows; }

  // The lines of the local form; the result's last, after "R " when it is replicated.
  std::string write() {
    const OpDef& op = call_.op();
    const LocalResult result =
        op.localize != nullptr
            ? op.localize(*this)
            : LocalResult{emit_same(Type::tensor(call_.result().dtype, local_shape(0)))};
    std::string text;
    for (size_t i = inputs_; i < graph_.nodes.size(); ++i)
      text += print(graph_, graph_.nodes[i]) + "\n";
    return text + (result.replicated ? "R %" : "%") + graph_.node(result.node).name;
  }

 private:
  std::vector<Expr> cut(std::vector<Expr> shape, const TensorLetters& letters) const {
    for (size_t dim = 0; dim < letters.size(); ++dim) {
      for (const LetterId letter : letters[dim]) {
        if (letter == letter_) shape[dim] = floor_div(shape[dim], Expr(ranks_));
      }
    }
    return shape;
  }

  Call call_;
  Application application_;
  LetterId letter_ = -1;
  int64_t ranks_;
  bool ragged_;
  Graph graph_;
  size_t inputs_ = 0;
};

inline std::string local_form(std::string_view text, std::string_view letter, bool ragged = false) {
  const Program program(text);
  return RecordingForm(program, letter, 2, ragged).write();
}

}  // namespace autosp
