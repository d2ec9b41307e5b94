#include "sharding/attention.h"

#include <algorithm>
#include <set>

#include "support/error.h"

namespace autosp {
namespace {

bool contains(const TensorLetters& letters, LetterId letter) {
  return std::any_of(letters.begin(), letters.end(), [letter](const DimLetters& dim) {
    return std::find(dim.begin(), dim.end(), letter) != dim.end();
  });
}

bool in_results(const Application& application, LetterId letter) {
  return std::any_of(application.results.begin(), application.results.end(),
                     [letter](const TensorLetters& result) { return contains(result, letter); });
}

// What a contraction multiplies: not what it adds to the product.
std::vector<const Operand*> factors_of(const Application& application) {
  std::vector<const Operand*> out;
  for (const Operand& operand : application.operands) {
    const bool contracted =
        std::any_of(operand.letters.begin(), operand.letters.end(), [&](const DimLetters& dim) {
          return std::any_of(dim.begin(), dim.end(),
                             [&](LetterId letter) { return !in_results(application, letter); });
        });
    if (contracted) out.push_back(&operand);
  }
  if (!out.empty()) return out;
  for (const Operand& operand : application.operands) out.push_back(&operand);
  return out;
}

int count_factors(const Application& application, LetterId letter) {
  const std::vector<const Operand*> factors = factors_of(application);
  return static_cast<int>(
      std::count_if(factors.begin(), factors.end(),
                    [letter](const Operand* factor) { return contains(factor->letters, letter); }));
}

// Finds softmax(q @ k) @ v around one softmax. Columns may be put beside the scores before the
// softmax and taken away after it (attention sinks).
class ScorePattern {
 public:
  ScorePattern(const Axes& axes, const std::vector<std::vector<NodeId>>& users, NodeId softmax)
      : axes_(axes), users_(users), softmax_(softmax) {}

  // The region's core, empty when the softmax is not an attention's. `query`/`key`: its letters in
  // the scores.
  std::vector<NodeId> core() {
    const Application& rule = axes_.application(softmax_);
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      if (rule.letters[letter].kind != LetterKind::kScan || count_factors(rule, letter) == 0)
        continue;
      const FactorList leaves = axes_.letter_leaves(softmax_, letter);
      const std::optional<Occurrence> place = axes_.find(softmax_, rule.results.at(0), {letter, 0});
      if (leaves.size() != 1 || !place) continue;
      axes_along_ = {leaves[0]};
      find_scores(*place);
    }
    const NodeId product = products_.empty() ? kNoNode : find_product();
    if (product == kNoNode) return {};
    // The keys are those whose values are summed; other products' columns follow theirs.
    const FactorList keys = axes_.letter_leaves(product, summed_letter(product));
    auto found = std::find_if(products_.begin(), products_.end(), [&](const Product& made) {
      return axes_.letter_leaves(made.node, made.key) == keys;
    });
    if (found == products_.end()) found = products_.begin();
    scores = found->node;
    key = found->key;
    query = found->query;
    return between(scores, product);
  }

  // Operators outside of the core that make values with all axes of the scores, from the products
  // on that gave them the queries' or the keys'.
  std::vector<NodeId> more(const std::vector<NodeId>& core) {
    const std::vector<FactorId> axes_of_scores = sorted_leaves(scores);
    std::set<NodeId> out;
    for (NodeId node : core) {
      for (const Operand& operand : axes_.application(node).operands) {
        if (std::binary_search(core.begin(), core.end(), operand.value) || operand.element != 0 ||
            out.contains(operand.value) || !axes_.facts(operand.value).activation())
          continue;
        const std::vector<FactorId> leaves = sorted_leaves(operand.value);
        if (std::includes(leaves.begin(), leaves.end(), axes_of_scores.begin(),
                          axes_of_scores.end()))
          out.merge(from_products(operand.value, core));
      }
    }
    return {out.begin(), out.end()};
  }

  NodeId scores = kNoNode;
  LetterId key = -1;
  LetterId query = -1;

 private:
  std::vector<FactorId> sorted_leaves(NodeId value) const {
    std::vector<FactorId> out;
    for (const FactorList& dim : axes_.value_leaves(value, 0))
      out.insert(out.end(), dim.begin(), dim.end());
    std::sort(out.begin(), out.end());
    return out;
  }

  // A value and what makes it, from products of queries or keys per head on; nothing where it comes
  // from something else too.
  std::set<NodeId> from_products(NodeId value, const std::vector<NodeId>& core) const {
    std::set<NodeId> path{value};
    std::vector<NodeId> todo{value};
    while (!todo.empty()) {
      const NodeId node = todo.back();
      todo.pop_back();
      const OpDef* op = axes_.op(node);
      if (op == nullptr || std::binary_search(core.begin(), core.end(), node)) return {};
      if (op->einsum) {
        if (!makes_scores(node)) return {};
        continue;
      }
      bool activations = false;
      for (const Operand& operand : axes_.application(node).operands) {
        if (!axes_.facts(operand.value).activation()) continue;
        activations = true;
        if (path.insert(operand.value).second) todo.push_back(operand.value);
      }
      if (!activations) return {};
    }
    return path;
  }

  // Whether a product takes rows of queries or keys and gives rows and columns, each batch or head
  // on its own.
  bool makes_scores(NodeId node) const {
    const Application& rule = axes_.application(node);
    const std::vector<const Operand*> factors = factors_of(rule);
    const FactorList rows = axes_.letter_leaves(scores, query);
    const auto is_row = [&](FactorId leaf) {
      return is_axis(leaf) || std::find(rows.begin(), rows.end(), leaf) != rows.end();
    };
    std::ptrdiff_t most = 0;
    for (const Operand* factor : factors) {
      const std::vector<FactorId> leaves = sorted_leaves(factor->value);
      most = std::max(most, std::count_if(leaves.begin(), leaves.end(), is_row));
    }
    bool shared = false;
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter)
      shared |= in_results(rule, letter) && count_factors(rule, letter) == 2;
    return factors.size() == 2 && most == 1 && shared;
  }

  bool is_axis(FactorId leaf) const {
    return std::find(axes_along_.begin(), axes_along_.end(), leaf) != axes_along_.end();
  }

  bool is_axis(const FactorList& dim, Occurrence place) const {
    return place.position < static_cast<int>(dim.size()) && is_axis(dim[place.position]);
  }

  bool has_axis(NodeId value) const {
    for (const FactorList& dim : axes_.value_leaves(value, 0)) {
      if (std::any_of(dim.begin(), dim.end(), [this](FactorId leaf) { return is_axis(leaf); }))
        return true;
    }
    return false;
  }

  // An operator that lengthens or shortens a dimension (cat, a slice) gives it another axis: where
  // one of the two is the scores' the other one is too.
  void follow(NodeId node) {
    const Application& rule = axes_.application(node);
    if (rule.results.size() != 1 || axes_.op(node) == nullptr || axes_.op(node)->einsum) return;
    const TensorLetters& result = rule.results[0];
    for (const Operand& operand : rule.operands) {
      if (operand.letters.size() != result.size()) continue;
      for (size_t dim = 0; dim < result.size(); ++dim) {
        if (operand.letters[dim].size() != 1 || result[dim].size() != 1) continue;
        if (contains(result, operand.letters[dim][0]) || contains(operand.letters, result[dim][0]))
          continue;
        const FactorList before = axes_.letter_leaves(node, operand.letters[dim][0]);
        const FactorList after = axes_.letter_leaves(node, result[dim][0]);
        if (before.size() != 1 || after.size() != 1) continue;
        if (is_axis(before[0]) && !is_axis(after[0])) axes_along_.push_back(after[0]);
        if (is_axis(after[0]) && !is_axis(before[0])) axes_along_.push_back(before[0]);
      }
    }
  }

  // The letter of the axis that a product sums.
  LetterId summed_letter(NodeId node) const {
    const Application& rule = axes_.application(node);
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      const FactorList leaves = axes_.letter_leaves(node, letter);
      if (leaves.size() == 1 && is_axis(leaves[0]) && rule.letters[letter].kind == LetterKind::kSum)
        return letter;
    }
    return -1;
  }

  bool multiplies_activations(NodeId node) const {
    const OpDef* op = axes_.op(node);
    if (op == nullptr || !op->einsum) return false;
    const std::vector<const Operand*> factors = factors_of(axes_.application(node));
    return factors.size() >= 2 &&
           std::all_of(factors.begin(), factors.end(), [this](const Operand* factor) {
             return axes_.facts(factor->value).activation();
           });
  }

  // Where an operand has what the result has at a place: the same leaf, or a longer or shorter
  // dimension.
  std::optional<Occurrence> place_in(NodeId node, const Operand& operand, Occurrence place) const {
    const TensorLetters& result = axes_.application(node).results.at(0);
    const std::optional<LetterLeaf> leaf = axes_.letter_at(node, result, place);
    if (const auto found = leaf ? axes_.find(node, operand.letters, *leaf) : std::nullopt)
      return found;
    if (operand.letters.size() != result.size() || operand.letters[place.dim].size() != 1)
      return std::nullopt;
    return Occurrence{place.dim, 0};
  }

  // Walks from the softmax, which has its axis at `place`, to the products that make it, along
  // values that have that axis. In self-attention queries have it too: the place tells which is the
  // keys'.
  void find_scores(Occurrence place) {
    std::vector<std::pair<NodeId, Occurrence>> todo;
    std::set<NodeId> seen;
    const auto push = [&](NodeId node, Occurrence at) {
      follow(node);
      for (const Operand& operand : axes_.application(node).operands) {
        if (!axes_.facts(operand.value).activation() || operand.element != 0) continue;
        const std::optional<Occurrence> there = place_in(node, operand, at);
        if (!there || !is_axis(axes_.value_leaves(operand.value, 0)[there->dim], *there)) continue;
        if (seen.insert(operand.value).second) todo.emplace_back(operand.value, *there);
      }
    };
    push(softmax_, place);
    while (!todo.empty()) {
      const auto [node, at] = todo.back();
      todo.pop_back();
      if (!multiplies_activations(node)) {
        if (!axes_.application(node).results.empty()) push(node, at);
        continue;
      }
      const Application& rule = axes_.application(node);
      const std::optional<LetterLeaf> leaf = axes_.letter_at(node, rule.results.at(0), at);
      if (!leaf || count_factors(rule, leaf->letter) != 1) continue;
      const LetterId row = query_letter(node, leaf->letter);
      if (row >= 0) products_.push_back({node, leaf->letter, row});
    }
  }

  // The letter of the other operand alone: the one that indexes the keys' own axis in
  // self-attention, else the innermost.
  LetterId query_letter(NodeId node, LetterId key) const {
    const Application& rule = axes_.application(node);
    LetterId best = -1;
    for (const DimLetters& dim : rule.results[0]) {
      for (LetterId letter : dim) {
        if (letter == key || count_factors(rule, letter) != 1) continue;
        const std::vector<const Operand*> factors = factors_of(rule);
        const bool with_key =
            std::any_of(factors.begin(), factors.end(), [&](const Operand* factor) {
              return contains(factor->letters, letter) && contains(factor->letters, key);
            });
        if (with_key) continue;
        if (axes_.letter_leaves(node, letter) == axes_.letter_leaves(node, key)) return letter;
        best = letter;
      }
    }
    return best;
  }

  // Walks from the softmax towards the outputs to the product that sums the axis.
  NodeId find_product() {
    std::vector<NodeId> todo{softmax_};
    std::set<NodeId> seen;
    while (!todo.empty()) {
      const NodeId node = todo.back();
      todo.pop_back();
      for (NodeId user : users_[node]) {
        if (user >= axes_.graph().size() || !seen.insert(user).second) continue;
        if (multiplies_activations(user) && summed_letter(user) >= 0) return user;
        follow(user);
        if (has_axis(user)) todo.push_back(user);
      }
    }
    return kNoNode;
  }

  std::vector<NodeId> between(NodeId first, NodeId last) const {
    std::set<NodeId> after{first};
    for (NodeId node = first + 1; node <= last; ++node) {
      for_each_operand(axes_.graph().node(node), [&](NodeId operand) {
        if (after.contains(operand)) after.insert(node);
      });
    }
    std::set<NodeId> before{last};
    for (NodeId node = last; node >= first; --node) {
      if (!before.contains(node)) continue;
      for_each_operand(axes_.graph().node(node), [&](NodeId operand) { before.insert(operand); });
    }
    std::vector<NodeId> out;
    std::set_intersection(after.begin(), after.end(), before.begin(), before.end(),
                          std::back_inserter(out));
    return out;
  }

  const Axes& axes_;
  const std::vector<std::vector<NodeId>>& users_;
  struct Product {
    NodeId node;
    LetterId key;
    LetterId query;
  };

  NodeId softmax_;
  std::vector<Product> products_;
  FactorList axes_along_;  // of the scores, and of what they are with other columns
};

// The pass letter's leaf that is `factor` in a node's rule, if there is exactly one.
std::optional<LetterLeaf> pass_leaf(const Axes& axes, NodeId node, FactorId factor) {
  const Application& rule = axes.application(node);
  std::optional<LetterLeaf> found;
  bool more = false;
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    if (rule.letters[letter].kind != LetterKind::kPass) continue;
    const FactorList leaves = axes.letter_leaves(node, letter);
    for (size_t position = 0; position < leaves.size(); ++position) {
      if (leaves[position] != factor) continue;
      more |= found.has_value();
      found = LetterLeaf{letter, static_cast<int>(position)};
    }
  }
  return more ? std::nullopt : found;
}

// Factors along which queries, keys, values and the result are independent: those of a letter that
// all of them have. Innermost dimension first: heads before batch.
std::vector<FactorId> shared_factors(const Axes& axes, const AttentionRegion& region) {
  const NodeId first = region.scores;
  const NodeId last = region.core.back();
  const auto shared = [&](NodeId node, FactorId leaf) {
    const Application& rule = axes.application(node);
    const std::optional<LetterLeaf> place = pass_leaf(axes, node, leaf);
    std::vector<const Operand*> read;
    if (first != last) {
      read = factors_of(rule);
    } else {  // query, key, value
      for (size_t i = 0; i < std::min<size_t>(rule.operands.size(), 3); ++i)
        read.push_back(&rule.operands[i]);
    }
    return place && axes.find(node, rule.results.at(0), *place) &&
           std::all_of(read.begin(), read.end(), [&](const Operand* operand) {
             return axes.find(node, operand->letters, *place).has_value();
           });
  };
  std::vector<FactorId> out;
  const std::vector<FactorList> dims = axes.value_leaves(last, 0);
  for (auto dim = dims.rbegin(); dim != dims.rend(); ++dim) {
    for (FactorId leaf : *dim) {
      if (!axes.is_token(leaf) && shared(first, leaf) && shared(last, leaf)) out.push_back(leaf);
    }
  }
  return out;
}

// Views above `value` up to the topmost one that makes it larger, if only the region reads them.
std::vector<NodeId> spreading_views(const Axes& axes, const std::vector<std::vector<NodeId>>& users,
                                    const std::set<NodeId>& region, FactorId head, NodeId value) {
  const Graph& graph = axes.graph();
  std::vector<NodeId> chain;
  size_t keep = 0;
  std::set<NodeId> readers = region;
  for (NodeId node = value;;) {
    const OpDef* op = axes.op(node);
    const Application& rule = axes.application(node);
    const bool moves_only = graph.node(node).kind == NodeKind::kCall && op != nullptr &&
                            !op->effect && rule.operands.size() == 1 && rule.results.size() == 1;
    if (!moves_only) break;
    const bool private_value = std::all_of(users[node].begin(), users[node].end(),
                                           [&](NodeId user) { return readers.contains(user); });
    const std::optional<LetterLeaf> place = pass_leaf(axes, node, head);
    if (!private_value || !place || !axes.find(node, rule.results[0], *place)) break;
    chain.push_back(node);
    readers.insert(node);
    if (!axes.find(node, rule.operands[0].letters, *place)) {  // all heads are copies of one
      keep = chain.size();
      break;
    }
    const NodeId operand = rule.operands[0].value;
    if (graph.bytes(graph.node(node).type) > graph.bytes(graph.node(operand).type))
      keep = chain.size();
    node = operand;
  }
  chain.resize(keep);
  return chain;
}

}  // namespace

std::vector<AttentionRegion> find_attention(Axes& axes) {
  const Graph& graph = axes.graph();
  const std::vector<std::vector<NodeId>> node_users = users(graph);
  std::vector<AttentionRegion> regions;
  for (const Node& node : graph.nodes) {
    const OpDef* op = axes.op(node.id);
    if (op == nullptr) continue;
    const Application& rule = axes.application(node.id);
    bool fused = false;
    LetterId query = -1;
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      const LetterKind kind = rule.letters[letter].kind;
      if (kind != LetterKind::kAttend && kind != LetterKind::kQuery) continue;
      fused = true;
      if (in_results(rule, letter)) query = letter;
      axes.add_token_letter(node.id, letter);
    }
    if (fused) {
      regions.push_back({{node.id}, node.id, {}, {}, -1, query});
    } else if (op->softmax) {
      ScorePattern pattern(axes, node_users, node.id);
      std::vector<NodeId> core = pattern.core();
      const bool known =
          std::any_of(regions.begin(), regions.end(), [&](const AttentionRegion& region) {
            return !core.empty() && region.scores == pattern.scores;
          });
      if (core.empty() || known) continue;
      axes.add_token_letter(pattern.scores, pattern.query);
      axes.add_token_letter(pattern.scores, pattern.key);
      std::vector<NodeId> more = pattern.more(core);
      regions.push_back({std::move(core), pattern.scores, std::move(more), {}, -1, pattern.query});
    }
  }
  if (axes.token_axes().empty()) axes.add_coupled_axis();
  axes.close_token_axes();
  return regions;
}

void choose_heads(const Axes& axes, int ranks, std::vector<AttentionRegion>& regions) {
  const Graph& graph = axes.graph();
  const std::vector<std::vector<NodeId>> node_users = users(graph);
  for (AttentionRegion& region : regions) {
    for (FactorId leaf : shared_factors(axes, region)) {
      const Expr& size = axes.factors().size(leaf);
      if (size.is_constant() && size.constant_value() % ranks == 0) {
        region.head = leaf;
        break;
      }
    }
    if (region.head < 0) continue;
    const auto has_head = [&](NodeId node) {
      return pass_leaf(axes, node, region.head).has_value();
    };
    if (std::all_of(region.more.begin(), region.more.end(), has_head)) {
      region.core.insert(region.core.end(), region.more.begin(), region.more.end());
      std::sort(region.core.begin(), region.core.end());
    }
    const std::set<NodeId> core(region.core.begin(), region.core.end());
    std::set<NodeId> members = core;
    for (NodeId node : region.core) {
      for (const Operand& operand : axes.application(node).operands) {
        if (members.contains(operand.value)) continue;
        for (NodeId view : spreading_views(axes, node_users, members, region.head, operand.value)) {
          members.insert(view);
        }
      }
    }
    // An operator that mixes heads leaves the queries to cut.
    if (!std::all_of(members.begin(), members.end(), has_head)) {
      region.head = -1;
      continue;
    }
    std::set_difference(members.begin(), members.end(), core.begin(), core.end(),
                        std::back_inserter(region.spread));
  }
}

LetterLeaf head_letter(const Axes& axes, const AttentionRegion& region, NodeId node) {
  const auto found = pass_leaf(axes, node, region.head);
  ensure(found.has_value(), "an attention is cut along heads that one of its operators mixes");
  return *found;
}

}  // namespace autosp
