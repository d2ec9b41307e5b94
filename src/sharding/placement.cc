#include "sharding/placement.h"

#include <algorithm>

#include "flow/max_flow.h"
#include "sharding/obstacles.h"
#include "support/error.h"

namespace autosp {
namespace {

// Memory decides how long a sequence fits, so a byte of activation held on every rank weighs more
// than a byte moved once.
constexpr int64_t kActivationWeight = 8;
// Whatever the size: a program is planned once and then runs at other lengths, and exchanges are
// worth avoiding by less than this.
constexpr int64_t kWholeActivationBytes = 64 * kLatencyBytes;
constexpr int64_t kExchangeWeight = 2;
// A table over queries and keys that is made of their numbers is made again sooner than sent: its
// operators run in one pass over it.
constexpr int64_t kTableExchangeWeight = 16;

// Whether the result has lost the letter when the operator has run along it.
bool vanishes(LetterKind kind) {
  return kind == LetterKind::kSum || kind == LetterKind::kMax || kind == LetterKind::kPick;
}

// Whether a result is what a scan along the leaf ends with: ranks that pass it on all have the
// last.
bool is_passed_on(const Axes& axes, NodeId node, int element, LetterLeaf leaf) {
  const Application& rule = axes.application(node);
  return rule.letters[leaf.letter].kind == LetterKind::kScan &&
         std::any_of(rule.states.begin(), rule.states.end(),
                     [element](const State& state) { return state.to == element; });
}

}  // namespace

bool needs_other_rows(LetterKind kind) {
  return kind == LetterKind::kWindow || kind == LetterKind::kScan || kind == LetterKind::kMax ||
         kind == LetterKind::kPick;
}

std::optional<Occurrence> result_occurrence(const Axes& axes, NodeId node, int element,
                                            LetterLeaf leaf) {
  const Application& rule = axes.application(node);
  if (element >= static_cast<int>(rule.results.size())) return std::nullopt;
  if (auto found = axes.find_cut(node, rule.results[element], leaf)) return found;
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    if (rule.letters[letter].link == leaf.letter &&
        rule.letters[letter].kind == LetterKind::kPrefix)
      return axes.find(node, rule.results[element], {letter, 0});
  }
  return std::nullopt;
}

Placements::Placements(const Axes& axes, int ranks, const std::vector<AttentionRegion>& regions,
                       int64_t latency_bytes)
    : axes_(axes), ranks_(ranks), latency_bytes_(latency_bytes) {
  const auto count = static_cast<size_t>(axes.graph().size());
  nodes_.resize(count);
  candidates_.resize(count);
  for (size_t index = 0; index < regions.size(); ++index) {
    for (const std::vector<NodeId>* members : {&regions[index].core, &regions[index].spread}) {
      for (NodeId node : *members) {
        nodes_[node].region = static_cast<int>(index);
        nodes_[node].sharded = head_letter(axes, regions[index], node);
        if (can_shard(node, *nodes_[node].sharded)) continue;
        const Node& bad = axes.graph().node(node);
        throw Unsupported(
            bad.target + (bad.source.empty() ? "" : " at " + bad.source) +
            ": inside an attention that is computed per head, this operator regroups the heads so "
            "that "
            "those of one rank would not be contiguous; keep heads in a dimension of their own");
      }
    }
  }
  choose_candidates();
  refuse_unsplittable();
  cut();
  refuse_whole_bags();
  refuse_whole_extended();
  choose_varying();
}

bool Placements::can_shard(NodeId node, LetterLeaf leaf) const {
  const Application& rule = axes_.application(node);
  const LetterKind kind = rule.letters[leaf.letter].kind;
  if (needs_other_rows(kind) ? !offers_rows(node, leaf)
                             : kind != LetterKind::kPass && kind != LetterKind::kSum &&
                                   kind != LetterKind::kIndex && kind != LetterKind::kQuery)
    return false;
  // A letter that stands twice in one tensor has no single place to cut, and one whose dimension
  // the value itself splits differently has no place at all.
  const auto times = [&](const TensorLetters& letters) {
    int count = 0;
    for (const DimLetters& dim : letters)
      count += static_cast<int>(std::count(dim.begin(), dim.end(), leaf.letter));
    return count;
  };
  const FactorId factor = axes_.leaf_factor(node, leaf);
  // Rows that two ranks hold must not be counted twice.
  if (axes_.extension(factor) > 0 && kind != LetterKind::kPass && kind != LetterKind::kWindow)
    return false;
  // Nor may a function's own backward see a part of the gradient of such a row.
  if (axes_.extension(factor) > 0 && axes_.op(node)->function) return false;
  // What a user's operator makes of zeros is not known.
  if (kind == LetterKind::kSum && axes_.op(node)->registered &&
      axes_.graph().hint(axes_.factors().size(factor)) % ranks_ != 0)
    return false;
  const FactorId bag = axes_.is_bag(factor) ? factor : -1;
  const FactorId base = bag >= 0 ? axes_.bag_base(bag) : factor;
  // Rows in another order: only those of tokens, and of all tokens that a rank holds. Where some
  // lie past the end it must be known which.
  const bool exact = axes_.graph().hint(axes_.factors().size(base)) % ranks_ == 0;
  const auto known = [&](FactorId rows) {
    return exact || !axes_.is_bag(rows) || axes_.order_of(rows).has_value();
  };
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    if (rule.letters[letter].kind != LetterKind::kBag || rule.letters[letter].link != leaf.letter)
      continue;
    const FactorList rows = axes_.letter_leaves(node, letter);
    if (!axes_.is_token(factor) || axes_.shard_base(base) != base || !known(factor) ||
        !std::all_of(rows.begin(), rows.end(), known))
      return false;
  }
  if (kind == LetterKind::kIndex && bag >= 0 && !axes_.has_local_positions(node, 0)) return false;
  for (const Operand& operand : rule.operands) {
    if (operand.partial && (bag < 0 || !axes_.ends_of_groups(operand.value, bag, nullptr)))
      return false;
    const int count = times(operand.letters);
    if (count > 1) return false;
    if (count == 1 && !axes_.aligned(node, operand, axes_.find(node, operand.letters, leaf)->dim))
      return false;
  }
  for (const TensorLetters& result : rule.results) {
    if (times(result) > 1) return false;
  }
  if (vanishes(kind)) return true;
  // Positions of a part follow each other only where the leaf is the letter's outermost.
  if (kind == LetterKind::kIndex && leaf.position != 0) return false;
  // A prefix follows the shards of the axis that it is cut from, unless it is an axis with shards
  // of its own.
  for (LetterId prefix = 0; prefix < static_cast<LetterId>(rule.letters.size()); ++prefix) {
    if (rule.letters[prefix].link != leaf.letter ||
        rule.letters[prefix].kind != LetterKind::kPrefix)
      continue;
    if (leaf.position != 0 || !axes_.moves_with(axes_.letter_leaves(node, leaf.letter),
                                                axes_.letter_leaves(node, prefix)))
      return false;
  }
  // Every tensor result has the letter, so that each is cut.
  for (int element = 0; element < static_cast<int>(rule.results.size()); ++element) {
    const Type& type = axes_.graph().node(node).type;
    const bool is_tensor =
        type.is_tensor() || (type.kind == Type::Kind::kTuple && type.elements[element].is_tensor());
    if (is_tensor && !result_occurrence(axes_, node, element, leaf) &&
        !is_passed_on(axes_, node, element, leaf))
      return false;
  }
  return !rule.results.empty();
}

// Whether ranks can run the operator along the leaf by asking each other for rows. It is worth an
// exchange for activations alone: on ids, positions and masks the whole is cheap. And it takes a
// letter whose rows are those of one axis, in order.
bool Placements::offers_rows(NodeId node, LetterLeaf leaf) const {
  const OpDef* op = axes_.op(node);
  const FactorList leaves = axes_.letter_leaves(node, leaf.letter);
  if (op == nullptr || op->localize == nullptr || leaf.position != 0 ||
      !axes_.is_token(leaves[0]) || axes_.is_bag(leaves[0]))
    return false;
  const std::vector<Operand>& operands = axes_.application(node).operands;
  return std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
    return axes_.facts(operand.value).activation() &&
           axes_.find_cut(node, operand.letters, leaf).has_value();
  });
}

// Where a value has tokens twice, what its readers would take decides, so that the rows of a
// product that are summed later are not what is cut.
void Placements::choose_candidates() {
  const Graph& graph = axes_.graph();
  struct Wish {
    int element;
    Occurrence where;
  };
  std::vector<std::vector<Wish>> wishes(graph.nodes.size());
  const auto wish_for = [&](NodeId node, LetterLeaf leaf, bool tables_alone) {
    for (const Operand& operand : axes_.application(node).operands) {
      if (tables_alone && axes_.token_occurrences(operand.value, operand.element).size() < 2)
        continue;
      if (const auto where = axes_.find_cut(node, operand.letters, leaf))
        wishes[operand.value].push_back({operand.element, *where});
    }
  };
  for (NodeId node = graph.size() - 1; node >= 0; --node) {
    if (nodes_[node].region >= 0) {
      wish_for(node, *nodes_[node].sharded, /*tables_alone=*/true);
      continue;
    }
    std::vector<LetterLeaf> leaves = possible(node);
    for (const Wish& wish : wishes[node]) {
      const auto leaf = heads_of_table(node, wish.element, wish.where);
      if (leaf && std::find(leaves.begin(), leaves.end(), *leaf) == leaves.end())
        leaves.push_back(*leaf);
    }
    const auto granted = [&](const LetterLeaf& leaf) {
      return std::count_if(wishes[node].begin(), wishes[node].end(), [&](const Wish& wish) {
        return result_occurrence(axes_, node, wish.element, leaf) == wish.where;
      });
    };
    const auto best = std::max_element(leaves.begin(), leaves.end(),
                                       [&](const LetterLeaf& left, const LetterLeaf& right) {
                                         return granted(left) < granted(right);
                                       });
    if (best == leaves.end()) continue;
    candidates_[node] = *best;
    wish_for(node, *best, /*tables_alone=*/false);
  }
}

// Of a table over queries and keys, a mask or a bias, the leaf at a place that is none of tokens.
std::optional<LetterLeaf> Placements::heads_of_table(NodeId node, int element,
                                                     Occurrence where) const {
  if (axes_.graph().node(node).kind == NodeKind::kInput || !axes_.has_rule(node) ||
      axes_.token_occurrences(node, element).size() < 2)
    return std::nullopt;
  const auto leaf = axes_.letter_at(node, axes_.application(node).results.at(element), where);
  if (!leaf || axes_.is_token(axes_.leaf_factor(node, *leaf)) || !can_shard(node, *leaf))
    return std::nullopt;
  return leaf;
}

// The leaves that a node could run sharded along.
std::vector<LetterLeaf> Placements::possible(NodeId node) const {
  std::vector<LetterLeaf> leaves_possible;
  if (axes_.graph().node(node).kind == NodeKind::kInput || !axes_.has_rule(node))
    return leaves_possible;
  const Application& rule = axes_.application(node);
  // Letters that the result keeps come first, in the result's order; then those that are summed.
  std::vector<LetterId> order;
  const auto append = [&](LetterId letter) {
    if (std::find(order.begin(), order.end(), letter) == order.end()) order.push_back(letter);
  };
  for (const TensorLetters& result : rule.results) {
    for (const DimLetters& dim : result) {
      for (LetterId letter : dim) {
        const LetterId link = rule.letters[letter].link;
        append(link >= 0 ? link : letter);
      }
    }
  }
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    const LetterKind kind = rule.letters[letter].kind;
    if (vanishes(kind) || (kind == LetterKind::kScan && !rule.states.empty())) append(letter);
  }
  for (LetterId letter : order) {
    const FactorList leaves = axes_.letter_leaves(node, letter);
    for (int position = 0; position < static_cast<int>(leaves.size()); ++position) {
      if (axes_.is_token(leaves[position]) && can_shard(node, {letter, position}))
        leaves_possible.push_back({letter, position});
    }
  }
  return leaves_possible;
}

// Whether a value has an operand's elements and no others, in another order or some of them several
// times.
bool Placements::moves_elements(NodeId node) const {
  const OpDef* op = axes_.op(node);
  const std::vector<Operand>& operands = axes_.application(node).operands;
  return op != nullptr && (op->aliases || op->copies) && operands.size() == 1 &&
         axes_.graph().node(operands[0].value).type.dtype == axes_.graph().node(node).type.dtype;
}

void Placements::refuse_unsplittable() const {
  for (const Node& node : axes_.graph().nodes) {
    if (node.kind == NodeKind::kInput || candidates_[node.id] || nodes_[node.id].region >= 0)
      continue;
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (!axes_.facts(operand.value).activation()) continue;
      const std::vector<Occurrence> tokens =
          axes_.token_occurrences(operand.value, operand.element);
      if (tokens.empty()) continue;
      refuse_cut(axes_, ranks_, node, operand, tokens[0]);
    }
  }
}

Placement Placements::produced(NodeId node, int element) const {
  if (!given_.empty() && axes_.graph().node(node).kind == NodeKind::kInput) return given_[node];
  const NodePlacement& placed = nodes_[node];
  if (placed.partial) return Placement::partial();
  if (!placed.sharded) return placed.varying ? Placement::varying() : Placement::replicated();
  if (auto where = result_occurrence(axes_, node, element, *placed.sharded))
    return Placement::sharded(*where);
  if (is_passed_on(axes_, node, element, *placed.sharded)) return Placement::replicated();
  const LetterKind kind = axes_.application(node).letters[placed.sharded->letter].kind;
  ensure(vanishes(kind), "a sharded operator's result has lost its letter");
  return kind == LetterKind::kMax ? Placement::replicated() : Placement::partial();
}

Placement Placements::needed(NodeId node, const Operand& operand) const {
  if (!given_.empty()) return produced(operand.value, operand.element);
  const NodePlacement& placed = nodes_[node];
  if (placed.partial) return Placement::partial();
  if (!placed.sharded) return placed.varying ? Placement::varying() : Placement::replicated();
  if (operand.partial) return Placement::partial();
  if (auto where = axes_.find_cut(node, operand.letters, *placed.sharded))
    return Placement::sharded(*where);
  return Placement::varying();
}

void Placements::cut() {
  const Graph& graph = axes_.graph();
  FlowNetwork network;
  const int source = network.add_node();
  const int sink = network.add_node();
  std::vector<int> variable(graph.nodes.size(), sink);
  for (const Node& node : graph.nodes) {
    if (nodes_[node.id].region >= 0) {
      variable[node.id] = source;
    } else if (candidates_[node.id]) {
      variable[node.id] = network.add_node();
    }
  }
  const auto share = [this](int64_t bytes) { return bytes - bytes / ranks_; };
  for (const Node& node : graph.nodes) {
    const int producer = variable[node.id];
    const int64_t bytes = share(graph.bytes(node.type));
    const ValueFacts& facts = axes_.facts(node.id);
    if (producer != source && producer != sink) {
      // A gathered value in another form is as much to hold as one in this form.
      const int64_t whole = !facts.activation() ? 1 + bytes
                            : moves_elements(node.id)
                                ? 1
                                : kWholeActivationBytes + bytes * kActivationWeight;
      network.add_edge(source, producer, whole);
      if (needs_other_rows(axes_.application(node.id).letters[candidates_[node.id]->letter].kind))
        network.add_edge(producer, sink,
                         facts.differentiable ? 2 * latency_bytes_ : latency_bytes_);
    }
  }
  // One node for each value's gathered copy and one for its gathered gradient.
  struct Reader {
    NodeId node;
    bool sharded_operand;  // has the letter that the reader may run sharded along
  };
  std::vector<std::vector<Reader>> readers(graph.nodes.size());
  for (const Node& node : graph.nodes) {
    const std::optional<LetterLeaf>& leaf =
        nodes_[node.id].sharded ? nodes_[node.id].sharded : candidates_[node.id];
    for (const Operand& operand : axes_.application(node.id).operands) {
      const auto& made = candidates_[operand.value];
      if (made && is_passed_on(axes_, operand.value, operand.element, *made)) continue;
      const bool has = leaf && axes_.find_cut(node.id, operand.letters, *leaf).has_value();
      readers[operand.value].push_back({node.id, has});
    }
  }
  std::vector<int> reduced(graph.nodes.size(), sink);
  for (const Node& node : graph.nodes) {
    if (readers[node.id].empty()) continue;
    const int producer = variable[node.id];
    const ValueFacts& facts = axes_.facts(node.id);
    const bool is_table = !facts.activation() && node.type.is_tensor() &&
                          axes_.token_occurrences(node.id, 0).size() > 1;
    const int64_t moved = latency_bytes_ + (is_table ? kTableExchangeWeight : kExchangeWeight) *
                                               share(graph.bytes(node.type));
    if (producer != sink) {
      const int gathered = network.add_node();
      network.add_edge(producer, gathered, facts.differentiable ? 2 * moved : moved);
      for (const Reader& reader : readers[node.id]) {
        network.add_edge(gathered, reader.sharded_operand ? variable[reader.node] : sink,
                         FlowNetwork::kInfinite);
      }
    }
    // A parameter's reduction is not counted: some sharded use or a reducer outside pays it in any
    // case.
    const bool free_gradient = !facts.differentiable || node.input == InputKind::kParameter;
    if (producer != source && !free_gradient) {
      reduced[node.id] = network.add_node();
      // That of a value in another form is taken on to what has the elements first.
      const int first =
          moves_elements(node.id) ? reduced[axes_.application(node.id).operands[0].value] : sink;
      if (first != sink) {
        network.add_edge(reduced[node.id], first, FlowNetwork::kInfinite);
      } else {
        network.add_edge(reduced[node.id], producer, moved);
      }
      for (const Reader& reader : readers[node.id]) {
        if (variable[reader.node] != sink)
          network.add_edge(variable[reader.node], reduced[node.id], FlowNetwork::kInfinite);
      }
    }
  }
  tie_bags(network, variable, sink);
  tie_extended(network, variable, sink);
  const MinCut cut = network.minimum_cut(source, sink);
  if (cut.value == FlowNetwork::kInfinite) {
    refuse_whole_bags();  // heads of sorted tokens
    throw InternalError("an operator must be sharded and must be whole");
  }
  for (const Node& node : graph.nodes) {
    if (candidates_[node.id] && cut.source_side[variable[node.id]])
      nodes_[node.id].sharded = candidates_[node.id];
  }
  for (const Node& node : graph.nodes) {
    if (!nodes_[node.id].sharded) continue;
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (!operand.partial) continue;
      std::vector<NodeId> through;
      axes_.ends_of_groups(operand.value, axes_.leaf_factor(node.id, *nodes_[node.id].sharded),
                           &through);
      nodes_[through.back()].held = true;
      through.pop_back();  // what counts is sharded
      for (NodeId between : through) nodes_[between].partial = true;
    }
  }
}

// Values in an order of their own, and positions in it, mean the same to every reader or they are
// the whole ones: nothing converts one into the other. The same holds for what counts them.
void Placements::tie_bags(FlowNetwork& network, const std::vector<int>& variable, int sink) {
  const Graph& graph = axes_.graph();
  const auto tie = [&](NodeId left, NodeId right) {
    if (variable[left] != sink)
      network.add_edge(variable[left], variable[right], FlowNetwork::kInfinite);
    if (variable[right] != sink)
      network.add_edge(variable[right], variable[left], FlowNetwork::kInfinite);
  };
  const auto in_bag = [&](NodeId value, int element) {
    if (axes_.has_local_positions(value, element)) return true;
    for (const FactorList& dim : axes_.value_leaves(value, element)) {
      if (std::any_of(dim.begin(), dim.end(), [&](FactorId leaf) { return axes_.is_bag(leaf); }))
        return true;
    }
    return false;
  };
  for (const Node& node : graph.nodes) {
    const std::vector<Operand>& operands = axes_.application(node.id).operands;
    for (size_t i = 0; i < operands.size(); ++i) {
      const Operand& operand = operands[i];
      if (operand.partial && candidates_[node.id]) {
        std::vector<NodeId> through;
        const FactorId bag = axes_.leaf_factor(node.id, *candidates_[node.id]);
        if (axes_.ends_of_groups(operand.value, bag, &through)) tie(through.back(), node.id);
        continue;
      }
      if (!in_bag(operand.value, operand.element)) continue;
      const bool cuts = candidates_[node.id] &&
                        axes_.find_cut(node.id, operand.letters, *candidates_[node.id]).has_value();
      if (cuts) tie(operand.value, node.id);
      const bool legal = cuts && (!axes_.has_local_positions(operand.value, operand.element) ||
                                  axes_.reads_positions(node.id, i));
      if (legal || variable[operand.value] == sink) continue;
      if (bag_obstacle_ == kNoNode) bag_obstacle_ = node.id;
      network.add_edge(variable[operand.value], sink, FlowNetwork::kInfinite);
    }
  }
  for (const Arg& output : graph.outputs) {
    for_each_value(output, [&](NodeId value) {
      if (in_bag(value, 0) && variable[value] != sink)
        network.add_edge(variable[value], sink, FlowNetwork::kInfinite);
    });
  }
}

// Rows that two ranks hold are not converted: every reader takes them as they are, or all work on
// the whole.
void Placements::tie_extended(FlowNetwork& network, const std::vector<int>& variable, int sink) {
  const Graph& graph = axes_.graph();
  constexpr Occurrence kNowhere{-1, -1};
  const auto extended = [&](NodeId value, int element, Occurrence where) {
    return where != kNowhere &&
           axes_.extension(axes_.value_leaves(value, element)[where.dim][where.position]) > 0;
  };
  // Where the value is cut if its operator runs sharded along tokens.
  const auto produced_at = [&](NodeId value, int element) {
    if (!candidates_[value]) return kNowhere;
    return result_occurrence(axes_, value, element, *candidates_[value]).value_or(kNowhere);
  };
  const auto read_at = [&](NodeId node, const Operand& operand) {
    if (!candidates_[node]) return kNowhere;
    return axes_.find_cut(node, operand.letters, *candidates_[node]).value_or(kNowhere);
  };
  for (const Node& node : graph.nodes) {
    for (const Operand& operand : axes_.application(node.id).operands) {
      const Occurrence have = produced_at(operand.value, operand.element);
      const Occurrence want = read_at(node.id, operand);
      const int producer = variable[operand.value];
      if (extended(operand.value, operand.element, have)) {
        network.add_edge(producer, have == want ? variable[node.id] : sink, FlowNetwork::kInfinite);
        if (have != want) extension_obstacles_.emplace(operand.value, std::pair(node.id, have.dim));
      }
      // A part with its neighbours' rows can be taken out of the whole, where that is worth it.
      if (extended(operand.value, operand.element, want) &&
          !axes_.facts(operand.value).activation())
        network.add_edge(variable[node.id], have == want ? producer : sink, FlowNetwork::kInfinite);
    }
  }
  for (const Arg& output : graph.outputs) {
    for_each_value(output, [&](NodeId value) {
      if (extended(value, 0, produced_at(value, 0)))
        network.add_edge(variable[value], sink, FlowNetwork::kInfinite);
    });
  }
}

// Activations with rows made up at the ends, whole on every rank because of one reader.
void Placements::refuse_whole_extended() const {
  for (const auto& [value, obstacle] : extension_obstacles_) {
    if (nodes_[value].sharded || !axes_.facts(value).activation()) continue;
    // What groups of tokens hand on is little, and gathered.
    const std::vector<Occurrence> tokens = axes_.token_occurrences(value, 0);
    const std::vector<FactorList> leaves = axes_.value_leaves(value, 0);
    if (std::all_of(tokens.begin(), tokens.end(), [&](const Occurrence& token) {
          return axes_.is_grouped(leaves[token.dim][token.position]) && token.position == 0 &&
                 leaves[token.dim].size() == 1;
        }))
      continue;
    const auto& [reader, dim] = obstacle;
    throw Unsupported(carries_sequence(axes_, axes_.graph().node(reader), value, dim) +
                      " with rows made up at its ends, which two ranks hold, and this operator "
                      "doesn't take each rank's as they are. " +
                      needs_whole(ranks_) + "Cut those rows off first.");
  }
}

// Sorting every token on every rank and working on all of them there is no way out.
void Placements::refuse_whole_bags() const {
  if (bag_obstacle_ == kNoNode) return;
  for (const Node& node : axes_.graph().nodes) {
    if (nodes_[node.id].sharded || !candidates_[node.id] ||
        !axes_.is_bag(axes_.leaf_factor(node.id, *candidates_[node.id])))
      continue;
    for (const Operand& operand : axes_.application(node.id).operands) {
      if (!axes_.facts(operand.value).activation()) continue;
      const std::vector<Occurrence> tokens =
          axes_.token_occurrences(operand.value, operand.element);
      if (tokens.empty()) continue;
      const auto cut = axes_.find_cut(node.id, operand.letters, *candidates_[node.id]);
      throw Unsupported(
          carries_sequence(axes_, axes_.graph().node(bag_obstacle_), operand.value,
                           cut.value_or(tokens[0]).dim) +
          ", and this operator depends on the order in which the program has sorted it (%" +
          node.name + "), which no rank knows alone. " + needs_whole(ranks_) +
          "Sort by a small key (an expert's number), pick rows with the sorted indices, work on "
          "each row or on groups whose ends are the running total of torch.histc over the sorted "
          "key, and pick the rows back with the inverse permutation.");
    }
  }
}

void Placements::choose_varying() {
  const Graph& graph = axes_.graph();
  const std::vector<std::vector<NodeId>> node_users = users(graph);
  for (NodeId node = graph.size() - 1; node >= 0; --node) {
    if (graph.node(node).kind == NodeKind::kInput || node_users[node].empty()) continue;
    // A function's own backward need not be linear: it takes a gradient that is complete.
    if (axes_.op(node) != nullptr && axes_.op(node)->function) continue;
    nodes_[node].varying =
        std::all_of(node_users[node].begin(), node_users[node].end(), [&](NodeId user) {
          return user < graph.size() && (nodes_[user].sharded || nodes_[user].varying);
        });
  }
}

}  // namespace autosp
