#include "ops/write_back.h"

#include <algorithm>
#include <optional>

#include "ops/index_rule.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

Arg everything() { return Arg::slice_of(Arg::none(), Arg::none(), Arg::none()); }

bool is_step_one(const Arg& slice) {
  return slice.items[2].is_none() || constant_of(slice.items[2]) == 1;
}

// How many elements a slice takes. Which bounds lie inside is decided at the hinted lengths:
// capture has fixed those comparisons with guards.
std::optional<Expr> slice_length(const Graph& graph, const Arg& slice, const Expr& size) {
  const auto bound = [&](const Arg& arg, const Expr& fallback) -> std::optional<Expr> {
    if (arg.is_none()) return fallback;
    if (!arg.is_integral()) return std::nullopt;
    Expr at = arg.as_expr();
    if (graph.hint(at) < 0) at += size;
    if (graph.hint(at) < 0) return Expr(0);
    return graph.hint(at) > graph.hint(size) ? size : at;
  };
  const std::optional<Expr> start = bound(slice.items[0], Expr(0));
  const std::optional<Expr> stop = bound(slice.items[1], size);
  if (!start || !stop) return std::nullopt;
  Expr length = *stop - *start;
  if (graph.hint(length) <= 0) return Expr(0);
  if (is_step_one(slice)) return length;
  const std::optional<int64_t> step = constant_of(slice.items[2]);
  return step && *step > 0 ? std::optional(ceil_div(length, Expr(*step))) : std::nullopt;
}

// One dimension cut or one position taken.
struct Step {
  bool selects = false;
  int64_t dim = 0;
  Arg index;                // a number or a slice, in values of the new graph
  std::vector<Expr> shape;  // of what is left
};

// The steps that lead from a tensor to the part that numbers and slices of an index take: cuts
// first, then positions from the last dimension on, so that dimensions keep their numbers. Entries
// that are tensors take all.
std::optional<std::vector<Step>> steps_to_part(const WriteBack& write, const Index& index) {
  std::vector<Step> steps;
  std::vector<Expr> shape = write.type(write.base).shape;
  for (const IndexItem& item : index.items) {
    if (item.kind != IndexItem::Kind::kSlice) continue;
    const auto dim = static_cast<size_t>(item.operand);
    const std::optional<Expr> length = slice_length(write.builder.graph(), item.arg, shape[dim]);
    if (!length) return std::nullopt;
    if (*length == shape[dim] && is_step_one(item.arg)) continue;
    shape[dim] = *length;
    steps.push_back({false, item.operand, write.builder.mapped(item.arg), shape});
  }
  for (auto item = index.items.rbegin(); item != index.items.rend(); ++item) {
    if (item->kind != IndexItem::Kind::kSelect) continue;
    if (!item->arg.is_integral()) return std::nullopt;
    shape.erase(shape.begin() + item->operand);
    steps.push_back({true, item->operand, write.builder.mapped(item->arg), shape});
  }
  return steps;
}

NodeId read_step(const WriteBack& write, NodeId from, const Step& step) {
  const Type type = Type::tensor(write.type(from).dtype, step.shape);
  if (step.selects)
    return write.call("torch.select", {Arg::of(from), Arg::integer_of(step.dim), step.index}, type);
  std::vector<Arg> entries(static_cast<size_t>(step.dim), everything());
  entries.push_back(step.index);
  return write.call("_operator.getitem", {Arg::of(from), Arg::tuple_of(std::move(entries))}, type);
}

NodeId write_step(const WriteBack& write, NodeId into, NodeId value, const Step& step) {
  std::vector<Arg> args = {Arg::of(into), Arg::of(value), Arg::integer_of(step.dim)};
  const Type type = write.type(into);
  if (step.selects) {
    args.push_back(step.index);
    return write.call("torch.select_scatter", std::move(args), type);
  }
  args.push_back(step.index.items[0]);
  args.push_back(step.index.items[1]);
  if (!is_step_one(step.index)) args.push_back(step.index.items[2]);
  return write.call("torch.slice_scatter", std::move(args), type);
}

// The tensors on the way to the part, the part not among them.
std::vector<NodeId> on_the_way(const WriteBack& write, const std::vector<Step>& steps) {
  std::vector<NodeId> tensors = {write.base};
  for (size_t i = 0; i + 1 < steps.size(); ++i)
    tensors.push_back(read_step(write, tensors.back(), steps[i]));
  return tensors;
}

NodeId write_part(const WriteBack& write, const std::vector<Step>& steps, NodeId value) {
  const std::vector<NodeId> tensors = on_the_way(write, steps);
  for (size_t i = steps.size(); i-- > 0;) value = write_step(write, tensors[i], value, steps[i]);
  return value;
}

// ------------------------------------------------------------------------------- assignments

class Assignment {
 public:
  Assignment(const Call& call, const WriteBack& write)
      : call_(call), write_(write), target_(write.type(write.base)) {}

  NodeId run() {
    if (call_.op().name == "copy_") return fit(*call_.find("src"), target_.shape, write_.base);
    const Arg& index = *call_.find("index");
    const std::vector<Arg> entries =
        index.kind == Arg::Kind::kTuple ? index.items : std::vector<Arg>{index};
    if (std::any_of(entries.begin(), entries.end(), [&](const Arg& e) { return is_mask(e); }))
      return through_mask(entries);
    const std::optional<Index> read = read_index(call_.graph(), index, target_.shape.size());
    const std::optional<std::vector<Step>> steps =
        read ? steps_to_part(write_, *read) : std::nullopt;
    if (!steps) refuse("it assigns through an index that AutoSP does not read");
    return through_index(*read, *steps);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Unsupported(call_.where() + ": " + why +
                      ". Build the tensor with torch.where, torch.cat or torch.scatter instead.");
  }

  bool is_mask(const Arg& entry) const {
    if (!entry.is_value()) return false;
    const Type& type = call_.graph().node(entry.value).type;
    return type.is_tensor() && (type.dtype == DType::kBool || type.dtype == DType::kUInt8);
  }

  bool is_tensor(const Arg& value) const {
    return value.is_value() && call_.graph().node(value.value).type.is_tensor();
  }

  // A tensor of `like`'s dtype without the dimensions in front that are one too many.
  NodeId as_dtype(const Arg& value, size_t rank, NodeId like) const {
    NodeId out = write_.builder.mapped(value.value);
    Type type = write_.type(out);
    const DType wanted = write_.type(like).dtype;
    // A number may lie on the host.
    if (type.dtype != wanted || type.shape.empty()) {
      type.dtype = wanted;
      out = write_.call("Tensor.type_as", {Arg::of(out), Arg::of(like)}, type);
    }
    size_t extra = 0;
    while (type.shape.size() - extra > rank && type.shape[extra] == Expr(1)) ++extra;
    return write_.reshape(
        out, {type.shape.begin() + static_cast<std::ptrdiff_t>(extra), type.shape.end()});
  }

  // The assigned value with the dtype of `like`, in `shape`, which is also that of `like`.
  NodeId fit(const Arg& value, const std::vector<Expr>& shape, NodeId like) const {
    const Type type = Type::tensor(write_.type(like).dtype, shape);
    if (!is_tensor(value)) {
      check_number(value);
      return write_.call("torch.full_like", {Arg::of(like), write_.builder.mapped(value)}, type);
    }
    const NodeId out = as_dtype(value, shape.size(), like);
    if (write_.type(out).shape == shape) return out;
    return write_.call("torch.broadcast_to", {Arg::of(out), Arg::sizes_of(shape)}, type);
  }

  void check_number(const Arg& value) const {
    if (!value.is_value() && !value.is_integral() && value.kind != Arg::Kind::kFloat)
      refuse("it assigns something that is neither a tensor nor a number");
  }

  NodeId through_index(const Index& index, const std::vector<Step>& steps) const {
    const bool gathers =
        std::any_of(index.items.begin(), index.items.end(), [](const IndexItem& item) {
          return item.kind == IndexItem::Kind::kTensor || item.kind == IndexItem::Kind::kList;
        });
    const Arg& value = *call_.find("value");
    if (!gathers && steps.empty() && !has_new(index)) return fit(value, target_.shape, write_.base);
    NodeId part = write_.base;
    for (const Step& step : steps) part = read_step(write_, part, step);
    const std::vector<Expr> shape = write_.type(part).shape;
    const std::vector<Expr> wide = has_new(index) ? with_new(index, shape) : shape;
    const NodeId changed = gathers            ? put(index, write_.reshape(part, wide), value)
                           : is_tensor(value) ? fit(value, wide, part)
                                              : fit(value, shape, part);
    return write_part(write_, steps, write_.reshape(changed, shape));
  }

  static bool has_new(const Index& index) {
    return std::any_of(index.items.begin(), index.items.end(),
                       [](const IndexItem& item) { return item.kind == IndexItem::Kind::kNew; });
  }

  // The part's shape with the dimensions that None adds.
  static std::vector<Expr> with_new(const Index& index, const std::vector<Expr>& shape) {
    std::vector<Expr> out;
    size_t dim = 0;
    for (const IndexItem& item : index.items) {
      if (item.kind == IndexItem::Kind::kSelect) continue;
      out.push_back(item.kind == IndexItem::Kind::kNew ? Expr(1) : shape[dim++]);
    }
    return out;
  }

  // Tensors and lists of positions in what the other entries leave.
  NodeId put(const Index& index, NodeId part, const Arg& value) const {
    std::vector<Arg> positions;
    for (const IndexItem& item : index.items) {
      if (item.kind == IndexItem::Kind::kSelect) continue;
      if (item.kind == IndexItem::Kind::kTensor) {
        positions.push_back(write_.builder.mapped(item.arg));
      } else if (item.kind == IndexItem::Kind::kList) {
        const Expr count(static_cast<int64_t>(item.arg.items.size()));
        positions.push_back(
            Arg::of(write_.call("torch.tensor", {item.arg}, Type::tensor(DType::kInt64, {count}))));
      } else {
        positions.push_back(Arg::none());
      }
    }
    while (positions.back().is_none()) positions.pop_back();
    const Type type = write_.type(part);
    NodeId values = kNoNode;
    if (is_tensor(value)) {
      values = as_dtype(value, static_cast<size_t>(index.rank), part);
    } else {
      check_number(value);
      values = write_.call("Tensor.new_full",
                           {Arg::of(part), Arg::list_of({}), write_.builder.mapped(value)},
                           Type::tensor(type.dtype, {}));
    }
    // torch.index_put itself takes tensors alone.
    const bool skips = std::any_of(positions.begin(), positions.end(),
                                   [](const Arg& position) { return position.is_none(); });
    return write_.call(skips ? "torch.ops.aten.index_put.default" : "torch.index_put",
                       {Arg::of(part), Arg::list_of(std::move(positions)), Arg::of(values)}, type);
  }

  // A mask beside entries that take everything.
  NodeId through_mask(const std::vector<Arg>& entries) const {
    size_t consumed = 0;
    NodeId mask = kNoNode;
    for (const Arg& entry : entries) {
      if (is_mask(entry)) {
        if (mask != kNoNode || call_.graph().node(entry.value).type.dtype != DType::kBool)
          refuse("it assigns through several masks, or one that is not of truth values");
        mask = write_.builder.mapped(entry.value);
        consumed += write_.type(mask).shape.size();
      } else if (entry == everything()) {
        ++consumed;
      } else if (entry.kind != Arg::Kind::kEllipsis) {
        refuse("it assigns through a mask that stands beside other indices");
      }
    }
    const size_t rank = target_.shape.size();
    if (consumed > rank) refuse("it assigns through an index that AutoSP does not read");
    size_t before = 0;
    for (const Arg& entry : entries) {
      if (is_mask(entry)) break;
      before += entry.kind == Arg::Kind::kEllipsis ? rank - consumed : 1;
    }
    std::vector<Expr> shape = write_.type(mask).shape;
    const size_t behind = rank - before - shape.size();
    shape.insert(shape.end(), behind, Expr(1));
    mask = write_.reshape(mask, shape);
    return fill(mask, before, behind);
  }

  // What the mask takes, each element alike or in order.
  NodeId fill(NodeId mask, size_t before, size_t behind) const {
    const Arg& value = *call_.find("value");
    if (!is_tensor(value)) {
      check_number(value);
      return write_.call("torch.masked_fill",
                         {Arg::of(write_.base), Arg::of(mask), as_element(value)}, target_);
    }
    const NodeId source = as_dtype(value, behind, write_.base);
    const std::vector<Expr>& sizes = write_.type(source).shape;
    if (sizes.size() <= behind)
      return write_.call("torch.where", {Arg::of(mask), Arg::of(source), Arg::of(write_.base)},
                         target_);
    const bool in_order = before == 0 && sizes.size() == behind + 1 &&
                          std::equal(sizes.begin() + 1, sizes.end(),
                                     target_.shape.end() - static_cast<std::ptrdiff_t>(behind));
    if (!in_order) refuse("it assigns a tensor of another shape than the mask's elements have");
    return write_.call("torch.masked_scatter",
                       {Arg::of(write_.base), Arg::of(mask), Arg::of(source)}, target_);
  }

  // An assignment casts the number, masked_fill takes none of another kind.
  Arg as_element(const Arg& value) const {
    const bool truth = target_.dtype == DType::kBool;
    if (value.is_value() || is_floating(target_.dtype)) return write_.builder.mapped(value);
    const std::optional<int64_t> integer =
        value.kind == Arg::Kind::kFloat ? static_cast<int64_t>(value.number) : constant_of(value);
    if (!integer) return value;
    return truth ? Arg::bool_of(value.kind == Arg::Kind::kFloat ? value.number != 0 : *integer != 0)
                 : Arg::integer_of(*integer);
  }

  const Call& call_;
  const WriteBack& write_;
  const Type target_;
};

}  // namespace

NodeId WriteBack::reshape(NodeId node, const std::vector<Expr>& shape) const {
  if (type(node).shape == shape) return node;
  return call("torch.reshape", {Arg::of(node), Arg::sizes_of(shape)},
              Type::tensor(type(node).dtype, shape));
}

NodeId same_back(const Call&, const WriteBack& write) { return write.value; }

NodeId reshape_back(const Call& view, const WriteBack& write) {
  if (view.result().dtype != write.type(write.base).dtype) return kNoNode;
  return write.reshape(write.value, write.type(write.base).shape);
}

// Dimensions of size 1 have no letters; which of them is which makes no difference.
NodeId permute_back(const Call& view, const WriteBack& write) {
  const Application rule = apply_rule(view);
  const TensorLetters& from = rule.operands[0].letters;
  TensorLetters to = rule.results[0];
  if (from.size() != to.size() || view.result().dtype != write.type(write.base).dtype)
    return kNoNode;
  // Changes through x.data are hidden from gradients.
  if (view.string_or("name", "") == "data") return kNoNode;
  std::vector<Arg> order;
  std::vector<bool> taken(to.size(), false);
  for (const DimLetters& dim : from) {
    size_t at = 0;
    while (at < to.size() && (taken[at] || to[at] != dim)) ++at;
    if (at == to.size()) return kNoNode;
    taken[at] = true;
    order.push_back(Arg::integer_of(static_cast<int64_t>(at)));
  }
  return write.call("torch.permute", {Arg::of(write.value), Arg::list_of(std::move(order))},
                    write.type(write.base));
}

NodeId index_back(const Call& view, const WriteBack& write) {
  const Type base = write.type(write.base);
  const std::optional<Index> index =
      read_index(view.graph(), *view.find("index"), base.shape.size());
  const std::optional<std::vector<Step>> steps =
      index ? steps_to_part(write, *index) : std::nullopt;
  if (!steps) return kNoNode;
  const std::vector<Expr>& part = steps->empty() ? base.shape : steps->back().shape;
  if (element_count(Type::tensor(base.dtype, part)) != element_count(view.result())) return kNoNode;
  return write_part(write, *steps, write.reshape(write.value, part));
}

NodeId select_back(const Call& view, const WriteBack& write) {
  const Type base = write.type(write.base);
  const int64_t dim = view.dim_or("dim", rank_of(base), 0);
  const Arg* index = view.find("index");
  if (index == nullptr || !index->is_integral()) return kNoNode;
  return write_step(write, write.base, write.value, {true, dim, *index, {}});
}

NodeId narrow_back(const Call& view, const WriteBack& write) {
  const Type base = write.type(write.base);
  const int64_t dim = view.dim_or("dim", rank_of(base), 0);
  const Arg* start = view.find("start");
  if (start == nullptr || !start->is_integral()) return kNoNode;
  Expr from = start->as_expr();
  if (write.builder.graph().hint(from) < 0) from += base.shape[static_cast<size_t>(dim)];
  const Expr to = from + view.result().shape[static_cast<size_t>(dim)];
  return write_step(
      write, write.base, write.value,
      {false, dim, Arg::slice_of(Arg::size_of(from), Arg::size_of(to), Arg::none()), {}});
}

NodeId part_back(const Call& view, const WriteBack& write) {
  const Type base = write.type(write.base);
  const int64_t dim = view.dim_or("dim", rank_of(base), 0);
  const auto at = static_cast<size_t>(dim);
  const std::vector<Type>& parts = view.result().elements;
  if (parts[0].shape.size() < base.shape.size())  // unbind
    return write_step(write, write.base, write.value,
                      {true, dim, Arg::integer_of(write.element), {}});
  Expr from = 0;
  for (int i = 0; i < write.element; ++i) from += parts[static_cast<size_t>(i)].shape[at];
  const Expr to = from + parts[static_cast<size_t>(write.element)].shape[at];
  return write_step(
      write, write.base, write.value,
      {false, dim, Arg::slice_of(Arg::size_of(from), Arg::size_of(to), Arg::none()), {}});
}

NodeId assigned(const Call& call, const WriteBack& write) { return Assignment(call, write).run(); }

}  // namespace autosp
