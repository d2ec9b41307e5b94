// Views and copies that only move, repeat or regroup elements.
#include <algorithm>
#include <numeric>

#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/refine.h"
#include "ops/rule_line.h"
#include "ops/write_back.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_tensor_to_tensor(const Call& call) {
  return call.tensor("self") != nullptr && call.result().is_tensor();
}

Application opaque(const Call& call) { return opaque_application(call.graph(), call.node()); }

// The operand's letters in another order: result dimension i is operand dimension order[i].
Application permuted(const Call& call, const std::vector<int64_t>& order) {
  Application application;
  const TensorLetters letters = fresh_letters(application, *call.tensor("self"), "x");
  TensorLetters result;
  for (int64_t dim : order) result.push_back(letters[static_cast<size_t>(dim)]);
  application.operands.push_back({call.value("self"), 0, letters});
  application.results.push_back(std::move(result));
  return application;
}

std::vector<int64_t> identity_order(const Call& call) {
  std::vector<int64_t> order(call.tensor("self")->shape.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// ----------------------------------------------------------------- regrouping: view, reshape,
// squeeze, flatten

Application reshape_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  return reshape_application(call.value("self"), call.tensor("self")->shape, call.result().shape);
}

// Sizes in the call and `squeeze()` on a local length of 1 would be wrong, so the local shape is
// spelled out.
LocalResult reshape_local(LocalForm& form) {
  return {form.emit("torch.reshape", {form.local("self"), Arg::sizes_of(form.local_shape())}, {},
                    local_type(form))};
}

bool is_dtype_view(const Call& call) {
  if (call.has("dtype")) return true;
  const Arg* size = call.find("size");
  return size != nullptr && size->items.size() == 1 && size->items[0].kind == Arg::Kind::kLiteral;
}

// `view(dtype)` reads the same bytes as other numbers: each element alone where the sizes agree,
// else the last dimension is regrouped.
Application view_rule(const Call& call) {
  if (!is_tensor_to_tensor(call) || !is_dtype_view(call)) return reshape_rule(call);
  const Type& operand = *call.tensor("self");
  const Type& result = call.result();
  Application application;
  const bool known = operand.dtype != DType::kOther && result.dtype != DType::kOther;
  const bool same = known && dtype_bytes(operand.dtype) == dtype_bytes(result.dtype);
  TensorLetters from = fresh_letters(application, operand, "x");
  TensorLetters to = from;
  if (!same && !from.empty()) {
    for (LetterId letter : from.back())
      application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
    to.back() = application.dim("y", result.shape.back(), LetterKind::kWhole);
  }
  application.operands.push_back({call.value("self"), 0, std::move(from)});
  application.results.push_back(std::move(to));
  return application;
}

LocalResult view_local(LocalForm& form) {
  if (is_dtype_view(form.call())) return {form.emit_same(local_type(form))};
  return reshape_local(form);
}

// [..., 2] <-> complex [...].
Application complex_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  const Type& operand = *call.tensor("self");
  Application application;
  TensorLetters from = fresh_letters(application, operand, "x");
  TensorLetters to = from;
  if (operand.shape.size() < call.result().shape.size()) {
    to.push_back(application.dim("p", Expr(2), LetterKind::kWhole));
  } else {
    application.letters[static_cast<size_t>(from.back()[0])].kind = LetterKind::kWhole;
    to.pop_back();
  }
  application.operands.push_back({call.value("self"), 0, std::move(from)});
  application.results.push_back(std::move(to));
  return application;
}

// ------------------------------------------------------------------------------------------ order
// of dimensions

Application transpose_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  std::vector<int64_t> order = identity_order(call);
  const auto rank = static_cast<int64_t>(order.size());
  if (rank > 0) {
    std::swap(order[static_cast<size_t>(call.dim_or("dim0", rank, 0))],
              order[static_cast<size_t>(call.dim_or("dim1", rank, 0))]);
  }
  return permuted(call, order);
}

Application swap_last_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  std::vector<int64_t> order = identity_order(call);
  if (order.size() >= 2) std::swap(order[order.size() - 1], order[order.size() - 2]);
  return permuted(call, order);
}

std::vector<int64_t> positive_dims(const Call& call, std::string_view parameter, int64_t rank) {
  std::vector<int64_t> dims = call.integers(parameter);
  for (int64_t& dim : dims) {
    if (dim < 0) dim += rank;
    if (dim < 0 || dim >= rank) {
      throw Unsupported(call.where() + ": a dimension in '" + std::string(parameter) +
                        "' is out of range");
    }
  }
  return dims;
}

Application permute_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  return permuted(
      call, positive_dims(call, "dims", static_cast<int64_t>(call.tensor("self")->shape.size())));
}

Application movedim_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  const auto rank = static_cast<int64_t>(call.tensor("self")->shape.size());
  const std::vector<int64_t> source = positive_dims(call, "source", rank);
  const std::vector<int64_t> destination = positive_dims(call, "destination", rank);
  std::vector<int64_t> order(static_cast<size_t>(rank), -1);
  for (size_t i = 0; i < std::min(source.size(), destination.size()); ++i) {
    order[static_cast<size_t>(destination[i])] = source[i];
  }
  int64_t next = 0;
  for (int64_t& dim : order) {
    if (dim >= 0) continue;
    while (std::find(source.begin(), source.end(), next) != source.end()) ++next;
    dim = next++;
  }
  return permuted(call, order);
}

// x.T, x.mT, x.real and the like, which arrive as getattr; what says nothing about elements has no
// letters to relate.
Application getattr_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  const std::string name = call.string_or("name", "");
  std::vector<int64_t> order = identity_order(call);
  if (name == "T" || name == "H") {
    std::reverse(order.begin(), order.end());
  } else if (name == "mT" || name == "mH") {
    return swap_last_rule(call);
  } else if (name != "real" && name != "imag" && name != "data") {
    return opaque(call);
  }
  return permuted(call, order);
}

// -------------------------------------------------------------------------------------------
// repeating elements

// Result dimensions align with the operand's at the end. An expanded dimension is a new axis.
Application expand_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  const std::vector<Expr>& from = call.tensor("self")->shape;
  Application application;
  TensorLetters result = fresh_letters(application, call.result(), "x");
  application.operands.push_back({call.value("self"), 0, broadcast_letters(from, result)});
  application.results.push_back(std::move(result));
  return application;
}

LocalResult expand_local(LocalForm& form) {
  std::vector<Arg> args = {form.local("self")};
  for (const Expr& size : form.local_shape()) args.push_back(Arg::size_of(size));
  return {form.emit("Tensor.expand", std::move(args), {}, local_type(form))};
}

// [x] -> [(r x)]: copies follow each other.
Application repeat_rule(const Call& call) {
  if (!is_tensor_to_tensor(call)) return opaque(call);
  const std::vector<Expr>& from = call.tensor("self")->shape;
  const std::vector<Expr>& to = call.result().shape;
  Application application;
  TensorLetters operand = fresh_letters(application, *call.tensor("self"), "x");
  TensorLetters result;
  const size_t new_dims = to.size() - from.size();
  for (size_t dim = 0; dim < to.size(); ++dim) {
    const Expr size = dim < new_dims ? Expr(1) : from[dim - new_dims];
    const std::optional<Expr> times = divide_exact(to[dim], size);
    if (!times)
      throw Unsupported(call.where() +
                        ": the number of repeats must be known when the program is compiled");
    result.push_back(application.dim("r" + std::to_string(dim), *times));
    if (dim < new_dims) continue;
    const DimLetters& copied = operand[dim - new_dims];
    result.back().insert(result.back().end(), copied.begin(), copied.end());
  }
  application.operands.push_back({call.value("self"), 0, std::move(operand)});
  application.results.push_back(std::move(result));
  return application;
}

Expr product(const std::vector<Expr>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), Expr(1),
                         [](const Expr& a, const Expr& b) { return a * b; });
}

Expr local_times(const LocalForm& form, const Expr& to, const Expr& from) {
  const std::optional<Expr> times = divide_exact(to, from);
  if (!times) {
    throw Unsupported(form.call().where() +
                      ": repeats along the sharded dimension need lengths that the ranks divide");
  }
  return *times;
}

LocalResult repeat_local(LocalForm& form) {
  const std::vector<Expr> from = form.local_operand_shape("self");
  const std::vector<Expr> to = form.local_shape();
  std::vector<Arg> args = {form.local("self")};
  for (size_t dim = 0; dim < to.size(); ++dim) {
    const size_t new_dims = to.size() - from.size();
    args.push_back(
        Arg::size_of(dim < new_dims ? to[dim] : local_times(form, to[dim], from[dim - new_dims])));
  }
  return {form.emit("Tensor.repeat", std::move(args), {}, local_type(form))};
}

// [x] -> [(x r)]: copies of an element stand together. Without `dim` the operand is flattened
// first.
Application repeat_interleave_rule(const Call& call) {
  const Arg* repeats = call.find("repeats");
  if (!is_tensor_to_tensor(call) || repeats == nullptr || !repeats->is_integral())
    return opaque(call);
  Application application;
  const Type& type = *call.tensor("self");
  const TensorLetters operand = fresh_letters(application, type, "x");
  const DimLetters copies = application.dim("r", repeats->as_expr());
  TensorLetters result;
  const auto append = [](DimLetters& dim, const DimLetters& more) {
    dim.insert(dim.end(), more.begin(), more.end());
  };
  if (call.has("dim")) {
    result = operand;
    append(result[static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand.size()), 0))],
           copies);
  } else {
    result.emplace_back();
    for (const DimLetters& dim : operand) append(result[0], dim);
    append(result[0], copies);
  }
  application.operands.push_back({call.value("self"), 0, operand});
  application.results.push_back(std::move(result));
  return application;
}

// The same along heads, as an axis of its own: what follows is cut along all copies together.
Application repeat_heads_rule(const Call& call) {
  Application application;
  const Type& type = *call.tensor("x");
  const auto dim = static_cast<size_t>(call.integer("dim"));
  TensorLetters letters = fresh_letters(application, type, "x");
  for (LetterId letter : letters[dim])
    application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
  application.operands.push_back({call.value("x"), 0, letters});
  letters[dim] = application.dim("y", call.result().shape[dim], LetterKind::kWhole);
  application.results.push_back(std::move(letters));
  return application;
}

LocalResult repeat_interleave_local(LocalForm& form) {
  const Expr times =
      local_times(form, product(form.local_shape()), product(form.local_operand_shape("self")));
  Kwargs kwargs;
  if (form.call().has("dim")) kwargs.emplace_back("dim", *form.call().find("dim"));
  return {form.emit("torch.repeat_interleave", {form.local("self"), Arg::size_of(times)},
                    std::move(kwargs), local_type(form))};
}

// -------------------------------------------------------------------------------------------
// taking apart, joining

// Several parts along one dimension. A part's length is an axis of its own.
Application split_rule(const Call& call) {
  const Type* type = call.tensor("self");
  if (type == nullptr || call.result().kind != Type::Kind::kTuple) return opaque(call);
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(type->shape.size()), 0));
  const std::vector<Type>& parts = call.result().elements;
  Application application;
  const TensorLetters operand = fresh_letters(application, *type, "x");
  const bool whole = parts.size() > 1 || (parts.size() == 1 && parts[0].shape != type->shape);
  if (whole) {
    for (LetterId letter : operand[dim])
      application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
  }
  application.operands.push_back({call.value("self"), 0, operand});
  for (size_t part = 0; part < parts.size(); ++part) {
    TensorLetters result = operand;
    if (parts[part].shape.size() < type->shape.size()) {  // unbind
      result.erase(result.begin() + static_cast<std::ptrdiff_t>(dim));
    } else if (whole) {
      result[dim] =
          application.dim("y" + std::to_string(part), parts[part].shape[dim], LetterKind::kWhole);
    }
    application.results.push_back(std::move(result));
  }
  return application;
}

Application stack_rule(const Call& call) {
  const std::vector<NodeId> values = tensor_arguments(call);
  const Type& type = call.result();
  if (values.empty() || !type.is_tensor()) return opaque(call);
  const auto dim = call.dim_or("dim", static_cast<int64_t>(type.shape.size()), 0);
  Application application;
  TensorLetters letters = fresh_letters(application, call.graph().node(values[0]).type, "x");
  for (NodeId value : values) application.operands.push_back({value, 0, letters});
  letters.insert(letters.begin() + dim,
                 application.dim("n", type.shape[static_cast<size_t>(dim)], LetterKind::kWhole));
  application.results.push_back(std::move(letters));
  return application;
}

// All operands at the size that broadcasting gives them.
Application broadcast_tensors_rule(const Call& call) {
  if (call.result().kind != Type::Kind::kTuple || call.result().elements.empty())
    return opaque(call);
  Application application;
  const TensorLetters letters = fresh_letters(application, call.result().elements[0], "x");
  for (NodeId value : tensor_arguments(call)) {
    application.operands.push_back(
        {value, 0, broadcast_letters(call.graph().node(value).type.shape, letters)});
  }
  application.results.assign(call.result().elements.size(), letters);
  return application;
}

// A dimension of every result for each operand; "xy" swaps the first two.
Application meshgrid_rule(const Call& call) {
  const std::vector<NodeId> values = tensor_arguments(call);
  if (call.result().kind != Type::Kind::kTuple) return opaque(call);
  Application application;
  TensorLetters result;
  for (NodeId value : values) {
    const TensorLetters letters = fresh_letters(application, call.graph().node(value).type,
                                                "x" + std::to_string(result.size()));
    result.push_back(letters.empty() ? DimLetters{} : letters[0]);
    application.operands.push_back({value, 0, letters});
  }
  if (call.string_or("indexing", "ij") == "xy" && result.size() >= 2)
    std::swap(result[0], result[1]);
  application.results.assign(call.result().elements.size(), result);
  return application;
}

OpDef view_op(std::string_view name, std::vector<std::string_view> targets,
              std::string_view signature, std::string_view rule, ApplyFn apply,
              LocalFn localize = nullptr) {
  OpDef op{name, std::move(targets), signature, rule, apply, localize};
  op.aliases = true;
  op.shares = [](const Call&) { return Sharing::kYes; };
  // A regrouping, an order of dimensions and a part are told by what their rule is.
  if (apply == reshape_rule || apply == view_rule) op.write_back = reshape_back;
  if (apply == transpose_rule || apply == swap_last_rule || apply == permute_rule ||
      apply == movedim_rule || apply == getattr_rule)
    op.write_back = permute_back;
  if (apply == split_rule) op.write_back = part_back;
  return op;
}

// It looks at the same memory where the order of elements there allows it, else it copies.
OpDef view_or_copy(OpDef op) {
  op.shares = nullptr;
  return op;
}

OpDef copy_op(std::string_view name, std::vector<std::string_view> targets,
              std::string_view signature, std::string_view rule, ApplyFn apply,
              LocalFn localize = nullptr) {
  OpDef op{name, std::move(targets), signature, rule, apply, localize};
  op.linear = linear_together;
  op.copies = true;
  return op;
}

// An in-place change of the shape: the same rule, and the call that gives the new value instead.
OpDef written(OpDef op, std::string_view functional) {
  op.functional = functional;
  return op;
}

constexpr std::string_view kRegroup = "common refinement of the ordered sizes; pass";
constexpr std::string_view kPermute = "a permutation of the dimensions; pass";
constexpr std::string_view kExpand = "… -> …; an expanded dimension is a new letter";
constexpr std::string_view kCut = "… x … -> … y … (each part)  whole x y";

std::vector<OpDef> make_ops() {
  return {
      view_op("view", {"Tensor.view"}, "self, *size, dtype=None", kRegroup, view_rule, view_local),
      view_or_copy(view_op("reshape", {"torch.reshape", "Tensor.reshape"}, "self, *shape", kRegroup,
                           reshape_rule, reshape_local)),
      view_or_copy(view_op("reshape_as", {"Tensor.reshape_as", "Tensor.view_as"}, "self, other",
                           kRegroup, reshape_rule, reshape_local)),
      view_op("unsqueeze", {"torch.unsqueeze", "Tensor.unsqueeze"}, "self, dim", kRegroup,
              reshape_rule),
      written(view_op("unsqueeze_", {"Tensor.unsqueeze_"}, "self, dim", kRegroup, reshape_rule),
              "torch.unsqueeze"),
      view_op("squeeze", {"torch.squeeze", "Tensor.squeeze"}, "self, *dim", kRegroup, reshape_rule,
              reshape_local),
      written(view_op("squeeze_", {"Tensor.squeeze_"}, "self, *dim", kRegroup, reshape_rule,
                      reshape_local),
              "torch.squeeze"),
      view_or_copy(view_op("flatten", {"torch.flatten", "Tensor.flatten"},
                           "self, start_dim=0, end_dim=-1", kRegroup, reshape_rule, reshape_local)),
      view_or_copy(view_op("ravel", {"torch.ravel", "Tensor.ravel"}, "self", kRegroup, reshape_rule,
                           reshape_local)),
      view_op("unflatten", {"torch.unflatten", "Tensor.unflatten"}, "self, dim, *sizes", kRegroup,
              reshape_rule, reshape_local),
      view_op("view_as_real", {"torch.view_as_real", "Tensor.view_as_real"}, "self",
              "… -> … p  whole p", complex_rule),
      view_op("view_as_complex", {"torch.view_as_complex", "Tensor.view_as_complex"}, "self",
              "… p -> …  whole p", complex_rule),
      view_op("transpose",
              {"torch.transpose", "Tensor.transpose", "torch.swapaxes", "Tensor.swapaxes",
               "torch.swapdims", "Tensor.swapdims"},
              "self, dim0, dim1", kPermute, transpose_rule),
      written(view_op("transpose_", {"Tensor.transpose_", "Tensor.swapaxes_", "Tensor.swapdims_"},
                      "self, dim0, dim1", kPermute, transpose_rule),
              "torch.transpose"),
      view_op("t", {"torch.t", "Tensor.t", "torch.adjoint", "Tensor.adjoint"}, "self", kPermute,
              swap_last_rule),
      written(view_op("t_", {"Tensor.t_"}, "self", kPermute, swap_last_rule), "torch.t"),
      view_op("permute", {"torch.permute", "Tensor.permute"}, "self, *dims", kPermute,
              permute_rule),
      view_op("movedim", {"torch.movedim", "Tensor.movedim", "torch.moveaxis", "Tensor.moveaxis"},
              "self, source, destination", kPermute, movedim_rule),
      view_op("getattr", {"builtins.getattr"}, "self, name, *default",
              "T, mT: a permutation; real, imag: pass", getattr_rule),
      view_op("expand", {"Tensor.expand"}, "self, *size, implicit=False", kExpand, expand_rule,
              expand_local),
      view_op("broadcast_to", {"torch.broadcast_to", "Tensor.broadcast_to"}, "self, *size", kExpand,
              expand_rule, expand_local),
      view_op("expand_as", {"Tensor.expand_as"}, "self, other", kExpand, expand_rule, expand_local),
      view_op("broadcast_tensors",
              {"torch.broadcast_tensors", "torch.functional.broadcast_tensors"}, "*tensors",
              "…, … -> …, …; an expanded dimension is a new letter", broadcast_tensors_rule),
      view_op("meshgrid", {"torch.meshgrid", "torch.functional.meshgrid"},
              "*tensors, indexing=None", "i, j -> i j, i j", meshgrid_rule),
      copy_op("repeat", {"Tensor.repeat"}, "self, *repeats", "x -> (r x)", repeat_rule,
              repeat_local),
      copy_op("tile", {"torch.tile", "Tensor.tile"}, "self, *dims", "x -> (r x)", repeat_rule,
              repeat_local),
      copy_op("repeat_interleave", {"torch.repeat_interleave", "Tensor.repeat_interleave"},
              "self, repeats, dim=None, *, output_size=None", "x -> (x r)", repeat_interleave_rule,
              repeat_interleave_local),
      copy_op("repeat_heads", {"autosp.repeat_heads"}, "x, times, dim", "… x … -> … y …  whole x",
              repeat_heads_rule),
      view_op("split", {"torch.split", "torch.functional.split", "Tensor.split"},
              "self, split_size=None, dim=0, *, split_size_or_sections=None", kCut, split_rule),
      view_op("split_with_sizes", {"torch.split_with_sizes", "Tensor.split_with_sizes"},
              "self, split_sizes, dim=0", kCut, split_rule),
      view_op("chunk", {"torch.chunk", "Tensor.chunk"}, "self, chunks, dim=0", kCut, split_rule),
      view_op("tensor_split", {"torch.tensor_split", "Tensor.tensor_split"},
              "self, indices_or_sections, dim=0", kCut, split_rule),
      view_op("unbind", {"torch.unbind", "Tensor.unbind"}, "self, dim=0",
              "… x … -> … (each element)  whole x", split_rule),
      copy_op("stack", {"torch.stack"}, "tensors, dim=0, *, out=None", "…, … -> … n …  whole n",
              stack_rule),
  };
}

}  // namespace

std::span<const OpDef> view_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
