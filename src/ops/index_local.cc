#include "ops/index_local.h"

#include <algorithm>
#include <optional>

#include "ops/index_rule.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

Arg everything() { return Arg::slice_of(Arg::none(), Arg::none(), Arg::none()); }

bool contains(const DimLetters& dim, LetterId letter) {
  return std::find(dim.begin(), dim.end(), letter) != dim.end();
}

LetterKind kind_of(const LocalForm& form) {
  return form.application().letters[static_cast<size_t>(form.letter())].kind;
}

int64_t number_of(const LocalForm& form, const Expr& row) {
  if (const std::optional<int64_t> number = row.as_constant()) return *number;
  throw InternalError(form.call().where() + ": a shift that is no number");
}

// The rows of the part that are the result's, whose first row is row `first` of the operand.
NodeId shifted(LocalForm& form, const Expr& first) {
  const int64_t start = number_of(form, first);
  if (start == 0 && form.extra_of(0) == 0) return form.operand(0);
  return form.window(0, -start, start + form.extra(), 0.0, false);
}

// Rows `first` … of the whole sequence from whoever holds them, zeros from the others.
NodeId taken(LocalForm& form, const Expr& first, const Expr& count) {
  const NodeId x = form.operand(0);
  const int64_t dim = form.cut_dim(0);
  Type type = Type::tensor(form.call().tensor("self")->dtype, form.local_operand_shape("self"));
  type.shape[static_cast<size_t>(dim)] = count;
  return form.emit("autosp.take_rows",
                   {Arg::of(x), Arg::integer_of(dim), Arg::size_of(first), Arg::size_of(count),
                    Arg::size_of(Expr::symbol(kRankSymbol))},
                   {}, std::move(type));
}

Expr from_start(const Graph& graph, const Expr& index, const Expr& size) {
  return graph.hint(index) < 0 ? index + size : index;
}

// Rows that index tensors point to. What the other entries do comes first.
NodeId picked(LocalForm& form, const Index& index) {
  const int64_t dim = form.cut_dim(0);
  std::vector<Arg> basic;
  std::vector<Arg> positions;
  std::vector<Expr> shape;
  std::vector<Expr> from = form.local_operand_shape("self");
  const std::vector<Expr> result = form.local_shape();
  int64_t at = -1;
  bool plain = true;
  const auto local = [&](const IndexItem& item) {
    const Arg given = form.local("index");
    return given.kind == Arg::Kind::kTuple ? given.items[static_cast<size_t>(item.given)] : given;
  };
  for (const IndexItem& item : index.items) {
    const bool points = item.kind == IndexItem::Kind::kTensor ||
                        item.kind == IndexItem::Kind::kList ||
                        (item.kind == IndexItem::Kind::kSelect && item.arg.is_value());
    if (item.operand == dim) at = static_cast<int64_t>(positions.size());
    if (!points) {
      const bool is_full =
          item.kind == IndexItem::Kind::kSlice && (item.given < 0 || item.arg == everything());
      plain = plain && is_full;
      basic.push_back(is_full ? everything() : local(item));
      if (item.kind == IndexItem::Kind::kSelect) continue;
      shape.push_back(
          item.kind == IndexItem::Kind::kNew ? Expr(1) : result[static_cast<size_t>(item.result)]);
      positions.push_back(Arg::none());
      continue;
    }
    basic.push_back(everything());
    shape.push_back(from[static_cast<size_t>(item.operand)]);
    Arg position = local(item);
    if (item.kind == IndexItem::Kind::kList) {
      const Expr count(static_cast<int64_t>(position.items.size()));
      position =
          Arg::of(form.emit("torch.tensor", {position}, {}, Type::tensor(DType::kInt64, {count})));
    }
    positions.push_back(std::move(position));
  }
  NodeId x = form.operand(0);
  const DType dtype = form.call().result().dtype;
  if (!plain)
    x = form.emit("_operator.getitem", {Arg::of(x), Arg::tuple_of(std::move(basic))}, {},
                  Type::tensor(dtype, shape));
  return form.emit("autosp.index_rows",
                   {Arg::of(x), Arg::integer_of(at), Arg::list_of(std::move(positions)),
                    Arg::size_of(form.extent(0)), Arg::size_of(Expr::symbol(kRankSymbol))},
                   {}, local_type(form));
}

}  // namespace

LocalResult getitem_local(LocalForm& form) {
  const Call& call = form.call();
  const Type* operand = call.tensor("self");
  const Arg* given = call.find("index");
  const std::optional<Index> index = operand == nullptr || given == nullptr
                                         ? std::nullopt
                                         : read_index(call.graph(), *given, operand->shape.size());
  if (!index) return {form.emit_same(local_type(form))};
  Arg local = form.local("index");
  NodeId x = kNoNode;
  for (const IndexItem& item : index->items) {
    if (item.operand < 0) continue;
    const auto dim = static_cast<size_t>(item.operand);
    if (!contains(form.application().operands[0].letters[dim], form.letter())) continue;
    const Expr& size = operand->shape[dim];
    const bool slices = item.kind == IndexItem::Kind::kSlice;
    Arg rest = everything();
    if (kind_of(form) != LetterKind::kPick) {
      const bool moves = kind_of(form) == LetterKind::kWindow || form.extra_of(0) > 0;
      x = moves ? shifted(form, *first_row(item.arg, size)) : form.operand(0);
    } else if (slices) {
      const Expr first = from_start(call.graph(), *first_row(item.arg, size), size);
      x = taken(form, first, call.result().shape[static_cast<size_t>(item.result)]);
    } else if (item.kind == IndexItem::Kind::kSelect && item.arg.is_integral()) {
      x = taken(form, from_start(call.graph(), item.arg.as_expr(), size), Expr(1));
      rest = Arg::integer_of(0);
    } else {
      return {picked(form, *index)};
    }
    if (item.given < 0) continue;
    Arg& entry =
        local.kind == Arg::Kind::kTuple ? local.items[static_cast<size_t>(item.given)] : local;
    entry = rest;
  }
  if (x == kNoNode) x = form.local("self").value;
  return {form.emit("_operator.getitem", {Arg::of(x), std::move(local)}, {}, local_type(form))};
}

LocalResult narrow_local(LocalForm& form) {
  const Call& call = form.call();
  const Type& operand = *call.tensor("self");
  const int64_t dim = call.dim_or("dim", rank_of(operand), 0);
  const auto at = static_cast<size_t>(dim);
  if (!contains(form.application().operands[0].letters[at], form.letter()))
    return {form.emit_same(local_type(form))};
  const Expr& size = operand.shape[at];
  const Expr first = from_start(call.graph(), call.find("start")->as_expr(), size);
  const NodeId x = kind_of(form) == LetterKind::kPick ? taken(form, first, call.result().shape[at])
                   : size == call.result().shape[at]  ? form.operand(0)
                                                      : shifted(form, first);
  std::vector<Arg> all(operand.shape.size(), everything());
  return {form.emit("_operator.getitem", {Arg::of(x), Arg::tuple_of(std::move(all))}, {},
                    local_type(form))};
}

LocalResult select_local(LocalForm& form) {
  const Call& call = form.call();
  const Type& operand = *call.tensor("self");
  const int64_t dim = call.dim_or("dim", rank_of(operand), 0);
  const auto at = static_cast<size_t>(dim);
  if (!contains(form.application().operands[0].letters[at], form.letter()))
    return {form.emit_same(local_type(form))};
  const Expr index = call.find("index")->as_expr();
  const NodeId x = taken(form, from_start(call.graph(), index, operand.shape[at]), Expr(1));
  return {form.emit("torch.select", {Arg::of(x), Arg::integer_of(dim), Arg::integer_of(0)}, {},
                    local_type(form))};
}

LocalResult gather_local(LocalForm& form) {
  if (kind_of(form) != LetterKind::kPick) return {form.emit_same(local_type(form))};
  return {form.emit("autosp.gather_rows",
                    {Arg::of(form.operand(0)), Arg::integer_of(form.cut_dim(0)),
                     form.local("index"), Arg::size_of(Expr::symbol(kRankSymbol))},
                    {}, local_type(form))};
}

LocalResult index_select_local(LocalForm& form) {
  if (kind_of(form) != LetterKind::kPick) return {form.emit_same(local_type(form))};
  const int64_t dim = form.cut_dim(0);
  std::vector<Arg> positions(static_cast<size_t>(dim), Arg::none());
  positions.push_back(form.local("index"));
  return {
      form.emit("autosp.index_rows",
                {Arg::of(form.operand(0)), Arg::integer_of(dim), Arg::list_of(std::move(positions)),
                 Arg::size_of(form.extent(0)), Arg::size_of(Expr::symbol(kRankSymbol))},
                {}, local_type(form))};
}

LocalResult scatter_sum_local(LocalForm& form) {
  const Call& call = form.call();
  const Type type = local_type(form);
  const std::vector<Operand>& operands = form.application().operands;
  if (std::any_of(operands.begin(), operands.end(),
                  [&](const Operand& operand) { return operand.value == call.value("self"); }))
    return {form.emit_same(type)};
  const auto rows = [&](std::string_view parameter) {
    const bool sums = form.letter() >= 0 && kind_of(form) == LetterKind::kSum;
    return sums ? form.without_padding(parameter, 0.0) : form.local(parameter);
  };
  const Arg added = rows(added_parameter(call));
  const NodeId zeros = form.emit("Tensor.new_zeros", {added, Arg::sizes_of(type.shape)}, {}, type);
  std::vector<Arg> args = {Arg::of(zeros), form.local("dim"), rows("index"), added};
  if (call.has("reduce")) args.push_back(form.local("reduce"));
  Kwargs kwargs;
  if (call.has("alpha")) kwargs.emplace_back("alpha", form.local("alpha"));
  return {
      form.emit("torch." + std::string(call.op().name), std::move(args), std::move(kwargs), type)};
}

// Along the sharded dimension every rank puts the rows in that fall into its part.
LocalResult slice_scatter_local(LocalForm& form) {
  const Call& call = form.call();
  const Type& target = call.result();
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank_of(target), 0));
  if (!contains(form.application().results[0][dim], form.letter()))
    return {form.emit_same(local_type(form))};
  if (kind_of(form) == LetterKind::kPass) return {form.local("src").value};
  const Type& source = *call.tensor("src");
  const bool selects = source.shape.size() < target.shape.size();
  if (form.extra() > 0) {
    throw Unsupported(call.where() +
                      ": it writes between rows that an operator before it has made up at the ends "
                      "of the sequence, which is not supported. Cut them off first");
  }
  const Expr first = selects
                         ? call.find("index")->as_expr()
                         : first_row(Arg::slice_of(*call.find("start"), Arg::none(), Arg::none()),
                                     target.shape[dim])
                               .value_or(Expr(0));
  const Expr start = from_start(call.graph(), first, target.shape[dim]);
  const Expr count = selects ? Expr(1) : source.shape[dim];
  const NodeId rows =
      form.is_cut(1) ? form.window(1, number_of(form, start), -number_of(form, start), 0.0, false)
                     : form.rows_at(1, start);
  return {form.emit("autosp.merge_rows",
                    {Arg::of(form.operand(0)), Arg::of(form.as_result(rows)),
                     Arg::integer_of(static_cast<int64_t>(dim)), Arg::size_of(start),
                     Arg::size_of(count), Arg::size_of(Expr::symbol(kRankSymbol))},
                    {}, local_type(form))};
}

}  // namespace autosp
