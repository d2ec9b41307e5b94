#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "ir/builder.h"
#include "passes/elaborator.h"
#include "passes/local_rows.h"
#include "passes/local_values.h"
#include "support/error.h"

namespace autosp {
namespace {

// An output with batch and tokens merged is handed back whole on every rank up to this many bytes.
constexpr int64_t kGatheredOutputBytes = int64_t{256} << 20;

std::string where(const Node& node) {
  return node.target + (node.source.empty() ? "" : " at " + node.source);
}

}  // namespace

// The form of one sharded operator while its local counterpart is written.
class Local : public LocalRows {
 public:
  Local(Elaborator& elaborator, const Node& node, const Call& call, LetterLeaf leaf)
      : LocalRows(elaborator.placements_, elaborator.values_, elaborator.builder_, call, leaf),
        e_(elaborator),
        node_(node),
        call_(call),
        leaf_(leaf) {}

  bool is_ragged() const override {
    return leaf_.letter >= 0 && !e_.layout().is_exact(e_.axes_.leaf_factor(node_.id, leaf_));
  }
  bool in_bag() const override {
    return leaf_.letter >= 0 && e_.axes_.is_bag(e_.axes_.leaf_factor(node_.id, leaf_));
  }
  Arg local(std::string_view parameter) const override {
    const Arg* arg = call_.find(parameter);
    ensure(arg != nullptr, "a local form asks for an argument that was not given");
    std::map<NodeId, int> seen = read_before(parameter);
    return e_.localized(node_, *arg, seen);
  }

  std::vector<Expr> local_operand_shape(std::string_view parameter) const override {
    const Operand& operand = operand_of(parameter);
    return e_.layout().shape(element_type(e_.old_.node(operand.value).type, operand.element).shape,
                             e_.axes_.value_leaves(operand.value, operand.element),
                             e_.placements_.needed(node_.id, operand));
  }

  NodeId emit_same(Type type) override {
    std::map<NodeId, int> seen;
    Node copy = node_;
    for (Arg& arg : copy.args) arg = e_.localized(node_, arg, seen);
    for (auto& [key, arg] : copy.kwargs) arg = e_.localized(node_, arg, seen);
    const NodeId id = e_.builder_.call(copy.target, std::move(copy.args), std::move(copy.kwargs),
                                       std::move(type), &node_);
    e_.builder_.graph().node(id).origin = node_.origin;
    return id;
  }

  bool in_body() const override { return e_.in_body_; }

  NodeId all_reduce(NodeId partial) override {
    if (e_.in_body_) {
      throw Unsupported(where(node_) +
                        ": a torch.autograd.Function on parts of the sequence can't exchange data, "
                        "which this operator needs (a count or a norm over all tokens). Move it "
                        "out of the function");
    }
    return e_.values_.reduce(partial, /*varying=*/false, node_);
  }

  Isolated isolated(std::string_view parameter) override {
    const Operand& operand = operand_of(parameter);
    const auto [part, dim, size, start] =
        e_.values_.isolated(local(parameter).value, operand.value, operand.element,
                            e_.placements_.needed(node_.id, operand), node_);
    return {part, e_.builder_.graph().node(part).type.shape, dim, size, start};
  }

  Arg without_padding(std::string_view parameter, double fill) override {
    const Operand& operand = operand_of(parameter);
    const Placement placement = e_.placements_.needed(node_.id, operand);
    if (e_.placements_.node(node_.id).held) return local(parameter);
    return Arg::of(e_.values_.mask_tail(local(parameter).value, operand.value, operand.element,
                                        placement, fill, node_));
  }

 private:
  // How often each value stands in the arguments in front of a parameter: operands of a rule are in
  // the signature's order, and one value may be several of them.
  std::map<NodeId, int> read_before(std::string_view parameter) const {
    std::map<NodeId, int> seen;
    for (const auto& [name, arg] : call_.bound()) {
      if (name == parameter) break;
      for_each_value(arg, [&](NodeId value) { ++seen[value]; });
    }
    return seen;
  }

  const Operand& operand_of(std::string_view parameter) const {
    const NodeId value = call_.value(parameter);
    int skip = read_before(parameter)[value];
    const Operand* found = nullptr;
    for (const Operand& operand : application().operands) {
      if (operand.value != value) continue;
      found = &operand;
      if (skip-- == 0) break;
    }
    if (found != nullptr) return *found;
    throw InternalError(std::string(call_.op().name) + " has no operand " + std::string(parameter));
  }

  Elaborator& e_;
  const Node& node_;
  const Call& call_;
  LetterLeaf leaf_;
};

Elaborated Elaborator::run() {
  note_lengths();
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
  for (const auto& [name, length] : layout().definitions())
    builder_.graph().hints[name] = builder_.graph().hint(length);
  builder_.graph().definitions = layout().definitions();
  for (const size_t index : bodies_) {
    auto body = std::make_shared<Graph>(*builder_.graph().subgraphs[index].second);
    body->definitions = layout().definitions();
    for (const auto& [name, length] : body->definitions)
      body->hints[name] = builder_.graph().hint(length);
    builder_.graph().subgraphs[index].second = std::move(body);
  }
  std::vector<NodeId> locals;
  for (const Node& node : old_.nodes) locals.push_back(values_.local(node.id));
  Elaborated out{std::move(builder_.graph()), std::move(infos), std::move(divisible_),
                 std::move(locals)};
  return out;
}

// Lengths of token axes that the ranks divide stay so; other lengths are those of another program,
// whose last parts are filled up.
void Elaborator::note_lengths() {
  const int count = placements_.ranks();
  for (const Node& node : old_.nodes) {
    const NodePlacement& placed = placements_.node(node.id);
    if (!placed.sharded || placed.region >= 0) continue;
    const FactorId leaf = axes_.leaf_factor(node.id, *placed.sharded);
    const FactorId axis = axes_.is_bag(leaf) ? axes_.bag_base(leaf) : axes_.shard_base(leaf);
    const Expr& size = axes_.factors().size(axis);
    if (old_.hint(size) == 0) {
      throw Unsupported(where(node) +
                        ": the sequence has no tokens, so there is nothing to divide");
    }
    const bool known = std::find(divisible_.begin(), divisible_.end(), size) != divisible_.end();
    if (!known && !size.is_constant() && old_.hint(size) % count == 0) divisible_.push_back(size);
  }
}

// Spread views may wait until their region's core, so that one exchange carries queries, keys and
// values; unless something that acts by being called (a change of grad mode) stands in between.
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
    const NodeId id = builder_.copy(node);
    const Placement placement =
        in_body_ ? placements_.produced(node.id, 0) : Placement::replicated();
    if (placement.is_sharded()) {
      Type& type = builder_.graph().node(id).type;
      type.shape = layout().shape(type.shape, axes_.value_leaves(node.id, 0), placement);
    }
    values_.set(node.id, id, placement);
    return;
  }
  const NodePlacement& placed = placements_.node(node.id);
  const Application& rule = axes_.application(node.id);
  if (rule.operands.size() == 1 &&
      old_.node(rule.operands[0].value).type.kind == Type::Kind::kTuple &&
      node.target == "_operator.getitem") {
    emit_tuple_element(node, rule.operands[0]);
    return;
  }
  if (placed.region >= 0) exchange_region_inputs(placed.region, node);
  if (placed.sharded) {
    emit_sharded(node);
    return;
  }
  values_.follow_grad_mode(node);
  const Placement produced = placements_.produced(node.id, 0);
  const OpDef* op = axes_.op(node.id);
  if (op != nullptr && op->localize != nullptr && borrows_sharded_shape(node)) {
    const Call call(old_, node, *op);
    Local local(*this, node, call, LetterLeaf{});
    values_.set(node.id, op->localize(local).node, produced);
    return;
  }
  std::map<NodeId, int> seen;
  Node copy = node;
  for (Arg& arg : copy.args) arg = localized(node, arg, seen);
  for (auto& [key, arg] : copy.kwargs) arg = localized(node, arg, seen);
  const NodeId id =
      builder_.call(copy.target, std::move(copy.args), std::move(copy.kwargs), node.type, &node);
  builder_.graph().node(id).origin = node.origin;
  values_.set(node.id, id, produced);
}

// Whether a value that only lends its shape is sharded, so that the call must spell out the sizes.
bool Elaborator::borrows_sharded_shape(const Node& node) const {
  bool borrows = false;
  for_each_operand(node, [&](NodeId value) {
    const auto& operands = axes_.application(node.id).operands;
    const bool read =
        std::any_of(operands.begin(), operands.end(),
                    [value](const Operand& operand) { return operand.value == value; });
    borrows |= !read && values_.placement(value).is_sharded();
  });
  return borrows;
}

void Elaborator::emit_sharded(const Node& node) {
  const NodePlacement& placed = placements_.node(node.id);
  const OpDef& op = *axes_.op(node.id);
  const Call call(old_, node, op);
  Local local(*this, node, call, *placed.sharded);
  const Application& rule = axes_.application(node.id);

  if (op.singular != nullptr && axes_.facts(node.id).differentiable) repeat_last(call);
  LocalResult result;
  if (op.function) {
    result.node = emit_function(node);
  } else if (op.localize != nullptr) {
    result = op.localize(local);
  } else {
    if (rule.letters[placed.sharded->letter].kind == LetterKind::kSum) {
      // Rows past the end of a ragged axis must not reach the sum.
      for (const Operand& operand : rule.operands) {
        const Placement want = placements_.needed(node.id, operand);
        if (!want.is_sharded()) continue;
        tails_[{operand.value, want.where.dim, want.where.position}] = values_.mask_tail(
            values_.as(operand.value, want, node), operand.value, operand.element, want, 0.0, node);
      }
    }
    result.node = local.emit_same(local_type(local));
  }
  tails_.clear();
  const Placement produced =
      result.replicated ? Placement::replicated() : placements_.produced(node.id, 0);
  // Then rows past the end are not copies of the last yet.
  const bool other_rows =
      needs_other_rows(rule.letters[placed.sharded->letter].kind) ||
      std::any_of(rule.operands.begin(), rule.operands.end(),
                  [&](const Operand& read) { return is_extended(node.id, read); });
  if (produced.is_sharded() && node.type.is_tensor() && axes_.facts(node.id).differentiable &&
      other_rows)
    result.node = values_.repeat_last(result.node, node.id, produced, node);
  if (produced.kind != Placement::Kind::kPartial || in_body_ || op.function ||
      is_read_partial(node.id)) {
    values_.set(node.id, result.node, produced);
    return;
  }
  const NodeId sum = values_.reduce(result.node, placed.varying, node);
  values_.set(node.id, sum, placed.varying ? Placement::varying() : Placement::replicated());
}

// Rows past the end of a trimmed axis are the program's own, on which it may not do what it does to
// the others; of other axes they are copies of the last.
void Elaborator::repeat_last(const Call& call) {
  const NodeId node = call.node().id;
  for (const Operand& operand : axes_.application(node).operands) {
    const Placement want = placements_.needed(node, operand);
    if (!want.is_sharded() || operand.element != 0 || !call.op().singular(call, operand.value))
      continue;
    const FactorId leaf = axes_.value_leaves(operand.value, 0)[want.where.dim][want.where.position];
    if (axes_.shard_base(leaf) == leaf) continue;
    tails_[{operand.value, want.where.dim, want.where.position}] = values_.repeat_last(
        values_.as(operand.value, want, call.node()), operand.value, want, call.node());
  }
}

// Whether a node reads rows that a neighbour has too.
bool Elaborator::is_extended(NodeId node, const Operand& operand) const {
  const Placement want = placements_.needed(node, operand);
  if (!want.is_sharded()) return false;
  const std::vector<FactorList> leaves = axes_.value_leaves(operand.value, operand.element);
  return axes_.extension(leaves[want.where.dim][want.where.position]) > 0;
}

// Whether a reader takes each rank's own part of a sum.
bool Elaborator::is_read_partial(NodeId value) const {
  return std::any_of(old_.nodes.begin() + value, old_.nodes.end(), [&](const Node& node) {
    const std::vector<Operand>& operands = axes_.application(node.id).operands;
    return std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
      return operand.value == value &&
             placements_.needed(node.id, operand).kind == Placement::Kind::kPartial;
    });
  });
}

// An element of a tuple is what its producer made it, whatever the getitem itself would prefer.
void Elaborator::emit_tuple_element(const Node& node, const Operand& tuple) {
  const Placement from = placements_.produced(tuple.value, tuple.element);
  const Type global = element_type(old_.node(tuple.value).type, tuple.element);
  Type type = global;
  if (type.is_tensor())
    type.shape = layout().shape(global.shape, axes_.value_leaves(tuple.value, tuple.element), from);
  const NodeId id = builder_.call(
      node.target, {Arg::of(values_.local(tuple.value)), node.args.at(1)}, std::move(type), &node);
  builder_.graph().node(id).origin = node.origin;
  values_.set(node.id, id, from);
}

// Converts, in one exchange for each dtype, every input of an attention region that is there
// already and sharded by tokens.
void Elaborator::exchange_region_inputs(int region, const Node& near) {
  if (exchanged_[region]) return;
  exchanged_[region] = true;
  std::map<DType, std::vector<LocalValues::Exchanged>> inputs;
  std::vector<NodeId> members = regions_[region].spread;
  members.insert(members.end(), regions_[region].core.begin(), regions_[region].core.end());
  std::sort(members.begin(), members.end());
  for (NodeId member : members) {
    for (const Operand& operand : axes_.application(member).operands) {
      const Placement want = placements_.needed(member, operand);
      if (!values_.is_made(operand.value) || operand.element != 0 || !want.is_sharded()) continue;
      if (!old_.node(operand.value).type.is_tensor()) continue;
      const Placement have = values_.placement(operand.value);
      if (!have.is_sharded() || have == want || values_.is_converted(operand.value, want)) continue;
      std::vector<LocalValues::Exchanged>& alike = inputs[old_.node(operand.value).type.dtype];
      const bool known =
          std::any_of(alike.begin(), alike.end(), [&](const LocalValues::Exchanged& input) {
            return input.value == operand.value && input.to == want;
          });
      if (!known) alike.push_back({operand.value, want});
    }
  }
  for (const auto& [dtype, alike] : inputs) {
    if (alike.size() > 1) values_.exchange(alike, near);
  }
}

// Replaces the values of an argument by their local counterparts, converted to what the node needs
// of them. A value that the rule does not read (the template of zeros_like, of type_as) is taken as
// it is.
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
    ensure(values_.is_made(arg.value), "a value is used before it is made");
    if (use == nullptr) {
      out.value = values_.local(arg.value);
      return out;
    }
    if (old_.node(arg.value).type.kind == Type::Kind::kTuple)
      return tuple_elements(node, arg.value);
    const Placement want = placements_.needed(node.id, *use);
    const auto tail = tails_.find({arg.value, want.where.dim, want.where.position});
    out.value = want.is_sharded() && tail != tails_.end() ? tail->second
                                                          : values_.as(arg.value, want, node);
    return out;
  }
  for (Arg& item : out.items) item = localized(node, item, seen);
  return out;
}

// A tuple that an operator reads as a whole, with each element as the operator needs it.
Arg Elaborator::tuple_elements(const Node& node, NodeId value) {
  std::vector<Arg> items;
  const std::vector<Type>& types = builder_.graph().node(values_.local(value)).type.elements;
  for (int element = 0; element < static_cast<int>(types.size()); ++element) {
    NodeId item = builder_.call("_operator.getitem",
                                {Arg::of(values_.local(value)), Arg::integer_of(element)},
                                types[element], &node);
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (operand.value != value || operand.element != element) continue;
      const Placement have = placements_.produced(value, element);
      const Placement want = placements_.needed(node.id, operand);
      if (!(have == want)) item = values_.convert(item, value, element, have, want, node);
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
  Placement have = values_.placement(output.value);
  out.value = values_.local(output.value);
  if (have.is_sharded()) {
    const std::vector<FactorList> leaves = axes_.value_leaves(output.value, 0);
    const auto contiguous = [&](const Occurrence& where) {
      const FactorId leaf = leaves[where.dim][where.position];
      return where.position == 0 && layout().is_exact(leaf) && axes_.is_token(leaf);
    };
    // What an attention gives by heads is handed back by tokens.
    const std::vector<Occurrence> tokens = axes_.token_occurrences(output.value, 0);
    const auto place = std::find_if(tokens.begin(), tokens.end(), contiguous);
    if (options_.outputs != "full" && !contiguous(have.where) && place != tokens.end()) {
      have = Placement::sharded(*place);
      out.value = values_.as(output.value, have, node);
    }
    if (options_.outputs == "local" || (options_.outputs == "auto" && contiguous(have.where))) {
      info = {true, have.where.dim, node.type.shape[have.where.dim]};
    } else {
      if (options_.outputs == "auto" && old_.bytes(node.type) > kGatheredOutputBytes) {
        throw Unsupported(where(node) + ": the output %" + node.name +
                          " has its tokens merged with another axis in dimension " +
                          std::to_string(have.where.dim) + " and " +
                          std::to_string(old_.bytes(node.type)) +
                          " bytes, too many to gather on every rank. Return it before the merge, "
                          "or pass outputs=\"local\" "
                          "or outputs=\"full\".");
      }
      out.value = values_.as(output.value, Placement::replicated(), node);
    }
  } else if (node.type.is_tensor()) {
    out.value = values_.as(output.value, Placement::replicated(), node);
  }
  return out;
}

Elaborated elaborate(const Placements& placements, const std::vector<AttentionRegion>& regions,
                     const ElaborateOptions& options) {
  return Elaborator(placements, regions, options).run();
}

}  // namespace autosp
