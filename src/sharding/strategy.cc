#include "sharding/strategy.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "ops/op.h"

namespace autosp {
namespace {

struct Bytes {
  int64_t heads = 0;
  int64_t gather = 0;
};

// One region's values from outside, and what moving them costs.
class Weigher {
 public:
  Weigher(const Axes& axes, int ranks, const AttentionRegion& region)
      : axes_(axes), graph_(axes.graph()), ranks_(ranks), region_(region) {
    members_.insert(region.core.begin(), region.core.end());
    members_.insert(region.spread.begin(), region.spread.end());
    for (NodeId node : members_) {
      for (const Operand& operand : axes.application(node).operands) {
        if (members_.contains(operand.value)) continue;
        const size_t tokens = axes.token_occurrences(operand.value, operand.element).size();
        const LetterLeaf head = region.head < 0 ? LetterLeaf{} : head_letter(axes, region, node);
        const bool has_heads = region.head >= 0 && axes.find(node, operand.letters, head);
        if (tokens > 1) masks.insert(operand.value);
        if (tokens > 1 && !has_heads) whole_masks.insert(operand.value);
        if (tokens == 1 && axes.facts(operand.value).activation())
          sides_[operand.value] = has_heads;
      }
    }
  }

  std::set<NodeId> masks;        // values with rows and columns of tokens
  std::set<NodeId> whole_masks;  // those that are the same for all heads

  bool is_causal() const {
    const OpDef* op = axes_.op(region_.core.back());
    return op != nullptr && !op->registered && region_.core.size() == 1 &&
           Call(graph_, graph_.node(region_.core.back()), *op).boolean_or("is_causal", false);
  }

  Bytes moved_and_held() const {
    Bytes out;
    out.heads += moved(region_.core.back()) / ranks_;
    for (const auto& [value, has_heads] : sides_)
      out.heads += has_heads ? moved(value) / ranks_ : moved(value) + to_others(value);
    for (NodeId value : key_sides()) out.gather += moved(value) + to_others(value);
    return out;
  }

  int64_t to_others(NodeId value) const {
    const int64_t bytes = graph_.bytes(graph_.node(value).type);
    return bytes - bytes / ranks_;
  }

 private:
  // Sent for a value in forward and backward, if all of it is.
  int64_t moved(NodeId value) const {
    return to_others(value) * (axes_.facts(value).differentiable ? 2 : 1);
  }

  // The outside values that keys and values come from.
  std::set<NodeId> key_sides() const {
    std::set<NodeId> out;
    const auto follow = [&](NodeId value) {
      while (members_.contains(value)) value = axes_.application(value).operands.at(0).value;
      if (sides_.contains(value)) out.insert(before_copying(value));
    };
    const NodeId first = region_.scores;
    const NodeId last = region_.core.back();
    const std::set<NodeId> core(region_.core.begin(), region_.core.end());
    for (const Operand& operand : axes_.application(first).operands) {
      const bool has_queries =
          std::any_of(operand.letters.begin(), operand.letters.end(), [&](const DimLetters& dim) {
            return std::find(dim.begin(), dim.end(), region_.query) != dim.end();
          });
      if (!has_queries) follow(operand.value);
    }
    for (const Operand& operand : axes_.application(last).operands) {
      if (first != last && !core.contains(operand.value)) follow(operand.value);
    }
    return out;
  }

  NodeId before_copying(NodeId value) const {
    NodeId node = value;
    const auto has_op = [&](auto is) { return axes_.op(node) != nullptr && is(*axes_.op(node)); };
    while (has_op([](const OpDef& op) { return op.aliases; }) &&
           axes_.application(node).operands.size() == 1)
      node = axes_.application(node).operands[0].value;
    const bool copied = has_op([](const OpDef& op) { return op.name == "repeat_heads"; });
    return copied ? axes_.application(node).operands[0].value : value;
  }

  const Axes& axes_;
  const Graph& graph_;
  int ranks_;
  const AttentionRegion& region_;
  std::set<NodeId> members_;
  std::map<NodeId, bool> sides_;  // queries, keys, values; whether they have heads to be cut along
};

// Regions that share a mask, directly or through others, as lists of their indices.
std::vector<std::vector<size_t>> groups_of(const std::vector<std::set<NodeId>>& masks) {
  std::vector<size_t> leader(masks.size());
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](size_t region) {
    while (leader[region] != region) region = leader[region] = leader[leader[region]];
    return region;
  };
  std::map<NodeId, size_t> reader;
  for (size_t region = 0; region < masks.size(); ++region) {
    for (NodeId mask : masks[region]) {
      const auto [first, added] = reader.emplace(mask, region);
      if (!added) leader[find(region)] = find(first->second);
    }
  }
  std::map<size_t, std::vector<size_t>> groups;
  for (size_t region = 0; region < masks.size(); ++region) groups[find(region)].push_back(region);
  std::vector<std::vector<size_t>> out;
  for (auto& [first, group] : groups) out.push_back(std::move(group));
  return out;
}

}  // namespace

bool needs_heads(const Axes& axes, const AttentionRegion& region) {
  const NodeId node = region.core.back();
  const OpDef* op = axes.op(node);
  return op != nullptr && (op->registered || op->scores) && region.query >= 0 &&
         axes.application(node).letters[region.query].kind == LetterKind::kAttend;
}

std::set<size_t> weigh_strategies(const Axes& axes, int ranks,
                                  const std::vector<AttentionRegion>& regions) {
  std::vector<std::set<NodeId>> masks;
  std::set<NodeId> whole_masks;
  std::vector<Bytes> bytes;
  std::vector<bool> fixed;
  for (const AttentionRegion& region : regions) {
    const Weigher weigher(axes, ranks, region);
    masks.push_back(weigher.masks);
    whole_masks.insert(weigher.whole_masks.begin(), weigher.whole_masks.end());
    bytes.push_back(weigher.moved_and_held());
    fixed.push_back(region.head < 0 || region.query < 0 || needs_heads(axes, region) ||
                    weigher.is_causal());
  }
  const Graph& graph = axes.graph();
  std::set<size_t> gathering;
  for (const std::vector<size_t>& group : groups_of(masks)) {
    if (std::any_of(group.begin(), group.end(), [&](size_t region) { return fixed[region]; }))
      continue;
    Bytes sum;
    std::set<NodeId> held;
    for (size_t region : group) {
      sum.heads += bytes[region].heads;
      sum.gather += bytes[region].gather;
      held.insert(masks[region].begin(), masks[region].end());
    }
    for (NodeId mask : held) {
      if (graph.node(mask).kind == NodeKind::kInput) continue;  // every rank has it
      const int64_t whole = graph.bytes(graph.node(mask).type);
      sum.gather += whole / ranks;
      if (!whole_masks.contains(mask)) {
        sum.heads += whole / ranks;
        continue;
      }
      sum.heads += whole;
      // One that depends on activations is made in parts and gathered.
      if (axes.facts(mask).activation()) sum.heads += whole - whole / ranks;
    }
    if (sum.gather < sum.heads) gathering.insert(group.begin(), group.end());
  }
  return gathering;
}

}  // namespace autosp
