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

// Differences of neighbours. With as many rows put before or behind as are lost, row i of the
// result is row i of the operand and what came before it; otherwise the result is a shifted copy,
// an axis of its own.
Application difference(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(input), -1));
  Application application = along_dim(call, -1, LetterKind::kWindow);
  Expr added = 0;
  for (const std::string_view parameter : {"prepend", "append"}) {
    const Type* type = call.tensor(parameter);
    if (type == nullptr) continue;
    added += type->shape[dim];
    TensorLetters letters = broadcast_letters(type->shape, application.operands[0].letters);
    letters[dim] = application.dim(std::string(parameter), type->shape[dim], LetterKind::kWindow);
    application.operands.push_back({call.value(parameter), 0, std::move(letters)});
  }
  if (added != Expr(call.integer_or("n", 1)))
    own_letter(call, dim, "y", LetterKind::kWindow, application);
  return application;
}

Application pad(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const std::vector<Expr> amounts = call.sizes("pad");
  if (amounts.size() % 2 != 0 || amounts.size() > 2 * input.shape.size()) {
    throw Unsupported(call.where() + ": the amounts do not fit the number of dimensions");
  }
  std::vector<int64_t> dims;
  for (size_t i = 0; i < amounts.size(); i += 2) {
    if (amounts[i] == Expr(0) && amounts[i + 1] == Expr(0)) continue;
    dims.push_back(rank_of(input) - 1 - static_cast<int64_t>(i / 2));
  }
  Application application = along(call, "input", dims, LetterKind::kWindow);
  for (const int64_t dim : dims) {
    own_letter(call, static_cast<size_t>(dim), "y" + std::to_string(dim), LetterKind::kWindow,
               application);
  }
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

bool all_equal(const Call& call, std::string_view parameter, int64_t value) {
  if (!call.has(parameter) || call.find(parameter)->kind == Arg::Kind::kString)
    return !call.has(parameter);
  for (const Expr& size : call.sizes(parameter)) {
    if (size != Expr(value)) return false;
  }
  return true;
}

// Channels are whole (a bias or groups tie them together). Positions pass through a kernel of one
// element, else they see their neighbours and the result's positions are others.
Application convolution(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const Type& weight = tensor_type(call, "weight");
  const size_t spatial = weight.shape.size() - 2;
  const size_t channel = input.shape.size() - spatial - 1;
  Application application;
  TensorLetters in = fresh_letters(application, input, "n");
  TensorLetters out = in;
  TensorLetters kernel(weight.shape.size());
  const auto whole = [&](std::string name, const Expr& size) {
    return application.dim(std::move(name), size, LetterKind::kWhole);
  };
  for (const LetterId letter : in[channel])
    application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
  out[channel] = whole("o", call.result().shape[channel]);
  kernel[0] = whole("w0", weight.shape[0]);
  kernel[1] = whole("w1", weight.shape[1]);
  const bool plain = all_equal(call, "stride", 1) && all_equal(call, "padding", 0) &&
                     all_equal(call, "output_padding", 0);
  for (size_t i = 0; i < spatial; ++i) {
    const size_t dim = channel + 1 + i;
    kernel[2 + i] = whole("k" + std::to_string(i), weight.shape[2 + i]);
    if (plain && weight.shape[2 + i] == Expr(1)) continue;
    for (const LetterId letter : in[dim])
      application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWindow;
    out[dim] =
        application.dim("y" + std::to_string(i), call.result().shape[dim], LetterKind::kWindow);
  }
  application.operands.push_back({call.value("input"), 0, in});
  application.operands.push_back({call.value("weight"), 0, kernel});
  if (const Type* bias = call.tensor("bias")) {
    application.operands.push_back({call.value("bias"), 0, {whole("bias", bias->shape[0])}});
  }
  application.results.push_back(out);
  return application;
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
      {.name = "diff",
       .targets = {"torch.diff", "Tensor.diff"},
       .signature = "input, n=1, dim=-1, prepend=None, append=None",
       .rule = "… x … -> … x …  window x",
       .apply = difference},
      {.name = "pad",
       .targets = {"torch.nn.functional.pad", "torch._C._nn.pad"},
       .signature = "input, pad, mode='constant', value=None",
       .rule = "… x … -> … y …  window x y where the amount is not 0",
       .apply = pad},
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
      {.name = "roll",
       .targets = {"torch.roll", "Tensor.roll"},
       .signature = "input, shifts, dims=None",
       .rule = "… x … -> … x …  whole x",
       .apply = rearrange},
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
      {.name = "conv",
       .targets = {"torch.conv1d", "torch.conv2d", "torch.conv3d", "torch.nn.functional.conv1d",
                   "torch.nn.functional.conv2d", "torch.nn.functional.conv3d"},
       .signature = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
       .rule = "n c x …, o c k …, o -> n o y …  whole c o k, window x y unless k is 1",
       .apply = convolution},
      {.name = "conv_transpose",
       .targets = {"torch.conv_transpose1d", "torch.conv_transpose2d", "torch.conv_transpose3d",
                   "torch.nn.functional.conv_transpose1d", "torch.nn.functional.conv_transpose2d",
                   "torch.nn.functional.conv_transpose3d"},
       .signature =
           "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
       .rule = "n c x …, c o k …, o -> n o y …  whole c o k, window x y unless k is 1",
       .apply = convolution},
  };
  return ops;
}

}  // namespace autosp
