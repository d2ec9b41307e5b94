#include "sharding/mask_elements.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>

namespace autosp {
namespace {

constexpr size_t kMaxSize = 256;
// No score reaches numbers so large, nor does a factor.
constexpr double kHidden = 1e4;
// Whole numbers up to here are exact in every floating-point type.
constexpr double kExact = 256;

bool is_integer(DType dtype) { return dtype == DType::kInt64 || dtype == DType::kInt32; }

bool is_whole(double value) {
  return std::abs(value) < 9e15 && value == static_cast<double>(static_cast<int64_t>(value));
}

bool holds(std::string_view comparison, double value) {
  if (comparison == "ge") return value >= 0;
  if (comparison == "gt") return value > 0;
  if (comparison == "le") return value <= 0;
  if (comparison == "lt") return value < 0;
  return (value == 0) == (comparison == "eq");
}

bool is_ones(std::string_view name) {
  return name == "ones" || name == "new_ones" || name == "ones_like";
}

// The short name of a comparison, or nothing.
std::string_view comparison(std::string_view name) {
  static const std::map<std::string_view, std::string_view> kNames = {
      {"ge", "ge"},       {"greater_equal", "ge"},
      {"gt", "gt"},       {"greater", "gt"},
      {"le", "le"},       {"less_equal", "le"},
      {"lt", "lt"},       {"less", "lt"},
      {"eq", "eq"},       {"ne", "ne"},
      {"not_equal", "ne"}};
  const auto found = kNames.find(name);
  return found == kNames.end() ? std::string_view() : found->second;
}

bool is_reflected(const Call& call) { return call.node().target.find("__r") != std::string::npos; }

// The indices of a value seen through those of the result that it is broadcast to.
Substitution broadcast(const std::vector<Expr>& shape, size_t rank) {
  Substitution indices;
  const size_t shift = rank - shape.size();
  for (size_t dim = 0; dim < shape.size(); ++dim)
    indices[index_name(dim)] = shape[dim] == Expr(1) ? Expr(0) : index_along(dim + shift);
  return indices;
}

}  // namespace

bool is_never_negative(const Expr& expr, const std::vector<Expr>& shape) {
  Substitution least;
  Substitution origin;
  for (size_t dim = 0; dim < shape.size(); ++dim) origin[index_name(dim)] = Expr(0);
  Expr affine = expr.substitute(origin);
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    Substitution step = origin;
    step[index_name(dim)] = Expr(1);
    const Expr slope = expr.substitute(step) - expr.substitute(origin);
    if (!slope.is_constant()) return false;
    affine += slope * index_along(dim);
    least[index_name(dim)] = slope.constant_value() < 0 ? shape[dim] - Expr(1) : Expr(0);
  }
  if (affine != expr) return false;
  const std::optional<int64_t> value = expr.substitute(least).as_constant();
  return value && *value >= 0;
}

MaskElements::MaskElements(const Graph& graph, const std::vector<NodeId>& values, Floats floats,
                           const std::function<bool(NodeId)>& opaque)
    : graph_(graph), known_(graph.nodes.size()) {
  std::vector<bool> wanted(graph.nodes.size());
  for (NodeId value : values) wanted[value] = true;
  for (NodeId id = graph.size(); id-- > 0;) {
    if (!wanted[id] || opaque(id)) continue;
    for_each_operand(graph.node(id), [&](NodeId operand) { wanted[operand] = true; });
  }
  for (const Node& node : graph.nodes) {
    if (!wanted[node.id] || !node.type.is_tensor()) continue;
    const DType dtype = node.type.dtype;
    // Narrower integers could wrap around.
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    const bool is_known =
        dtype == DType::kBool || is_integer(dtype) ||
        (is_floating(dtype) && (floats == Floats::kReal || (op != nullptr && is_ones(op->name))));
    if (op != nullptr && is_known && !opaque(node.id)) {
      try {
        known_[node.id] = evaluate(Call(graph, node, *op));
      } catch (const std::overflow_error&) {  // too large an expression
        known_[node.id] = std::nullopt;
      }
    }
    if (!known_[node.id] || !is_small(*known_[node.id])) known_[node.id] = own_read(node);
  }
}

bool MaskElements::is_small(const Elements& elements) const {
  return elements.is_truth() ? atoms_.size(elements.truth) <= kMaxSize
                             : atoms_.size(elements.number) <= kMaxSize &&
                                   elements.number.terms().size() <= kMaxSize;
}

Elements MaskElements::own_read(const Node& node) {
  std::vector<Expr> indices;
  for (size_t dim = 0; dim < node.type.shape.size(); ++dim)
    indices.push_back(node.type.shape[dim] == Expr(1) ? Expr(0) : index_along(dim));
  const Expr read = atoms_.read(node.id, std::move(indices));
  return node.type.dtype == DType::kBool ? Elements::of(Formula::not_zero(read))
                                         : Elements::of(read);
}

// ---- Operands ----

std::optional<Expr> MaskElements::number_argument(const Arg& arg, bool floating) {
  if (arg.kind != Arg::Kind::kFloat) {
    if (!arg.is_integral()) return std::nullopt;
    const std::optional<int64_t> value = arg.as_expr().as_constant();
    if (!floating || !value || std::abs(static_cast<double>(*value)) < kHidden)
      return arg.as_expr();
    return *value < 0 ? atoms_.hidden() : -atoms_.hidden();
  }
  if (std::isnan(arg.number)) return std::nullopt;
  if (floating && std::abs(arg.number) >= kHidden)
    return arg.number < 0 ? atoms_.hidden() : -atoms_.hidden();
  return is_whole(arg.number) ? Expr(static_cast<int64_t>(arg.number)) : atoms_.number(arg.number);
}

// An argument's elements seen through the indices of a broadcast result.
MaskElements::Known MaskElements::argument(const Arg& arg, const Type& result) {
  if (arg.kind == Arg::Kind::kBool) return Elements::of(Formula::constant(arg.integer != 0));
  if (!arg.is_value()) {
    const std::optional<Expr> value = number_argument(arg, is_floating(result.dtype));
    return value ? Known(Elements::of(*value)) : std::nullopt;
  }
  if (!known_[arg.value]) return std::nullopt;
  const std::vector<Expr>& shape = graph_.node(arg.value).type.shape;
  if (shape.size() > result.shape.size()) return std::nullopt;
  return atoms_.substitute(*known_[arg.value], broadcast(shape, result.shape.size()));
}

MaskElements::Known MaskElements::operand(const Call& call, std::string_view parameter) {
  const Arg* arg = call.find(parameter);
  return arg == nullptr ? std::nullopt : argument(*arg, call.result());
}

Expr MaskElements::as_number(const Elements& elements) {
  return elements.is_truth() ? atoms_.truth(elements.truth) : elements.number;
}

std::optional<Expr> MaskElements::number(const Call& call, std::string_view parameter) {
  const Known elements = operand(call, parameter);
  return elements ? std::optional(as_number(*elements)) : std::nullopt;
}

std::optional<Formula> MaskElements::as_truth(const Elements& elements, const Call& call) {
  if (elements.is_truth()) return elements.truth;
  if (auto known = compare_constants(elements.number, "ne")) return known;
  for (const auto& [parameter, arg] : call.bound()) {
    const Type* type = call.tensor(parameter);
    if (type != nullptr && is_floating(type->dtype)) return std::nullopt;
  }
  return Formula::not_zero(elements.number);
}

std::optional<Formula> MaskElements::truth(const Call& call, std::string_view parameter) {
  const Known elements = operand(call, parameter);
  return elements ? as_truth(*elements, call) : std::nullopt;
}

MaskElements::Known MaskElements::constant(const Arg* arg, const Type& result) {
  if (arg == nullptr) return std::nullopt;
  if (arg->is_value()) return argument(*arg, result);
  if (result.dtype == DType::kBool) {
    if (arg->kind != Arg::Kind::kInt && arg->kind != Arg::Kind::kBool) return std::nullopt;
    return Elements::of(Formula::constant(arg->integer != 0));
  }
  const std::optional<Expr> value = number_argument(*arg, is_floating(result.dtype));
  return value ? Known(Elements::of(*value)) : std::nullopt;
}

// ---- Numbers ----

// arange(end) and arange(start, end), as positions or keywords, by ones.
MaskElements::Known MaskElements::arange(const Call& call) const {
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
  return Elements::of(first + index_along(0));
}

MaskElements::Known MaskElements::arithmetic(const Call& call, std::string_view name) {
  const bool adds = name == "add";
  const bool multiplies = name.starts_with("mul");
  if (call.result().dtype == DType::kBool) {  // sums and products of truth values are logic
    const std::optional<Formula> left = truth(call, "input");
    const std::optional<Formula> right = truth(call, "other");
    if (!left || !right || (!adds && !multiplies)) return std::nullopt;
    return Elements::of(adds ? either(*left, *right) : both(*left, *right));
  }
  std::optional<Expr> left = number(call, "input");
  std::optional<Expr> right = number(call, "other");
  if (!left || !right || call.integer_or("alpha", 1) != 1) return std::nullopt;
  if (is_reflected(call) || name == "rsub") std::swap(left, right);
  if (adds) return Elements::of(*left + *right);
  if (multiplies) return Elements::of(*left * *right);
  const Atoms::Atom* atom = atoms_.find(*right);
  if (*left == Expr(1) && atom != nullptr && atom->kind == Atoms::Kind::kTruth) {
    const Formula formula = atom->truth;
    return Elements::of(atoms_.truth(negated(formula)));
  }
  return Elements::of(*left - *right);
}

// By a positive constant, rounded down as Python does.
MaskElements::Known MaskElements::quotient(const Call& call, bool remainder) {
  const std::optional<Expr> left = number(call, "input");
  const std::optional<Expr> right = number(call, "other");
  if (!left || !right || is_reflected(call) || !is_integer(call.result().dtype))
    return std::nullopt;
  const std::optional<int64_t> divisor = right->as_constant();
  if (!divisor || *divisor < 1) return std::nullopt;
  return Elements::of(remainder ? mod(*left, *right) : floor_div(*left, *right));
}

// Divided by a positive constant, what hides a score still does.
MaskElements::Known MaskElements::scaled(const Call& call) {
  const std::optional<Expr> left = number(call, "input");
  const std::optional<Expr> right = number(call, "other");
  const std::optional<double> divisor = right ? numeric(atoms_, *right) : std::nullopt;
  if (!left || !divisor || *divisor <= 0 || is_reflected(call) || call.has("rounding_mode"))
    return std::nullopt;
  return Elements::of(*left * atoms_.number(1 / *divisor));
}

// Of a number and a hidden one the largest is the number.
MaskElements::Known MaskElements::extremum(const Call& call, bool largest) {
  const bool as_dim = !call.has("other") && call.value("dim") != kNoNode;  // torch.max(x, y)
  const std::optional<Expr> left = number(call, "input");
  const std::optional<Expr> right = number(call, as_dim ? "dim" : "other");
  if (!left || !right) return std::nullopt;
  if (largest && *right == atoms_.hidden()) return Elements::of(*left);
  if (largest && *left == atoms_.hidden()) return Elements::of(*right);
  return Elements::of(largest ? max(*left, *right) : min(*left, *right));
}

MaskElements::Known MaskElements::clamped(const Call& call, std::string_view name) {
  std::optional<Expr> value = number(call, "input");
  for (const std::string_view side : {"min", "max"}) {
    if (!value || !call.has(side) || (name.starts_with("clamp_") && !name.ends_with(side)))
      continue;
    const std::optional<Expr> bound = number(call, side);
    if (!bound) return std::nullopt;
    value = side == "min" ? max(*value, *bound) : min(*value, *bound);
  }
  return value ? Known(Elements::of(*value)) : std::nullopt;
}

// ---- Truth values ----

// Of a number against zero that is a constant, or one of two where a truth value decides.
std::optional<Formula> MaskElements::compare_constants(const Expr& value, std::string_view name) {
  std::optional<std::string> choice;
  for (const std::string& symbol : value.symbols()) {
    const Atoms::Atom* atom = atoms_.find(symbol);
    if (atom == nullptr || (choice && atom->kind == Atoms::Kind::kTruth)) return std::nullopt;
    if (atom->kind == Atoms::Kind::kTruth) choice = symbol;
  }
  const auto at = [&](int truth) -> std::optional<bool> {
    const std::optional<double> number =
        numeric(atoms_, choice ? value.substitute({{*choice, Expr(truth)}}) : value);
    if (!number || (is_whole(*number) && std::abs(*number) > kExact && std::abs(*number) < kHidden))
      return std::nullopt;
    return holds(name, *number);
  };
  const std::optional<bool> if_true = at(1);
  const std::optional<bool> if_false = at(0);
  if (!if_true || !if_false) return std::nullopt;
  if (*if_true == *if_false) return Formula::constant(*if_true);
  const Formula formula = atoms_.find(*choice)->truth;
  return *if_true ? formula : negated(formula);
}

MaskElements::Known MaskElements::compare(const Call& call, std::string_view name) {
  const Known left = operand(call, "input");
  const Known right = operand(call, "other");
  if (!left || !right) return std::nullopt;
  const Expr more = as_number(*left) - as_number(*right);
  if (auto known = compare_constants(more, name)) return Elements::of(*known);
  for (const std::string_view side : {"input", "other"}) {
    const Type* type = call.tensor(side);
    const bool integral = type == nullptr ? call.find(side)->is_integral()
                                          : is_integer(type->dtype) || type->dtype == DType::kBool;
    if (!integral) return std::nullopt;
  }
  if (name == "ge") return Elements::of(Formula::at_least_zero(more));
  if (name == "gt") return Elements::of(Formula::at_least_zero(more - Expr(1)));
  if (name == "le") return Elements::of(Formula::at_least_zero(-more));
  if (name == "lt") return Elements::of(Formula::at_least_zero(-more - Expr(1)));
  return Elements::of(name == "eq" ? Formula::zero(more) : Formula::not_zero(more));
}

MaskElements::Known MaskElements::logic(const Call& call, std::string_view name) {
  if (call.result().dtype != DType::kBool) return std::nullopt;
  const std::optional<Formula> left = truth(call, "input");
  const std::optional<Formula> right = truth(call, "other");
  if (!left || !right) return std::nullopt;
  return Elements::of(name.ends_with("and") ? both(*left, *right) : either(*left, *right));
}

MaskElements::Known MaskElements::chosen(const Call& call, const Known& condition,
                                         const Known& then, const Known& other) {
  if (!condition || !then || !other) return std::nullopt;
  const std::optional<Formula> where = as_truth(*condition, call);
  if (!where) return std::nullopt;
  if (call.result().dtype == DType::kBool) {
    const std::optional<Formula> left = as_truth(*then, call);
    const std::optional<Formula> right = as_truth(*other, call);
    if (!left || !right) return std::nullopt;
    return Elements::of(either(both(*where, *left), both(negated(*where), *right)));
  }
  return Elements::of(atoms_.truth(*where) * as_number(*then) +
                      atoms_.truth(negated(*where)) * as_number(*other));
}

// tril and triu of truth values and of floating-point numbers.
MaskElements::Known MaskElements::triangle(const Call& call, bool lower) {
  const Known source = operand(call, "self");
  const size_t rank = call.result().shape.size();
  const bool is_truth = call.result().dtype == DType::kBool;
  if (!source || rank < 2 || (!is_truth && !is_floating(call.result().dtype))) return std::nullopt;
  const Expr offset =
      index_along(rank - 2) - index_along(rank - 1) + Expr(call.integer_or("diagonal", 0));
  const Formula inside = Formula::at_least_zero(lower ? offset : -offset);
  if (!is_truth) return Elements::of(as_number(*source) * atoms_.truth(inside));
  return Elements::of(both(source->truth, inside));
}

// ---- Along a dimension ----

// x[i] - x[i-1], where x starts with `prepend`: one expression if the first difference agrees
// with the others.
MaskElements::Known MaskElements::difference(const Call& call) {
  const NodeId value = call.value("input");
  const NodeId prepend = call.value("prepend");
  if (value == kNoNode || !known_[value] || known_[value]->is_truth() || prepend == kNoNode ||
      !known_[prepend] || known_[prepend]->is_truth() || call.integer_or("n", 1) != 1 ||
      call.has("append")) {
    return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(call.result().shape.size());
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank, -1));
  const Type& before = graph_.node(prepend).type;
  if (before.shape.size() != static_cast<size_t>(rank) || before.shape[dim] != Expr(1))
    return std::nullopt;
  const Substitution back = {{index_name(dim), index_along(dim) - Expr(1)}};
  const Substitution start = {{index_name(dim), Expr(0)}};
  const Expr x = known_[value]->number;
  const Expr step = x - atoms_.substitute(x, back);
  const Expr first =
      atoms_.substitute(x, start) - atoms_.substitute(known_[prepend]->number, start);
  if (atoms_.substitute(step, start) != first || step != first) return std::nullopt;
  return Elements::of(step);
}

// Of a constant.
MaskElements::Known MaskElements::running_total(const Call& call) {
  const std::optional<Expr> value = number(call, "input");
  if (!value || !value->is_constant()) return std::nullopt;
  const auto rank = static_cast<int64_t>(call.result().shape.size());
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank, -1));
  return Elements::of(*value * (index_along(dim) + Expr(1)));
}

// What is added to a product; the product is read as it is.
MaskElements::Known MaskElements::added_product(const Call& call) {
  const std::optional<Expr> added = number(call, "input");
  const Arg* factor = call.find("beta");
  if (!added || factor == nullptr) return std::nullopt;
  const std::optional<Expr> beta = number_argument(*factor, /*floating=*/true);
  if (!beta) return std::nullopt;
  return Elements::of(*added * *beta + own_read(call.node()).number);
}

MaskElements::Known MaskElements::evaluate(const Call& call) {
  const std::string_view name = call.op().name;
  const Type& result = call.result();
  Known out;
  if (name == "arange") {
    out = arange(call);
  } else if (is_ones(name)) {
    const Arg one = Arg::integer_of(1);
    out = constant(&one, result);
  } else if (name == "zeros" || name == "new_zeros" || name == "zeros_like") {
    const Arg zero = Arg::integer_of(0);
    out = constant(&zero, result);
  } else if (name == "full" || name == "new_full" || name == "full_like") {
    out = constant(call.find("fill_value"), result);
  } else if (name == "tensor" || name == "scalar_tensor" || name == "new_tensor") {
    out = result.shape.empty() ? constant(call.find("data"), result) : std::nullopt;
  } else if (name == "getitem") {
    out = indexed(call);
  } else if (name == "add" || name == "sub" || name == "mul" || name == "subtract" ||
             name == "multiply" || name == "rsub") {
    out = arithmetic(call, name);
  } else if (name == "neg" || name == "negative") {
    const std::optional<Expr> x = number(call, "input");
    if (x) out = Elements::of(-*x);
  } else if (name == "abs" || name == "absolute") {
    const std::optional<Expr> x = number(call, "input");
    if (x) out = Elements::of(max(*x, -*x));
  } else if (name == "floor_divide" ||
             (name.starts_with("div") && call.string_or("rounding_mode", "") == "floor")) {
    out = quotient(call, /*remainder=*/false);
  } else if (name == "remainder") {
    out = quotient(call, /*remainder=*/true);
  } else if (name == "maximum" || name == "minimum" || name == "max") {
    out = extremum(call, call.node().target.find("max") != std::string::npos);
  } else if (name.starts_with("clamp") || name == "clip") {
    out = clamped(call, name);
  } else if (!comparison(name).empty()) {
    out = compare(call, comparison(name));
  } else if (name == "bitwise_and" || name == "logical_and" || name == "bitwise_or" ||
             name == "logical_or") {
    out = logic(call, name);
  } else if (name == "bitwise_not" || name == "logical_not") {
    const std::optional<Formula> x = truth(call, "input");
    if (x && result.dtype == DType::kBool) out = Elements::of(negated(*x));
  } else if (name == "where") {
    out = chosen(call, operand(call, "condition"), operand(call, "input"), operand(call, "other"));
  } else if (name == "where (method)") {
    out = chosen(call, operand(call, "condition"), operand(call, "self"), operand(call, "other"));
  } else if (name == "masked_fill") {
    out = chosen(call, operand(call, "mask"), operand(call, "value"), operand(call, "input"));
  } else if (name == "tril" || name == "triu") {
    out = triangle(call, name == "tril");
  } else if (name == "diff") {
    out = difference(call);
  } else if (name == "cumsum") {
    out = running_total(call);
  } else if (name == "baddbmm") {
    out = added_product(call);
  } else if (name == "embedding") {
    out = looked_up(call);
  } else if (name == "gather") {
    out = gathered(call);
  } else if (name == "true_divide" || name.starts_with("div")) {
    out = scaled(call);
  } else if (call.op().aliases || name == "clone" || name == "tile" || name.starts_with("repeat")) {
    out = moved(call);
  }
  out = as_dtype(out, call);
  return out ? out : applied(call);
}

// Truth values as formulas; nothing of integers that may wrap around.
MaskElements::Known MaskElements::as_dtype(const Known& elements, const Call& call) {
  if (!elements) return std::nullopt;
  const DType dtype = call.result().dtype;
  if (dtype == DType::kBool) {
    const std::optional<Formula> formula = as_truth(*elements, call);
    return formula ? Known(Elements::of(*formula)) : std::nullopt;
  }
  const Expr number = as_number(*elements);
  if (is_integer(dtype) && !is_exact(number, dtype)) return std::nullopt;
  return Elements::of(number);
}

// Indices and lengths are below 2^24, say.
bool MaskElements::is_exact(const Expr& number, DType dtype) const {
  const std::vector<Expr::Term> terms = number.terms();
  return std::all_of(terms.begin(), terms.end(), [&](const Expr::Term& term) {
    int32_t degree = 0;
    for (const Expr::Factor& factor : term.factors) {
      const Atoms::Atom* atom = atoms_.find(factor.atom->name);
      if (atom != nullptr &&
          (atom->kind == Atoms::Kind::kNumber || atom->kind == Atoms::Kind::kHidden))
        return false;
      degree += factor.power;
    }
    const int64_t most = dtype == DType::kInt64 ? int64_t{1} << 31 : int64_t{1} << 6;
    const int32_t factors = dtype == DType::kInt64 ? 2 : 1;
    return degree == 0 ||
           (degree <= factors && std::abs(term.coefficient) <= (degree > 1 ? most >> 20 : most));
  });
}

}  // namespace autosp
