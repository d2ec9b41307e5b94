// Reductions over dimensions: sums and means as partial sums, the rest by maximum or whole.
//
//   sum   [B, S, D] over S   (b)(s)(d) -> (b)(d)  sum s      each rank sums its rows: a partial sum
//   mean                     the same sum, reduced, divided by the global number of rows
#include <optional>
#include <string>

#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"

namespace autosp {
namespace {

// The operand's letters, `dims` of the given kind and, in the results, gone or (keepdim) of size 1.
Application reduce(const Call& call, const std::vector<int64_t>& dims, LetterKind kind) {
  Application application = along(call, "input", dims, kind);
  const bool keep = call.boolean_or("keepdim", false);
  for (TensorLetters& result : application.results) {
    for (size_t i = dims.size(); i-- > 0;) {
      const auto dim = static_cast<std::ptrdiff_t>(dims[i]);
      if (keep) {
        result[static_cast<size_t>(dim)].clear();
      } else {
        result.erase(result.begin() + dim);
      }
    }
  }
  return application;
}

std::vector<int64_t> reduced_dims(const Call& call) {
  return dims_or_all(call, "dim", rank_of(tensor_type(call, "input")));
}

Application sum(const Call& call) { return reduce(call, reduced_dims(call), LetterKind::kSum); }
Application extreme(const Call& call) { return reduce(call, reduced_dims(call), LetterKind::kMax); }
Application whole(const Call& call) { return reduce(call, reduced_dims(call), LetterKind::kWhole); }
// Of one dimension: a position among several has no meaning in one of them.
Application one_extreme(const Call& call) { return call.has("dim") ? extreme(call) : whole(call); }

// A norm of order 0 counts and one below that is of the smallest: those are not put together from
// parts.
std::optional<double> norm_order(const Call& call) {
  for (const std::string_view parameter : {"p", "ord"}) {
    const Arg* arg = call.find(parameter);
    if (arg == nullptr) continue;
    if (arg->is_none()) return 2.0;
    if (arg->kind == Arg::Kind::kString)
      return arg->text == "fro" ? std::optional(2.0) : std::nullopt;
    const double order = arg->kind == Arg::Kind::kFloat ? arg->number
                         : arg->is_integral()
                             ? static_cast<double>(arg->as_expr().as_constant().value_or(0))
                             : 0;
    return order > 0 ? std::optional(order) : std::nullopt;
  }
  return std::nullopt;
}

// torch.linalg.norm of an order and of two dimensions is of matrices.
Application norm(const Call& call) {
  const bool of_matrix =
      call.node().target.ends_with("linalg.norm") || call.node().target.ends_with("linalg_norm");
  const bool vector =
      !of_matrix || !call.has("ord") ||
      (call.has("dim") ? reduced_dims(call).size() == 1 : rank_of(tensor_type(call, "input")) == 1);
  return norm_order(call) && vector ? extreme(call) : whole(call);
}

// `x.var(False)` means the first flag, not dimension 0.
Application variance(const Call& call) {
  const Arg* dim = call.find("dim");
  if (dim == nullptr || dim->kind != Arg::Kind::kBool) return extreme(call);
  return reduce(call, dims_or_all(call, "", rank_of(tensor_type(call, "input"))),
                LetterKind::kWhole);
}

// How many elements lie in each of `bins` intervals. Without limits they follow from all elements.
Application count(const Call& call) {
  const Type& input = tensor_type(call, "input");
  Application application;
  const Arg* min = call.find("min");
  const Arg* max = call.find("max");
  const bool given = min->is_integral() && max->is_integral() && min->as_expr().is_constant() &&
                     max->as_expr().is_constant() && min->as_expr() != max->as_expr();
  application.operands.push_back(
      {call.value("input"), 0,
       fresh_letters(application, input, "x", given ? LetterKind::kSum : LetterKind::kWhole)});
  application.results.push_back(fresh_letters(application, call.result(), "g"));
  return application;
}

// Rows past the end of a part are put outside of the limits, where nothing is counted.
LocalResult count_local(LocalForm& form) {
  const Call& call = form.call();
  const double beyond =
      static_cast<double>(call.find("max")->as_expr().as_constant().value_or(0)) + 1;
  Kwargs kwargs;
  for (std::string_view name : {"bins", "min", "max"})
    kwargs.emplace_back(std::string(name), *call.find(name));
  return {form.emit("torch.histc", {form.without_padding("input", beyond)}, std::move(kwargs),
                    call.result())};
}

// max and min are three operators: of all elements, along a dimension with positions, and of two
// tensors.
Application max_or_min(const Call& call) {
  if (call.tensor("dim") != nullptr || call.has("other")) return pointwise_application(call);
  return extreme(call);
}

// The partial sum of a rank's rows over the reduced dimensions, in `dtype` when it is given.
NodeId local_sum(LocalForm& form, DType dtype, bool cast) {
  const Call& call = form.call();
  std::vector<Arg> dims;
  for (const int64_t dim : reduced_dims(call)) dims.push_back(Arg::integer_of(dim));
  Kwargs kwargs;
  if (cast) kwargs.emplace_back("dtype", Arg::literal_of(torch_dtype(dtype)));
  return form.emit("torch.sum",
                   {form.without_padding("input", 0.0), Arg::list_of(std::move(dims)),
                    Arg::bool_of(call.boolean_or("keepdim", false))},
                   std::move(kwargs), Type::tensor(dtype, form.local_shape()));
}

bool sums_along_shards(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind == LetterKind::kSum;
}

NodeId cast_to(LocalForm& form, NodeId value, DType from, DType to,
               const std::vector<Expr>& shape) {
  if (from == to) return value;
  return form.emit("Tensor.to", {Arg::of(value), Arg::literal_of(torch_dtype(to))}, {},
                   Type::tensor(to, shape));
}

// The sum of all parts, or in a body, which exchanges nothing, a rank's own.
LocalResult added_up(LocalForm& form, NodeId part) {
  if (form.in_body()) return {part, false};
  return {form.all_reduce(part), true};
}

// A rank's part of a sum has fewer terms, so half types round it where one device would not have:
// the parts are kept in float32 until they are added up.
LocalResult localize_sum(LocalForm& form) {
  const Type& type = form.call().result();
  if (!sums_along_shards(form))
    return {form.emit_same(Type::tensor(type.dtype, form.local_shape())), false};
  if (!is_half(type.dtype)) return {local_sum(form, type.dtype, form.call().has("dtype")), false};
  const auto [total, is_whole] = added_up(form, local_sum(form, DType::kFloat32, true));
  return {cast_to(form, total, DType::kFloat32, type.dtype, form.local_shape()), is_whole};
}

LocalResult localize_mean(LocalForm& form) {
  const Call& call = form.call();
  const Type& type = call.result();
  if (!sums_along_shards(form))
    return {form.emit_same(Type::tensor(type.dtype, form.local_shape())), false};
  const Type& input = tensor_type(call, "input");
  Expr count = 1;
  for (const int64_t dim : reduced_dims(call)) count *= input.shape[static_cast<size_t>(dim)];
  const DType dtype = is_half(type.dtype) ? DType::kFloat32 : type.dtype;
  const auto [total, is_whole] = added_up(form, local_sum(form, dtype, dtype != input.dtype));
  const NodeId mean = form.emit("torch.div", {Arg::of(total), Arg::size_of(count)}, {},
                                Type::tensor(dtype, form.local_shape()));
  return {cast_to(form, mean, dtype, type.dtype, form.local_shape()), is_whole};
}

// ---- Along a sharded dimension, by operators that see all rows and give every rank the result

bool sees_all_rows(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind == LetterKind::kMax;
}

Arg keeps_dims(const Call& call) { return Arg::bool_of(call.boolean_or("keepdim", false)); }

std::vector<Arg> dim_arguments(const Call& call) {
  std::vector<Arg> dims;
  for (const int64_t dim : reduced_dims(call)) dims.push_back(Arg::integer_of(dim));
  return dims;
}

// The operand in the dtype that the call computes in.
NodeId cast_operand(LocalForm& form, DType dtype) {
  const NodeId x = form.operand(0);
  if (tensor_type(form.call(), "input").dtype == dtype) return x;
  return form.emit("Tensor.to", {Arg::of(x), Arg::literal_of(torch_dtype(dtype))}, {},
                   Type::tensor(dtype, form.local_operand_shape("input")));
}

void append_extent(const LocalForm& form, std::vector<Arg>& args) {
  args.push_back(Arg::size_of(form.extent(0)));
  args.push_back(Arg::bool_of(form.is_exact(0)));
  form.append_ranks(args);
}

LocalResult reduce_local(LocalForm& form, std::string_view kind, double order) {
  const Type& type = form.call().result();
  if (!sees_all_rows(form)) return {form.emit_same(Type::tensor(type.dtype, form.local_shape()))};
  std::vector<Arg> args = {Arg::of(cast_operand(form, type.dtype)),
                           Arg::string_of(std::string(kind)),
                           Arg::list_of(dim_arguments(form.call())),
                           Arg::integer_of(form.cut_dim(0)),
                           keeps_dims(form.call()),
                           Arg::float_of(order)};
  append_extent(form, args);
  return {form.emit("autosp.reduce_rows", std::move(args), {}, type), true};
}

bool is_minimum(const Call& call) { return call.node().target.ends_with("min"); }

LocalResult extreme_local(LocalForm& form) {
  return reduce_local(form, is_minimum(form.call()) ? "amin" : "amax", 0.0);
}
LocalResult product_local(LocalForm& form) { return reduce_local(form, "prod", 0.0); }
LocalResult logsumexp_local(LocalForm& form) { return reduce_local(form, "logsumexp", 0.0); }
LocalResult norm_local(LocalForm& form) {
  return reduce_local(form, "norm", norm_order(form.call()).value_or(2.0));
}

// Values and positions, or one of them.
LocalResult place_local(LocalForm& form) {
  const Call& call = form.call();
  const Type& type = call.result();
  if (!sees_all_rows(form)) return {form.emit_same(local_type(form))};
  const bool places = call.op().name == "argmax";
  if (type.is_tensor() && !places) return extreme_local(form);
  std::vector<Arg> args = {Arg::of(form.operand(0)), Arg::bool_of(!is_minimum(call)),
                           Arg::integer_of(form.cut_dim(0)), keeps_dims(call)};
  append_extent(form, args);
  const Type both =
      places ? Type::tuple({Type::tensor(tensor_type(call, "input").dtype, type.shape), type})
             : type;
  const NodeId found = form.emit("autosp.extreme_rows", std::move(args), {}, both);
  if (!places) return {found, true};
  return {form.emit("_operator.getitem", {Arg::of(found), Arg::integer_of(1)}, {}, type), true};
}

double correction_of(const Call& call) {
  if (!call.has("correction")) return call.boolean_or("unbiased", true) ? 1.0 : 0.0;
  const Arg* given = call.find("correction");
  return given->kind == Arg::Kind::kFloat ? given->number
                                          : static_cast<double>(call.integer("correction"));
}

// Variance or its root, and the mean.
LocalResult variance_local(LocalForm& form) {
  const Call& call = form.call();
  const Type& type = call.result();
  if (!sees_all_rows(form)) return {form.emit_same(local_type(form))};
  const Type& input = tensor_type(call, "input");
  Expr count = 1;
  for (const int64_t dim : reduced_dims(call)) count *= input.shape[static_cast<size_t>(dim)];
  std::vector<Arg> args = {Arg::of(form.operand(0)),
                           Arg::list_of(dim_arguments(call)),
                           Arg::integer_of(form.cut_dim(0)),
                           keeps_dims(call),
                           Arg::bool_of(call.node().target.find("std") != std::string::npos),
                           Arg::float_of(correction_of(call)),
                           Arg::size_of(count)};
  append_extent(form, args);
  const Type one = type.is_tensor() ? type : type.elements[0];
  const NodeId both =
      form.emit("autosp.variance_rows", std::move(args), {}, Type::tuple({one, one}));
  if (!type.is_tensor()) return {both, true};
  return {form.emit("_operator.getitem", {Arg::of(both), Arg::integer_of(0)}, {}, one), true};
}

// Numbers that parts give are added up.
LocalResult counted_local(LocalForm& form) {
  const Call& call = form.call();
  const Type type = Type::tensor(call.result().dtype, form.local_shape());
  if (!sums_along_shards(form)) return {form.emit_same(type)};
  return {form.emit("torch.count_nonzero",
                    {form.without_padding("input", 0.0), Arg::list_of(dim_arguments(call))}, {},
                    type)};
}

}  // namespace

std::span<const OpDef> reduction_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "sum",
       .targets = {"torch.sum", "Tensor.sum"},
       .signature = "input, dim=None, keepdim=False, dtype=None",
       .rule = "… x … -> … …  sum x",
       .apply = sum,
       .localize = localize_sum,
       .linear = linear_together},
      {.name = "mean",
       .targets = {"torch.mean", "Tensor.mean"},
       .signature = "input, dim=None, keepdim=False, dtype=None",
       .rule = "… x … -> … …  sum x, divided by the global size of x",
       .apply = sum,
       .localize = localize_mean,
       .linear = linear_together},
      {.name = "nansum",
       .targets = {"torch.nansum", "Tensor.nansum"},
       .signature = "input, dim=None, keepdim=False, dtype=None",
       .rule = "… x … -> … …  whole x",
       .apply = whole},
      {.name = "count_nonzero",
       .targets = {"torch.count_nonzero", "Tensor.count_nonzero"},
       .signature = "input, dim=None",
       .rule = "… x … -> … …  sum x",
       .apply = sum,
       .localize = counted_local,
       .differentiable = false},
      {.name = "amax",
       .targets = {"torch.amax", "Tensor.amax", "torch.amin", "Tensor.amin"},
       .signature = "input, dim=None, keepdim=False",
       .rule = "… x … -> … …  max x",
       .apply = extreme,
       .localize = extreme_local},
      {.name = "max",
       .targets = {"torch.max", "Tensor.max", "torch.min", "Tensor.min"},
       .signature = "input, dim=None, keepdim=False, other=None",
       .rule = "… x … -> … …  max x; of two tensors pointwise",
       .apply = max_or_min,
       .localize = place_local},
      {.name = "any",
       .targets = {"torch.any", "Tensor.any", "torch.all", "Tensor.all"},
       .signature = "input, dim=None, keepdim=False",
       .rule = "… x … -> … …  max x",
       .apply = extreme,
       .differentiable = false},
      {.name = "histc",
       .targets = {"torch.histc", "Tensor.histc"},
       .signature = "input, bins=100, min=0, max=0, *, out=None",
       .rule = "… -> g  sum …",
       .apply = count,
       .localize = count_local,
       .differentiable = false},
      {.name = "argmax",
       .targets = {"torch.argmax", "Tensor.argmax", "torch.argmin", "Tensor.argmin"},
       .signature = "input, dim=None, keepdim=False",
       .rule = "… x … -> … …  max x",
       .apply = one_extreme,
       .localize = place_local,
       .differentiable = false},
      {.name = "prod",
       .targets = {"torch.prod", "Tensor.prod"},
       .signature = "input, dim=None, keepdim=False, dtype=None",
       .rule = "… x … -> … …  max x",
       .apply = extreme,
       .localize = product_local},
      {.name = "var",
       .targets = {"torch.var", "Tensor.var", "torch.std", "Tensor.std", "torch.var_mean",
                   "torch.std_mean"},
       .signature = "input, dim=None, unbiased=True, keepdim=False, correction=None",
       .rule = "… x … -> … …  max x",
       .apply = variance,
       .localize = variance_local,
       .singular = singular_in_all},
      {.name = "logsumexp",
       .targets = {"torch.logsumexp", "Tensor.logsumexp", "torch.special.logsumexp",
                   "torch._C._special.special_logsumexp"},
       .signature = "input, dim, keepdim=False",
       .rule = "… x … -> … …  max x",
       .apply = extreme,
       .localize = logsumexp_local},
      {.name = "norm",
       .targets = {"torch.norm", "Tensor.norm", "torch.functional.norm"},
       .signature = "input, p='fro', dim=None, keepdim=False, dtype=None",
       .rule = "… x … -> … …  max x",
       .apply = norm,
       .localize = norm_local,
       .singular = singular_in_all},
      {.name = "vector_norm",
       .targets = {"torch.linalg.vector_norm", "torch._C._linalg.linalg_vector_norm",
                   "torch.linalg.norm", "torch._C._linalg.linalg_norm"},
       .signature = "input, ord=None, dim=None, keepdim=False, *, dtype=None",
       .rule = "… x … -> … …  max x",
       .apply = norm,
       .localize = norm_local,
       .singular = singular_in_all},
      {.name = "median",
       .targets = {"torch.median", "Tensor.median", "torch.nanmedian", "Tensor.nanmedian"},
       .signature = "input, dim=None, keepdim=False",
       .rule = "… x … -> … …  whole x",
       .apply = whole},
      {.name = "mode",
       .targets = {"torch.mode", "Tensor.mode"},
       .signature = "input, dim=-1, keepdim=False",
       .rule = "… x … -> … …  whole x",
       .apply = whole},
  };
  return ops;
}

}  // namespace autosp
