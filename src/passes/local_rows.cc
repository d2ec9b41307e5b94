#include "passes/local_rows.h"

#include <algorithm>

#include "support/error.h"

namespace autosp {

std::vector<Expr> LocalRows::local_shape(int result) const {
  return values_.layout().shape(element_type(node_.type, result).shape,
                                axes_.value_leaves(node_.id, result),
                                placements_.produced(node_.id, result));
}

NodeId LocalRows::emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) {
  return builder_.call(std::move(target), std::move(args), std::move(kwargs), std::move(type),
                       &node_);
}

FactorId LocalRows::base() const { return axes_.shard_base(axes_.leaf_factor(node_.id, leaf_)); }

NodeId LocalRows::operand(size_t operand) const {
  const Operand& read = application().operands[operand];
  return values_.as(read.value, placements_.needed(node_.id, read), node_);
}

bool LocalRows::is_cut(size_t operand) const {
  return placements_.needed(node_.id, application().operands[operand]).is_sharded();
}

int64_t LocalRows::cut_dim(size_t operand) const {
  return placements_.needed(node_.id, application().operands[operand]).where.dim;
}

Expr LocalRows::extent(size_t operand) const {
  const Operand& read = application().operands[operand];
  const auto leaf =
      axes_.letter_at(node_.id, read.letters, placements_.needed(node_.id, read).where);
  ensure(leaf.has_value(), "a cut dimension has no letter");
  return axes_.factors().size(leaf_of(operand)) *
         axes_.rows_inside(axes_.letter_leaves(node_.id, leaf->letter));
}
bool LocalRows::is_exact(size_t operand) const {
  return values_.layout().is_exact(leaf_of(operand));
}

int64_t LocalRows::extra() const {
  const Placement placement = placements_.produced(node_.id, 0);
  ensure(placement.is_sharded(), "rows are asked for of a result that has none");
  return axes_.extension(
      axes_.value_leaves(node_.id, 0)[placement.where.dim][placement.where.position]);
}

int64_t LocalRows::extra_of(size_t operand) const {
  return is_cut(operand) ? axes_.extension(leaf_of(operand)) : 0;
}

Expr LocalRows::rows_per_base() const {
  return axes_.rows_per_base(axes_.leaf_factor(node_.id, leaf_)) *
         axes_.rows_inside(axes_.letter_leaves(node_.id, leaf_.letter));
}

Expr LocalRows::part() const { return values_.layout().shard_length(base()) * rows_per_base(); }

NodeId LocalRows::window(size_t operand, int64_t before, int64_t after, double fill, bool wrap) {
  const int64_t dim = cut_dim(operand);
  const NodeId x = this->operand(operand);
  const int64_t more = axes_.extension(leaf_of(operand));
  Type type = builder_.graph().node(x).type;
  const Expr rows = part() + Expr(before + after);
  if (before == 0 && after == 0 && (more > 0 || is_exact(operand)) &&
      type.shape[static_cast<size_t>(dim)] == rows)
    return x;
  type.shape[static_cast<size_t>(dim)] = rows;
  if (more > 0) {
    if (before > 0 || after > more || wrap) {
      throw Unsupported(call_.where() + ": dimension " + std::to_string(dim) + " of %" +
                        axes_.graph().node(application().operands[operand].value).name +
                        " carries the sequence, and this operator needs neighbours of rows that an "
                        "operator before it has made up at the ends of the sequence, "
                        "which is not supported. Cut them off first, or make up all rows at once");
    }
    std::vector<Arg> index(static_cast<size_t>(dim),
                           Arg::slice_of(Arg::none(), Arg::none(), Arg::none()));
    index.push_back(
        Arg::slice_of(Arg::integer_of(-before), Arg::size_of(part() + Expr(after)), Arg::none()));
    return emit("_operator.getitem", {Arg::of(x), Arg::tuple_of(std::move(index))}, {}, type);
  }
  // Around an end that is not the last part's, what a rank lacks lies anywhere.
  const bool far =
      (wrap && !is_exact(operand)) ||
      std::max(before, after) >
          axes_.graph().hint(ceil_div(axes_.factors().size(base()), Expr(placements_.ranks())) *
                             rows_per_base());
  std::vector<Arg> args{Arg::of(x),
                        Arg::integer_of(dim),
                        Arg::integer_of(before),
                        Arg::integer_of(after),
                        Arg::size_of(extent(operand)),
                        Arg::bool_of(is_exact(operand)),
                        Arg::bool_of(wrap),
                        Arg::bool_of(far),
                        Arg::float_of(fill)};
  append_ranks(args);
  return emit("autosp.halo", std::move(args), {}, std::move(type));
}

NodeId LocalRows::rows_at(size_t operand, const Expr& start) {
  const Placement placement = placements_.produced(node_.id, 0);
  const auto dim = static_cast<size_t>(placement.where.dim);
  NodeId x = this->operand(operand);
  Type type = builder_.graph().node(x).type;
  if (type.shape.size() < node_.type.shape.size()) {  // one row without a dimension of its own
    type.shape.insert(type.shape.begin() + placement.where.dim, Expr(1));
    x = emit("torch.reshape", {Arg::of(x), Arg::sizes_of(type.shape)}, {}, type);
  }
  type.shape[dim] = part() + Expr(extra());
  return emit(
      "autosp.rows_at",
      {Arg::of(x), Arg::integer_of(placement.where.dim), Arg::size_of(part()),
       Arg::integer_of(extra()), Arg::size_of(start), Arg::size_of(Expr::symbol(kRankSymbol))},
      {}, std::move(type));
}

NodeId LocalRows::as_result(NodeId rows) {
  const Type type = Type::tensor(node_.type.dtype, local_shape(0));
  if (builder_.graph().node(rows).type.shape == type.shape) return rows;
  const std::vector<Arg> all(type.shape.size(),
                             Arg::slice_of(Arg::none(), Arg::none(), Arg::none()));
  return emit("_operator.getitem", {Arg::of(rows), Arg::tuple_of(all)}, {}, type);
}

FactorId LocalRows::leaf_of(size_t operand) const {
  const Operand& read = application().operands[operand];
  const Occurrence where = placements_.needed(node_.id, read).where;
  return axes_.value_leaves(read.value, read.element)[where.dim][where.position];
}

}  // namespace autosp
