// Operators whose rows are those of their operand moved, lengthened, shortened or mixed with
// neighbours. Cut along such a dimension, each rank takes the missing rows from its neighbours:
//
//   pad      [s] -> [s + a + b]     row j is row j - a of the operand
//   unfold   [s] -> [s - k', k' + 1]   rows j … j + k' of the operand
//   conv1d   [s] -> [s + 2p - k']   rows j - p … j - p + k' of the operand, k' = (k - 1) dilation
//   cat      [k], [s - k] -> [s]    each operand stands where its rows are, zeros elsewhere; the
//   sum
#include <algorithm>
#include <optional>

#include "ops/index_rule.h"
#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

Letter& letter_of(Application& application, LetterId letter) {
  return application.letters[static_cast<size_t>(letter)];
}

bool runs_along_rows(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind == LetterKind::kWindow;
}

// Makes dimension `dim` of the first operand and of the result one where rows move. `known`: by a
// number of rows, all in order; else both are whole.
void move_rows(Application& application, size_t dim, const Expr& length, bool known, bool pads) {
  TensorLetters& from = application.operands[0].letters;
  TensorLetters& to = application.results[0];
  const std::string number = std::to_string(dim);
  if (from[dim].empty()) {
    to[dim] = application.dim("y" + number, length, LetterKind::kWhole);
    return;
  }
  const LetterId rows = from[dim][0];
  const Expr size = letter_of(application, rows).size;
  const bool links = known && (length - size).is_constant();
  letter_of(application, rows).kind = links ? LetterKind::kWindow : LetterKind::kWhole;
  letter_of(application, rows).pads = pads;
  if (length == size) return;
  to[dim] = application.dim("y" + number, length, links ? LetterKind::kShift : LetterKind::kWhole);
  if (links && !to[dim].empty()) letter_of(application, to[dim][0]).link = rows;
}

// ----------------------------------------------------------------------------------------------
// pad

std::vector<Expr> pad_amounts(const Call& call) {
  const Type& input = tensor_type(call, "input");
  std::vector<Expr> amounts = call.sizes("pad");
  if (amounts.size() % 2 != 0 || amounts.size() > 2 * input.shape.size())
    throw Unsupported(call.where() + ": the amounts do not fit the number of dimensions");
  return amounts;
}

// The number that fills, or nothing for other modes and values of the program.
std::optional<double> fill_of(const Call& call) {
  if (call.string_or("mode", "constant") != "constant") return std::nullopt;
  if (!call.has("value")) return 0.0;
  const Arg& value = *call.find("value");
  if (value.kind == Arg::Kind::kFloat) return value.number;
  const std::optional<int64_t> number = constant_of(value);
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

Application pad_rule(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const std::vector<Expr> amounts = pad_amounts(call);
  const bool fills = fill_of(call).has_value();
  Application application = along(call, "input", {}, LetterKind::kPass);
  for (size_t i = 0; i < amounts.size(); i += 2) {
    if (amounts[i] == Expr(0) && amounts[i + 1] == Expr(0)) continue;
    const size_t dim = input.shape.size() - 1 - i / 2;
    const bool numbers = amounts[i].is_constant() && amounts[i + 1].is_constant();
    const auto adds = [](const Expr& amount) { return amount.as_constant().value_or(1) > 0; };
    move_rows(application, dim, call.result().shape[dim], numbers && fills,
              adds(amounts[i]) || adds(amounts[i + 1]));
  }
  return application;
}

LocalResult pad_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const Call& call = form.call();
  std::vector<Expr> amounts = pad_amounts(call);
  const int64_t rank = rank_of(tensor_type(call, "input"));
  const auto at = static_cast<size_t>(2 * (rank - 1 - form.cut_dim(0)));
  const int64_t before = amounts[at].constant_value();
  const double fill = *fill_of(call);
  NodeId x = form.window(0, before, form.extra() - before, fill, false);
  amounts[at] = amounts[at + 1] = Expr(0);
  const bool rest = std::any_of(amounts.begin(), amounts.end(),
                                [](const Expr& amount) { return amount != Expr(0); });
  if (rest) {
    x = form.emit(
        "torch.nn.functional.pad",
        {Arg::of(x), Arg::sizes_of(amounts), Arg::string_of("constant"), Arg::float_of(fill)}, {},
        local_type(form));
  }
  return {form.as_result(x)};
}

// ---------------------------------------------------------------------------------------------
// diff

// Differences of neighbours, and of such. With a row put before or behind, row i of the result is
// row i of the operand and the one next to it; otherwise the result has a row less each time.
Application difference_rule(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(input), -1));
  Application application = along(call, "input", {}, LetterKind::kPass);
  Expr added = 0;
  for (const std::string_view parameter : {"prepend", "append"}) {
    const Type* type = call.tensor(parameter);
    if (type == nullptr) continue;
    added += type->shape[dim];
    TensorLetters letters = broadcast_letters(type->shape, application.operands[0].letters);
    letters[dim] = application.dim(std::string(parameter), type->shape[dim], LetterKind::kWhole);
    application.operands.push_back({call.value(parameter), 0, std::move(letters)});
  }
  const int64_t times = call.integer_or("n", 1);
  const bool neighbours = added == Expr(0) ? times > 0 : times == 1 && added == Expr(1);
  move_rows(application, dim, call.result().shape[dim], neighbours, false);
  return application;
}

LocalResult difference_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const Call& call = form.call();
  const bool prepends = call.tensor("prepend") != nullptr;
  if (const int64_t times = call.integer_or("n", 1); times > 1) {
    const NodeId rows = form.window(0, 0, times + form.extra(), 0.0, false);
    Type type = local_type(form);
    type.shape[static_cast<size_t>(form.cut_dim(0))] = form.part() + Expr(form.extra());
    return {form.as_result(form.emit(
        "torch.diff", {Arg::of(rows), Arg::integer_of(times), Arg::integer_of(form.cut_dim(0))}, {},
        std::move(type)))};
  }
  NodeId next = form.operand(0);
  NodeId previous = next;
  Type type = local_type(form);
  type.shape[static_cast<size_t>(form.cut_dim(0))] = form.part() + Expr(form.extra());
  const auto with_row = [&](NodeId rows, const Expr& at) {
    return form.emit("torch.add", {Arg::of(rows), Arg::of(form.rows_at(1, at))}, {}, type);
  };
  if (prepends) {
    previous = with_row(form.window(0, 1, -1, 0.0, false), Expr(0));
  } else {
    if (form.extra_of(0) > 0) previous = form.window(0, 0, form.extra(), 0.0, false);
    next = form.window(0, -1, 1 + form.extra(), 0.0, false);
    if (call.tensor("append") != nullptr) next = with_row(next, form.extent(0) - Expr(1));
  }
  return {form.as_result(
      form.emit("torch.sub", {Arg::of(next), Arg::of(previous)}, {}, std::move(type)))};
}

// ---------------------------------------------------------------------------------------------
// unfold

// Row i of the result is the operand's rows i … i + size - 1, which stand in a last dimension; or
// groups of rows, one behind the other.
Application unfold_rule(const Call& call) {
  const Type& self = tensor_type(call, "self");
  const auto dim = static_cast<size_t>(call.dim_or("dimension", rank_of(self), 0));
  const int64_t size = call.integer("size");
  const int64_t step = call.integer("step");
  Application application = along(call, "self", {}, LetterKind::kPass);
  const DimLetters inside = application.dim("w", Expr(size), LetterKind::kWhole);
  TensorLetters& rows = application.operands[0].letters;
  TensorLetters& result = application.results[0];
  const Expr& length = call.result().shape[dim];
  if (step == size && length * Expr(size) == self.shape[dim]) {
    rows[dim] = result[dim] = application.dim("g", length);
    rows[dim].insert(rows[dim].end(), inside.begin(), inside.end());
  } else {
    move_rows(application, dim, length, step == 1, false);
  }
  result.push_back(inside);
  return application;
}

LocalResult unfold_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const int64_t size = form.call().integer("size");
  const NodeId rows = form.window(0, 0, size - 1 + form.extra(), 0.0, false);
  Type type = local_type(form);
  type.shape[static_cast<size_t>(form.cut_dim(0))] = form.part() + Expr(form.extra());
  return {form.as_result(form.emit(
      "Tensor.unfold",
      {Arg::of(rows), Arg::integer_of(form.cut_dim(0)), Arg::integer_of(size), Arg::integer_of(1)},
      {}, std::move(type)))};
}

// ---------------------------------------------------------------------------------------------
// roll

Application roll_rule(const Call& call) {
  const Type& input = tensor_type(call, "input");
  if (!call.has("dims")) {
    return along(call, "input", dims_or_all(call, "dims", rank_of(input)), LetterKind::kWhole);
  }
  return along(call, "input", dims_or_all(call, "dims", rank_of(input)), LetterKind::kWindow);
}

LocalResult roll_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const Call& call = form.call();
  std::vector<int64_t> shifts = call.integers("shifts");
  std::vector<int64_t> dims = call.integers("dims");
  const int64_t rank = rank_of(tensor_type(call, "input"));
  int64_t shift = 0;
  std::vector<Arg> others;
  std::vector<Arg> by;
  for (size_t i = 0; i < dims.size(); ++i) {
    if ((dims[i] + rank) % rank == form.cut_dim(0)) {
      shift += shifts[i];
    } else {
      others.push_back(Arg::integer_of(dims[i]));
      by.push_back(Arg::integer_of(shifts[i]));
    }
  }
  NodeId x = form.window(0, shift, -shift, 0.0, true);
  if (!others.empty()) {
    x = form.emit("torch.roll",
                  {Arg::of(x), Arg::list_of(std::move(by)), Arg::list_of(std::move(others))}, {},
                  local_type(form));
  }
  return {form.as_result(x)};
}

// --------------------------------------------------------------------------------------
// convolution

// A number for each spatial dimension; nothing for what is not one (a string).
std::optional<std::vector<int64_t>> spatial_numbers(const Call& call, std::string_view parameter,
                                                    size_t count, int64_t fallback) {
  if (!call.has(parameter)) return std::vector<int64_t>(count, fallback);
  if (call.find(parameter)->kind == Arg::Kind::kString) return std::nullopt;
  std::vector<int64_t> numbers = call.integers(parameter);
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers.size() == count ? std::optional(numbers) : std::nullopt;
}

// What a convolution does along one spatial dimension.
struct Kernel {
  bool plain = false;  // strides of 1, amounts known
  int64_t before = 0;  // rows made up in front
  int64_t behind = 0;
  int64_t span = 0;  // rows of the operand that a row of the result sees beyond one
};

Kernel kernel_along(const Call& call, size_t index) {
  const Type& weight = tensor_type(call, "weight");
  const size_t spatial = weight.shape.size() - 2;
  const std::optional<int64_t> size = weight.shape[2 + index].as_constant();
  const auto stride = spatial_numbers(call, "stride", spatial, 1);
  const auto dilation = spatial_numbers(call, "dilation", spatial, 1);
  const auto padding = spatial_numbers(call, "padding", spatial, 0);
  Kernel kernel;
  if (!size || !stride || !dilation) return kernel;
  kernel.span = (*size - 1) * (*dilation)[index];
  kernel.plain = (*stride)[index] == 1;
  if (call.op().name != "conv") {
    const auto more = spatial_numbers(call, "output_padding", spatial, 0);
    kernel.plain = kernel.plain && kernel.span == 0 && more && (*more)[index] == 0 && padding &&
                   (*padding)[index] == 0;
    return kernel;
  }
  if (padding) {
    kernel.before = kernel.behind = (*padding)[index];
  } else if (spatial > 1) {
    kernel.plain = false;
  } else if (call.string_or("padding", "") == "same") {
    kernel.before = kernel.span / 2;
    kernel.behind = kernel.span - kernel.before;
  }
  return kernel;
}

// Channels are whole (a bias or groups tie them together). Positions pass through a kernel of one
// element, else they see their neighbours.
Application convolution_rule(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const Type& weight = tensor_type(call, "weight");
  const size_t spatial = weight.shape.size() - 2;
  const size_t channel = input.shape.size() - spatial - 1;
  Application application;
  TensorLetters in = fresh_letters(application, input, "n");
  TensorLetters kernel(weight.shape.size());
  const auto whole = [&](std::string name, const Expr& size) {
    return application.dim(std::move(name), size, LetterKind::kWhole);
  };
  for (const LetterId letter : in[channel])
    letter_of(application, letter).kind = LetterKind::kWhole;
  TensorLetters out = in;
  out[channel] = whole("o", call.result().shape[channel]);
  kernel[0] = whole("w0", weight.shape[0]);
  kernel[1] = whole("w1", weight.shape[1]);
  application.operands.push_back({call.value("input"), 0, in});
  application.results.push_back(out);
  for (size_t i = 0; i < spatial; ++i) {
    const size_t dim = channel + 1 + i;
    kernel[2 + i] = whole("k" + std::to_string(i), weight.shape[2 + i]);
    const Kernel along = kernel_along(call, i);
    if (along.plain && along.span == 0 && along.before == 0) continue;
    move_rows(application, dim, call.result().shape[dim], along.plain,
              along.before > 0 || along.behind > 0);
  }
  application.operands.push_back({call.value("weight"), 0, kernel});
  if (const Type* bias = call.tensor("bias"))
    application.operands.push_back({call.value("bias"), 0, {whole("bias", bias->shape[0])}});
  return application;
}

LocalResult convolution_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const Call& call = form.call();
  const size_t spatial = tensor_type(call, "weight").shape.size() - 2;
  const auto first = tensor_type(call, "input").shape.size() - spatial;
  const size_t index = static_cast<size_t>(form.cut_dim(0)) - first;
  const Kernel along = kernel_along(call, index);
  const NodeId x =
      form.window(0, along.before, form.extra() + along.span - along.before, 0.0, false);
  std::vector<int64_t> padding =
      spatial_numbers(call, "padding", spatial, 0).value_or(std::vector<int64_t>(spatial, 0));
  padding[index] = 0;
  std::vector<Arg> amounts;
  for (const int64_t amount : padding) amounts.push_back(Arg::integer_of(amount));
  const auto given = [&](std::string_view parameter, Arg fallback) {
    return call.has(parameter) ? form.local(parameter) : std::move(fallback);
  };
  Type type = local_type(form);
  type.shape[static_cast<size_t>(form.cut_dim(0))] = form.part() + Expr(form.extra());
  return {form.as_result(
      form.emit(call.node().target,
                {Arg::of(x), form.local("weight"), given("bias", Arg::none()),
                 given("stride", Arg::integer_of(1)), Arg::list_of(std::move(amounts)),
                 given("dilation", Arg::integer_of(1)), given("groups", Arg::integer_of(1))},
                {}, std::move(type)))};
}

// ----------------------------------------------------------------------------------------------
// cat

bool is_empty(const Type& type) {
  return std::find(type.shape.begin(), type.shape.end(), Expr(0)) != type.shape.end();
}

// One operand that is not empty keeps its axis along `dim`. The joined length of several is a new
// one, and an operand that has nearly all of it a shifted copy of it.
Application cat_rule(const Call& call) {
  const std::vector<NodeId> values = tensor_arguments(call);
  const Type& type = call.result();
  if (values.empty() || !type.is_tensor()) return opaque_application(call.graph(), call.node());
  const auto rank = static_cast<int64_t>(type.shape.size());
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank, 0));
  const auto shape = [&](NodeId value) -> const Type& { return call.graph().node(value).type; };
  const auto full = std::count_if(values.begin(), values.end(),
                                  [&](NodeId value) { return !is_empty(shape(value)); });
  Application application;
  TensorLetters result = fresh_letters(application, type, "x");
  if (full != 1) {
    for (const LetterId letter : result[dim])
      letter_of(application, letter).kind = LetterKind::kWindow;
  }
  for (NodeId value : values) {
    // torch lets an empty one-dimensional tensor stand for nothing.
    if (static_cast<int64_t>(shape(value).shape.size()) != rank) continue;
    TensorLetters letters = result;
    if (full != 1 || is_empty(shape(value))) {
      const Expr& rows = shape(value).shape[dim];
      letters[dim] = application.dim("c" + std::to_string(application.operands.size()), rows,
                                     LetterKind::kWhole);
      if (!letters[dim].empty() && !result[dim].empty() && !is_empty(shape(value)) &&
          is_trim(type.shape[dim], rows)) {
        letter_of(application, letters[dim][0]).kind = LetterKind::kShift;
        letter_of(application, letters[dim][0]).link = result[dim][0];
      }
    }
    application.operands.push_back({value, 0, std::move(letters)});
  }
  application.results.push_back(std::move(result));
  return application;
}

LocalResult cat_local(LocalForm& form) {
  if (!runs_along_rows(form)) return {form.emit_same(local_type(form))};
  const Call& call = form.call();
  const Type& result = call.result();
  const Graph& graph = call.graph();
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(result), 0));
  Type type = local_type(form);
  type.shape[dim] = form.part() + Expr(form.extra());
  NodeId sum = kNoNode;
  DType dtype = DType::kOther;
  Expr start = 0;
  const std::vector<Operand>& operands = form.application().operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    const Node& source = graph.node(operands[i].value);
    const Expr at = start;
    start += source.type.shape[dim];
    if (is_empty(source.type) ||
        (makes_zeros(source) && (sum != kNoNode || i + 1 < operands.size())))
      continue;
    NodeId rows = kNoNode;
    if (form.is_cut(i)) {
      if (!at.is_constant()) {
        throw Unsupported(
            call.where() + ": dimension " + std::to_string(dim) + " of %" + source.name +
            " carries the sequence and stands behind another one, which is not supported: a rank's "
            "part would lie on two. Keep sequences in tensors of their own");
      }
      const int64_t before = at.constant_value();
      rows = form.window(i, before, form.extra() - before, 0.0, false);
    } else {
      rows = form.rows_at(i, at);
    }
    dtype = sum == kNoNode ? source.type.dtype : result.dtype;
    sum = sum == kNoNode
              ? rows
              : form.emit(result.dtype == DType::kBool ? "torch.logical_or" : "torch.add",
                          {Arg::of(sum), Arg::of(rows)}, {}, type);
  }
  if (dtype != result.dtype)
    sum = form.emit("Tensor.to", {Arg::of(sum), Arg::literal_of(torch_dtype(result.dtype))}, {},
                    type);
  return {form.as_result(sum)};
}

}  // namespace

std::span<const OpDef> window_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "diff",
       .targets = {"torch.diff", "Tensor.diff"},
       .signature = "input, n=1, dim=-1, prepend=None, append=None",
       .rule = "… x … -> … x …  window x",
       .apply = difference_rule,
       .localize = difference_local},
      {.name = "pad",
       .targets = {"torch.nn.functional.pad", "torch._C._nn.pad"},
       .signature = "input, pad, mode='constant', value=None",
       .rule = "… x … -> … y …  window x, y shifted, where the amount is not 0",
       .apply = pad_rule,
       .localize = pad_local},
      {.name = "unfold",
       .targets = {"Tensor.unfold"},
       .signature = "self, dimension, size, step",
       .rule = "… x … -> … y … w  window x, y shifted, whole w; x is (y w) in steps of the size",
       .apply = unfold_rule,
       .localize = unfold_local,
       .aliases = true},
      {.name = "roll",
       .targets = {"torch.roll", "Tensor.roll"},
       .signature = "input, shifts, dims=None",
       .rule = "… x … -> … x …  window x",
       .apply = roll_rule,
       .localize = roll_local},
      {.name = "conv",
       .targets = {"torch.conv1d", "torch.conv2d", "torch.conv3d", "torch.nn.functional.conv1d",
                   "torch.nn.functional.conv2d", "torch.nn.functional.conv3d"},
       .signature = "input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1",
       .rule = "n c x …, o c k …, o -> n o y …  whole c o k, window x, y shifted, unless k is 1",
       .apply = convolution_rule,
       .localize = convolution_local},
      {.name = "conv_transpose",
       .targets = {"torch.conv_transpose1d", "torch.conv_transpose2d", "torch.conv_transpose3d",
                   "torch.nn.functional.conv_transpose1d", "torch.nn.functional.conv_transpose2d",
                   "torch.nn.functional.conv_transpose3d"},
       .signature =
           "input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
       .rule = "n c x …, c o k …, o -> n o y …  whole c o k x y",
       .apply = convolution_rule},
      {.name = "cat",
       .targets = {"torch.cat", "torch.concat", "torch.concatenate"},
       .signature = "tensors, dim=0, *, out=None",
       .rule = "… a …, … b … -> … y …  window y, a b shifted where they have nearly all of it",
       .apply = cat_rule,
       .localize = cat_local},
  };
  return ops;
}

}  // namespace autosp
