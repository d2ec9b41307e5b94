// Normalisations: they see the normalised dimensions whole and leave the others alone.
#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

// Over the last dimensions; weight and bias have exactly those.
Application layer_norm(const Call& call) {
  const int64_t rank = rank_of(tensor_type(call, "input"));
  const auto count = static_cast<int64_t>(call.sizes("normalized_shape").size());
  if (count > rank)
    throw Unsupported(call.where() + ": normalized_shape has more dimensions than the input");
  std::vector<int64_t> dims;
  for (int64_t dim = rank - count; dim < rank; ++dim) dims.push_back(dim);
  Application application = along(call, "input", dims, LetterKind::kWhole);
  for (const std::string_view parameter : {"weight", "bias"}) {
    if (const Type* type = call.tensor(parameter)) {
      application.operands.push_back(
          {call.value(parameter), 0, broadcast_letters(type->shape, application.results[0])});
    }
  }
  return application;
}

// Per-channel operands have the letter of dimension 1.
void add_channel_operands(const Call& call, std::initializer_list<std::string_view> parameters,
                          Application& application) {
  for (const std::string_view parameter : parameters) {
    const Type* type = call.tensor(parameter);
    if (type == nullptr) continue;
    TensorLetters letters(type->shape.size());
    if (letters.size() == 1 && type->shape[0] != Expr(1)) letters[0] = application.results[0][1];
    application.operands.push_back({call.value(parameter), 0, std::move(letters)});
  }
}

// Over groups of channels and all positions: only the batch is independent.
Application group_norm(const Call& call) {
  std::vector<int64_t> dims;
  for (int64_t dim = 1; dim < rank_of(tensor_type(call, "input")); ++dim) dims.push_back(dim);
  Application application = along(call, "input", dims, LetterKind::kWhole);
  add_channel_operands(call, {"weight", "bias"}, application);
  return application;
}

// Over all positions of one channel, unless it uses running statistics.
Application instance_norm(const Call& call) {
  std::vector<int64_t> dims;
  if (call.boolean_or("use_input_stats", true)) {
    for (int64_t dim = 2; dim < rank_of(tensor_type(call, "input")); ++dim) dims.push_back(dim);
  }
  Application application = along(call, "input", dims, LetterKind::kWhole);
  add_channel_operands(call, {"running_mean", "running_var", "weight", "bias"}, application);
  return application;
}

// With running statistics elementwise; with those of the batch refused, see below.
Application batch_norm(const Call& call) {
  Application application = along(call, "input", {}, LetterKind::kPass);
  add_channel_operands(call, {"running_mean", "running_var", "weight", "bias"}, application);
  return application;
}

std::optional<std::string> refuse_running_statistics(const Call& call) {
  if (!call.boolean_or("training", false)) return std::nullopt;
  return "batch normalisation in training takes statistics over all tokens and updates buffers, "
         "which is not "
         "supported: call eval() on it, or use a layer normalisation";
}

std::optional<std::string> refuse_instance_buffers(const Call& call) {
  if (!call.boolean_or("use_input_stats", true) || !call.has("running_mean")) return std::nullopt;
  return "instance normalisation in training updates buffers, which is not supported: call eval() "
         "on it, or set "
         "track_running_stats to False";
}

Application softmax(const Call& call) {
  const int64_t rank = rank_of(tensor_type(call, "input"));
  // torch's old default when no dimension is given.
  const int64_t fallback = rank == 0 || rank == 1 || rank == 3 ? 0 : 1;
  const int64_t dim = call.dim_or("dim", rank, fallback);
  return along(call, "input", rank == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{dim},
               LetterKind::kScan);
}

// Along a sharded dimension the denominator is everyone's.
LocalResult softmax_local(LocalForm& form) {
  const Call& call = form.call();
  const Type type = Type::tensor(call.result().dtype, form.local_shape());
  if (form.application().letters[static_cast<size_t>(form.letter())].kind != LetterKind::kScan)
    return {form.emit_same(type)};
  NodeId x = form.operand(0);
  if (tensor_type(call, "input").dtype != type.dtype)
    x = form.emit("Tensor.to", {Arg::of(x), Arg::literal_of(torch_dtype(type.dtype))}, {}, type);
  if (call.node().target.ends_with("softmin")) x = form.emit("torch.neg", {Arg::of(x)}, {}, type);
  std::vector<Arg> args = {Arg::of(x), Arg::bool_of(!call.op().softmax),
                           Arg::integer_of(form.cut_dim(0)), Arg::size_of(form.extent(0)),
                           Arg::bool_of(form.is_exact(0))};
  form.append_ranks(args);
  return {form.emit("autosp.softmax_rows", std::move(args), {}, type)};
}

Application normalize(const Call& call) {
  return along(call, "input", dims_or_all(call, "dim", rank_of(tensor_type(call, "input"))),
               LetterKind::kWhole);
}

// Compares two tensors along a dimension, which disappears.
Application cosine_similarity(const Call& call) {
  const std::vector<Expr>& first = tensor_type(call, "x1").shape;
  const std::vector<Expr>& second = tensor_type(call, "x2").shape;
  const std::vector<Expr>& longer = first.size() >= second.size() ? first : second;
  const auto rank = static_cast<int64_t>(longer.size());
  const auto dim = static_cast<std::ptrdiff_t>(call.dim_or("dim", rank, 1));
  Application application;
  TensorLetters letters = fresh_letters(application, call.result(), "d");
  const Expr& size = longer[static_cast<size_t>(dim)];
  letters.insert(letters.begin() + dim, application.dim("x", size, LetterKind::kWhole));
  application.operands.push_back({call.value("x1"), 0, broadcast_letters(first, letters)});
  application.operands.push_back({call.value("x2"), 0, broadcast_letters(second, letters)});
  letters.erase(letters.begin() + dim);
  application.results.push_back(std::move(letters));
  return application;
}

}  // namespace

std::span<const OpDef> norm_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "layer_norm",
       .targets = {"torch.nn.functional.layer_norm", "torch.layer_norm"},
       .signature = "input, normalized_shape, weight=None, bias=None, eps=1e-5, cudnn_enable=True",
       .rule = "… w, w, w -> … w  whole w",
       .apply = layer_norm},
      {.name = "rms_norm",
       .targets = {"torch.nn.functional.rms_norm", "torch.rms_norm"},
       .signature = "input, normalized_shape, weight=None, eps=None",
       .rule = "… w, w -> … w  whole w",
       .apply = layer_norm},
      {.name = "group_norm",
       .targets = {"torch.nn.functional.group_norm", "torch.group_norm"},
       .signature = "input, num_groups, weight=None, bias=None, eps=1e-5, cudnn_enabled=True",
       .rule = "n c x …, c, c -> n c x …  whole c x …",
       .apply = group_norm},
      {.name = "instance_norm",
       .targets = {"torch.nn.functional.instance_norm", "torch.instance_norm"},
       .signature = "input, running_mean=None, running_var=None, weight=None, bias=None, "
                    "use_input_stats=True, "
                    "momentum=0.1, eps=1e-5, cudnn_enabled=True",
       .rule = "n c x …, c, c, c, c -> n c x …  whole x …",
       .apply = instance_norm,
       .refuse = refuse_instance_buffers},
      {.name = "batch_norm",
       .targets = {"torch.nn.functional.batch_norm"},
       .signature = "input, running_mean, running_var, weight=None, bias=None, training=False, "
                    "momentum=0.1, eps=1e-5",
       .rule = "n c …, c, c, c, c -> n c …",
       .apply = batch_norm,
       .refuse = refuse_running_statistics},
      {.name = "softmax",
       .targets = {"torch.nn.functional.softmax", "torch.nn.functional.softmin"},
       .signature = "input, dim=None, _stacklevel=3, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = softmax,
       .localize = softmax_local,
       .softmax = true},
      {.name = "softmax (torch)",
       .targets = {"torch.softmax", "Tensor.softmax", "torch.special.softmax",
                   "torch._C._special.special_softmax"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = softmax,
       .localize = softmax_local,
       .softmax = true},
      {.name = "log_softmax",
       .targets = {"torch.nn.functional.log_softmax"},
       .signature = "input, dim=None, _stacklevel=3, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = softmax,
       .localize = softmax_local},
      {.name = "log_softmax (torch)",
       .targets = {"torch.log_softmax", "Tensor.log_softmax", "torch.special.log_softmax",
                   "torch._C._special.special_log_softmax"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = softmax,
       .localize = softmax_local},
      {.name = "normalize",
       .targets = {"torch.nn.functional.normalize"},
       .signature = "input, p=2.0, dim=1, eps=1e-12",
       .rule = "… x … -> … x …  whole x",
       .apply = normalize,
       .singular = singular_in_all},
      {.name = "cosine_similarity",
       .targets = {"torch.cosine_similarity", "torch.nn.functional.cosine_similarity"},
       .signature = "x1, x2, dim=1, eps=1e-8",
       .rule = "… x …, … x … -> … …  whole x",
       .apply = cosine_similarity,
       .singular = singular_in_all},
  };
  return ops;
}

}  // namespace autosp
