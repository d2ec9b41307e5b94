// Operators whose rows depend on other rows along a dimension: scans, windows, orders.
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

// Rows in another order. Cut along the axis each rank orders its own rows.
Application sorted(const Call& call) {
  const Type& input = tensor_type(call, "input");
  Application application = along_dim(call, -1, LetterKind::kPass);
  if (input.shape.empty()) return application;
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(input), -1));
  if (application.operands[0].letters[dim].empty()) return application;
  const LetterId rows = application.operands[0].letters[dim][0];
  const LetterId bag = application.add("y", input.shape[dim], LetterKind::kBag);
  application.letters[static_cast<size_t>(bag)].link = rows;
  for (TensorLetters& result : application.results) result[dim] = {bag};
  return application;
}

// Gives the result's dimension a letter of its own: its rows are not the operand's.
void own_letter(const Call& call, size_t dim, std::string_view name, LetterKind kind,
                Application& application) {
  std::vector<Type> types = call.result().elements;
  if (call.result().is_tensor()) types.push_back(call.result());
  const DimLetters letters = application.dim(std::string(name), types[0].shape[dim], kind);
  for (TensorLetters& result : application.results) result[dim] = letters;
}

// The k largest: how many there are has nothing to do with how many there were.
Application select(const Call& call) {
  Application application = order(call);
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(tensor_type(call, "input")), -1));
  if (!application.results[0].empty()) own_letter(call, dim, "k", LetterKind::kWhole, application);
  return application;
}

Application rearrange(const Call& call) {
  const Type& input = tensor_type(call, "input");
  return along(call, "input", dims_or_all(call, "dims", rank_of(input)), LetterKind::kWhole);
}

Application mirror(const Call& call) {
  const int64_t dim = call.op().name == "fliplr" ? 1 : 0;
  return along(call, "input", {dim}, LetterKind::kWhole);
}

}  // namespace

std::span<const OpDef> sequence_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "cumsum",
       .targets = {"torch.cumsum", "Tensor.cumsum", "torch.cumprod", "Tensor.cumprod"},
       .signature = "input, dim, dtype=None",
       .rule = "… x … -> … x …  scan x",
       .apply = scan},
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
       .apply = scan},
      {.name = "flip",
       .targets = {"torch.flip", "Tensor.flip"},
       .signature = "input, *dims",
       .rule = "… x … -> … x …  whole x",
       .apply = rearrange},
      {.name = "flipud",
       .targets = {"torch.flipud", "Tensor.flipud"},
       .signature = "input",
       .rule = "x … -> x …  whole x",
       .apply = mirror},
      {.name = "fliplr",
       .targets = {"torch.fliplr", "Tensor.fliplr"},
       .signature = "input",
       .rule = "d x … -> d x …  whole x",
       .apply = mirror},
      {.name = "sort",
       .targets = {"torch.sort", "Tensor.sort"},
       .signature = "input, dim=-1, descending=False, stable=None",
       .rule = "… x … -> … y …, … y …  bag y of x",
       .apply = sorted},
      {.name = "argsort",
       .targets = {"torch.argsort", "Tensor.argsort"},
       .signature = "input, dim=-1, descending=False, stable=False",
       .rule = "… x … -> … y …  bag y of x",
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
