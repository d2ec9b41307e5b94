// Operators whose rows depend on all other rows along a dimension: scans and orders.
#include <algorithm>

#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

Application along_dim(const Call& call, int64_t fallback, LetterKind kind) {
  const int64_t rank = rank_of(tensor_type(call, "input"));
  const int64_t dim = call.dim_or("dim", rank, fallback);
  return along(call, "input", rank == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{dim}, kind);
}

Application scan(const Call& call) { return along_dim(call, -1, LetterKind::kScan); }
Application order(const Call& call) { return along_dim(call, -1, LetterKind::kWhole); }

// Gives the result's dimension a letter of its own: its rows are not the operand's.
void own_letter(const Call& call, size_t dim, std::string_view name, LetterKind kind,
                Application& application) {
  std::vector<Type> types = call.result().elements;
  if (call.result().is_tensor()) types.push_back(call.result());
  const DimLetters letters = application.dim(std::string(name), types[0].shape[dim], kind);
  for (TensorLetters& result : application.results) result[dim] = letters;
}

// Rows in another order. Cut along the axis each rank orders its own rows, if it is one order: what
// puts rows of several side by side can tell.
Application sorted(const Call& call) {
  const Type& input = tensor_type(call, "input");
  Application application = along_dim(call, -1, LetterKind::kPass);
  if (input.shape.empty()) return application;
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(input), -1));
  if (application.operands[0].letters[dim].empty()) return application;
  const TensorLetters& letters = application.operands[0].letters;
  if (std::count_if(letters.begin(), letters.end(), [](const auto& d) { return !d.empty(); }) > 1) {
    application = order(call);
    own_letter(call, dim, "y", LetterKind::kWhole, application);
    return application;
  }
  const LetterId rows = application.operands[0].letters[dim][0];
  const LetterId bag = application.add("y", input.shape[dim], LetterKind::kBag);
  application.letters[static_cast<size_t>(bag)].link = rows;
  for (TensorLetters& result : application.results) result[dim] = {bag};
  return application;
}

// The k largest: how many there are has nothing to do with how many there were.
Application select(const Call& call) {
  Application application = order(call);
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(tensor_type(call, "input")), -1));
  if (!application.results[0].empty()) own_letter(call, dim, "k", LetterKind::kWhole, application);
  return application;
}

std::vector<int64_t> mirrored_dims(const Call& call) {
  if (call.op().name == "flipud") return {0};
  if (call.op().name == "fliplr") return {1};
  return dims_or_all(call, "dims", rank_of(tensor_type(call, "input")));
}

Application mirror(const Call& call) {
  return along(call, "input", mirrored_dims(call), LetterKind::kScan);
}

// ---- Along a sharded dimension

bool runs_along_rows(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind == LetterKind::kScan;
}

LocalResult scan_local(LocalForm& form) {
  const Type type = local_type(form);
  if (!runs_along_rows(form)) return {form.emit_same(type)};
  const std::string& target = form.call().node().target;
  const std::string kind = target.substr(target.rfind('.') + 1);
  const Arg dim = Arg::integer_of(form.cut_dim(0));
  NodeId x = form.operand(0);
  std::vector<Arg> args = {Arg::of(x)};
  if (type.kind == Type::Kind::kTuple) {
    args.push_back(Arg::bool_of(kind == "cummax"));
    args.push_back(dim);
    form.append_ranks(args);
    return {form.emit("autosp.scan_extremes", std::move(args), {}, type)};
  }
  if (tensor_type(form.call(), "input").dtype != type.dtype) {
    x = form.emit("Tensor.to", {Arg::of(x), Arg::literal_of(torch_dtype(type.dtype))}, {}, type);
    args[0] = Arg::of(x);
  }
  args.push_back(Arg::string_of(kind));
  args.push_back(dim);
  form.append_ranks(args);
  return {form.emit("autosp.scan_rows", std::move(args), {}, type)};
}

LocalResult mirror_local(LocalForm& form) {
  const Type type = local_type(form);
  if (!runs_along_rows(form)) return {form.emit_same(type)};
  std::vector<Arg> args = {Arg::of(form.operand(0)), Arg::integer_of(form.cut_dim(0)),
                           Arg::size_of(form.extent(0)), Arg::bool_of(form.is_exact(0))};
  form.append_ranks(args);
  const NodeId x = form.emit("autosp.flip_rows", std::move(args), {}, type);
  std::vector<Arg> others;
  for (const int64_t dim : mirrored_dims(form.call())) {
    if (dim != form.cut_dim(0)) others.push_back(Arg::integer_of(dim));
  }
  if (others.empty()) return {x};
  return {form.emit("torch.flip", {Arg::of(x), Arg::list_of(std::move(others))}, {}, type)};
}

}  // namespace

std::span<const OpDef> sequence_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "cumsum",
       .targets = {"torch.cumsum", "Tensor.cumsum", "torch.cumprod", "Tensor.cumprod"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = scan,
       .localize = scan_local},
      {.name = "cumsum_",
       .targets = {"Tensor.cumsum_"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = scan,
       .functional = "torch.cumsum"},
      {.name = "cumprod_",
       .targets = {"Tensor.cumprod_"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = scan,
       .functional = "torch.cumprod"},
      {.name = "cummax",
       .targets = {"torch.cummax", "Tensor.cummax", "torch.cummin", "Tensor.cummin",
                   "torch.logcumsumexp", "Tensor.logcumsumexp"},
       .signature = "input, dim",
       .rule = "… x … -> … x …  scan x",
       .apply = scan,
       .localize = scan_local},
      {.name = "flip",
       .targets = {"torch.flip", "Tensor.flip"},
       .signature = "input, *dims",
       .rule = "… x … -> … x …  scan x",
       .apply = mirror,
       .localize = mirror_local},
      {.name = "flipud",
       .targets = {"torch.flipud", "Tensor.flipud"},
       .signature = "input",
       .rule = "x … -> x …  scan x",
       .apply = mirror,
       .localize = mirror_local},
      {.name = "fliplr",
       .targets = {"torch.fliplr", "Tensor.fliplr"},
       .signature = "input",
       .rule = "d x … -> d x …  scan x",
       .apply = mirror,
       .localize = mirror_local},
      {.name = "sort",
       .targets = {"torch.sort", "Tensor.sort"},
       .signature = "input, dim=-1, descending=False, stable=None",
       .rule =
           "x -> y, y  bag y of x; with other dimensions, each in an order of its own: whole x y",
       .apply = sorted},
      {.name = "argsort",
       .targets = {"torch.argsort", "Tensor.argsort"},
       .signature = "input, dim=-1, descending=False, stable=False",
       .rule = "x -> y  bag y of x; with other dimensions, each in an order of its own: whole x y",
       .apply = sorted,
       .differentiable = false},
      {.name = "topk",
       .targets = {"torch.topk", "Tensor.topk"},
       .signature = "input, k, dim=-1, largest=True, sorted=True",
       .rule = "… x … -> … k …, … k …  whole x k",
       .apply = select},
  };
  return ops;
}

}  // namespace autosp
