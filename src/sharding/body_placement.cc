// Placements of a body that runs on parts alone: what its inputs are decides what its values are.
#include <algorithm>

#include "sharding/placement.h"
#include "support/error.h"

namespace autosp {
namespace {

using Kind = Placement::Kind;

bool is_whole(const Placement& placement) {
  return placement.kind == Kind::kReplicated || placement.kind == Kind::kVarying;
}

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) + " " + why);
}

}  // namespace

Placements::Placements(const Axes& axes, int ranks, const std::vector<Placement>& inputs)
    : axes_(axes), ranks_(ranks) {
  const Graph& graph = axes.graph();
  nodes_.resize(graph.nodes.size());
  given_.resize(graph.nodes.size());
  size_t next = 0;
  for (const Node& node : graph.nodes) {
    if (node.kind == NodeKind::kInput) {
      given_[node.id] = inputs.at(next++);
    } else {
      follow(node.id);
    }
  }
  // Values made from sizes have become parts after some had read them.
  for (const Node& node : graph.nodes) {
    if (nodes_[node.id].partial) continue;
    for (const Operand& operand : axes.application(node.id).operands) {
      const Placement have = produced(operand.value, operand.element);
      const auto& leaf = nodes_[node.id].sharded;
      const auto want = leaf ? axes.find_cut(node.id, operand.letters, *leaf) : std::nullopt;
      if (want ? have == Placement::sharded(*want) : is_whole(have)) continue;
      refuse(node, "needs " + std::string(want ? "a part" : "all") + " of %" +
                       graph.node(operand.value).name + ", of which a rank has " +
                       (want ? "all" : "a part"));
    }
  }
}

void Placements::follow(NodeId id) {
  const Node& node = axes_.graph().node(id);
  const Application& rule = axes_.application(id);
  std::optional<LetterLeaf> leaf;
  std::vector<bool> partial;
  for (const Operand& operand : rule.operands) {
    const Placement have = produced(operand.value, operand.element);
    partial.push_back(have.kind == Kind::kPartial);
    if (have.is_sharded() && !leaf) leaf = axes_.letter_at(id, operand.letters, have.where);
  }
  const bool sums = std::find(partial.begin(), partial.end(), true) != partial.end();
  const OpDef* op = axes_.op(id);
  if (sums) {
    const bool alone = !leaf && op != nullptr && is_linear(Call(axes_.graph(), node, *op), partial);
    if (!alone) refuse(node, "reads a sum over tokens, of which a rank has a summand");
    nodes_[id].partial = true;
    return;
  }
  if (!leaf) {
    nodes_[id].varying = true;
    return;
  }
  const LetterKind kind = rule.letters[leaf->letter].kind;
  const bool local = kind == LetterKind::kPass || kind == LetterKind::kSum ||
                     kind == LetterKind::kIndex || kind == LetterKind::kQuery;
  if (!local || !can_shard(id, *leaf))
    refuse(node,
           "needs more than a part of the sequence (" + std::string(letter_kind_name(kind)) + ")");
  nodes_[id].sharded = leaf;
  for (const Operand& operand : rule.operands) {
    if (const auto want = axes_.find_cut(id, operand.letters, *leaf))
      cut_made_of_sizes(operand.value, *want);
  }
}

// Whether every rank can make its part of a value without having been given anything.
bool Placements::is_made_of_sizes(NodeId value) const {
  const Node& node = axes_.graph().node(value);
  const std::vector<Operand>& operands = axes_.application(value).operands;
  return node.kind == NodeKind::kCall && axes_.has_rule(value) && node.type.is_tensor() &&
         std::all_of(operands.begin(), operands.end(),
                     [this](const Operand& operand) { return is_made_of_sizes(operand.value); });
}

void Placements::cut_made_of_sizes(NodeId value, const Occurrence& where) {
  if (!is_made_of_sizes(value) || nodes_[value].sharded) return;
  const Application& rule = axes_.application(value);
  const auto leaf = axes_.letter_at(value, rule.results.at(0), where);
  if (!leaf || !can_shard(value, *leaf)) return;
  nodes_[value].varying = false;
  nodes_[value].sharded = leaf;
  for (const Operand& operand : rule.operands) {
    if (const auto part = axes_.find_cut(value, operand.letters, *leaf))
      cut_made_of_sizes(operand.value, *part);
  }
}

}  // namespace autosp
