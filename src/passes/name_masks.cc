#include "passes/name_masks.h"

#include <algorithm>
#include <set>

#include "ops/op.h"
#include "sharding/mask_names.h"

namespace autosp {
namespace {

bool stands_in(const TensorLetters& letters, size_t dim, LetterId letter) {
  return std::find(letters[dim].begin(), letters[dim].end(), letter) != letters[dim].end();
}

class Masks {
 public:
  Masks(const Axes& axes, const std::vector<AttentionRegion>& regions)
      : axes_(axes), graph_(axes.graph()) {
    for (const AttentionRegion& region : regions) {
      const NodeId last = region.core.back();
      const OpDef* op = axes.op(last);
      if (op != nullptr && op->name == "sdpa") {
        add_fused(region, Call(graph_, graph_.node(last), *op));
      } else if (region.scores != last) {
        add_opened(region);
      }
    }
  }

  std::vector<MaskUse> run() {
    std::vector<NodeId> values;
    for (const Found& found : found_) {
      if (found.value != kNoNode) values.push_back(found.value);
    }
    MaskElements elements(graph_, values, MaskElements::Floats::kReal, [this](NodeId value) {
      return axes_.facts(value).activation() && !cores_.contains(value) &&
             axes_.token_occurrences(value, 0).size() < 2;
    });
    std::vector<MaskUse> out;
    for (Found& found : found_) {
      if (found.value != kNoNode)
        found.use.name = mask_name(graph_, elements, found.value, found.place);
      if (!found.use.name.empty()) out.push_back(std::move(found.use));
    }
    return out;
  }

 private:
  struct Found {
    MaskUse use;
    NodeId value = kNoNode;  // none: it has a name already
    MaskPlace place = {};
  };

  // Heads stand behind sequences, in a dimension of their own or merged with them.
  MaskUse use_of(const AttentionRegion& region) const {
    MaskUse use{"", region.head >= 0};
    const std::vector<FactorList> leaves = axes_.value_leaves(region.core.back(), 0);
    if (!use.exchanged || leaves.empty() || leaves[0].empty()) return use;
    use.sequences = (leaves.size() > 3 || leaves[0].size() > 1) && leaves[0][0] == region.head;
    return use;
  }

  void add_fused(const AttentionRegion& region, const Call& call) {
    const NodeId mask = call.value("attn_mask");
    if (call.boolean_or("is_causal", false)) {
      found_.push_back({use_of(region), kNoNode});
      found_.back().use.name = "causal";
      found_.back().use.flag = true;
    }
    if (mask == kNoNode) return;
    const size_t rank = graph_.node(mask).type.shape.size();
    // Without rows of its own a mask has no index of queries.
    Found found{use_of(region), mask, {rank < 2 ? rank : rank - 2, rank - 1}};
    note_reads(call.node(), [mask](NodeId value) { return value == mask; }, found.use);
    found_.push_back(std::move(found));
  }

  // Columns that are put beside the scores in front of the softmax change nothing of them.
  void add_opened(const AttentionRegion& region) {
    cores_.insert(region.core.begin(), region.core.end());
    NodeId softmax = kNoNode;
    NodeId value = kNoNode;
    for (NodeId node : region.core) {
      const OpDef* op = axes_.op(node);
      if (op == nullptr || softmax != kNoNode) continue;
      if (value == kNoNode && (op->softmax || op->name == "cat"))
        value = axes_.application(node).operands[0].value;
      if (op->softmax) softmax = node;
    }
    if (softmax == kNoNode) return;
    const auto place = place_of(region, softmax, value);
    if (!place) return;
    Found found{use_of(region), value, *place};
    const std::set<NodeId> core(region.core.begin(), region.core.end());
    for (NodeId node : region.core) {
      if (node > value) break;
      note_reads(
          graph_.node(node),
          [&](NodeId operand) {
            if (core.contains(operand) || !graph_.node(operand).type.is_tensor()) return false;
            const size_t tokens = axes_.token_occurrences(operand, 0).size();
            return tokens > 1 || (tokens == 1 && !axes_.facts(operand).activation());
          },
          found.use);
    }
    found_.push_back(std::move(found));
  }

  // The scores' dimensions of queries and keys.
  std::optional<MaskPlace> place_of(const AttentionRegion& region, NodeId softmax,
                                    NodeId value) const {
    const Application& rule = axes_.application(softmax);
    const TensorLetters& letters = rule.operands[0].letters;
    const std::vector<FactorList> leaves = axes_.value_leaves(value, 0);
    const FactorList queries = axes_.letter_leaves(region.scores, region.query);
    std::optional<size_t> key;
    std::optional<size_t> query;
    if (letters.size() != leaves.size()) return std::nullopt;
    for (size_t dim = 0; dim < letters.size(); ++dim) {
      for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
        if (rule.letters[letter].kind == LetterKind::kScan && stands_in(letters, dim, letter))
          key = dim;
      }
    }
    for (size_t dim = 0; dim < leaves.size(); ++dim) {
      if (dim == key || leaves[dim] != queries) continue;
      if (query) return std::nullopt;
      query = dim;
    }
    if (!key || !query) return std::nullopt;
    return MaskPlace{*query, *key, region.scores};
  }

  template <class Wanted>
  void note_reads(const Node& node, const Wanted& wanted, MaskUse& use) const {
    size_t operand = 0;
    for_each_operand(node, [&](NodeId value) {
      if (wanted(value)) use.reads.push_back({node.id, operand, value});
      ++operand;
    });
  }

  const Axes& axes_;
  const Graph& graph_;
  std::set<NodeId> cores_;  // the nodes of attentions that are written out
  std::vector<Found> found_;
};

// What a rank's counterpart of a reader reads: the value in the placement that it needs it in.
NodeId read_by(const MaskUse::Read& read, const Graph& global, const Graph& local,
               const std::vector<NodeId>& locals) {
  const NodeId value = locals[read.value];
  // What was done to the reader's result stands behind it.
  for (NodeId node = locals[read.node]; node > value;) {
    std::vector<NodeId> operands;
    for_each_operand(local.node(node), [&](NodeId operand) { operands.push_back(operand); });
    if (local.node(node).target == global.node(read.node).target)
      return read.operand < operands.size() ? operands[read.operand] : value;
    if (operands.empty()) break;
    node = operands[0];
  }
  return value;
}

MaskCut cut_of(const MaskUse& mask, const Graph& global, const Graph& local,
               const std::vector<NodeId>& values) {
  if (mask.flag) return MaskCut::kNone;
  if (!mask.exchanged) return MaskCut::kQueries;
  for (size_t i = 0; i < values.size(); ++i) {
    const std::vector<Expr>& whole = global.node(mask.reads[i].value).type.shape;
    const std::vector<Expr>& part = local.node(values[i]).type.shape;
    for (size_t dim = 0; dim < std::min(whole.size(), part.size()); ++dim) {
      if (whole[dim] != part[dim]) return mask.sequences ? MaskCut::kSequences : MaskCut::kHeads;
    }
  }
  return MaskCut::kWhole;
}

}  // namespace

std::vector<MaskUse> name_masks(const Axes& axes, const std::vector<AttentionRegion>& regions) {
  return Masks(axes, regions).run();
}

std::vector<HeldMask> held_masks(const std::vector<MaskUse>& masks, const Graph& global,
                                 const Graph& local, const std::vector<NodeId>& locals) {
  std::vector<HeldMask> out;
  for (const MaskUse& mask : masks) {
    HeldMask held{mask.name};
    for (const MaskUse::Read& read : mask.reads)
      held.values.push_back(read_by(read, global, local, locals));
    held.cut = cut_of(mask, global, local, held.values);
    out.push_back(std::move(held));
  }
  return out;
}

}  // namespace autosp
