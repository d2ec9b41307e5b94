#include "passes/spread_heads.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "ir/builder.h"
#include "ops/op.h"

namespace autosp {
namespace {

// Keys or values before their heads were repeated.
struct Heads {
  NodeId value = kNoNode;
  size_t dim = 0;  // that of the heads
  int64_t count = 0;
  int64_t times = 1;          // each is repeated
  std::vector<size_t> order;  // the dimensions in the order in which the repeated ones have them

  bool in_order() const { return std::is_sorted(order.begin(), order.end()); }
};

class Spreader {
 public:
  Spreader(const Graph& graph, const Axes& axes, int64_t ranks)
      : graph_(graph), axes_(axes), ranks_(ranks), builder_(graph) {}

  // Decides on one region; true when it will read copies.
  bool plan(const AttentionRegion& region) {
    const NodeId last = region.core.back();
    const OpDef* op = axes_.op(last);
    if (region.core.size() > 1) return plan_repeated(operands_of(region), region.head);
    if (op == nullptr || (op->name != "sdpa" && !op->scores)) return false;
    const Call call(graph_, graph_.node(last), *op);
    const Sides sides{call.value("key"), call.value("value")};
    const bool groups = op->scores || call.boolean_or("enable_gqa", false);
    // A kernel that takes a mask need not be one that groups heads.
    if (!groups && call.has("attn_mask")) return plan_repeated(sides, region.head);
    const Type& query = graph_.node(call.value("query")).type;
    const int64_t queries =
        query.shape.size() < 4 ? 0 : query.shape[query.shape.size() - 3].as_constant().value_or(0);
    const std::optional<Heads> key = before_repeating(sides.key, /*in_order=*/true);
    const std::optional<Heads> value = before_repeating(sides.value, /*in_order=*/true);
    if (queries == 0 || !key || !value || key->count != value->count) return false;
    const std::optional<int64_t> count = copies_needed(*key, queries, region.head);
    if (count) grouped_.emplace(last, Grouped{*key, *value, *count, queries});
    return count.has_value();
  }

  void emit(const Node& node) {
    if (const auto grouped = grouped_.find(node.id); grouped != grouped_.end()) {
      emit_grouped(node, grouped->second);
    } else if (const auto repeated = repeated_.find(node.id); repeated != repeated_.end()) {
      const auto& [heads, count] = repeated->second;
      builder_.map(node.id, repeat(heads, count, node));
    } else {
      builder_.copy(node);
    }
  }

  Graph finish() { return builder_.finish(graph_.outputs); }

 private:
  struct Sides {
    NodeId key = kNoNode;
    NodeId value = kNoNode;
  };
  struct Grouped {
    Heads key;
    Heads value;
    int64_t count;
    int64_t queries;
  };

  // What the two products of an attention read from outside beside the queries.
  Sides operands_of(const AttentionRegion& region) const {
    Sides sides;
    for (const Operand& operand : axes_.application(region.scores).operands) {
      const bool has_queries =
          std::any_of(operand.letters.begin(), operand.letters.end(), [&](const DimLetters& dim) {
            return std::find(dim.begin(), dim.end(), region.query) != dim.end();
          });
      if (!has_queries) sides.key = operand.value;
    }
    for (const Operand& operand : axes_.application(region.core.back()).operands) {
      if (!std::binary_search(region.core.begin(), region.core.end(), operand.value))
        sides.value = operand.value;
    }
    return sides;
  }

  bool plan_repeated(const Sides& sides, FactorId head) {
    if (sides.key == kNoNode || sides.value == kNoNode) return false;
    const std::optional<Heads> key = before_repeating(sides.key, /*in_order=*/false);
    const std::optional<Heads> value = before_repeating(sides.value, /*in_order=*/false);
    if (!key || !value || key->count != value->count || key->times != value->times) return false;
    const std::optional<int64_t> count = copies_needed(*key, key->count * key->times, head);
    if (!count) return false;
    repeated_.emplace(sides.key, std::pair(*key, *count));
    repeated_.emplace(sides.value, std::pair(*value, *count));
    return true;
  }

  // How many heads the ranks need. `head`: the leaf that the attention is cut along so far, or -1.
  std::optional<int64_t> copies_needed(const Heads& key, int64_t queries, FactorId head) const {
    if (key.count < 1 || (head >= 0 && (key.count == 1 || has_leaf(key.value, head))))
      return std::nullopt;
    const int64_t count = std::lcm(key.count, ranks_);
    if (count == key.count || queries % count != 0) return std::nullopt;
    return count;
  }

  bool has_leaf(NodeId value, FactorId leaf) const {
    const std::vector<FactorList> dims = axes_.value_leaves(value, 0);
    return std::any_of(dims.begin(), dims.end(), [leaf](const FactorList& dim) {
      return std::find(dim.begin(), dim.end(), leaf) != dim.end();
    });
  }

  // Goes up through what only moves elements, to the fewest heads of which those of the operand are
  // copies, each beside the next. In order: as a kernel would group them, heads third from behind;
  // those of the operand itself where none are repeated.
  std::optional<Heads> before_repeating(NodeId operand, bool in_order) const {
    std::optional<Heads> best;
    const size_t rank = graph_.node(operand).type.shape.size();
    if (in_order) {
      if (rank < 4) return std::nullopt;
      const std::optional<int64_t> count = graph_.node(operand).type.shape[rank - 3].as_constant();
      if (!count) return std::nullopt;
      best = Heads{operand, rank - 3, *count, 1, {}};
    }
    for (NodeId node = operand; moves_elements(node);) {
      node = axes_.application(node).operands[0].value;
      const std::optional<Heads> found = repeated_from(node, operand);
      if (!found) continue;
      if (in_order && (!found->in_order() || found->order.size() != rank || found->dim != rank - 3))
        continue;
      const auto less = [](const Heads& left, const Heads& right) {
        return std::pair(left.count, left.order.size()) <
               std::pair(right.count, right.order.size());
      };
      if (!best || (in_order ? found->count < best->count : less(*found, *best))) best = found;
    }
    return best;
  }

  bool moves_elements(NodeId node) const {
    const OpDef* op = axes_.op(node);
    if (graph_.node(node).kind != NodeKind::kCall || op == nullptr || !(op->aliases || op->copies))
      return false;
    const std::vector<Operand>& operands = axes_.application(node).operands;
    if (operands.size() != 1 || operands[0].element != 0) return false;
    const NodeId from = operands[0].value;
    return graph_.node(from).type.is_tensor() &&
           graph_.node(from).type.dtype == graph_.node(node).type.dtype &&
           axes_.facts(from).differentiable == axes_.facts(node).differentiable;
  }

  // How `to`, which has the elements of `from` and no others, repeats its heads.
  std::optional<Heads> repeated_from(NodeId from, NodeId to) const {
    const std::vector<FactorList> whole = axes_.value_leaves(from, 0);
    const std::vector<FactorList> repeated = axes_.value_leaves(to, 0);
    std::set<FactorId> seen;
    for (const FactorList& dim : repeated) {
      for (FactorId leaf : dim) {
        if (!seen.insert(leaf).second) return std::nullopt;
      }
    }
    Heads heads;
    heads.value = from;
    std::vector<bool> used(whole.size(), false);
    // The dimension of `from` whose leaves stand in `dim` at `at`; with at the end, one without.
    const auto next = [&](const FactorList& dim, size_t at) {
      for (size_t i = 0; i < whole.size(); ++i) {
        const bool fits = at == dim.size()
                              ? whole[i].empty()
                              : !whole[i].empty() && whole[i].size() <= dim.size() - at &&
                                    std::equal(whole[i].begin(), whole[i].end(),
                                               dim.begin() + static_cast<std::ptrdiff_t>(at));
        if (!used[i] && fits) return i;
      }
      return whole.size();
    };
    const auto take = [&](size_t dim) {
      used[dim] = true;
      heads.order.push_back(dim);
    };
    for (const FactorList& dim : repeated) {
      if (dim.empty()) {
        if (const size_t found = next(dim, 0); found != whole.size()) take(found);
        continue;
      }
      for (size_t at = 0; at < dim.size();) {
        const size_t found = next(dim, at);
        if (found != whole.size()) {
          take(found);
          at += whole[found].size();
          continue;
        }
        const std::optional<int64_t> times = axes_.factors().size(dim[at]).as_constant();
        if (at == 0 || !times || (heads.times > 1 && heads.order.back() != heads.dim))
          return std::nullopt;
        heads.dim = heads.order.back();
        heads.times *= *times;
        ++at;
      }
    }
    for (size_t dim = 0; dim < whole.size(); ++dim) {
      if (used[dim]) continue;
      if (!whole[dim].empty()) return std::nullopt;
      take(dim);
    }
    const std::optional<int64_t> count = graph_.node(from).type.shape[heads.dim].as_constant();
    if (heads.times == 1 || !count) return std::nullopt;
    heads.count = *count;
    return heads;
  }

  void emit_grouped(const Node& node, const Grouped& grouped) {
    const Call call(graph_, node, *axes_.op(node.id));
    std::vector<Arg> args = {builder_.mapped(*call.find("query")),
                             Arg::of(copies(grouped.key, grouped.count, node)),
                             Arg::of(copies(grouped.value, grouped.count, node))};
    Kwargs kwargs;
    if (call.op().scores) {  // groups heads by their numbers
      for (size_t i = args.size(); i < node.args.size(); ++i)
        args.push_back(builder_.mapped(node.args[i]));
    } else {
      for (const std::string_view name : {"attn_mask", "is_causal", "scale"}) {
        if (call.has(name))
          kwargs.emplace_back(std::string(name), builder_.mapped(*call.find(name)));
      }
      if (grouped.count != grouped.queries) kwargs.emplace_back("enable_gqa", Arg::bool_of(true));
    }
    builder_.map(node.id,
                 builder_.call(node.target, std::move(args), std::move(kwargs), node.type, &node));
  }

  // As many heads as the program had them repeated to, laid out as it had them.
  NodeId repeat(const Heads& heads, int64_t count, const Node& near) {
    NodeId value = copies(heads, count, near);
    Type type = builder_.graph().node(value).type;
    const int64_t times = heads.count * heads.times / count;
    if (times > 1) {
      type.shape[heads.dim] = Expr(count * times);
      value =
          builder_.call("torch.repeat_interleave", {Arg::of(value), Arg::integer_of(times)},
                        {{"dim", Arg::integer_of(static_cast<int64_t>(heads.dim))}}, type, &near);
    }
    if (!heads.in_order()) {
      std::vector<Arg> dims;
      std::vector<Expr> shape;
      for (size_t dim : heads.order) {
        dims.push_back(Arg::integer_of(static_cast<int64_t>(dim)));
        shape.push_back(type.shape[dim]);
      }
      type.shape = std::move(shape);
      value = builder_.call("torch.permute", {Arg::of(value), Arg::tuple_of(std::move(dims))}, type,
                            &near);
    }
    if (type.shape != near.type.shape)
      value = builder_.call("torch.reshape", {Arg::of(value), Arg::sizes_of(near.type.shape)},
                            near.type, &near);
    return value;
  }

  NodeId copies(const Heads& heads, int64_t count, const Node& near) {
    const NodeId value = builder_.mapped(heads.value);
    if (heads.count == count) return value;
    const auto [found, added] = copies_.emplace(std::pair(heads.value, count), kNoNode);
    if (!added) return found->second;
    Type type = graph_.node(heads.value).type;
    type.shape[heads.dim] = Expr(count);
    return found->second = builder_.call("autosp.repeat_heads",
                                         {Arg::of(value), Arg::integer_of(count / heads.count),
                                          Arg::integer_of(static_cast<int64_t>(heads.dim))},
                                         std::move(type), &near);
  }

  const Graph& graph_;
  const Axes& axes_;
  int64_t ranks_;
  GraphBuilder builder_;
  std::map<NodeId, Grouped> grouped_;                     // attentions
  std::map<NodeId, std::pair<Heads, int64_t>> repeated_;  // keys and values, to so many copies
  std::map<std::pair<NodeId, int64_t>, NodeId> copies_;   // (value, heads)
};

}  // namespace

std::set<size_t> spread_heads(Graph& graph, const Axes& axes, int ranks,
                              const std::vector<AttentionRegion>& regions,
                              const std::set<size_t>& keep) {
  Spreader spreader(graph, axes, ranks);
  std::set<size_t> spread;
  for (size_t region = 0; region < regions.size(); ++region) {
    if (!keep.contains(region) && spreader.plan(regions[region])) spread.insert(region);
  }
  if (spread.empty()) return spread;
  for (const Node& node : graph.nodes) spreader.emit(node);
  graph = spreader.finish();
  return spread;
}

}  // namespace autosp
