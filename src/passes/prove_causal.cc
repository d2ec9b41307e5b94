#include "passes/prove_causal.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"

namespace autosp {
namespace {

// The variable that counts along dimension `dim` of the value at hand.
std::string index_name(size_t dim) { return "index" + std::to_string(dim); }
Expr index(size_t dim) { return Expr::symbol(index_name(dim)); }

// What is known of every element of an integer or boolean tensor, as a function of its own indices.
struct Elements {
  enum class Kind : uint8_t {
    kInteger,  // the element is `integer`
    kTruth,    // the element is true exactly where every one of `at_least_zero` is >= 0
    kFalse,    // the element is false
  };
  Kind kind = Kind::kInteger;
  Expr integer = Expr(0);
  std::vector<Expr> at_least_zero;

  static Elements number(Expr value) { return {Kind::kInteger, std::move(value), {}}; }
  static Elements truth(std::vector<Expr> conditions = {}) {
    return {Kind::kTruth, Expr(0), std::move(conditions)};
  }
  static Elements never() { return {Kind::kFalse, Expr(0), {}}; }
  static Elements constant(bool value) { return value ? truth() : never(); }
  bool is_true() const { return kind == Kind::kTruth && at_least_zero.empty(); }
};
using Known = std::optional<Elements>;

using Substitution = std::map<std::string, Expr>;

Elements substitute(Elements elements, const Substitution& indices) {
  elements.integer = elements.integer.substitute(indices);
  for (Expr& condition : elements.at_least_zero) condition = condition.substitute(indices);
  return elements;
}

class MaskEvaluator {
 public:
  explicit MaskEvaluator(const Graph& graph) : graph_(graph), known_(graph.nodes.size()) {
    for (const Node& node : graph.nodes) {
      if (node.kind == NodeKind::kInput || !node.type.is_tensor()) continue;
      // Narrower integers could wrap around.
      const DType dtype = node.type.dtype;
      if (dtype != DType::kBool && dtype != DType::kInt64 && dtype != DType::kInt32) continue;
      const OpDef* op = find_op(node.target);
      if (op != nullptr) known_[node.id] = evaluate(Call(graph, node, *op));
    }
  }

  // Whether a mask over [..., queries, keys] is true exactly where key <= query.
  bool is_causal(NodeId mask, const Expr& queries, const Expr& keys) const {
    const Type& type = graph_.node(mask).type;
    const size_t rank = type.shape.size();
    if (!type.is_tensor() || rank < 2 || type.dtype != DType::kBool ||
        type.shape[rank - 2] != queries || type.shape[rank - 1] != keys || queries != keys) {
      return false;
    }
    const Known& mask_elements = known_[mask];
    if (!mask_elements || mask_elements->kind != Elements::Kind::kTruth) return false;
    const Expr causal = index(rank - 2) - index(rank - 1);
    bool found = false;
    for (const Expr& condition : mask_elements->at_least_zero) {
      if (condition == causal) {
        found = true;
      } else if (!always(condition, type.shape)) {
        return false;
      }
    }
    return found;
  }

 private:
  // Whether an affine expression is >= 0 for all indices within `shape`: its least value is.
  static bool always(const Expr& condition, const std::vector<Expr>& shape) {
    Substitution least;
    Substitution origin;
    for (size_t dim = 0; dim < shape.size(); ++dim) origin[index_name(dim)] = Expr(0);
    Expr affine = condition.substitute(origin);
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      Substitution step = origin;
      step[index_name(dim)] = Expr(1);
      const Expr slope = condition.substitute(step) - condition.substitute(origin);
      if (!slope.is_constant()) return false;
      affine += slope * index(dim);
      least[index_name(dim)] = slope.constant_value() < 0 ? shape[dim] - Expr(1) : Expr(0);
    }
    if (affine != condition) return false;
    const std::optional<int64_t> value = condition.substitute(least).as_constant();
    return value && *value >= 0;
  }

  Known operand(const Call& call, std::string_view parameter) const {
    const Arg* arg = call.find(parameter);
    return arg == nullptr ? std::nullopt : argument(*arg, call.result().shape);
  }

  // An argument's elements seen through the indices of a broadcast result.
  Known argument(const Arg& arg, const std::vector<Expr>& result_shape) const {
    if (arg.kind == Arg::Kind::kBool) return Elements::constant(arg.integer != 0);
    if (arg.is_integral()) return Elements::number(arg.as_expr());
    if (!arg.is_value() || !known_[arg.value]) return std::nullopt;
    const std::vector<Expr>& shape = graph_.node(arg.value).type.shape;
    const size_t shift = result_shape.size() - shape.size();
    Substitution indices;
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      indices[index_name(dim)] = shape[dim] == Expr(1) ? Expr(0) : index(dim + shift);
    }
    return substitute(*known_[arg.value], indices);
  }

  static Known as_truth(const Known& elements) {
    if (!elements || elements->kind != Elements::Kind::kInteger) return elements;
    if (const auto value = elements->integer.as_constant()) return Elements::constant(*value != 0);
    return std::nullopt;
  }

  static Known as_integer(const Known& elements) {
    if (!elements || elements->kind == Elements::Kind::kInteger) return elements;
    if (elements->kind == Elements::Kind::kFalse) return Elements::number(Expr(0));
    return elements->is_true() ? Known(Elements::number(Expr(1))) : std::nullopt;
  }

  static Known negated(const Known& elements) {
    if (!elements || elements->kind == Elements::Kind::kInteger) return std::nullopt;
    if (elements->kind == Elements::Kind::kFalse) return Elements::truth();
    if (elements->is_true()) return Elements::never();
    if (elements->at_least_zero.size() != 1) return std::nullopt;
    return Elements::truth({Expr(-1) - elements->at_least_zero[0]});
  }

  static Known both(const Known& left, const Known& right) {
    if (left && left->kind == Elements::Kind::kFalse) return left;
    if (right && right->kind == Elements::Kind::kFalse) return right;
    if (!left || !right) return std::nullopt;
    std::vector<Expr> conditions = left->at_least_zero;
    conditions.insert(conditions.end(), right->at_least_zero.begin(), right->at_least_zero.end());
    return Elements::truth(std::move(conditions));
  }

  static Known at_least(const Expr& difference) {
    if (const auto value = difference.as_constant()) return Elements::constant(*value >= 0);
    return Elements::truth({difference});
  }

  static Known equal(const Expr& difference) {
    if (const auto value = difference.as_constant()) return Elements::constant(*value == 0);
    return std::nullopt;
  }

  Known compare(const Call& call, std::string_view name) const {
    const Known left = as_integer(operand(call, "input"));
    const Known right = as_integer(operand(call, "other"));
    if (!left || !right) return std::nullopt;
    const Expr more = left->integer - right->integer;
    if (name == "ge") return at_least(more);
    if (name == "gt") return at_least(more - Expr(1));
    if (name == "le") return at_least(-more);
    if (name == "lt") return at_least(-more - Expr(1));
    if (name == "eq") return equal(more);
    return negated(equal(more));
  }

  Known arithmetic(const Call& call, std::string_view name) const {
    const Known left = as_integer(operand(call, "input"));
    const Known right = as_integer(operand(call, "other"));
    // Sums and products of truth values are logic, not numbers.
    if (!left || !right || call.integer_or("alpha", 1) != 1 || call.result().dtype == DType::kBool)
      return std::nullopt;
    if (name == "add") return Elements::number(left->integer + right->integer);
    if (name == "sub") return Elements::number(left->integer - right->integer);
    return Elements::number(left->integer * right->integer);
  }

  Known logic(const Call& call, std::string_view name) const {
    if (call.result().dtype != DType::kBool) return std::nullopt;
    const Known left = as_truth(operand(call, "input"));
    const Known right = as_truth(operand(call, "other"));
    if (name == "bitwise_and" || name == "logical_and") return both(left, right);
    return negated(both(negated(left), negated(right)));
  }

  // arange(end) and arange(start, end), as positions or keywords, by ones.
  Known arange(const Call& call) const {
    std::vector<Arg> bounds;
    if (const Arg* given = call.find("bounds")) bounds = given->items;
    const Arg* start = call.find("start");
    const Arg* step = call.find("step");
    const bool by_ones =
        step == nullptr || step->is_none() || (step->is_integral() && step->as_expr() == Expr(1));
    if (bounds.size() > 2 || !by_ones) return std::nullopt;
    Expr first(0);
    const bool start_is_first = bounds.size() == 2 || (bounds.size() == 1 && call.has("end"));
    const Arg* from = start_is_first ? &bounds[0] : start;
    if (from != nullptr && !from->is_none()) {
      if (!from->is_integral()) return std::nullopt;
      first = from->as_expr();
    }
    return Elements::number(first + index(0));
  }

  // x[i] - x[i-1], where x starts with `prepend`: one expression if the first difference agrees
  // with the others.
  Known difference(const Call& call) const {
    const NodeId value = call.value("input");
    if (value == kNoNode || !known_[value] || call.integer_or("n", 1) != 1 || call.has("append") ||
        known_[value]->kind != Elements::Kind::kInteger) {
      return std::nullopt;
    }
    const auto rank = static_cast<int64_t>(call.result().shape.size());
    const std::string along = index_name(static_cast<size_t>(call.dim_or("dim", rank, -1)));
    const Expr& x = known_[value]->integer;
    const Expr step = x - x.substitute({{along, Expr::symbol(along) - Expr(1)}});
    const NodeId prepend = call.value("prepend");
    if (prepend == kNoNode || !known_[prepend] || known_[prepend]->kind != Elements::Kind::kInteger)
      return std::nullopt;
    const Type& before = graph_.node(prepend).type;
    if (before.shape.size() != static_cast<size_t>(rank) ||
        before.shape[static_cast<size_t>(call.dim_or("dim", rank, -1))] != Expr(1)) {
      return std::nullopt;
    }
    const Expr first =
        x.substitute({{along, Expr(0)}}) - known_[prepend]->integer.substitute({{along, Expr(0)}});
    if (step.substitute({{along, Expr(0)}}) != first || step != first) return std::nullopt;
    return Elements::number(step);
  }

  // tril and triu of a tensor that is true (or 1) everywhere.
  Known triangle(const Call& call, bool lower) const {
    const Known source = as_truth(operand(call, "self"));
    const auto rank = call.result().shape.size();
    if (!source || !source->is_true() || rank < 2 || call.result().dtype != DType::kBool)
      return std::nullopt;
    const Expr offset = index(rank - 2) - index(rank - 1) + Expr(call.integer_or("diagonal", 0));
    return Elements::truth({lower ? offset : -offset});
  }

  // Operators that only move elements: the operand's index along each letter is the result's.
  Known moved(const Call& call) const {
    const Application rule = apply_rule(call);
    if (rule.operands.size() != 1 || rule.results.size() != 1 || rule.operands[0].element != 0)
      return std::nullopt;
    const NodeId value = rule.operands[0].value;
    if (!known_[value]) return std::nullopt;
    std::map<LetterId, size_t> place;
    for (size_t dim = 0; dim < rule.results[0].size(); ++dim) {
      if (rule.results[0][dim].size() > 1) return std::nullopt;
      if (rule.results[0][dim].size() == 1) place[rule.results[0][dim][0]] = dim;
    }
    Substitution indices;
    const TensorLetters& from = rule.operands[0].letters;
    for (size_t dim = 0; dim < from.size(); ++dim) {
      if (from[dim].empty()) {
        indices[index_name(dim)] = Expr(0);
        continue;
      }
      if (from[dim].size() > 1 || rule.letters[from[dim][0]].kind != LetterKind::kPass)
        return std::nullopt;
      const auto found = place.find(from[dim][0]);
      if (found == place.end()) return std::nullopt;
      indices[index_name(dim)] = index(found->second);
    }
    return substitute(*known_[value], indices);
  }

  // Slices, None, integers and Ellipsis; or index tensors for every dimension.
  Known indexed(const Call& call) const {
    const Node& node = call.node();
    if (node.args.size() != 2 || !node.args[0].is_value() || !known_[node.args[0].value])
      return std::nullopt;
    const Elements& source = *known_[node.args[0].value];
    const size_t rank = graph_.node(node.args[0].value).type.shape.size();
    std::vector<Arg> items = node.args[1].kind == Arg::Kind::kTuple
                                 ? node.args[1].items
                                 : std::vector<Arg>{node.args[1]};
    size_t consumed = 0;
    size_t tensors = 0;
    for (const Arg& item : items) {
      consumed += !item.is_none() && item.kind != Arg::Kind::kEllipsis;
      tensors += item.is_value();
    }
    if (consumed > rank) return std::nullopt;
    Substitution indices;
    if (tensors > 0) {
      if (tensors != items.size() || tensors != rank) return std::nullopt;
      for (size_t dim = 0; dim < rank; ++dim) {
        const Known at = argument(items[dim], call.result().shape);
        // An index below zero would count from the end.
        if (!at || at->kind != Elements::Kind::kInteger ||
            !always(at->integer, call.result().shape))
          return std::nullopt;
        indices[index_name(dim)] = at->integer;
      }
      return substitute(source, indices);
    }
    size_t dim = 0;
    size_t out = 0;
    const auto keep = [&](size_t count) {
      for (; count > 0; --count) indices[index_name(dim++)] = index(out++);
    };
    for (const Arg& item : items) {
      switch (item.kind) {
        case Arg::Kind::kNone:
          ++out;
          break;
        case Arg::Kind::kEllipsis:
          keep(rank - consumed);
          break;
        case Arg::Kind::kSlice: {
          const Arg& start = item.items[0];
          const Arg& step = item.items[2];
          if (!step.is_none() && !(step.is_integral() && step.as_expr() == Expr(1)))
            return std::nullopt;
          if (!start.is_none() && !(start.kind == Arg::Kind::kInt && start.integer >= 0))
            return std::nullopt;
          indices[index_name(dim++)] = index(out++) + Expr(start.is_none() ? 0 : start.integer);
          break;
        }
        case Arg::Kind::kInt:
          if (item.integer < 0) return std::nullopt;
          indices[index_name(dim++)] = Expr(item.integer);
          break;
        default:
          return std::nullopt;
      }
    }
    keep(rank - dim);
    return substitute(source, indices);
  }

  static Known filled(const Call& call, const Arg* value) {
    if (value == nullptr) return std::nullopt;
    const bool truth = call.result().dtype == DType::kBool;
    if (value->kind != Arg::Kind::kInt && value->kind != Arg::Kind::kBool) return std::nullopt;
    return truth ? Elements::constant(value->integer != 0) : Elements::number(Expr(value->integer));
  }

  Known evaluate(const Call& call) const {
    const std::string_view name = call.op().name;
    const bool truth = call.result().dtype == DType::kBool;
    if (name == "arange") return arange(call);
    if (name == "ones" || name == "new_ones" || name == "ones_like") {
      return truth ? Elements::truth() : Elements::number(Expr(1));
    }
    if (name == "zeros" || name == "new_zeros" || name == "zeros_like") {
      return truth ? Elements::never() : Elements::number(Expr(0));
    }
    if (name == "full" || name == "new_full" || name == "full_like")
      return filled(call, call.find("fill_value"));
    if (name == "getitem") return indexed(call);
    if (name == "add" || name == "sub" || name == "mul") return arithmetic(call, name);
    if (name == "neg") {
      const Known x = as_integer(operand(call, "input"));
      return x ? Known(Elements::number(-x->integer)) : std::nullopt;
    }
    if (name == "le" || name == "lt" || name == "ge" || name == "gt" || name == "eq" ||
        name == "ne") {
      return compare(call, name);
    }
    if (name == "bitwise_and" || name == "logical_and" || name == "bitwise_or" ||
        name == "logical_or") {
      return logic(call, name);
    }
    if (name == "bitwise_not" || name == "logical_not")
      return truth ? negated(as_truth(operand(call, "input"))) : std::nullopt;
    if (name == "diff") return difference(call);
    if (name == "cumsum") {
      const Known x = as_integer(operand(call, "input"));
      return x && x->integer == Expr(0) ? x : std::nullopt;
    }
    if (name == "tril") return triangle(call, /*lower=*/true);
    if (name == "triu") return triangle(call, /*lower=*/false);
    const Known elements = moved_or_copied(call);
    return truth ? as_truth(elements) : as_integer(elements);
  }

  // Views, copies and casts between integers and booleans.
  Known moved_or_copied(const Call& call) const {
    const std::string_view name = call.op().name;
    const bool copies = name == "to" || name == "contiguous" || name == "clone" || name == "long" ||
                        name == "int" || name == "bool" || name == "detach";
    return copies || call.op().aliases ? moved(call) : std::nullopt;
  }

  const Graph& graph_;
  std::vector<Known> known_;
};

}  // namespace

bool prove_causal(Graph& graph) {
  std::vector<NodeId> attentions;
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    if (op != nullptr && op->name == "sdpa") attentions.push_back(node.id);
  }
  if (attentions.empty()) return false;
  const MaskEvaluator masks(graph);
  bool changed = false;
  for (NodeId id : attentions) {
    Node& node = graph.node(id);
    const Call call(graph, node, *find_op(node.target));
    const NodeId mask = call.value("attn_mask");
    if (mask == kNoNode || call.boolean_or("is_causal", false)) continue;
    const auto length = [&](std::string_view parameter) {
      const std::vector<Expr>& shape = call.tensor(parameter)->shape;
      return shape[shape.size() - 2];
    };
    if (!masks.is_causal(mask, length("query"), length("key"))) continue;
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
