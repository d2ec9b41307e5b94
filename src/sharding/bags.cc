// Axes, continued: positions, and axes in an order of their own.
//
//   ids, perm = sort(expert)          perm [y] has the value axis x; y is a bag of x
//   x[perm // k]                      rows of x are picked along y: cut together
//   inverse[perm] = arange(len)       arange counts y, so inverse [x] has the value axis y
//   y[inverse]                        rows of y are picked along x: back in order
//
// A mixture of experts sorts its tokens by expert, works on groups and sorts them back. Cut along
// the tokens, each rank can do that with its own tokens alone, and nothing is exchanged, as long as
// the program can't tell: rows of a bag are taken one by one or summed up, and positions in it are
// used for picking rows and nothing else.
#include <algorithm>
#include <optional>

#include "sharding/axes.h"
#include "support/error.h"

namespace autosp {
namespace {

bool copies_elements(const OpDef* op) {
  return op != nullptr && (op->aliases || op->name == "clone");
}

}  // namespace

const Axes::BagLink* Axes::bag_link(FactorId leaf) const {
  const BagLink* found = nullptr;
  for (const BagLink& link : bags_) {
    const FactorList result = factors_.leaves(link.result);
    if (std::find(result.begin(), result.end(), factors_.find(leaf)) == result.end()) continue;
    // Two orders of one axis, or one that the program mixes with the order it was made from.
    const FactorList rows = factors_.leaves(link.rows);
    const bool mixed = std::find(rows.begin(), rows.end(), result[0]) != rows.end();
    if (found != nullptr || result.size() != 1 || mixed) return nullptr;
    found = &link;
  }
  return found;
}

FactorId Axes::bag_base(FactorId leaf) const {
  FactorId base = leaf;
  // A bag of a bag comes from the same tokens; orders that are made of each other from none.
  for (size_t depth = 0; depth <= bags_.size(); ++depth) {
    const BagLink* link = bag_link(base);
    if (link == nullptr) return depth == 0 || !is_token(base) ? -1 : base;
    const FactorList rows = factors_.leaves(link->rows);
    const auto row = std::find_if(rows.begin(), rows.end(), [this](FactorId factor) {
      return bag_link(factor) != nullptr || is_token(factor);
    });
    if (row == rows.end()) return -1;
    base = *row;
  }
  return -1;
}

std::optional<Axes::Order> Axes::order_of(FactorId bag) const {
  const BagLink* link = bag_link(bag);
  if (link == nullptr) return std::nullopt;
  const Type& type = graph_.node(link->node).type;
  if ((type.is_tensor() ? type : type.elements.at(1)).shape.size() != 1) return std::nullopt;
  Order order{link->node, factors_.leaves(link->rows), 0};
  while (order.tokens < order.rows.size() && order.rows[order.tokens] != bag_base(bag))
    ++order.tokens;
  return order.tokens < order.rows.size() ? std::optional(order) : std::nullopt;
}

bool Axes::is_order(NodeId value, const Order& order) const {
  const NodeId source = without_casts(value);
  if (graph_.node(order.sort).type.is_tensor()) return source == order.sort;
  const Application& rule = applications_[source];
  return graph_.node(source).target == "_operator.getitem" && rule.operands.size() == 1 &&
         rule.operands[0].value == order.sort && rule.operands[0].element == 1;
}

FactorList Axes::value_axis(NodeId value, int element) const {
  const auto& axes = value_axes_[value];
  return element < static_cast<int>(axes.size()) ? factors_.leaves(axes[element]) : FactorList{};
}

bool Axes::has_local_positions(NodeId value, int element) const {
  const FactorList axis = value_axis(value, element);
  if (axis.empty()) return false;
  const auto bag = [this](FactorId leaf) { return bag_link(leaf) != nullptr; };
  if (std::any_of(axis.begin(), axis.end(), bag)) return true;
  for (const FactorList& dim : value_leaves(value, element)) {
    if (std::any_of(dim.begin(), dim.end(), bag)) return true;
  }
  return false;
}

bool Axes::reads_positions(NodeId node, size_t operand) const {
  const std::vector<size_t>& read = positions_read_[node];
  return std::find(read.begin(), read.end(), operand) != read.end();
}

void Axes::link_picked(const Node& node) {
  Application& rule = applications_[node.id];
  if (!rule.picked) return;
  const Operand& index = rule.operands[rule.picked->index];
  const FactorList axis = value_axis(index.value, index.element);
  if (!has_local_positions(index.value, index.element)) return;
  Expr size(1);
  for (FactorId factor : axis) size *= factors_.size(factor);
  if (size != rule.letters[rule.picked->rows].size) return;
  // Where rows are written they lead, since the result has them.
  const bool writes = ops_[node.id]->name.starts_with("index_put");
  const LetterId leads = writes ? rule.picked->rows : rule.picked->picks;
  const LetterId follows = writes ? rule.picked->picks : rule.picked->rows;
  rule.letters[leads].kind = LetterKind::kPass;
  rule.letters[follows].kind = LetterKind::kBag;
  rule.letters[follows].link = leads;
  positions_read_[node.id].push_back(rule.picked->index);
  if (writes) positions_read_[node.id].push_back(rule.operands.size() - 1);
}

// argsort of all positions of an axis, in the order in which they lie somewhere else: the way back.
bool Axes::inverts(const Node& node) const {
  const Operand& positions = applications_[node.id].operands[0];
  if (!has_local_positions(positions.value, positions.element)) return false;
  Expr size(1);
  for (FactorId factor : value_axis(positions.value, positions.element))
    size *= factors_.size(factor);
  return node.type.shape.size() == 1 && node.type.shape[0] == size &&
         !Call(graph_, node, *ops_[node.id]).boolean_or("descending", false);
}

void Axes::note_positions(const Node& node) {
  const Application& rule = applications_[node.id];
  const FactorList& letters = letter_factors_[node.id];
  std::vector<FactorList>& axes = value_axes_[node.id];
  if (!positions_read_[node.id].empty()) {
    const Operand& index = rule.operands[rule.picked->index];
    factors_.join({letters[rule.picked->rows]}, value_axes_[index.value][index.element]);
  }
  if (rule.results.empty() || ops_[node.id] == nullptr) return;
  const std::string_view name = ops_[node.id]->name;
  if (name == "sort" || name == "argsort") {
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      if (rule.letters[letter].kind != LetterKind::kBag) continue;
      const FactorId rows = letters[rule.letters[letter].link];
      axes.assign(rule.results.size(), {});
      axes.back() = {rows};
      if (name == "argsort" && inverts(node)) {
        const Operand& positions = rule.operands[0];
        factors_.join({letters[letter]}, value_axes_[positions.value][positions.element]);
        positions_read_[node.id].push_back(0);
      } else {
        bags_.push_back({node.id, letters[letter], rows});
      }
    }
    return;
  }
  if (rule.counts) {
    for (LetterId letter : rule.results[0].empty() ? DimLetters{} : rule.results[0][0])
      axes = {{letters[letter]}};
    return;
  }
  if (rule.operands.empty()) return;
  const size_t source = name.starts_with("index_put") ? rule.operands.size() - 1 : 0;
  const Operand& operand = rule.operands[source];
  FactorList axis = value_axis(operand.value, operand.element);
  if (axis.empty()) return;
  if (name == "floor_divide") {
    if (node.target == "Tensor.__rfloordiv__") return;
    const Call call(graph_, node, *ops_[node.id]);
    const Arg* divisor = call.find("other");
    Expr left = divisor != nullptr && divisor->is_integral() ? divisor->as_expr() : Expr(0);
    while (!axis.empty() && left != Expr(1)) {
      const std::optional<Expr> rest = divide_exact(left, factors_.size(axis.back()));
      if (!rest) return;
      left = *rest;
      axis.pop_back();
    }
    if (axis.empty()) return;
  } else if (!copies_elements(ops_[node.id]) && source == 0) {
    return;
  }
  axes = {std::move(axis)};
  if (source == 0) positions_read_[node.id].push_back(0);
}

std::optional<Occurrence> Axes::find_cut(NodeId node, const TensorLetters& letters,
                                         LetterLeaf leaf) const {
  if (auto found = find(node, letters, leaf)) return found;
  const Application& rule = applications_[node];
  const FactorId cut = leaf_factor(node, leaf);
  const FactorId base = is_bag(cut) ? bag_base(cut) : cut;
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    if (rule.letters[letter].link != leaf.letter) continue;
    const FactorList leaves = letter_leaves(node, letter);
    if (rule.letters[letter].kind == LetterKind::kShift && leaf.position == 0 &&
        moves_with(leaves, letter_leaves(node, leaf.letter))) {
      if (auto found = find(node, letters, {letter, 0})) return found;
    }
    if (rule.letters[letter].kind != LetterKind::kBag) continue;
    for (int position = 0; position < static_cast<int>(leaves.size()); ++position) {
      const bool bag = is_bag(leaves[position]);
      // One of the two is in an order of its own; a letter that is no bag picks by global numbers.
      if (!bag && !is_bag(cut)) continue;
      if ((bag ? bag_base(leaves[position]) : leaves[position]) != base) continue;
      return find(node, letters, {letter, position});
    }
  }
  return std::nullopt;
}

NodeId Axes::without_casts(NodeId value) const {
  while (copies_elements(ops_[value]) && !graph_.node(value).args.empty()) {
    const Arg& source = graph_.node(value).args[0];
    if (!source.is_value() || graph_.node(source.value).type.kind == Type::Kind::kTuple) break;
    value = source.value;
  }
  return value;
}

bool Axes::ends_of_groups(NodeId value, FactorId bag, std::vector<NodeId>* through) const {
  const BagLink* link = bag_link(bag);
  if (link == nullptr) return false;
  bool summed = false;
  for (NodeId at = value;;) {
    const Node& node = graph_.node(at);
    const OpDef* op = ops_[at];
    if (op == nullptr) return false;
    if (through != nullptr) through->push_back(at);
    const Call call(graph_, node, *op);
    if (op->name == "histc") {
      const Arg* bins = call.find("bins");
      const Arg* min = call.find("min");
      const Arg* max = call.find("max");
      const auto number = [](const Arg* arg) {
        return arg != nullptr && arg->is_integral() ? arg->as_expr().as_constant() : std::nullopt;
      };
      if (!summed || !number(bins) || number(min) != 0 || number(max) != *number(bins) - 1)
        return false;
      const NodeId keys = without_casts(call.value("input"));
      const Application& rule = applications_[keys];
      const Call sort(graph_, graph_.node(link->node), *ops_[link->node]);
      return graph_.node(keys).target == "_operator.getitem" && rule.operands.size() == 1 &&
             rule.operands[0].value == link->node && rule.operands[0].element == 0 &&
             !sort.boolean_or("descending", false);
    }
    if (node.target.ends_with("cumsum") && !summed && node.type.shape.size() == 1) {
      summed = true;
      at = call.value("input");
    } else if (copies_elements(op) && !node.args.empty() && node.args[0].is_value()) {
      at = node.args[0].value;
    } else {
      return false;
    }
    if (at == kNoNode) return false;
  }
}

}  // namespace autosp
