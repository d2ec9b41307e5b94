#include "passes/local_values.h"

#include "support/error.h"

namespace autosp {
namespace {

Arg rank_symbol() { return Arg::size_of(Expr::symbol(kRankSymbol)); }
Arg process_group() { return Arg::literal_of("group"); }

}  // namespace

Type element_type(const Type& type, int element) {
  return type.kind == Type::Kind::kTuple ? type.elements[element] : type;
}

LocalValues::LocalValues(const Placements& placements, bool grad_sync, GraphBuilder& builder)
    : placements_(placements),
      axes_(placements.axes()),
      old_(axes_.graph()),
      grad_sync_(grad_sync),
      builder_(builder),
      layout_(axes_, placements.ranks()),
      locals_(old_.nodes.size(), kNoNode),
      placed_(old_.nodes.size()) {}

void LocalValues::set(NodeId value, NodeId local, const Placement& placement) {
  locals_[value] = local;
  placed_[value] = placement;
}

NodeId LocalValues::reduce(NodeId partial, bool varying, const Node& near) {
  const Type type = builder_.graph().node(partial).type;
  return builder_.call(varying ? "autosp.p_to_v" : "autosp.p_to_r",
                       {Arg::of(partial), process_group()}, type, &near);
}

NodeId LocalValues::mask_tail(NodeId local, NodeId value, int element, const Placement& placement,
                              double fill, const Node& near) {
  if (!placement.is_sharded()) return local;
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  if (layout_.is_exact(leaves[placement.where.dim][placement.where.position])) return local;
  if (axes_.is_bag(leaves[placement.where.dim][placement.where.position]))
    return mask_bag(local, value, element, placement, fill, near);
  const Isolated part = isolated(local, value, element, placement, near);
  const NodeId masked = builder_.call("autosp.mask_tail",
                                      {Arg::of(part.local), Arg::integer_of(part.dim),
                                       Arg::size_of(part.size), Arg::float_of(fill), rank_symbol()},
                                      builder_.graph().node(part.local).type, &near);
  return reshape(masked, builder_.graph().node(local).type.shape, near);
}

// In another order, those are past the end that were before they were sorted.
NodeId LocalValues::mask_bag(NodeId local, NodeId value, int element, const Placement& placement,
                             double fill, const Node& near) {
  const FactorList rows = axes_.value_leaves(value, element)[placement.where.dim];
  const std::optional<Axes::Order> order = axes_.order_of(rows[placement.where.position]);
  ensure(order.has_value(), "which of the sorted rows lie past the end is not known");
  if (rows.size() != 1) {
    throw Unsupported(near.target + (near.source.empty() ? "" : " at " + near.source) +
                      ": it adds up sorted tokens that are merged with another dimension, which is "
                      "not supported where the ranks don't divide the tokens");
  }
  NodeId positions = locals_[order->sort];
  const Type type = builder_.graph().node(positions).type;
  if (type.kind == Type::Kind::kTuple)
    positions = builder_.call("_operator.getitem", {Arg::of(positions), Arg::integer_of(1)},
                              type.elements[1], &near);
  Expr inner(1);
  for (size_t i = order->tokens + 1; i < order->rows.size(); ++i)
    inner *= axes_.factors().size(order->rows[i]);
  const FactorId tokens = order->rows[order->tokens];
  return builder_.call(
      "autosp.mask_sorted",
      {Arg::of(local), Arg::of(positions), Arg::integer_of(placement.where.dim),
       Arg::size_of(inner), Arg::size_of(layout_.shard_length(tokens)),
       Arg::size_of(axes_.factors().size(tokens)), Arg::float_of(fill), rank_symbol()},
      builder_.graph().node(local).type, &near);
}

LocalValues::Isolated LocalValues::isolated(NodeId local, NodeId value, int element,
                                            const Placement& placement, const Node& near) {
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  const Type global = element_type(old_.node(value).type, element);
  std::vector<int> dims;
  const std::vector<Expr> part =
      layout_.isolated(global.shape, leaves, placement, {placement.where}, &dims);
  const std::vector<Expr> whole =
      layout_.isolated(global.shape, leaves, Placement::replicated(), {placement.where}, &dims);
  // Rows that a neighbour has too stand behind the part.
  const FactorId leaf = leaves[placement.where.dim][placement.where.position];
  const Expr more(axes_.extension(leaf));
  const Expr& held = part[dims[0]];
  const std::optional<Expr> each =
      more == Expr(0) ? Expr(0) : divide_exact(held, layout_.shard_length(leaf));
  ensure(each.has_value(), "an extended axis is not the outermost of its dimension");
  return {reshape(local, part, near), dims[0], whole[dims[0]],
          Expr::symbol(kRankSymbol) * (held - *each * more)};
}

NodeId LocalValues::repeat_last(NodeId local, NodeId value, const Placement& placement,
                                const Node& near) {
  const Type& global = old_.node(value).type;
  const std::vector<FactorList> leaves = axes_.value_leaves(value, 0);
  const FactorId leaf = leaves[placement.where.dim][placement.where.position];
  if (layout_.is_exact(leaf) || axes_.extension(leaf) > 0) return local;
  std::vector<int> dims;
  const std::vector<Expr> whole =
      layout_.isolated(global.shape, leaves, Placement::replicated(), {placement.where}, &dims);
  const std::vector<Expr> part =
      layout_.isolated(global.shape, leaves, placement, {placement.where}, &dims);
  std::vector<Arg> args = {Arg::of(reshape(local, part, near)), Arg::integer_of(dims[0]),
                           Arg::size_of(whole[static_cast<size_t>(dims[0])]), Arg::bool_of(false)};
  append_ranks(args);
  const NodeId repeated =
      builder_.call("autosp.edge_rows", std::move(args), Type::tensor(global.dtype, part), &near);
  return reshape(repeated, layout_.shape(global.shape, leaves, placement), near);
}

NodeId LocalValues::as(NodeId value, const Placement& want, const Node& near) {
  const Placement have = placed_[value];
  if (have == want || !old_.node(value).type.is_tensor()) return locals_[value];
  if (const auto found = variants_.find(variant(value, want)); found != variants_.end())
    return found->second;
  const NodeId converted = convert(locals_[value], value, 0, have, want, near);
  remember(value, want, converted);
  return converted;
}

void LocalValues::append_ranks(std::vector<Arg>& args) const {
  for (Arg arg : {rank_symbol(), ranks(), process_group()}) args.push_back(std::move(arg));
}

void LocalValues::remember(NodeId value, const Placement& placement, NodeId local) {
  const Variant key = variant(value, placement);
  variants_[key] = local;
  if (!grad_enabled_ && axes_.facts(value).differentiable) detached_.push_back(key);
}

// No gradient flows through a conversion that was made while gradients were disabled: later readers
// need their own.
void LocalValues::follow_grad_mode(const Node& node) {
  if (node.target != "torch._C._set_grad_enabled" || node.args.empty()) return;
  grad_enabled_ = node.args[0].integer != 0;
  if (!grad_enabled_) return;
  for (const Variant& key : detached_) variants_.erase(key);
  detached_.clear();
}

NodeId LocalValues::reshape(NodeId local, const std::vector<Expr>& shape, const Node& near) {
  const Type& type = builder_.graph().node(local).type;
  if (type.shape == shape) return local;
  Type reshaped = Type::tensor(type.dtype, shape);
  return builder_.call("torch.reshape", {Arg::of(local), Arg::sizes_of(shape)}, std::move(reshaped),
                       &near);
}

NodeId LocalValues::convert(NodeId local, NodeId value, int element, const Placement& from,
                            const Placement& to, const Node& near) {
  using Kind = Placement::Kind;
  if (from.kind == Kind::kPartial) {
    ensure(to.kind == Kind::kReplicated || to.kind == Kind::kVarying,
           "a partial sum that is wanted in parts");
    return reduce(local, to.kind == Kind::kVarying, near);
  }
  const Type global = element_type(old_.node(value).type, element);
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  const bool differentiable = axes_.facts(value).differentiable;
  if (from.kind == Kind::kReplicated && to.kind == Kind::kVarying) {
    if (!differentiable) return local;
    const bool reduce = grad_sync_ || old_.node(value).input != InputKind::kParameter ||
                        old_.node(value).kind != NodeKind::kInput;
    return builder_.call("autosp.r_to_v",
                         {Arg::of(local), ranks(), process_group(), Arg::bool_of(reduce)}, global,
                         &near);
  }
  if (from.kind == Kind::kVarying && to.kind == Kind::kReplicated) {
    if (!differentiable) return local;
    return builder_.call("autosp.v_to_r", {Arg::of(local), rank_symbol()}, global, &near);
  }
  if (to.is_sharded() && axes_.extension(leaves[to.where.dim][to.where.position]) > 0)
    return rows_with_neighbours(local, value, element, from, to, near);
  if (from.is_sharded() && to.is_sharded())
    return exchange_between(local, value, element, from, to, near);

  const Placement& cut = from.is_sharded() ? from : to;
  std::vector<int> dims;
  const std::vector<Expr> before = layout_.isolated(global.shape, leaves, from, {cut.where}, &dims);
  const std::vector<Expr> after = layout_.isolated(global.shape, leaves, to, {cut.where}, &dims);
  const bool exact = layout_.is_exact(leaves[cut.where.dim][cut.where.position]);
  NodeId out = reshape(local, before, near);
  std::vector<Arg> args{Arg::of(out), Arg::integer_of(dims[0]), Arg::size_of(after[dims[0]]),
                        Arg::bool_of(exact)};
  std::string target;
  if (to.is_sharded()) {
    target = from.kind == Kind::kReplicated ? "autosp.r_to_s" : "autosp.v_to_s";
  } else {
    target = to.kind == Kind::kReplicated ? "autosp.s_to_r" : "autosp.s_to_v";
  }
  append_ranks(args);
  out = builder_.call(std::move(target), std::move(args), Type::tensor(global.dtype, after), &near);
  return reshape(out, layout_.shape(global.shape, leaves, to), near);
}

// A part and the rows behind it that a neighbour has too, out of the whole: a row that two ranks
// take gets the gradients of both.
NodeId LocalValues::rows_with_neighbours(NodeId local, NodeId value, int element,
                                         const Placement& from, const Placement& to,
                                         const Node& near) {
  const Type global = element_type(old_.node(value).type, element);
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  const FactorId leaf = leaves[to.where.dim][to.where.position];
  const int64_t more = axes_.extension(leaf);
  const Placement whole = Placement::varying();
  if (!(from == whole)) local = convert(local, value, element, from, whole, near);
  std::vector<int> dims;
  const std::vector<Expr> before = layout_.isolated(global.shape, leaves, whole, {to.where}, &dims);
  const std::vector<Expr> after = layout_.isolated(global.shape, leaves, to, {to.where}, &dims);
  const Expr& rows = after[static_cast<size_t>(dims[0])];
  ensure(rows == layout_.shard_length(leaf), "an extended axis is not alone in its dimension");
  const NodeId part =
      builder_.call("autosp.rows_at",
                    {Arg::of(reshape(local, before, near)), Arg::integer_of(dims[0]),
                     Arg::size_of(rows - Expr(more)), Arg::integer_of(more), Arg::integer_of(0),
                     rank_symbol(), Arg::bool_of(true)},
                    Type::tensor(global.dtype, after), &near);
  return reshape(part, layout_.shape(global.shape, leaves, to), near);
}

std::vector<Arg> LocalValues::exchange_arguments(const std::vector<Arg>& values,
                                                 const std::vector<int>& split,
                                                 const std::vector<Expr>& lengths,
                                                 const std::vector<int>& concat,
                                                 const std::vector<Expr>& sizes, bool exact) const {
  const auto dims = [](const std::vector<int>& list) {
    std::vector<Arg> items;
    for (int dim : list) items.push_back(Arg::integer_of(dim));
    return Arg::list_of(std::move(items));
  };
  return {
      Arg::list_of(values), dims(split), Arg::sizes_of(lengths), dims(concat), Arg::sizes_of(sizes),
      Arg::bool_of(exact),  ranks(),     process_group()};
}

NodeId LocalValues::exchange_between(NodeId local, NodeId value, int element, const Placement& from,
                                     const Placement& to, const Node& near) {
  const Type global = element_type(old_.node(value).type, element);
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  std::vector<int> dims;
  const std::vector<Occurrence> places{from.where, to.where};
  const std::vector<Expr> before = layout_.isolated(global.shape, leaves, from, places, &dims);
  const std::vector<Expr> after = layout_.isolated(global.shape, leaves, to, places, &dims);
  const bool exact = layout_.is_exact(leaves[from.where.dim][from.where.position]) &&
                     layout_.is_exact(leaves[to.where.dim][to.where.position]);
  const NodeId in = reshape(local, before, near);
  const Type type = Type::tensor(global.dtype, after);
  const NodeId list = builder_.call("autosp.all_to_all",
                                    exchange_arguments({Arg::of(in)}, {dims[1]}, {after[dims[1]]},
                                                       {dims[0]}, {after[dims[0]]}, exact),
                                    Type::tuple({type}), &near);
  const NodeId out =
      builder_.call("_operator.getitem", {Arg::of(list), Arg::integer_of(0)}, type, &near);
  return reshape(out, layout_.shape(global.shape, leaves, to), near);
}

void LocalValues::exchange(const std::vector<Exchanged>& inputs, const Node& near) {
  std::vector<Arg> values;
  std::vector<int> split, concat;
  std::vector<Expr> lengths, sizes;
  std::vector<Type> types;
  bool exact = true;
  for (const Exchanged& input : inputs) {
    const Placement& from = placed_[input.value];
    const Type& global = old_.node(input.value).type;
    const std::vector<FactorList> leaves = axes_.value_leaves(input.value, 0);
    const std::vector<Occurrence> places{from.where, input.to.where};
    std::vector<int> dims;
    const std::vector<Expr> before = layout_.isolated(global.shape, leaves, from, places, &dims);
    const std::vector<Expr> after = layout_.isolated(global.shape, leaves, input.to, places, &dims);
    values.push_back(Arg::of(reshape(locals_[input.value], before, near)));
    split.push_back(dims[1]);
    lengths.push_back(after[dims[1]]);
    concat.push_back(dims[0]);
    sizes.push_back(after[dims[0]]);
    types.push_back(Type::tensor(global.dtype, after));
    exact = exact && layout_.is_exact(leaves[from.where.dim][from.where.position]);
  }
  const NodeId list = builder_.call(
      "autosp.all_to_all", exchange_arguments(values, split, lengths, concat, sizes, exact),
      Type::tuple(types), &near);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Exchanged& input = inputs[i];
    const NodeId item =
        builder_.call("_operator.getitem",
                      {Arg::of(list), Arg::integer_of(static_cast<int64_t>(i))}, types[i], &near);
    const Type& global = old_.node(input.value).type;
    const NodeId local = reshape(
        item, layout_.shape(global.shape, axes_.value_leaves(input.value, 0), input.to), near);
    remember(input.value, input.to, local);
  }
}

}  // namespace autosp
