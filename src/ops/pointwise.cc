// Elementwise operators: arithmetic, comparisons, logic, activations, casts and copies. Every
// letter is pass.
#include <algorithm>
#include <deque>
#include <iterator>

#include "ops/op.h"
#include "ops/rule_line.h"
#include "ops/write_back.h"

namespace autosp {
namespace {

constexpr std::string_view kRule = "…, … -> …";

// The registry keeps views of names, also of those that are put together here.
std::string_view keep(std::string text) {
  static std::deque<std::string> pool;
  return pool.emplace_back(std::move(text));
}

Application pointwise(const Call& call) { return pointwise_application(call); }

// The other tensors of a cast are templates: `x.to(other)` takes a dtype, not an axis.
Application cast(const Call& call) { return pointwise_application(call, {"self"}); }

// Torch goes on to give the gradient of the numbers that were there before.
std::optional<std::string> refuse_truth_in_place(const Call& call) {
  const Type* input = call.tensor("input");
  if (input == nullptr || !is_floating(input->dtype)) return std::nullopt;
  return "it writes truth values over numbers that have a gradient: use the out-of-place form";
}

std::optional<std::string> refuse_in_place(const Call& call) {
  if (!call.boolean_or("inplace", false)) return std::nullopt;
  return "inplace=True overwrites its operand, which is not supported yet: set it to False";
}

std::optional<std::string> refuse_search(const Call& call) {
  if (call.find("input") != nullptr) return std::nullopt;
  return "with a condition alone its result has as many rows as the condition has true elements; "
         "sizes that "
         "depend on values are not supported: give both branches";
}

// A cast to the dtype that a tensor has gives the tensor itself, unless it is told to copy or the
// device may be another.
Sharing cast_shares(const Call& call) {
  const Type* operand = call.tensor("self");
  if (operand == nullptr || operand->dtype != call.result().dtype) return Sharing::kNo;
  if (operand->dtype == DType::kOther) return Sharing::kMaybe;
  for (const auto& [parameter, arg] : call.bound()) {
    if (parameter == "self" || parameter == "non_blocking" || arg.is_none()) continue;
    const bool is_dtype =
        parameter == "dtype" || (parameter == "args" && arg.items.size() == 1 &&
                                 parse_dtype(arg.items[0].text) == call.result().dtype);
    const bool is_default = (parameter == "args" && arg.items.empty()) ||
                            (parameter == "copy" && arg == Arg::bool_of(false));
    if (!is_dtype && !is_default) return Sharing::kMaybe;
  }
  return Sharing::kYes;
}

// One slope per channel, dimension 1, or one for all.
Application prelu(const Call& call) {
  Application application;
  const TensorLetters letters = fresh_letters(application, call.result(), "d");
  application.operands.push_back({call.value("input"), 0, letters});
  if (const Type* weight = call.tensor("weight")) {
    TensorLetters slope(weight->shape.size());
    if (slope.size() == 1 && weight->shape[0] != Expr(1))
      slope[0] = letters[letters.size() > 1 ? 1 : 0];
    application.operands.push_back({call.value("weight"), 0, std::move(slope)});
  }
  application.results.push_back(letters);
  return application;
}

// The first half of a dimension gates the second.
Application glu(const Call& call) {
  const auto rank = static_cast<int64_t>(call.result().shape.size());
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank, -1));
  Application application = along(call, "input", {static_cast<int64_t>(dim)}, LetterKind::kWhole);
  application.results[0][dim] =
      application.dim("half", call.result().shape[dim], LetterKind::kWhole);
  return application;
}

bool linear_in_dividend(const Call& call, const std::vector<bool>& marked) {
  return linear_in_one(call, marked) && marked[0] && call.value("input") != kNoNode &&
         !call.has("rounding_mode") && call.node().target.find("__r") == std::string::npos;
}

// Those with poles, or whose gradient has one, or that overflow soon.
constexpr std::string_view kSingular[] = {
    "acos",  "acosh",       "addcdiv", "angle",  "asin",   "atan2",       "atanh",
    "cosh",  "digamma",     "div",     "divide", "erfinv", "exp",         "exp2",
    "expm1", "float_power", "fmod",    "hypot",  "lgamma", "log",         "log10",
    "log1p", "log2",        "logit",   "pow",    "polar",  "reciprocal",  "remainder",
    "rsqrt", "sinh",        "sqrt",    "tan",    "xlogy",  "true_divide", "floor_divide"};

bool singular(const Call& call, NodeId operand) {
  const std::string_view name = call.op().name;
  const bool reflected = call.node().target.find("__r") != std::string::npos;
  if (name.starts_with("div") || name == "true_divide")
    return reflected || operand == call.value("other");
  if (name == "pow" && !reflected) {  // x ** 2 is regular
    const Arg* exponent = call.find("exponent");
    return !exponent->is_integral() || !exponent->as_expr().is_constant() ||
           exponent->as_expr().constant_value() < 1;
  }
  return true;
}

// An operator that torch offers as torch.<name> and Tensor.<name>, and mostly in place as
// Tensor.<name>_.
struct Spelling {
  std::string_view name;
  std::string_view signature = "input";
  std::vector<std::string_view> more = {};  // further targets
  bool in_place = true;
  LinearFn linear = nullptr;
};

struct Group {
  bool differentiable = true;
  std::vector<Spelling> spellings;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> table = {
      {true,
       {
           {"abs", "input", {"_operator.abs"}},
           {"absolute"},
           {"acos"},
           {"acosh"},
           {"angle", "input", {}, false},
           {"asin"},
           {"asinh"},
           {"atan"},
           {"atanh"},
           {"ceil"},
           {"cos"},
           {"cosh"},
           {"deg2rad"},
           {"digamma"},
           {"erf", "input", {"torch._C._special.special_erf"}},
           {"erfc", "input", {"torch._C._special.special_erfc"}},
           {"erfinv", "input", {"torch._C._special.special_erfinv"}},
           {"exp"},
           {"exp2", "input", {"torch._C._special.special_exp2"}},
           {"expm1", "input", {"torch._C._special.special_expm1"}},
           {"floor"},
           {"frac"},
           {"lgamma"},
           {"log"},
           {"log10"},
           {"log1p", "input", {"torch._C._special.special_log1p"}},
           {"log2"},
           {"logit", "input, eps=None", {"torch._C._special.special_logit"}},
           {"nan_to_num", "input, nan=None, posinf=None, neginf=None"},
           {"neg", "input", {"_operator.neg", "Tensor.__neg__"}, true, linear_together},
           {"negative", "input", {}, true, linear_together},
           {"rad2deg"},
           {"reciprocal"},
           {"round", "input, decimals=0", {"torch._C._special.special_round"}},
           {"rsqrt"},
           {"sgn"},
           {"sigmoid", "input", {"torch.nn.functional.sigmoid", "torch._C._special.special_expit"}},
           {"sign"},
           {"sin"},
           {"sinc", "input", {"torch._C._special.special_sinc"}},
           {"sinh"},
           {"sqrt"},
           {"square"},
           {"tan"},
           {"tanh", "input", {"torch.nn.functional.tanh"}},
           {"trunc"},
       }},
      {true,
       {
           {"add",
            "input, other, alpha=1",
            {"_operator.add", "Tensor.__add__", "Tensor.__radd__"},
            true,
            linear_together},
           {"addcdiv", "input, tensor1, tensor2, value=1"},
           {"addcmul", "input, tensor1, tensor2, value=1"},
           {"atan2", "input, other"},
           {"clamp", "input, min=None, max=None"},
           {"clamp_max", "input, max"},
           {"clamp_min", "input, min"},
           {"clip", "input, min=None, max=None"},
           {"complex", "real, imag", {}, false},
           {"copysign", "input, other"},
           {"div",
            "input, other, rounding_mode=None",
            {"_operator.truediv", "Tensor.__truediv__", "Tensor.__rtruediv__"},
            true,
            linear_in_dividend},
           {"divide", "input, other, rounding_mode=None", {}, true, linear_in_dividend},
           {"fill", "input, value"},
           {"float_power", "input, exponent"},
           {"floor_divide",
            "input, other",
            {"_operator.floordiv", "Tensor.__floordiv__", "Tensor.__rfloordiv__"}},
           {"fmax", "input, other", {}, false},
           {"fmin", "input, other", {}, false},
           {"fmod", "input, other"},
           {"heaviside", "input, values"},
           {"hypot", "input, other"},
           {"ldexp", "input, other"},
           {"lerp", "input, end, weight"},
           {"logaddexp", "input, other", {}, false},
           {"logaddexp2", "input, other", {}, false},
           {"masked_fill", "input, mask, value"},
           {"maximum", "input, other", {}, false},
           {"minimum", "input, other", {}, false},
           {"mul",
            "input, other",
            {"_operator.mul", "Tensor.__mul__", "Tensor.__rmul__"},
            true,
            linear_in_one},
           {"multiply", "input, other", {}, true, linear_in_one},
           {"polar", "abs, angle", {}, false},
           {"pow", "input, exponent", {"_operator.pow", "Tensor.__pow__", "Tensor.__rpow__"}},
           {"remainder", "input, other", {"_operator.mod", "Tensor.__mod__", "Tensor.__rmod__"}},
           {"rsub", "input, other, alpha=1", {}, false},
           {"sub",
            "input, other, alpha=1",
            {"_operator.sub", "Tensor.__sub__", "Tensor.__rsub__"},
            true,
            linear_together},
           {"subtract", "input, other, alpha=1", {}, true, linear_together},
           {"true_divide", "input, other", {}, true, linear_in_dividend},
           {"xlogy", "input, other", {"torch._C._special.special_xlogy"}},
       }},
      {false,
       {
           {"bitwise_and", "input, other", {"_operator.and_", "Tensor.__and__", "Tensor.__rand__"}},
           {"bitwise_left_shift", "input, other", {"_operator.lshift", "Tensor.__lshift__"}},
           {"bitwise_not", "input", {"_operator.invert", "Tensor.__invert__"}},
           {"bitwise_or", "input, other", {"_operator.or_", "Tensor.__or__", "Tensor.__ror__"}},
           {"bitwise_right_shift", "input, other", {"_operator.rshift", "Tensor.__rshift__"}},
           {"bitwise_xor", "input, other", {"_operator.xor", "Tensor.__xor__", "Tensor.__rxor__"}},
           {"eq", "input, other", {"_operator.eq", "Tensor.__eq__"}},
           {"gcd", "input, other"},
           {"ge", "input, other", {"_operator.ge", "Tensor.__ge__"}},
           {"greater", "input, other"},
           {"greater_equal", "input, other"},
           {"gt", "input, other", {"_operator.gt", "Tensor.__gt__"}},
           {"isclose", "input, other, rtol=1e-5, atol=1e-8, equal_nan=False", {}, false},
           {"isfinite", "input", {}, false},
           {"isinf", "input", {}, false},
           {"isnan", "input", {}, false},
           {"isneginf", "input", {}, false},
           {"isposinf", "input", {}, false},
           {"lcm", "input, other"},
           {"le", "input, other", {"_operator.le", "Tensor.__le__"}},
           {"less", "input, other"},
           {"less_equal", "input, other"},
           {"logical_and", "input, other"},
           {"logical_not"},
           {"logical_or", "input, other"},
           {"logical_xor", "input, other"},
           {"lt", "input, other", {"_operator.lt", "Tensor.__lt__"}},
           {"ne", "input, other", {"_operator.ne", "Tensor.__ne__"}},
           {"nextafter", "input, other"},
           {"not_equal", "input, other"},
           {"signbit", "input", {}, false},
       }},
  };
  return table;
}

void add_group(const Group& group, std::vector<OpDef>& ops) {
  for (const Spelling& spelling : group.spellings) {
    const std::string name(spelling.name);
    OpDef op;
    op.name = spelling.name;
    op.targets = {keep("torch." + name), keep("Tensor." + name)};
    op.targets.insert(op.targets.end(), spelling.more.begin(), spelling.more.end());
    op.signature = spelling.signature;
    op.rule = kRule;
    op.apply = pointwise;
    op.linear = spelling.linear;
    op.differentiable = group.differentiable;
    if (std::find(std::begin(kSingular), std::end(kSingular), name) != std::end(kSingular))
      op.singular = singular;
    if (spelling.in_place) {
      OpDef in_place = op;
      in_place.name = keep(name + "_");
      in_place.targets = {keep("Tensor." + name + "_"), keep("torch." + name + "_")};
      in_place.functional = op.targets[0];
      if (name.starts_with("logical_")) in_place.refuse = refuse_truth_in_place;
      ops.push_back(std::move(in_place));
    }
    ops.push_back(std::move(op));
  }
}

// torch.nn.functional.<name>; `more` has what lies outside of it.
void add_activations(std::vector<OpDef>& ops) {
  const std::vector<Spelling> table = {
      {"celu", "input, alpha=1.0, inplace=False", {"torch.celu"}},
      {"elu", "input, alpha=1.0, inplace=False", {"torch._C._nn.elu"}},
      {"gelu", "input, approximate='none'", {"torch._C._nn.gelu"}},
      {"hardshrink", "input, lambd=0.5", {"torch.hardshrink", "Tensor.hardshrink"}},
      {"hardsigmoid", "input, inplace=False", {"torch._C._nn.hardsigmoid"}},
      {"hardswish", "input, inplace=False", {"torch._C._nn.hardswish"}},
      {"hardtanh", "input, min_val=-1.0, max_val=1.0, inplace=False", {"torch._C._nn.hardtanh"}},
      {"leaky_relu", "input, negative_slope=0.01, inplace=False", {"torch._C._nn.leaky_relu"}},
      {"logsigmoid", "input", {"torch._C._nn.log_sigmoid"}},
      {"mish", "input, inplace=False", {"torch._C._nn.mish"}},
      {"relu", "input, inplace=False", {"torch.relu", "Tensor.relu"}},
      {"relu6", "input, inplace=False", {"torch._C._nn.relu6"}},
      {"selu", "input, inplace=False", {"torch.selu"}},
      {"silu", "input, inplace=False", {"torch._C._nn.silu"}},
      {"softplus", "input, beta=1, threshold=20", {"torch._C._nn.softplus"}},
      {"softshrink", "input, lambd=0.5", {"torch._C._nn.softshrink"}},
      {"softsign", "input"},
      {"tanhshrink", "input"},
      {"threshold",
       "input, threshold, value, inplace=False",
       {"torch.nn.functional._threshold", "torch.threshold"}},
  };
  for (const Spelling& spelling : table) {
    OpDef op;
    op.name = spelling.name;
    op.targets = {keep("torch.nn.functional." + std::string(spelling.name))};
    op.targets.insert(op.targets.end(), spelling.more.begin(), spelling.more.end());
    op.signature = spelling.signature;
    op.rule = kRule;
    op.apply = pointwise;
    op.refuse = refuse_in_place;
    constexpr std::string_view kInPlace = ", inplace=False";
    if (op.signature.ends_with(kInPlace)) {
      const std::string name = std::string(spelling.name) + "_";
      OpDef in_place = op;
      in_place.name = keep(name);
      in_place.targets = {keep("torch.nn.functional." + name), keep("torch." + name),
                          keep("torch._C._nn." + name), keep("Tensor." + name)};
      in_place.signature.remove_suffix(kInPlace.size());
      in_place.refuse = nullptr;
      in_place.functional = op.targets[0];
      ops.push_back(std::move(in_place));
    }
    ops.push_back(std::move(op));
  }
  ops.push_back({.name = "prelu",
                 .targets = {"torch.prelu", "Tensor.prelu", "torch.nn.functional.prelu"},
                 .signature = "input, weight",
                 .rule = "n c …, c -> n c …",
                 .apply = prelu});
  ops.push_back({.name = "glu",
                 .targets = {"torch.nn.functional.glu", "torch._C._nn.glu"},
                 .signature = "input, dim=-1",
                 .rule = "… x … -> … y …  whole x y",
                 .apply = glu});
}

// `x += y` is `x = x + y` in the dtype of x.
void add_augmented_assignments(std::vector<OpDef>& ops) {
  for (const std::string_view name : {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow",
                                      "and", "or", "xor", "lshift", "rshift"}) {
    const std::string stem(name);
    const bool keyword = name == "and" || name == "or";
    ops.push_back({.name = keep("i" + stem),
                   .targets = {keep("_operator.i" + stem), keep("Tensor.__i" + stem + "__")},
                   .signature = "input, other",
                   .rule = kRule,
                   .apply = pointwise,
                   .functional = keep("_operator." + stem + (keyword ? "_" : ""))});
  }
}

void add_copies(std::vector<OpDef>& ops) {
  ops.push_back({.name = "to",
                 .targets = {"Tensor.to"},
                 .signature = "self, *args, dtype=None, device=None, copy=False, "
                              "non_blocking=False, memory_format=None, other=None",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true,
                 .shares = cast_shares,
                 .write_back = same_back});
  ops.push_back({.name = "cast",
                 .targets = {"Tensor.float", "Tensor.double", "Tensor.half", "Tensor.bfloat16",
                             "Tensor.int", "Tensor.long", "Tensor.short", "Tensor.char",
                             "Tensor.byte", "Tensor.bool", "Tensor.cfloat", "Tensor.cdouble"},
                 .signature = "self, memory_format=None",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true,
                 .shares = cast_shares,
                 .write_back = same_back});
  ops.push_back({.name = "type",
                 .targets = {"Tensor.type"},
                 .signature = "self, dtype=None, non_blocking=False",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true,
                 .shares = cast_shares,
                 .write_back = same_back});
  ops.push_back({.name = "type_as",
                 .targets = {"Tensor.type_as"},
                 .signature = "self, other",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true,
                 .shares = cast_shares,
                 .write_back = same_back});
  ops.push_back({.name = "device",
                 .targets = {"Tensor.cpu", "Tensor.cuda"},
                 .signature = "self, device=None, non_blocking=False, memory_format=None",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true});
  ops.push_back({.name = "contiguous",
                 .targets = {"Tensor.contiguous"},
                 .signature = "self, memory_format=None",
                 .rule = "… -> …",
                 .apply = cast,
                 .aliases = true});
  ops.push_back({.name = "alias",
                 .targets = {"torch.positive", "Tensor.positive", "_operator.pos", "Tensor.__pos__",
                             "torch.conj", "Tensor.conj", "torch.real", "torch.imag"},
                 .signature = "input",
                 .rule = "… -> …",
                 .apply = pointwise,
                 .aliases = true});
  ops.push_back({.name = "detach",
                 .targets = {"torch.detach", "Tensor.detach"},
                 .signature = "input",
                 .rule = "… -> …",
                 .apply = pointwise,
                 .aliases = true,
                 .shares = [](const Call&) { return Sharing::kYes; },
                 .differentiable = false});
  ops.push_back({.name = "clone",
                 .targets = {"torch.clone", "Tensor.clone"},
                 .signature = "input, memory_format=None",
                 .rule = "… -> …",
                 .apply = pointwise,
                 .linear = linear_together});
  ops.push_back(
      {.name = "copy_",
       .targets = {"Tensor.copy_"},
       .signature = "input, src, non_blocking=False",
       .rule = "no letters; a buffer and its new value are whole",
       .apply = [](const Call& call) { return opaque_application(call.graph(), call.node()); },
       .assigns = true,
       .effect = true,
       .differentiable = false});
  ops.push_back({.name = "zero_",
                 .targets = {"Tensor.zero_", "torch.zero_"},
                 .signature = "input",
                 .rule = "… -> …",
                 .apply = pointwise,
                 .functional = "torch.zeros_like"});
}

void add_selections(std::vector<OpDef>& ops) {
  ops.push_back({.name = "where",
                 .targets = {"torch.where"},
                 .signature = "condition, input, other",
                 .rule = "…, …, … -> …",
                 .apply = pointwise,
                 .refuse = refuse_search});
  ops.push_back({.name = "where (method)",
                 .targets = {"Tensor.where"},
                 .signature = "self, condition, other",
                 .rule = "…, …, … -> …",
                 .apply = pointwise});
}

}  // namespace

std::span<const OpDef> pointwise_ops() {
  static const std::vector<OpDef> ops = [] {
    std::vector<OpDef> list;
    for (const Group& group : groups()) add_group(group, list);
    add_activations(list);
    add_augmented_assignments(list);
    add_copies(list);
    add_selections(list);
    return list;
  }();
  return ops;
}

}  // namespace autosp
