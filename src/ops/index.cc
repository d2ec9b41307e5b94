// Indexing, slicing, gathering and scattering.
#include <algorithm>
#include <optional>

#include "ops/index_local.h"
#include "ops/index_rule.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "ops/write_back.h"
#include "support/error.h"

namespace autosp {
namespace {

Application opaque(const Call& call) { return opaque_application(call.graph(), call.node()); }

// -------------------------------------------------------------------------------------------------
// tensor[index]

// One element of a tuple.
Application element_rule(const Call& call) {
  const NodeId tuple = call.value("self");
  const std::vector<Type>& elements = call.graph().node(tuple).type.elements;
  const Arg* index = call.find("index");
  const std::optional<int64_t> given = index == nullptr ? std::nullopt : constant_of(*index);
  if (!given || !call.result().is_tensor()) return opaque(call);
  const int64_t element = *given < 0 ? *given + static_cast<int64_t>(elements.size()) : *given;
  if (element < 0 || element >= static_cast<int64_t>(elements.size())) {
    throw Unsupported(call.where() + ": element " + std::to_string(*given) + " of a tuple of " +
                      std::to_string(elements.size()));
  }
  Application application;
  const TensorLetters letters = fresh_letters(application, call.result(), "x");
  application.operands.push_back({tuple, static_cast<int>(element), letters});
  application.results.push_back(letters);
  return application;
}

std::optional<Index> index_of(const Call& call, std::string_view parameter, const Type& operand) {
  const Arg* arg = call.find(parameter);
  return arg == nullptr ? std::nullopt : read_index(call.graph(), *arg, operand.shape.size());
}

void add_tensors(Application& application, Indexed& letters) {
  application.picked = letters.picked;
  if (application.picked) application.picked->index = application.operands.size();
  for (Operand& tensor : letters.tensors) application.operands.push_back(std::move(tensor));
}

Application getitem_rule(const Call& call) {
  const NodeId value = call.value("self");
  if (value != kNoNode && call.graph().node(value).type.kind == Type::Kind::kTuple)
    return element_rule(call);
  const Type* operand = call.tensor("self");
  if (operand == nullptr || !call.result().is_tensor()) return opaque(call);
  const std::optional<Index> index = index_of(call, "index", *operand);
  const std::vector<Expr>& shape = call.result().shape;
  if (!index || index->rank != static_cast<int>(shape.size())) return opaque(call);
  Application application;
  Indexed letters = index_letters(application, call.graph(), *index, *operand, shape,
                                  LetterKind::kPass, LetterKind::kPick);
  application.operands.push_back({value, 0, std::move(letters.operand)});
  add_tensors(application, letters);
  application.results.push_back(std::move(letters.selected));
  return application;
}

// Writing by index: what is indexed must be whole, other dimensions pass.
Application index_put_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Arg* given = call.find("indices");
  const Type* values = call.tensor("values");
  if (operand == nullptr || given == nullptr || values == nullptr || !call.result().is_tensor())
    return opaque(call);
  // None stands for all of a dimension here, not for a new one.
  std::vector<Arg> entries;
  for (const Arg& entry : given->items) {
    entries.push_back(entry.is_none() ? Arg::slice_of(Arg::none(), Arg::none(), Arg::none())
                                      : entry);
  }
  const std::optional<Index> index =
      read_index(call.graph(), Arg::tuple_of(std::move(entries)), operand->shape.size());
  if (!index) return opaque(call);
  std::vector<Expr> shape(static_cast<size_t>(index->rank), Expr(1));
  for (const IndexItem& item : index->items) {
    if (item.kind == IndexItem::Kind::kSlice)
      shape[static_cast<size_t>(item.result)] = operand->shape[static_cast<size_t>(item.operand)];
    if (item.kind != IndexItem::Kind::kTensor) continue;
    const std::vector<Expr>& sizes = call.graph().node(item.arg.value).type.shape;
    for (size_t i = 0; i < sizes.size(); ++i) {
      Expr& size =
          shape[static_cast<size_t>(index->block_begin + index->block_rank) - sizes.size() + i];
      if (size == Expr(1)) size = sizes[i];
    }
  }
  Application application;
  Indexed letters = index_letters(application, call.graph(), *index, *operand, shape,
                                  LetterKind::kWhole, LetterKind::kWhole);
  application.operands.push_back({call.value("self"), 0, letters.operand});
  add_tensors(application, letters);
  application.operands.push_back(
      {call.value("values"), 0, broadcast_letters(values->shape, letters.selected)});
  application.results.push_back(std::move(letters.operand));
  return application;
}

// ------------------------------------------------------------------------------------- one
// dimension: select, narrow

Application select_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Arg* index = call.find("index");
  if (operand == nullptr || index == nullptr || !index->is_integral()) return opaque(call);
  const auto dim = call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0);
  Application application;
  TensorLetters letters = fresh_letters(application, *operand, "x");
  for (LetterId letter : letters[static_cast<size_t>(dim)]) {
    application.letters[static_cast<size_t>(letter)].kind = LetterKind::kPick;
  }
  application.operands.push_back({call.value("self"), 0, letters});
  letters.erase(letters.begin() + dim);
  application.results.push_back(std::move(letters));
  return application;
}

// start : start + length as a slice; its stop says no more than whether it is the end.
Arg narrow_slice(const Call& call, const Expr& size, const Expr& length) {
  const Arg& start = *call.find("start");
  const bool to_end = start.as_expr() + length == size;
  return Arg::slice_of(start, to_end ? Arg::none() : Arg::size_of(length), Arg::none());
}

Application narrow_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Arg* start = call.find("start");
  const bool known = start != nullptr && start->is_integral();
  if (operand == nullptr || !call.result().is_tensor() || !known) return opaque(call);
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0));
  Application application;
  TensorLetters from;
  TensorLetters to;
  for (size_t d = 0; d < operand->shape.size(); ++d) {
    const Expr& size = operand->shape[d];
    const Expr& length = call.result().shape[d];
    if (d == dim && size != length) {
      Cut parts = cut_dimension(application, size, length, narrow_slice(call, size, length));
      from.push_back(std::move(parts.operand));
      to.push_back(std::move(parts.result));
    } else {
      from.push_back(application.dim("x" + std::to_string(application.letters.size()), size));
      to.push_back(from.back());
    }
  }
  application.operands.push_back({call.value("self"), 0, std::move(from)});
  application.results.push_back(std::move(to));
  return application;
}

// ------------------------------------------------------------------------------------ gather and
// scatter along `dim`

// Outside `dim` row r of the index reads row r of the operand: one axis where both have all rows,
// else whole, since a part of the index would start at another row.
Application gather_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Type* index = call.tensor("index");
  if (operand == nullptr || index == nullptr || operand->shape.empty() ||
      index->shape.size() != operand->shape.size()) {
    return opaque(call);
  }
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0));
  Application application;
  const TensorLetters letters = fresh_letters(application, *index, "i");
  TensorLetters from = letters;
  for (size_t d = 0; d < operand->shape.size(); ++d) {
    if (d != dim && operand->shape[d] == index->shape[d]) continue;
    from[d] = application.dim("x" + std::to_string(d), operand->shape[d],
                              d == dim ? LetterKind::kPick : LetterKind::kWhole);
    if (d == dim) continue;
    for (LetterId letter : letters[d])
      application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
  }
  application.operands.push_back({call.value("self"), 0, std::move(from)});
  application.operands.push_back({call.value("index"), 0, letters});
  application.results.push_back(letters);
  return application;
}

// As gather, with broadcasting of all dimensions but `dim`.
Application take_along_dim_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Type* index = call.tensor("indices");
  if (operand == nullptr || index == nullptr || !call.has("dim") ||
      operand->shape.size() != index->shape.size()) {
    return opaque(call);
  }
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0));
  Application application;
  const TensorLetters result = fresh_letters(application, call.result(), "i");
  TensorLetters from = broadcast_letters(operand->shape, result);
  from[dim] = application.dim("x", operand->shape[dim], LetterKind::kWhole);
  application.operands.push_back({call.value("self"), 0, std::move(from)});
  application.operands.push_back(
      {call.value("indices"), 0, broadcast_letters(index->shape, result)});
  application.results.push_back(result);
  return application;
}

Application index_select_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Type* index = call.tensor("index");
  if (operand == nullptr || index == nullptr || operand->shape.empty() || index->shape.size() != 1)
    return opaque(call);
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0));
  Application application;
  TensorLetters letters = fresh_letters(application, *operand, "x");
  for (LetterId letter : letters[dim])
    application.letters[static_cast<size_t>(letter)].kind = LetterKind::kPick;
  application.operands.push_back({call.value("self"), 0, letters});
  const DimLetters rows = letters[dim];
  letters[dim] = application.dim("i", index->shape[0]);
  if (!rows.empty() && !letters[dim].empty())
    application.picked = Picked{application.operands.size(), rows[0], letters[dim][0]};
  application.operands.push_back({call.value("index"), 0, {letters[dim]}});
  application.results.push_back(std::move(letters));
  return application;
}

// How many rows a scatter adds up into zeros: each may be added by another rank.
std::optional<Expr> added_rows(const Call& call, size_t dim) {
  const std::string_view added = added_parameter(call);
  const Type* index = call.tensor("index");
  const Type* source = call.tensor(added);
  const NodeId self = call.value("self");
  if (index == nullptr || source == nullptr || call.value(added) == self ||
      !makes_zeros(call.graph().node(self)))
    return std::nullopt;
  // A one-dimensional index counts along `dim`.
  const Expr& rows =
      index->shape.size() == source->shape.size() ? index->shape.at(dim) : index->shape.at(0);
  return source->shape.size() > dim && source->shape[dim] == rows ? std::optional(rows)
                                                                  : std::nullopt;
}

// Writes into `self` along `dim`: there all operands are whole, or what is `added` is summed. Other
// dimensions pass where all operands have the same length.
Application scatter(const Call& call, bool adds) {
  const Type* operand = call.tensor("self");
  if (operand == nullptr || !call.result().is_tensor() || operand->shape.empty())
    return opaque(call);
  const auto rank = operand->shape.size();
  const auto dim = static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(rank), 0));
  Application application;
  const std::optional<Expr> added = adds ? added_rows(call, dim) : std::nullopt;
  const DimLetters rows = added ? application.dim("i", *added, LetterKind::kSum) : DimLetters{};
  TensorLetters letters = fresh_letters(application, *operand, "x");
  const auto make_whole = [&](size_t d) {
    for (LetterId letter : letters[d])
      application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
  };
  make_whole(dim);
  for (NodeId value : tensor_arguments(call)) {
    const std::vector<Expr>& shape = call.graph().node(value).type.shape;
    for (size_t d = 0; d < shape.size() && shape.size() == rank; ++d) {
      if (d != dim && shape[d] != operand->shape[d]) make_whole(d);
    }
  }
  for (NodeId value : tensor_arguments(call)) {
    if (added && value == call.value("self")) continue;  // zeros of any length will do
    const std::vector<Expr>& shape = call.graph().node(value).type.shape;
    TensorLetters own;
    for (size_t d = 0; d < shape.size(); ++d) {
      // A one-dimensional index counts along `dim`, as does a value without dimensions.
      const bool is_self = value == call.value("self");
      const bool same =
          shape.size() == rank && shape[d] == operand->shape[d] && (d != dim || is_self);
      const bool is_added = added && !is_self && (shape.size() < rank || d == dim);
      own.push_back(same       ? letters[d]
                    : is_added ? rows
                               : application.dim("i" + std::to_string(application.letters.size()),
                                                 shape[d], LetterKind::kWhole));
    }
    application.operands.push_back({value, 0, std::move(own)});
  }
  application.results.push_back(std::move(letters));
  return application;
}

Application scatter_rule(const Call& call) { return scatter(call, false); }
Application scatter_sum_rule(const Call& call) {
  return scatter(call, call.string_or("reduce", "sum") == "sum");
}

// Whether the rows that a slice_scatter or select_scatter writes follow each other from a number
// on.
bool writes_known_rows(const Call& call, const Expr& size) {
  if (const Arg* index = call.find("index")) return index->is_integral();
  const Arg* start = call.find("start");
  const bool step_one = !call.has("step") || constant_of(*call.find("step")) == 1;
  return start != nullptr && step_one &&
         first_row(Arg::slice_of(*start, Arg::none(), Arg::none()), size)
             .value_or(Expr::symbol("unknown"))
             .is_constant();
}

// Writes `src` into a part of `self` along `dim`.
Application slice_scatter_rule(const Call& call) {
  const Type* operand = call.tensor("self");
  const Type* source = call.tensor("src");
  if (operand == nullptr || source == nullptr || operand->shape.empty()) return opaque(call);
  const auto dim =
      static_cast<size_t>(call.dim_or("dim", static_cast<int64_t>(operand->shape.size()), 0));
  Application application;
  TensorLetters letters = fresh_letters(application, *operand, "x");
  TensorLetters own = letters;
  const bool selects = source->shape.size() < operand->shape.size();
  if (selects) own.erase(own.begin() + static_cast<std::ptrdiff_t>(dim));
  if (selects || source->shape[dim] != operand->shape[dim]) {
    const bool known = writes_known_rows(call, operand->shape[dim]);
    for (LetterId letter : letters[dim])
      application.letters[static_cast<size_t>(letter)].kind =
          known ? LetterKind::kWindow : LetterKind::kWhole;
    if (!selects) {
      own[dim] = application.dim("y", source->shape[dim], LetterKind::kWhole);
      if (known && !own[dim].empty() && !letters[dim].empty() &&
          is_trim(operand->shape[dim], source->shape[dim])) {
        application.letters[static_cast<size_t>(own[dim][0])].kind = LetterKind::kShift;
        application.letters[static_cast<size_t>(own[dim][0])].link = letters[dim][0];
      }
    }
  }
  application.operands.push_back({call.value("self"), 0, letters});
  application.operands.push_back({call.value("src"), 0, std::move(own)});
  application.results.push_back(std::move(letters));
  return application;
}

OpDef index_op(std::string_view name, std::vector<std::string_view> targets,
               std::string_view signature, std::string_view rule, ApplyFn apply,
               LocalFn localize = nullptr) {
  return OpDef{name, std::move(targets), signature, rule, apply, localize};
}

// Every class is compared with every index, and the call gives their number.
OpDef one_hot_op() {
  OpDef op{"one_hot",
           {"torch._C._nn.one_hot", "torch.nn.functional.one_hot"},
           "self, num_classes=-1",
           "… -> … g  whole g"};
  op.differentiable = false;
  return op;
}

OpDef written(OpDef op, std::string_view functional) {
  op.functional = functional;
  return op;
}

OpDef viewing(OpDef op, SharingFn shares, WriteBackFn write_back) {
  op.aliases = true;
  op.linear = linear_in_first;
  op.shares = shares;
  op.write_back = write_back;
  return op;
}

Sharing always_shares(const Call&) { return Sharing::kYes; }

// Numbers and slices look at the tensor, tensors and lists copy from it.
Sharing getitem_shares(const Call& call) {
  const Arg* index = call.find("index");
  const Type* operand = call.tensor("self");
  if (operand == nullptr || index == nullptr) return Sharing::kYes;
  const std::vector<Arg> entries =
      index->kind == Arg::Kind::kTuple ? index->items : std::vector<Arg>{*index};
  Sharing shares = Sharing::kYes;
  for (const Arg& entry : entries) {
    if (entry.kind == Arg::Kind::kList) return Sharing::kNo;
    if (!entry.is_value()) continue;
    const Type& type = call.graph().node(entry.value).type;
    if (type.is_tensor() && (!type.shape.empty() || type.dtype == DType::kBool))
      return Sharing::kNo;
    shares = Sharing::kMaybe;
  }
  return shares;
}

// An assignment has no value of its own: functionalization replaces it by the tensor's new value.
// It is an effect, so that nothing drops one that is still there.
OpDef setitem_op() {
  OpDef op{"setitem",
           {"_operator.setitem"},
           "self, index, value",
           "an assignment; replaced before rules apply",
           opaque};
  op.effect = true;
  op.assigns = true;
  return op;
}

constexpr std::string_view kGetitem =
    "per index: full slice pass; :-k prefix; k: window; few rows, number, list pick; other slice "
    "whole; None new; tensor: pick x, i -> i";
constexpr std::string_view kScatter = "… x …, … i …, … i … -> … x …  whole x i";
constexpr std::string_view kScatterSum =
    "… x …, … i …, … i … -> … x …  whole x, sum i into zeros, else whole i";
constexpr std::string_view kAllWhole = "every dimension whole";

std::vector<OpDef> make_ops() {
  return {
      viewing(index_op("getitem", {"_operator.getitem"}, "self, index", kGetitem, getitem_rule,
                       getitem_local),
              getitem_shares, index_back),
      setitem_op(),
      viewing(index_op("select", {"torch.select", "Tensor.select"}, "self, dim, index",
                       "… x … -> … …  pick x", select_rule, select_local),
              always_shares, select_back),
      viewing(
          index_op("narrow", {"torch.narrow", "Tensor.narrow"}, "self, dim, start, length",
                   "… x … -> … y …  as the slice start:start+length", narrow_rule, narrow_local),
          always_shares, narrow_back),
      index_op("gather", {"torch.gather", "Tensor.gather"},
               "self, dim, index, *, sparse_grad=False, out=None", "… x …, … i … -> … i …  pick x",
               gather_rule, gather_local),
      index_op("take_along_dim", {"torch.take_along_dim", "Tensor.take_along_dim"},
               "self, indices, dim=None, *, out=None", "… x …, … i … -> … i …  whole x",
               take_along_dim_rule),
      index_op("index_select", {"torch.index_select", "Tensor.index_select"},
               "self, dim, index, *, out=None", "… x …, i -> … i …  pick x", index_select_rule,
               index_select_local),
      one_hot_op(),
      index_op("masked_select", {"torch.masked_select", "Tensor.masked_select"},
               "self, mask, *, out=None", kAllWhole, opaque),
      index_op("nonzero", {"torch.nonzero", "Tensor.nonzero"}, "self, *, as_tuple=False, out=None",
               kAllWhole, opaque),
      index_op("masked_scatter", {"torch.masked_scatter", "Tensor.masked_scatter"},
               "self, mask, source", kAllWhole, opaque),
      written(index_op("masked_scatter_", {"Tensor.masked_scatter_"}, "self, mask, source",
                       kAllWhole, opaque),
              "torch.masked_scatter"),
      index_op("scatter", {"torch.scatter", "Tensor.scatter"},
               "self, dim, index, src=None, *, value=None, reduce=None, out=None", kScatter,
               scatter_rule),
      written(index_op("scatter_", {"Tensor.scatter_"},
                       "self, dim, index, src=None, *, value=None, reduce=None", kScatter,
                       scatter_rule),
              "torch.scatter"),
      index_op("scatter_add", {"torch.scatter_add", "Tensor.scatter_add"},
               "self, dim, index, src, *, out=None", kScatterSum, scatter_sum_rule,
               scatter_sum_local),
      written(index_op("scatter_add_", {"Tensor.scatter_add_"}, "self, dim, index, src",
                       kScatterSum, scatter_sum_rule),
              "torch.scatter_add"),
      index_op("scatter_reduce", {"torch.scatter_reduce", "Tensor.scatter_reduce"},
               "self, dim, index, src, reduce, *, include_self=True, out=None", kScatterSum,
               scatter_sum_rule, scatter_sum_local),
      written(index_op("scatter_reduce_", {"Tensor.scatter_reduce_"},
                       "self, dim, index, src, reduce, *, include_self=True", kScatterSum,
                       scatter_sum_rule),
              "torch.scatter_reduce"),
      index_op("index_add", {"torch.index_add", "Tensor.index_add"},
               "self, dim, index, source, *, alpha=1, out=None", kScatterSum, scatter_sum_rule,
               scatter_sum_local),
      written(index_op("index_add_", {"Tensor.index_add_"}, "self, dim, index, source, *, alpha=1",
                       kScatterSum, scatter_sum_rule),
              "torch.index_add"),
      index_op("index_copy", {"torch.index_copy", "Tensor.index_copy"},
               "self, dim, index, source, *, out=None", kScatter, scatter_rule),
      written(index_op("index_copy_", {"Tensor.index_copy_"}, "self, dim, index, source", kScatter,
                       scatter_rule),
              "torch.index_copy"),
      index_op("index_fill", {"torch.index_fill", "Tensor.index_fill"}, "self, dim, index, value",
               kScatter, scatter_rule),
      written(index_op("index_fill_", {"Tensor.index_fill_"}, "self, dim, index, value", kScatter,
                       scatter_rule),
              "torch.index_fill"),
      index_op("index_put",
               {"torch.index_put", "Tensor.index_put", "torch.ops.aten.index_put.default"},
               "self, indices, values, accumulate=False", "indexed dimensions whole, others pass",
               index_put_rule),
      written(index_op("index_put_", {"torch.index_put_", "Tensor.index_put_"},
                       "self, indices, values, accumulate=False",
                       "indexed dimensions whole, others pass", index_put_rule),
              "torch.index_put"),
      index_op("slice_scatter", {"torch.slice_scatter", "Tensor.slice_scatter"},
               "self, src, dim=0, start=None, end=None, step=1",
               "… x …, … y … -> … x …  window x, y shifted", slice_scatter_rule,
               slice_scatter_local),
      index_op("select_scatter", {"torch.select_scatter", "Tensor.select_scatter"},
               "self, src, dim, index", "… x …, … … -> … x …  window x", slice_scatter_rule,
               slice_scatter_local),
  };
}

}  // namespace

std::span<const OpDef> index_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
