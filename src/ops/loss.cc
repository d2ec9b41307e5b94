// Losses. Rows (tokens) are summed, classes are seen whole.
//
//   cross_entropy   [T, V], [T]  ->  scalar     (t)(v), (t) -> []   sum t, whole v
//
// A mean is never a mean of the ranks' means: each rank sums its rows, and the reduced sum is
// divided by the global count: of rows whose target counts (with class weights their weights), or
// of elements. So unequal shards and shards without any valid target are right, and no valid target
// at all gives nan as on one device.
#include <algorithm>

#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_sum(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind == LetterKind::kSum;
}

LetterKind row_kind(const Call& call) {
  return call.string_or("reduction", "mean") == "none" ? LetterKind::kPass : LetterKind::kSum;
}

std::optional<std::string> refuse_old_arguments(const Call& call) {
  if (!call.has("size_average") && !call.has("reduce")) return std::nullopt;
  return "size_average and reduce are torch's old names, which are not supported: use reduction";
}

DType accumulator(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

NodeId all_elements(LocalForm& form, NodeId value, DType dtype) {
  return form.emit("torch.sum", {Arg::of(value)}, {{"dtype", Arg::literal_of(torch_dtype(dtype))}},
                   Type::tensor(dtype, {}));
}

NodeId cast_result(LocalForm& form, NodeId value, DType from) {
  const DType to = form.call().result().dtype;
  if (from == to) return value;
  return form.emit("Tensor.to", {Arg::of(value), Arg::literal_of(torch_dtype(to))}, {},
                   Type::tensor(to, {}));
}

// This loss on local rows with another reduction. `input` and `target` stand for themselves, the
// rest is local.
NodeId emit_loss(LocalForm& form, const Arg& input, const Arg& target, std::string_view reduction,
                 Type type) {
  const Call& call = form.call();
  Kwargs kwargs;
  for (const auto& [parameter, arg] : call.bound()) {
    if (parameter == "input" || parameter == "target" || parameter == "reduction" || arg.is_none())
      continue;
    kwargs.emplace_back(parameter, form.local(parameter));
  }
  kwargs.emplace_back("reduction", Arg::string_of(std::string(reduction)));
  return form.emit(call.node().target, {input, target}, std::move(kwargs), std::move(type));
}

// The sum of this rank's losses. Half types are added up in float32, as one device does inside the
// operator.
NodeId partial_loss(LocalForm& form, const Arg& input, const Arg& target,
                    const std::vector<Expr>& rows) {
  const DType dtype = form.call().result().dtype;
  if (!is_half(dtype)) return emit_loss(form, input, target, "sum", Type::tensor(dtype, {}));
  return all_elements(form, emit_loss(form, input, target, "none", Type::tensor(dtype, rows)),
                      DType::kFloat32);
}

// Sum of the ranks' losses as a mean, a sum or (double and single precision) a partial sum.
LocalResult finish(LocalForm& form, NodeId partial, const Arg& count) {
  const DType dtype = accumulator(form.call().result().dtype);
  const bool mean = !count.is_none();
  if (!mean && dtype == form.call().result().dtype) return {partial, false};
  NodeId total = form.all_reduce(partial);
  if (mean) total = form.emit("torch.div", {Arg::of(total), count}, {}, Type::tensor(dtype, {}));
  return {cast_result(form, total, dtype), true};
}

// ---- cross entropy and negative log likelihood ----

// Where input is [C], [N, C] or [N, C, d1, …]: the position of its class dimension.
size_t class_dim(const Call& call) { return tensor_type(call, "input").shape.size() == 1 ? 0 : 1; }

// Targets that are distributions over the classes have the input's shape, class indices one
// dimension less.
bool has_index_targets(const Call& call) {
  return tensor_type(call, "target").shape.size() < tensor_type(call, "input").shape.size();
}

Application class_loss(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const size_t dim = class_dim(call);
  Application application;
  TensorLetters letters;
  for (size_t i = 0; i < input.shape.size(); ++i) {
    letters.push_back(
        i == dim ? application.dim("v", input.shape[i], LetterKind::kWhole)
                 : application.dim("t" + std::to_string(i), input.shape[i], row_kind(call)));
  }
  const DimLetters classes = letters[dim];
  TensorLetters rows = letters;
  rows.erase(rows.begin() + static_cast<std::ptrdiff_t>(dim));
  application.operands.push_back({call.value("input"), 0, letters});
  application.operands.push_back(
      {call.value("target"), 0, has_index_targets(call) ? rows : letters});
  if (call.tensor("weight") != nullptr)
    application.operands.push_back({call.value("weight"), 0, {classes}});
  application.results.push_back(row_kind(call) == LetterKind::kPass ? rows : TensorLetters{});
  return application;
}

// What a mean divides by: the valid targets, or with class weights the sum of theirs. Global.
NodeId count_targets(LocalForm& form, const Arg& target, const std::vector<Expr>& rows,
                     const Arg& ignored) {
  const Call& call = form.call();
  const NodeId valid =
      form.emit("torch.ne", {target, ignored}, {}, Type::tensor(DType::kBool, rows));
  const Type* weight = call.tensor("weight");
  if (weight == nullptr) return form.all_reduce(all_elements(form, valid, DType::kInt64));
  const Type indices = Type::tensor(tensor_type(call, "target").dtype, rows);
  const NodeId index =
      form.emit("torch.where", {Arg::of(valid), target, Arg::integer_of(0)}, {}, indices);
  // The divisor is a constant to one device's gradient.
  const NodeId table = form.emit("torch.detach", {form.local("weight")}, {}, *weight);
  const NodeId column = form.emit("torch.unsqueeze", {Arg::of(table), Arg::integer_of(1)}, {},
                                  Type::tensor(weight->dtype, {weight->shape[0], Expr(1)}));
  std::vector<Expr> wide = rows;
  wide.emplace_back(1);
  const NodeId looked_up =
      form.emit("torch.nn.functional.embedding", {Arg::of(index), Arg::of(column)}, {},
                Type::tensor(weight->dtype, wide));
  const NodeId flat = form.emit("torch.squeeze", {Arg::of(looked_up), Arg::integer_of(-1)}, {},
                                Type::tensor(weight->dtype, rows));
  const NodeId counted =
      form.emit("torch.where", {Arg::of(valid), Arg::of(flat), Arg::float_of(0.0)}, {},
                Type::tensor(weight->dtype, rows));
  return form.all_reduce(all_elements(form, counted, accumulator(weight->dtype)));
}

LocalResult localize_class_loss(LocalForm& form) {
  const Call& call = form.call();
  if (!is_sum(form))
    return {form.emit_same(Type::tensor(call.result().dtype, form.local_shape())), false};
  const bool mean = call.string_or("reduction", "mean") == "mean";
  const Arg input = form.local("input");
  std::vector<Expr> rows = form.local_operand_shape("input");
  const auto dim = static_cast<std::ptrdiff_t>(class_dim(call));
  rows.erase(rows.begin() + dim);
  if (has_index_targets(call)) {
    const Arg ignored = Arg::integer_of(call.integer_or("ignore_index", -100));
    const Arg target = form.without_padding("target", static_cast<double>(ignored.integer));
    const NodeId partial = partial_loss(form, input, target, rows);
    return finish(form, partial,
                  mean ? Arg::of(count_targets(form, target, rows, ignored)) : Arg::none());
  }
  // A row of zeros is no distribution and costs nothing, but smoothing would put mass back into it.
  const Arg target = form.without_padding("target", 0.0);
  const Arg* smoothing = call.find("label_smoothing");
  const bool smooth = smoothing != nullptr &&
                      (smoothing->is_value() || smoothing->number != 0 || smoothing->integer != 0);
  if (smooth && target != form.local("target")) {
    throw Unsupported(
        call.where() +
        ": label smoothing of targets that are distributions needs a length that the number "
        "of ranks divides. Pad the sequence, or use class indices as targets");
  }
  std::vector<Expr> global = tensor_type(call, "input").shape;
  global.erase(global.begin() + dim);
  Expr count = 1;
  for (const Expr& size : global) count *= size;
  return finish(form, partial_loss(form, input, target, rows),
                mean ? Arg::size_of(count) : Arg::none());
}

// ---- losses of two tensors of one shape ----

std::vector<Expr> broadcast_shape(const std::vector<Expr>& left, const std::vector<Expr>& right) {
  std::vector<Expr> shape = left.size() >= right.size() ? left : right;
  const std::vector<Expr>& other = left.size() >= right.size() ? right : left;
  const size_t offset = shape.size() - other.size();
  for (size_t i = 0; i < other.size(); ++i) {
    if (shape[offset + i] == Expr(1)) shape[offset + i] = other[i];
  }
  return shape;
}

Application element_loss(const Call& call) {
  const Type common = Type::tensor(
      call.result().dtype,
      broadcast_shape(tensor_type(call, "input").shape, tensor_type(call, "target").shape));
  Application application;
  const TensorLetters letters = fresh_letters(application, common, "t", row_kind(call));
  for (const NodeId value : tensor_arguments(call)) {
    application.operands.push_back(
        {value, 0, broadcast_letters(call.graph().node(value).type.shape, letters)});
  }
  application.results.push_back(row_kind(call) == LetterKind::kPass ? letters : TensorLetters{});
  return application;
}

// `fill` makes an input row cost nothing against a target row of zeros.
LocalResult localize_element_loss(LocalForm& form, double fill) {
  const Call& call = form.call();
  if (!is_sum(form))
    return {form.emit_same(Type::tensor(call.result().dtype, form.local_shape())), false};
  const Arg input = form.without_padding("input", fill);
  const Arg target = form.without_padding("target", 0.0);
  if ((input != form.local("input")) != (target != form.local("target"))) {
    throw Unsupported(
        call.where() +
        ": a loss between a sharded tensor and one that is broadcast along the sequence needs a "
        "length that the number of ranks divides. Expand the smaller one, or pad the sequence");
  }
  const std::string reduction = call.string_or("reduction", "mean");
  const std::vector<Expr> global =
      broadcast_shape(tensor_type(call, "input").shape, tensor_type(call, "target").shape);
  Expr count = reduction == "batchmean" ? tensor_type(call, "input").shape[0] : Expr(1);
  if (reduction == "mean") {
    for (const Expr& size : global) count *= size;
  }
  const std::vector<Expr> rows =
      broadcast_shape(form.local_operand_shape("input"), form.local_operand_shape("target"));
  return finish(form, partial_loss(form, input, target, rows),
                reduction == "sum" ? Arg::none() : Arg::size_of(count));
}

LocalResult localize_difference(LocalForm& form) { return localize_element_loss(form, 0.0); }

// log(1 + exp(-100)) is 0 in every dtype but float64, and there less than its rounding of any other
// row.
LocalResult localize_logits(LocalForm& form) { return localize_element_loss(form, -100.0); }

// A weight of the elements changes what a mean divides by.
std::optional<std::string> refuse_weighted_mean(const Call& call) {
  if (const auto old = refuse_old_arguments(call)) return old;
  if (!call.has("weight") || call.string_or("reduction", "mean") != "mean") return std::nullopt;
  return "the mean of a loss with a weight is not supported: use reduction=\"none\" and divide the "
         "weighted sum by "
         "the sum of the weights";
}

}  // namespace

std::span<const OpDef> loss_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "cross_entropy",
       .targets = {"torch.nn.functional.cross_entropy"},
       .signature = "input, target, weight=None, size_average=None, ignore_index=-100, "
                    "reduce=None, reduction='mean', "
                    "label_smoothing=0.0",
       .rule = "t v …, t …, v ->  sum t …, whole v",
       .apply = class_loss,
       .localize = localize_class_loss,
       .refuse = refuse_old_arguments,
       .absorbs = true},
      {.name = "nll_loss",
       .targets = {"torch.nn.functional.nll_loss"},
       .signature = "input, target, weight=None, size_average=None, ignore_index=-100, "
                    "reduce=None, reduction='mean'",
       .rule = "t v …, t …, v ->  sum t …, whole v",
       .apply = class_loss,
       .localize = localize_class_loss,
       .refuse = refuse_old_arguments,
       .absorbs = true},
      {.name = "mse_loss",
       .targets = {"torch.nn.functional.mse_loss", "torch.nn.functional.l1_loss"},
       .signature = "input, target, size_average=None, reduce=None, reduction='mean', weight=None",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_difference,
       .refuse = refuse_weighted_mean},
      {.name = "smooth_l1_loss",
       .targets = {"torch.nn.functional.smooth_l1_loss"},
       .signature = "input, target, size_average=None, reduce=None, reduction='mean', beta=1.0",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_difference,
       .refuse = refuse_old_arguments},
      {.name = "huber_loss",
       .targets = {"torch.nn.functional.huber_loss"},
       .signature = "input, target, reduction='mean', delta=1.0, weight=None",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_difference,
       .refuse = refuse_weighted_mean},
      {.name = "kl_div",
       .targets = {"torch.nn.functional.kl_div"},
       .signature =
           "input, target, size_average=None, reduce=None, reduction='mean', log_target=False",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_difference,
       .refuse = refuse_old_arguments},
      {.name = "binary_cross_entropy",
       .targets = {"torch.nn.functional.binary_cross_entropy"},
       .signature = "input, target, weight=None, size_average=None, reduce=None, reduction='mean'",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_difference,
       .refuse = refuse_old_arguments},
      {.name = "binary_cross_entropy_with_logits",
       .targets = {"torch.nn.functional.binary_cross_entropy_with_logits"},
       .signature = "input, target, weight=None, size_average=None, reduce=None, reduction='mean', "
                    "pos_weight=None",
       .rule = "…, … ->  sum …",
       .apply = element_loss,
       .localize = localize_logits,
       .refuse = refuse_old_arguments},
  };
  return ops;
}

}  // namespace autosp
