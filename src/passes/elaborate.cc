#include "passes/elaborate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "ir/builder.h"
#include "passes/layout.h"
#include "support/error.h"

namespace autosp {
namespace {

// An output with batch and tokens merged is handed back whole on every rank up to this many bytes.
constexpr int64_t kGatheredOutputBytes = int64_t{256} << 20;

std::string where(const Node& node) { return node.target + (node.source.empty() ? "" : " at " + node.source); }

// The type of one tensor of a value (an element of a tuple, or the value itself).
const Type& element_type(const Type& type, int element) {
  return type.kind == Type::Kind::kTuple ? type.elements[element] : type;
}

class Elaborator {
 public:
  Elaborator(const Placements& placements, const std::vector<AttentionRegion>& regions,
             const ElaborateOptions& options)
      : placements_(placements),
        axes_(placements.axes()),
        old_(axes_.graph()),
        layout_(axes_, placements.ranks()),
        regions_(regions),
        options_(options),
        builder_(old_),
        base_(old_.nodes.size(), kNoNode),
        settled_(old_.nodes.size()),
        deferred_(regions.size()),
        exchanged_(regions.size(), false) {
    builder_.graph().hints[std::string(kRankSymbol)] = 0;
  }

  Elaborated run();

 private:
  friend class Local;

  void check_lengths();
  void plan_deferred();
  void emit(const Node& node);
  void emit_sharded(const Node& node);
  void emit_tuple_element(const Node& node, const Operand& tuple);
  struct Input {
    NodeId value;
    Placement from, to;
  };
  void exchange_region_inputs(int region, const Node& near);
  void exchange(const std::vector<Input>& inputs, const Node& near);
  Arg emit_output(const Arg& output, OutputInfo& info);

  Placement settled(NodeId value) const { return settled_[value]; }
  NodeId value_as(NodeId value, const Placement& want, const Node& near);
  void remember(NodeId value, const Placement& placement, NodeId local);
  Arg tuple_elements(const Node& node, NodeId value);
  bool borrows_sharded_shape(const Node& node) const;
  void follow_grad_mode(const Node& node);
  NodeId convert(NodeId local, NodeId value, int element, const Placement& from, const Placement& to,
                 const Node& near);
  NodeId exchange_between(NodeId local, NodeId value, int element, const Placement& from, const Placement& to,
                          const Node& near);
  NodeId reshape(NodeId local, const std::vector<Expr>& shape, const Node& near);
  Arg localized(const Node& node, const Arg& arg, std::map<NodeId, int>& seen);
  std::vector<Arg> exchange_arguments(const std::vector<Arg>& values, const std::vector<int>& split,
                                      const std::vector<Expr>& lengths, const std::vector<int>& concat,
                                      const std::vector<Expr>& sizes, bool exact) const;
  Arg ranks() const { return Arg::integer_of(placements_.ranks()); }
  Arg rank() const { return Arg::size_of(Expr::symbol(kRankSymbol)); }
  Arg group() const { return Arg::literal_of("group"); }

  const Placements& placements_;
  const Axes& axes_;
  const Graph& old_;
  Layout layout_;
  const std::vector<AttentionRegion>& regions_;
  const ElaborateOptions& options_;
  GraphBuilder builder_;
  std::vector<NodeId> base_;         // old value -> its local value as computed
  std::vector<Placement> settled_;   // and that value's placement (never P)
  using Variant = std::tuple<NodeId, int, int, int>;  // (old value, kind, dim, position)
  std::map<Variant, NodeId> variants_;
  std::vector<Variant> detached_;  // those that were made while gradients were disabled
  bool grad_enabled_ = true;
  std::vector<std::vector<NodeId>> deferred_;  // spread views that wait for their region's core
  std::vector<bool> exchanged_;
  // Operands of the node being written whose padding was replaced; by value, dimension and position.
  std::map<std::tuple<NodeId, int, int>, NodeId> masked_;
  std::vector<Expr> divisible_;
};

// The form of one sharded operator while its local counterpart is written.
class Local : public LocalForm {
 public:
  Local(Elaborator& elaborator, const Node& node, const Call& call, LetterLeaf leaf)
      : e_(elaborator), node_(node), call_(call), leaf_(leaf) {}

  const Call& call() const override { return call_; }
  LetterId letter() const override { return leaf_.letter; }
  const Application& application() const override { return e_.axes_.application(node_.id); }

  Arg local(std::string_view parameter) const override {
    const Arg* arg = call_.find(parameter);
    ensure(arg != nullptr, "a local form asks for an argument that was not given");
    std::map<NodeId, int> seen;
    return e_.localized(node_, *arg, seen);
  }

  std::vector<Expr> local_shape(int result) const override {
    return e_.layout_.shape(element_type(node_.type, result).shape, e_.axes_.value_leaves(node_.id, result),
                            e_.placements_.produced(node_.id, result));
  }

  std::vector<Expr> local_operand_shape(std::string_view parameter) const override {
    const Operand& operand = operand_of(parameter);
    return e_.layout_.shape(element_type(e_.old_.node(operand.value).type, operand.element).shape,
                            e_.axes_.value_leaves(operand.value, operand.element), e_.placements_.needed(node_.id, operand));
  }

  NodeId emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) override {
    return e_.builder_.call(std::move(target), std::move(args), std::move(kwargs), std::move(type), &node_);
  }

  NodeId emit_same(Type type) override {
    std::map<NodeId, int> seen;
    Node copy = node_;
    for (Arg& arg : copy.args) arg = e_.localized(node_, arg, seen);
    for (auto& [key, arg] : copy.kwargs) arg = e_.localized(node_, arg, seen);
    const NodeId id =
        e_.builder_.call(copy.target, std::move(copy.args), std::move(copy.kwargs), std::move(type), &node_);
    e_.builder_.graph().node(id).origin = node_.origin;
    return id;
  }

  NodeId all_reduce(NodeId partial) override {
    const Type type = e_.builder_.graph().node(partial).type;
    return e_.builder_.call("autosp.p_to_r", {Arg::of(partial), e_.group()}, type, &node_);
  }

  Arg without_padding(std::string_view parameter, double fill) override {
    const Operand& operand = operand_of(parameter);
    const Arg value = local(parameter);
    return Arg::of(mask(operand, value.value, fill));
  }

  // The operand with the rows past the end of a ragged axis replaced.
  NodeId mask(const Operand& operand, NodeId local_value, double fill) {
    const Placement placement = e_.placements_.needed(node_.id, operand);
    const FactorId factor = e_.axes_.leaf_factor(node_.id, leaf_);
    if (!placement.is_sharded() || e_.layout_.is_exact(factor)) return local_value;
    const Type global = element_type(e_.old_.node(operand.value).type, operand.element);
    const std::vector<FactorList> leaves = e_.axes_.value_leaves(operand.value, operand.element);
    std::vector<int> dims;
    const std::vector<Expr> isolated = e_.layout_.isolated(global.shape, leaves, placement, {placement.where}, &dims);
    const std::vector<Expr> whole = e_.layout_.isolated(global.shape, leaves, Placement::replicated(), {placement.where}, &dims);
    const std::vector<Expr> local_shape = e_.layout_.shape(global.shape, leaves, placement);
    NodeId value = e_.reshape(local_value, isolated, node_);
    value = e_.builder_.call("autosp.mask_tail",
                             {Arg::of(value), Arg::integer_of(dims[0]), Arg::size_of(whole[dims[0]]),
                              Arg::float_of(fill), e_.rank()},
                             Type::tensor(global.dtype, isolated), &node_);
    return e_.reshape(value, local_shape, node_);
  }

 private:
  const Operand& operand_of(std::string_view parameter) const {
    const NodeId value = call_.value(parameter);
    for (const Operand& operand : application().operands) {
      if (operand.value == value) return operand;
    }
    throw InternalError(std::string(call_.op().name) + " has no operand " + std::string(parameter));
  }

  Elaborator& e_;
  const Node& node_;
  const Call& call_;
  LetterLeaf leaf_;
};

Elaborated Elaborator::run() {
  check_lengths();
  plan_deferred();
  for (const Node& node : old_.nodes) {
    const int region = placements_.node(node.id).region;
    if (region >= 0) {
      std::vector<NodeId>& waiting = deferred_[region];
      if (std::find(waiting.begin(), waiting.end(), node.id) != waiting.end()) continue;
      if (node.id == regions_[region].core.front()) {
        if (!waiting.empty()) exchange_region_inputs(region, old_.node(waiting.front()));
        for (NodeId view : waiting) emit(old_.node(view));
        waiting.clear();
      }
    }
    emit(node);
  }
  std::vector<OutputInfo> infos;
  std::vector<Arg> outputs;
  for (const Arg& output : old_.outputs) {
    OutputInfo info;
    outputs.push_back(emit_output(output, info));
    infos.push_back(info);
  }
  builder_.graph().outputs = std::move(outputs);
  for (const auto& [name, length] : layout_.definitions()) builder_.graph().hints[name] = builder_.graph().hint(length);
  builder_.graph().definitions = layout_.definitions();
  Elaborated out{std::move(builder_.graph()), std::move(infos), std::move(divisible_)};
  return out;
}

// Every token axis along which something runs sharded has a length that the ranks divide.
void Elaborator::check_lengths() {
  std::vector<FactorId> used;
  for (const Node& node : old_.nodes) {
    const NodePlacement& placed = placements_.node(node.id);
    if (!placed.sharded || placed.region >= 0) continue;
    const FactorId base = axes_.shard_base(axes_.leaf_factor(node.id, *placed.sharded));
    if (std::find(used.begin(), used.end(), base) == used.end()) used.push_back(base);
  }
  const int count = placements_.ranks();
  for (FactorId axis : used) {
    const Expr& size = axes_.factors().size(axis);
    const int64_t length = old_.hint(size);
    if (length % count == 0 && length > 0) {
      if (!size.is_constant()) divisible_.push_back(size);
      continue;
    }
    std::string input = "the sequence";
    for (const Node& node : old_.nodes) {
      if (node.kind != NodeKind::kInput || node.input != InputKind::kUser) continue;
      for (const Occurrence& occurrence : axes_.token_occurrences(node.id, 0)) {
        if (axes_.value_leaves(node.id, 0)[occurrence.dim][occurrence.position] == axis) {
          input = "dimension " + std::to_string(occurrence.dim) + " of the input " + node.target;
        }
      }
    }
    const std::string ranks = std::to_string(count);
    throw Unsupported(
        input + " carries the sequence and has " + std::to_string(length) + " tokens, which " + ranks +
        " ranks do not divide" + (length < count ? " (there are fewer tokens than ranks)" : "") +
        ". Pad the sequence to a multiple of " + ranks + " (labels with the ignore_index of the loss), or use a group "
        "whose size divides it.");
  }
}

// Spread views may wait until their region's core, so that one exchange carries queries, keys and values; unless
// something that acts by being called (a change of grad mode) stands in between.
void Elaborator::plan_deferred() {
  std::vector<NodeId> effects;
  for (const Node& node : old_.nodes) {
    if (axes_.op(node.id) != nullptr && axes_.op(node.id)->effect) effects.push_back(node.id);
  }
  for (size_t region = 0; region < regions_.size(); ++region) {
    const NodeId core = regions_[region].core.front();
    for (NodeId view : regions_[region].spread) {
      const auto next = std::lower_bound(effects.begin(), effects.end(), view);
      if (view < core && (next == effects.end() || *next > core)) deferred_[region].push_back(view);
    }
  }
}

void Elaborator::emit(const Node& node) {
  if (node.kind == NodeKind::kInput) {
    base_[node.id] = builder_.copy(node);
    return;
  }
  const NodePlacement& placed = placements_.node(node.id);
  const Application& rule = axes_.application(node.id);
  if (rule.operands.size() == 1 && old_.node(rule.operands[0].value).type.kind == Type::Kind::kTuple &&
      node.target == "_operator.getitem") {
    emit_tuple_element(node, rule.operands[0]);
    return;
  }
  if (placed.region >= 0) exchange_region_inputs(placed.region, node);
  if (placed.sharded) {
    emit_sharded(node);
    return;
  }
  follow_grad_mode(node);
  settled_[node.id] = placements_.produced(node.id, 0);
  const OpDef* op = axes_.op(node.id);
  if (op != nullptr && op->localize != nullptr && borrows_sharded_shape(node)) {
    const Call call(old_, node, *op);
    Local local(*this, node, call, LetterLeaf{});
    base_[node.id] = op->localize(local).node;
    return;
  }
  std::map<NodeId, int> seen;
  Node copy = node;
  for (Arg& arg : copy.args) arg = localized(node, arg, seen);
  for (auto& [key, arg] : copy.kwargs) arg = localized(node, arg, seen);
  const NodeId id = builder_.call(copy.target, std::move(copy.args), std::move(copy.kwargs), node.type, &node);
  builder_.graph().node(id).origin = node.origin;
  base_[node.id] = id;
}

// Whether a value that only lends its shape is sharded, so that the call must spell out the sizes.
bool Elaborator::borrows_sharded_shape(const Node& node) const {
  bool borrows = false;
  for_each_operand(node, [&](NodeId value) {
    const auto& operands = axes_.application(node.id).operands;
    const bool read = std::any_of(operands.begin(), operands.end(), [value](const Operand& operand) { return operand.value == value; });
    borrows |= !read && settled(value).is_sharded();
  });
  return borrows;
}

void Elaborator::emit_sharded(const Node& node) {
  const NodePlacement& placed = placements_.node(node.id);
  const OpDef& op = *axes_.op(node.id);
  const Call call(old_, node, op);
  Local local(*this, node, call, *placed.sharded);
  const Application& rule = axes_.application(node.id);

  LocalResult result;
  if (op.localize != nullptr) {
    result = op.localize(local);
  } else {
    Type type = node.type;
    if (type.is_tensor()) {
      type.shape = local.local_shape(0);
    } else {
      for (int i = 0; i < static_cast<int>(type.elements.size()); ++i) {
        if (type.elements[i].is_tensor()) type.elements[i].shape = local.local_shape(i);
      }
    }
    if (rule.letters[placed.sharded->letter].kind == LetterKind::kSum) {
      // Rows past the end of a ragged axis must not reach the sum.
      for (const Operand& operand : rule.operands) {
        const Placement want = placements_.needed(node.id, operand);
        if (!want.is_sharded()) continue;
        masked_[{operand.value, want.where.dim, want.where.position}] =
            local.mask(operand, value_as(operand.value, want, node), 0.0);
      }
    }
    result.node = local.emit_same(std::move(type));
    masked_.clear();
  }
  base_[node.id] = result.node;
  if (result.replicated) {
    settled_[node.id] = Placement::replicated();
    return;
  }
  const Placement produced = placements_.produced(node.id, 0);
  settled_[node.id] = produced;
  if (produced.kind == Placement::Kind::kPartial) {
    const Type type = builder_.graph().node(result.node).type;
    const bool varying = placed.varying;
    base_[node.id] = builder_.call(varying ? "autosp.p_to_v" : "autosp.p_to_r", {Arg::of(result.node), group()}, type, &node);
    settled_[node.id] = varying ? Placement::varying() : Placement::replicated();
  }
}

// An element of a tuple is what its producer made it, whatever the getitem itself would prefer.
void Elaborator::emit_tuple_element(const Node& node, const Operand& tuple) {
  const Placement from = placements_.produced(tuple.value, tuple.element);
  const Type& global = element_type(old_.node(tuple.value).type, tuple.element);
  Type type = global;
  if (type.is_tensor()) type.shape = layout_.shape(global.shape, axes_.value_leaves(tuple.value, tuple.element), from);
  const NodeId id =
      builder_.call(node.target, {Arg::of(base_[tuple.value]), node.args.at(1)}, std::move(type), &node);
  builder_.graph().node(id).origin = node.origin;
  base_[node.id] = id;
  settled_[node.id] = from;
}

NodeId Elaborator::reshape(NodeId local, const std::vector<Expr>& shape, const Node& near) {
  const Type& type = builder_.graph().node(local).type;
  if (type.shape == shape) return local;
  Type reshaped = Type::tensor(type.dtype, shape);
  return builder_.call("torch.reshape", {Arg::of(local), Arg::sizes_of(shape)}, std::move(reshaped), &near);
}

NodeId Elaborator::value_as(NodeId value, const Placement& want, const Node& near) {
  const Placement have = settled(value);
  if (have == want || !old_.node(value).type.is_tensor()) return base_[value];
  const Variant key{value, static_cast<int>(want.kind), want.where.dim, want.where.position};
  if (const auto found = variants_.find(key); found != variants_.end()) return found->second;
  const NodeId converted = convert(base_[value], value, 0, have, want, near);
  remember(value, want, converted);
  return converted;
}

void Elaborator::remember(NodeId value, const Placement& placement, NodeId local) {
  const Variant key{value, static_cast<int>(placement.kind), placement.where.dim, placement.where.position};
  variants_[key] = local;
  if (!grad_enabled_ && axes_.facts(value).differentiable) detached_.push_back(key);
}

// No gradient flows through a conversion that was made while gradients were disabled: later readers need their own.
void Elaborator::follow_grad_mode(const Node& node) {
  if (node.target != "torch._C._set_grad_enabled" || node.args.empty()) return;
  grad_enabled_ = node.args[0].integer != 0;
  if (!grad_enabled_) return;
  for (const Variant& key : detached_) variants_.erase(key);
  detached_.clear();
}

NodeId Elaborator::convert(NodeId local, NodeId value, int element, const Placement& from, const Placement& to,
                           const Node& near) {
  using Kind = Placement::Kind;
  const Type global = element_type(old_.node(value).type, element);
  const std::vector<FactorList> leaves = axes_.value_leaves(value, element);
  const bool differentiable = axes_.facts(value).differentiable;
  if (from.kind == Kind::kReplicated && to.kind == Kind::kVarying) {
    if (!differentiable) return local;
    const bool reduce = options_.grad_sync || old_.node(value).input != InputKind::kParameter ||
                        old_.node(value).kind != NodeKind::kInput;
    return builder_.call("autosp.r_to_v", {Arg::of(local), ranks(), group(), Arg::bool_of(reduce)}, global, &near);
  }
  if (from.kind == Kind::kVarying && to.kind == Kind::kReplicated) {
    if (!differentiable) return local;
    return builder_.call("autosp.v_to_r", {Arg::of(local), rank()}, global, &near);
  }
  if (from.is_sharded() && to.is_sharded()) return exchange_between(local, value, element, from, to, near);

  const Placement& cut = from.is_sharded() ? from : to;
  std::vector<int> dims;
  const std::vector<Expr> before = layout_.isolated(global.shape, leaves, from, {cut.where}, &dims);
  const std::vector<Expr> after = layout_.isolated(global.shape, leaves, to, {cut.where}, &dims);
  const bool exact = layout_.is_exact(leaves[cut.where.dim][cut.where.position]);
  NodeId out = reshape(local, before, near);
  std::vector<Arg> args{Arg::of(out), Arg::integer_of(dims[0]), Arg::size_of(after[dims[0]]), Arg::bool_of(exact)};
  std::string target;
  if (to.is_sharded()) {
    target = from.kind == Kind::kReplicated ? "autosp.r_to_s" : "autosp.v_to_s";
    args.push_back(Arg::float_of(0.0));
  } else {
    target = to.kind == Kind::kReplicated ? "autosp.s_to_r" : "autosp.s_to_v";
  }
  for (Arg arg : {rank(), ranks(), group()}) args.push_back(std::move(arg));
  out = builder_.call(std::move(target), std::move(args), Type::tensor(global.dtype, after), &near);
  return reshape(out, layout_.shape(global.shape, leaves, to), near);
}

std::vector<Arg> Elaborator::exchange_arguments(const std::vector<Arg>& values, const std::vector<int>& split,
                                                const std::vector<Expr>& lengths, const std::vector<int>& concat,
                                                const std::vector<Expr>& sizes, bool exact) const {
  const auto dims = [](const std::vector<int>& list) {
    std::vector<Arg> items;
    for (int dim : list) items.push_back(Arg::integer_of(dim));
    return Arg::list_of(std::move(items));
  };
  return {Arg::list_of(values), dims(split), Arg::sizes_of(lengths), dims(concat), Arg::sizes_of(sizes),
          Arg::bool_of(exact),  ranks(),     group()};
}

NodeId Elaborator::exchange_between(NodeId local, NodeId value, int element, const Placement& from,
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
  const NodeId list = builder_.call(
      "autosp.all_to_all",
      exchange_arguments({Arg::of(in)}, {dims[1]}, {after[dims[1]]}, {dims[0]}, {after[dims[0]]}, exact),
      Type::tuple({type}), &near);
  const NodeId out = builder_.call("_operator.getitem", {Arg::of(list), Arg::integer_of(0)}, type, &near);
  return reshape(out, layout_.shape(global.shape, leaves, to), near);
}

// Converts, in one exchange for each dtype, every input of an attention region that is there already and sharded by
// tokens.
void Elaborator::exchange_region_inputs(int region, const Node& near) {
  if (exchanged_[region]) return;
  exchanged_[region] = true;
  std::map<DType, std::vector<Input>> inputs;
  std::vector<NodeId> members = regions_[region].spread;
  members.insert(members.end(), regions_[region].core.begin(), regions_[region].core.end());
  std::sort(members.begin(), members.end());
  for (NodeId member : members) {
    for (const Operand& operand : axes_.application(member).operands) {
      const Placement want = placements_.needed(member, operand);
      if (base_[operand.value] == kNoNode || operand.element != 0 || !want.is_sharded()) continue;
      if (!old_.node(operand.value).type.is_tensor()) continue;
      const Placement have = settled(operand.value);
      const Variant key{operand.value, static_cast<int>(want.kind), want.where.dim, want.where.position};
      if (!have.is_sharded() || have == want || variants_.contains(key)) continue;
      std::vector<Input>& alike = inputs[old_.node(operand.value).type.dtype];
      const bool known = std::any_of(alike.begin(), alike.end(), [&](const Input& input) {
        return input.value == operand.value && input.to == want;
      });
      if (!known) alike.push_back({operand.value, have, want});
    }
  }
  for (const auto& [dtype, alike] : inputs) {
    if (alike.size() > 1) exchange(alike, near);
  }
}

void Elaborator::exchange(const std::vector<Input>& inputs, const Node& near) {
  std::vector<Arg> values;
  std::vector<int> split, concat;
  std::vector<Expr> lengths, sizes;
  std::vector<Type> types;
  bool exact = true;
  for (const Input& input : inputs) {
    const Type& global = old_.node(input.value).type;
    const std::vector<FactorList> leaves = axes_.value_leaves(input.value, 0);
    const std::vector<Occurrence> places{input.from.where, input.to.where};
    std::vector<int> dims;
    const std::vector<Expr> before = layout_.isolated(global.shape, leaves, input.from, places, &dims);
    const std::vector<Expr> after = layout_.isolated(global.shape, leaves, input.to, places, &dims);
    values.push_back(Arg::of(reshape(base_[input.value], before, near)));
    split.push_back(dims[1]);
    lengths.push_back(after[dims[1]]);
    concat.push_back(dims[0]);
    sizes.push_back(after[dims[0]]);
    types.push_back(Type::tensor(global.dtype, after));
    exact = exact && layout_.is_exact(leaves[input.from.where.dim][input.from.where.position]);
  }
  const NodeId list = builder_.call("autosp.all_to_all", exchange_arguments(values, split, lengths, concat, sizes, exact),
                                    Type::tuple(types), &near);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    const NodeId item = builder_.call("_operator.getitem", {Arg::of(list), Arg::integer_of(static_cast<int64_t>(i))},
                                      types[i], &near);
    const Type& global = old_.node(input.value).type;
    const NodeId local = reshape(item, layout_.shape(global.shape, axes_.value_leaves(input.value, 0), input.to), near);
    remember(input.value, input.to, local);
  }
}

// Replaces the values of an argument by their local counterparts, converted to what the node needs of them. A
// value that the rule does not read (the template of zeros_like, of type_as) is taken as it is.
Arg Elaborator::localized(const Node& node, const Arg& arg, std::map<NodeId, int>& seen) {
  Arg out = arg;
  if (arg.is_value()) {
    const Operand* use = nullptr;
    int skip = seen[arg.value]++;
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (operand.value != arg.value) continue;
      use = &operand;
      if (skip-- == 0) break;
    }
    ensure(base_[arg.value] != kNoNode, "a value is used before it is made");
    if (use == nullptr) {
      out.value = base_[arg.value];
      return out;
    }
    if (old_.node(arg.value).type.kind == Type::Kind::kTuple) return tuple_elements(node, arg.value);
    const Placement want = placements_.needed(node.id, *use);
    const auto masked = masked_.find({arg.value, want.where.dim, want.where.position});
    out.value = want.is_sharded() && masked != masked_.end() ? masked->second : value_as(arg.value, want, node);
    return out;
  }
  for (Arg& item : out.items) item = localized(node, item, seen);
  return out;
}

// A tuple that an operator reads as a whole, with each element as the operator needs it.
Arg Elaborator::tuple_elements(const Node& node, NodeId value) {
  std::vector<Arg> items;
  const std::vector<Type>& types = builder_.graph().node(base_[value]).type.elements;
  for (int element = 0; element < static_cast<int>(types.size()); ++element) {
    NodeId item = builder_.call("_operator.getitem", {Arg::of(base_[value]), Arg::integer_of(element)}, types[element], &node);
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (operand.value != value || operand.element != element) continue;
      const Placement have = placements_.produced(value, element);
      const Placement want = placements_.needed(node.id, operand);
      if (!(have == want)) item = convert(item, value, element, have, want, node);
    }
    items.push_back(Arg::of(item));
  }
  return Arg::tuple_of(std::move(items));
}

Arg Elaborator::emit_output(const Arg& output, OutputInfo& info) {
  Arg out = output;
  for (const Arg& item : output.items) {
    for_each_value(item, [](NodeId) { throw InternalError("an output is nested"); });
  }
  if (!output.is_value()) return out;
  const Node& node = old_.node(output.value);
  Placement have = settled(output.value);
  out.value = base_[output.value];
  if (have.is_sharded()) {
    const std::vector<FactorList> leaves = axes_.value_leaves(output.value, 0);
    const auto alone = [&](const Occurrence& where) {
      const FactorId leaf = leaves[where.dim][where.position];
      return leaves[where.dim].size() == 1 && layout_.is_exact(leaf) && axes_.is_token(leaf);
    };
    // What an attention gives by heads is handed back by tokens.
    const std::vector<Occurrence> tokens = axes_.token_occurrences(output.value, 0);
    const auto place = std::find_if(tokens.begin(), tokens.end(), alone);
    if (options_.outputs != "full" && !alone(have.where) && place != tokens.end()) {
      have = Placement::sharded(*place);
      out.value = value_as(output.value, have, node);
    }
    if (options_.outputs == "local" || (options_.outputs == "auto" && alone(have.where))) {
      info = {true, have.where.dim, node.type.shape[have.where.dim]};
    } else {
      if (options_.outputs == "auto" && old_.bytes(node.type) > kGatheredOutputBytes) {
        throw Unsupported(where(node) + ": the output %" + node.name + " has its tokens merged with another axis in dimension " +
                          std::to_string(have.where.dim) + " and " + std::to_string(old_.bytes(node.type)) +
                          " bytes, too many to gather on every rank. Return it before the merge, or pass outputs=\"local\" "
                          "or outputs=\"full\".");
      }
      out.value = value_as(output.value, Placement::replicated(), node);
    }
  } else if (node.type.is_tensor()) {
    out.value = value_as(output.value, Placement::replicated(), node);
  }
  return out;
}

}  // namespace

Elaborated elaborate(const Placements& placements, const std::vector<AttentionRegion>& regions,
                     const ElaborateOptions& options) {
  return Elaborator(placements, regions, options).run();
}

}  // namespace autosp
