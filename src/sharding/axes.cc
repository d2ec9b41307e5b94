#include "sharding/axes.h"

#include <algorithm>

#include "sharding/functions.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_float_tensor(const Type& type) {
  if (type.is_tensor()) return is_floating(type.dtype);
  return std::any_of(type.elements.begin(), type.elements.end(), is_float_tensor);
}

}  // namespace

Axes::Axes(const Graph& graph, const std::map<std::string, int>& seq_dims, const RuleFn& rules)
    : Axes(rules, graph) {
  apply_rules({});
  name_input_dims(seq_dims);
}

std::unique_ptr<Axes> Axes::of_body(const Graph& graph, const std::vector<TensorSizes>& inputs) {
  std::unique_ptr<Axes> axes(new Axes(apply_rule, graph));
  axes->apply_rules(inputs);
  return axes;
}

Axes::Axes(const RuleFn& rules, const Graph& graph) : graph_(graph), rules_(rules) {
  const auto count = static_cast<size_t>(graph.size());
  ops_.resize(count, nullptr);
  applications_.resize(count);
  letter_factors_.resize(count);
  value_factors_.resize(count);
  facts_.resize(count);
  value_axes_.resize(count);
  positions_read_.resize(count);
}

TensorFactors Axes::fresh(const Type& type) {
  TensorFactors dims;
  if (!type.is_tensor()) return dims;
  for (const Expr& size : type.shape) {
    if (size == Expr(1)) {
      dims.emplace_back();
    } else {
      dims.push_back({factors_.add(size)});
    }
  }
  return dims;
}

void Axes::apply_rules(const std::vector<TensorSizes>& inputs) {
  bool grad_enabled = true;
  size_t next_input = 0;
  for (const Node& node : graph_.nodes) {
    ValueFacts& facts = facts_[node.id];
    if (node.kind == NodeKind::kInput) {
      value_factors_[node.id] = {fresh(node.type)};
      if (next_input < inputs.size()) {
        TensorFactors& dims = value_factors_[node.id][0];
        const TensorSizes& sizes = inputs[next_input++];
        for (size_t dim = 0; dim < dims.size(); ++dim) {
          dims[dim].clear();
          for (const Expr& size : sizes[dim]) dims[dim].push_back(factors_.add(size));
        }
      }
      facts.differentiable = node.requires_grad;
      facts.floating = is_float_tensor(node.type) && !node.type.shape.empty();
      facts.from_user = node.input == InputKind::kUser;
      facts.from_weights =
          facts.floating && (node.input == InputKind::kParameter || node.input == InputKind::kUser);
      continue;
    }
    if (node.target == "torch._C._set_grad_enabled" && !node.args.empty()) {
      grad_enabled = node.args[0].integer != 0;
    }
    apply(node);
    const OpDef* op = ops_[node.id];
    facts.floating = is_float_tensor(node.type);
    const bool flows = grad_enabled && facts.floating && (op == nullptr || op->differentiable);
    for_each_operand(node, [&](NodeId operand) {
      facts.differentiable |= flows && facts_[operand].differentiable;
      facts.from_user |= facts_[operand].from_user;
      facts.from_weights |= facts_[operand].from_weights;
    });
  }
}

void Axes::apply(const Node& node) {
  ops_[node.id] = find_op(node.target);
  const OpDef* op = ops_[node.id];
  applications_[node.id] = op == nullptr  ? opaque_application(graph_, node)
                           : op->function ? function_application(graph_, node)
                                          : rules_(Call(graph_, node, *op));
  link_picked(node);
  const Application& application = applications_[node.id];
  FactorList& letters = letter_factors_[node.id];
  letters.reserve(application.letters.size());
  for (const Letter& letter : application.letters) letters.push_back(factors_.add(letter.size));
  for (const Operand& operand : application.operands) bind(node.id, operand, letters);
  for (const TensorLetters& result : application.results) {
    TensorFactors dims;
    for (const DimLetters& dim : result) {
      FactorList list;
      for (LetterId letter : dim) list.push_back(letters[letter]);
      dims.push_back(std::move(list));
    }
    value_factors_[node.id].push_back(std::move(dims));
  }
  for (LetterId letter = 0; letter < static_cast<LetterId>(application.letters.size()); ++letter) {
    const auto& [name, size, kind, link, pads] = application.letters[letter];
    if (kind == LetterKind::kPrefix || kind == LetterKind::kShift)
      links_.push_back({letters[letter], letters[link], kind == LetterKind::kShift});
  }
  note_positions(node);
}

void Axes::bind(NodeId node, const Operand& operand, const FactorList& letter_factors) {
  const auto& elements = value_factors_[operand.value];
  ensure(operand.element < static_cast<int>(elements.size()),
         "a rule names an element its operand lacks");
  const TensorFactors& dims = elements[operand.element];
  if (dims.size() != operand.letters.size()) {
    throw InternalError("the rule of " + graph_.node(node).target + " gives %" +
                        graph_.node(operand.value).name + " another number of dimensions");
  }
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    FactorList list;
    for (LetterId letter : operand.letters[dim]) list.push_back(letter_factors[letter]);
    // A dimension of a broadcast operand that the rule leaves without letters stays as it is;
    // products that have no common refinement stay apart, and placement refuses them where tokens
    // are concerned.
    if (!list.empty() && !dims[dim].empty()) factors_.join(dims[dim], list);
  }
}

void Axes::name_input_dims(const std::map<std::string, int>& seq_dims) {
  for (const auto& [name, dim] : seq_dims) {
    const auto found =
        std::find_if(graph_.nodes.begin(), graph_.nodes.end(), [&](const Node& node) {
          return node.kind == NodeKind::kInput && node.input == InputKind::kUser &&
                 node.target == name;
        });
    if (found == graph_.nodes.end()) {
      std::string known;
      for (const Node& node : graph_.nodes) {
        if (node.kind == NodeKind::kInput && node.input == InputKind::kUser &&
            node.type.is_tensor()) {
          known += (known.empty() ? "" : ", ") + node.target;
        }
      }
      throw Unsupported("seq_dims names the input '" + name +
                        "', which the program does not have. Its tensor inputs: " + known);
    }
    const auto rank = static_cast<int>(found->type.shape.size());
    const int index = dim < 0 ? dim + rank : dim;
    if (index < 0 || index >= rank) {
      throw Unsupported("seq_dims gives dimension " + std::to_string(dim) + " of the input '" +
                        name + "', which has " + std::to_string(rank) + " dimensions");
    }
    const std::vector<FactorList> dims = value_leaves(found->id, 0);
    tokens_.insert(tokens_.end(), dims[index].begin(), dims[index].end());
  }
}

std::vector<FactorList> Axes::value_leaves(NodeId value, int element) const {
  std::vector<FactorList> out;
  if (element >= static_cast<int>(value_factors_[value].size())) return out;
  for (const FactorList& dim : value_factors_[value][element]) out.push_back(factors_.leaves(dim));
  return out;
}

FactorId Axes::leaf_factor(NodeId node, LetterLeaf leaf) const {
  const FactorList list = letter_leaves(node, leaf.letter);
  ensure(leaf.position < static_cast<int>(list.size()), "a letter has fewer leaves than asked for");
  return list[leaf.position];
}

std::optional<Occurrence> Axes::find(NodeId node, const TensorLetters& letters,
                                     LetterLeaf leaf) const {
  std::optional<Occurrence> found;
  for (size_t dim = 0; dim < letters.size(); ++dim) {
    int position = 0;
    for (LetterId letter : letters[dim]) {
      if (letter == leaf.letter) {
        if (found) return std::nullopt;
        found = Occurrence{static_cast<int>(dim), position + leaf.position};
      }
      position += static_cast<int>(letter_leaves(node, letter).size());
    }
  }
  return found;
}

std::optional<LetterLeaf> Axes::letter_at(NodeId node, const TensorLetters& letters,
                                          Occurrence where) const {
  if (where.dim < 0 || where.dim >= static_cast<int>(letters.size())) return std::nullopt;
  int position = 0;
  for (LetterId letter : letters[where.dim]) {
    const auto count = static_cast<int>(letter_leaves(node, letter).size());
    if (where.position < position + count) return LetterLeaf{letter, where.position - position};
    position += count;
  }
  return std::nullopt;
}

bool Axes::aligned(NodeId node, const Operand& operand, int dim) const {
  FactorList letters;
  for (LetterId letter : operand.letters[dim]) {
    const FactorList list = letter_leaves(node, letter);
    letters.insert(letters.end(), list.begin(), list.end());
  }
  return letters == factors_.leaves(value_factors_[operand.value][operand.element][dim]);
}

void Axes::add_token_letter(NodeId node, LetterId letter) {
  const FactorList leaves = letter_leaves(node, letter);
  if (!leaves.empty()) add_token_axis(leaves[0]);
}

bool Axes::add_coupled_axis() {
  FactorList inputs;
  for (const Node& node : graph_.nodes) {
    if (node.kind != NodeKind::kInput || node.input != InputKind::kUser) continue;
    for (const FactorList& dim : value_leaves(node.id, 0)) {
      if (!dim.empty()) inputs.push_back(dim[0]);
    }
  }
  FactorList coupled;
  for (const Node& node : graph_.nodes) {
    const Application& rule = applications_[node.id];
    for (const Operand& operand : rule.operands) {
      if (!facts_[operand.value].activation()) continue;
      for (const DimLetters& dim : operand.letters) {
        for (LetterId letter : dim) {
          const LetterKind kind = rule.letters[letter].kind;
          if (kind != LetterKind::kWindow && kind != LetterKind::kScan) continue;
          const FactorId axis = letter_leaves(node.id, letter)[0];
          if (std::find(inputs.begin(), inputs.end(), axis) == inputs.end()) continue;
          if (std::find(coupled.begin(), coupled.end(), axis) == coupled.end())
            coupled.push_back(axis);
        }
      }
    }
  }
  if (coupled.size() == 1) add_token_axis(coupled[0]);
  return coupled.size() == 1;
}

void Axes::add_token_axis(FactorId leaf) {
  if (!is_token(leaf)) tokens_.push_back(factors_.find(leaf));
}

bool Axes::close(FactorId copy, FactorId of) {
  const FactorList from = factors_.leaves(of);
  const FactorList to = factors_.leaves(copy);
  if (from.empty() || to.empty() || !is_token(from[0])) return false;
  if (is_token(to[0])) {
    // The rest of an axis that was cut at its ends stays where it is when it is attended too.
    const Expr less = factors_.size(of) - factors_.size(copy);
    const FactorId axis = shard_base(from[0]);
    if (from.size() > 1 || to.size() > 1 || shard_base(to[0]) != to[0] || axis == to[0] ||
        less.as_constant().value_or(0) <= 0)
      return false;
    for (auto& [follower, base] : base_) {
      if (base.axis == to[0]) base = {axis, base.rows * rows_per_base(from[0])};
    }
    base_[to[0]] = {axis, rows_per_base(from[0])};
    return true;
  }
  const std::optional<Expr> rows =
      divide_exact(rows_per_base(from[0]) * rows_inside(from), rows_inside(to));
  if (!rows) return false;
  tokens_.push_back(to[0]);
  base_[to[0]] = {shard_base(from[0]), *rows};
  return true;
}

void Axes::close_token_axes() {
  for (bool found = true; found;) {
    found = false;
    for (const CopyLink& link : links_) {
      found |= close(link.copy, link.of);
      const Expr more = factors_.size(link.copy) - factors_.size(link.of);
      if (link.both_ways && more.is_constant()) found |= close(link.of, link.copy);
    }
  }
  for (const BagLink& link : bags_) {
    const FactorId bag = factors_.leaves(link.result)[0];
    if (is_bag(bag) && !is_token(bag)) tokens_.push_back(bag);
  }
}

bool Axes::is_token(FactorId leaf) const {
  return std::find(tokens_.begin(), tokens_.end(), factors_.find(leaf)) != tokens_.end();
}

FactorId Axes::shard_base(FactorId leaf) const {
  const auto found = base_.find(leaf);
  return found == base_.end() ? leaf : found->second.axis;
}

Expr Axes::rows_per_base(FactorId leaf) const {
  const auto found = base_.find(leaf);
  return found == base_.end() ? Expr(1) : found->second.rows;
}

Expr Axes::rows_inside(const FactorList& leaves) const {
  Expr rows = 1;
  for (size_t i = 1; i < leaves.size(); ++i) rows *= factors_.size(leaves[i]);
  return rows;
}

bool Axes::is_grouped(FactorId leaf) const {
  const FactorId axis = shard_base(leaf);
  const auto& nodes = graph_.nodes;
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node& node) {
    if (node.kind != NodeKind::kInput || node.input != InputKind::kUser) return false;
    const std::vector<FactorList> dims = value_leaves(node.id, 0);
    return std::any_of(dims.begin(), dims.end(),
                       [&](const FactorList& dim) { return dim.size() > 1 && dim[0] == axis; });
  });
}

bool Axes::moves_with(const FactorList& left, const FactorList& right) const {
  if (left.empty() || right.empty() || !is_token(left[0]) || !is_token(right[0])) return false;
  return factors_.size(shard_base(left[0])) == factors_.size(shard_base(right[0])) &&
         rows_per_base(left[0]) * rows_inside(left) == rows_per_base(right[0]) * rows_inside(right);
}

int64_t Axes::extension(FactorId leaf) const {
  const FactorId base = shard_base(leaf);
  if (base == leaf) return 0;
  const Expr more = factors_.size(leaf) - factors_.size(base) * rows_per_base(leaf);
  return std::max<int64_t>(0, more.as_constant().value_or(0));
}

std::vector<Occurrence> Axes::token_occurrences(NodeId value, int element) const {
  std::vector<Occurrence> out;
  const std::vector<FactorList> dims = value_leaves(value, element);
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    for (size_t position = 0; position < dims[dim].size(); ++position) {
      if (is_token(dims[dim][position]))
        out.push_back({static_cast<int>(dim), static_cast<int>(position)});
    }
  }
  return out;
}

}  // namespace autosp
