// Elements of other elements: at other places of one tensor, or at the same of several.
#include <algorithm>
#include <map>

#include "sharding/mask_elements.h"

namespace autosp {
namespace {

// The index of each letter of a result as an expression of the result's own indices; nothing for a
// letter that stands in no dimension, or in two.
std::map<LetterId, Expr> letter_indices(const Application& rule) {
  std::map<LetterId, Expr> place;
  for (size_t dim = 0; dim < rule.results[0].size(); ++dim) {
    Expr inside(1);
    const DimLetters& letters = rule.results[0][dim];
    for (size_t i = letters.size(); i-- > 0;) {
      Expr at = floor_div(index_along(dim), inside);
      if (i > 0) at = mod(at, rule.letters[letters[i]].size);
      place.emplace(letters[i], at);
      inside *= rule.letters[letters[i]].size;
    }
  }
  return place;
}

// The indices of an operand's element that a result's element is made of.
std::optional<Substitution> indices_of(const Application& rule, const Operand& operand,
                                       const std::map<LetterId, Expr>& place) {
  Substitution indices;
  for (size_t dim = 0; dim < operand.letters.size(); ++dim) {
    Expr at(0);
    for (LetterId letter : operand.letters[dim]) {
      const auto found = place.find(letter);
      if (found == place.end() || rule.letters[letter].kind != LetterKind::kPass)
        return std::nullopt;
      at = at * rule.letters[letter].size + found->second;
    }
    indices[index_name(dim)] = at;
  }
  return indices;
}

}  // namespace

MaskElements::Known MaskElements::looked_up(const Call& call) {
  const NodeId index = call.value("input");
  const NodeId table = call.value("weight");
  if (index == kNoNode || table == kNoNode || !known_[index] || known_[index]->is_truth())
    return std::nullopt;
  return Elements::of(
      atoms_.read(table, {known_[index]->number, index_along(call.result().shape.size() - 1)}));
}

MaskElements::Known MaskElements::gathered(const Call& call) {
  const NodeId index = call.value("index");
  const NodeId value = call.value("self");
  if (index == kNoNode || value == kNoNode || !known_[index] || known_[index]->is_truth() ||
      !known_[value]) {
    return std::nullopt;
  }
  const auto rank = static_cast<int64_t>(call.result().shape.size());
  const auto dim = static_cast<size_t>(call.dim_or("dim", rank, 0));
  return atoms_.substitute(*known_[value], {{index_name(dim), known_[index]->number}});
}

// Slices, None, integers and Ellipsis; or index tensors for the first dimensions.
MaskElements::Known MaskElements::indexed(const Call& call) {
  const NodeId value = call.value("self");
  const Arg* index = call.find("index");
  if (value == kNoNode || index == nullptr || !known_[value]) return std::nullopt;
  const Node& source = graph_.node(value);
  const size_t rank = source.type.shape.size();
  const std::vector<Arg> items =
      index->kind == Arg::Kind::kTuple ? index->items : std::vector<Arg>{*index};
  const bool by_tensors =
      std::any_of(items.begin(), items.end(), [](const Arg& item) { return item.is_value(); });
  if (by_tensors) return indexed_by_tensors(source, items, call.result());
  const auto consumed =
      static_cast<size_t>(std::count_if(items.begin(), items.end(), [](const Arg& item) {
        return !item.is_none() && item.kind != Arg::Kind::kEllipsis;
      }));
  if (consumed > rank) return std::nullopt;
  Substitution indices;
  size_t dim = 0;
  size_t out = 0;
  const auto keep = [&](size_t count) {
    for (; count > 0; --count) indices[index_name(dim++)] = index_along(out++);
  };
  for (const Arg& item : items) {
    switch (item.kind) {
      case Arg::Kind::kNone:
        ++out;
        break;
      case Arg::Kind::kEllipsis:
        keep(rank - consumed);
        break;
      case Arg::Kind::kSlice: {
        const Arg& start = item.items[0];
        const Arg& stop = item.items[1];
        const Arg& step = item.items[2];
        if (!step.is_none() && !(step.is_integral() && step.as_expr() == Expr(1)))
          return std::nullopt;
        Expr first(0);
        if (stop.is_none()) {
          first = source.type.shape[dim] - call.result().shape[out];
        } else if (start.kind == Arg::Kind::kInt && start.integer >= 0) {
          first = Expr(start.integer);
        } else if (!start.is_none()) {
          return std::nullopt;
        }
        indices[index_name(dim++)] = index_along(out++) + first;
        break;
      }
      case Arg::Kind::kInt:
        if (item.integer < 0) return std::nullopt;
        indices[index_name(dim++)] = Expr(item.integer);
        break;
      default:
        return std::nullopt;
    }
  }
  keep(rank - dim);
  return atoms_.substitute(*known_[value], indices);
}

// An index below zero counts from the end, so only elements that are read as they are may have one.
MaskElements::Known MaskElements::indexed_by_tensors(const Node& source,
                                                     const std::vector<Arg>& items,
                                                     const Type& result) {
  const size_t rank = source.type.shape.size();
  if (items.size() > rank || items.size() > result.shape.size() + rank) return std::nullopt;
  const size_t kept = rank - items.size();
  const Type picked =
      Type::tensor(DType::kInt64,
                   {result.shape.begin(), result.shape.end() - static_cast<std::ptrdiff_t>(kept)});
  const Elements elements = *known_[source.id];
  const Elements own = own_read(source);
  const bool as_it_is = elements.number == own.number && elements.truth == own.truth;
  Substitution indices;
  for (size_t dim = 0; dim < items.size(); ++dim) {
    const Known at = items[dim].is_value() || items[dim].is_integral()
                         ? argument(items[dim], picked)
                         : std::nullopt;
    if (!at || at->is_truth() || (!as_it_is && !is_never_negative(at->number, picked.shape))) {
      return std::nullopt;
    }
    indices[index_name(dim)] = at->number;
  }
  for (size_t dim = 0; dim < kept; ++dim)
    indices[index_name(items.size() + dim)] = index_along(picked.shape.size() + dim);
  return atoms_.substitute(elements, indices);
}

// Views, copies and casts: the operand's index along each letter is the result's.
MaskElements::Known MaskElements::moved(const Call& call) {
  const Application rule = apply_rule(call);
  if (rule.operands.size() != 1 || rule.results.size() != 1 || rule.operands[0].element != 0)
    return std::nullopt;
  const NodeId value = rule.operands[0].value;
  if (!known_[value]) return std::nullopt;
  const auto indices = indices_of(rule, rule.operands[0], letter_indices(rule));
  if (!indices) return std::nullopt;
  Elements elements = atoms_.substitute(*known_[value], *indices);
  const DType from = graph_.node(value).type.dtype;
  const DType to = call.result().dtype;
  if (from == to) return elements;
  const std::string_view name = call.op().name;
  if (name != "to" && name != "cast" && name != "type" && name != "type_as") return std::nullopt;
  if (to == DType::kBool) {
    const std::optional<Formula> formula = as_truth(elements, call);
    return formula ? Known(Elements::of(*formula)) : std::nullopt;
  }
  // Rounded, a number is another one.
  if (!is_floating(to) && is_floating(from)) return std::nullopt;
  return Elements::of(as_number(elements));
}

// Operators that compute each element of the result from the same elements of the operands, and
// from its place along dimensions that the operands don't have.
MaskElements::Known MaskElements::applied(const Call& call) {
  const OpDef& op = call.op();
  if (op.draws != nullptr || op.effect || op.creates || op.registered || op.function || op.scores)
    return std::nullopt;
  const Application rule = apply_rule(call);
  const bool pass = rule.results.size() == 1 && !rule.operands.empty() &&
                    std::all_of(rule.letters.begin(), rule.letters.end(), [](const Letter& letter) {
                      return letter.kind == LetterKind::kPass;
                    });
  if (!pass) return std::nullopt;
  const std::map<LetterId, Expr> place = letter_indices(rule);
  std::vector<Expr> arguments;
  for (const Operand& read : rule.operands) {
    if (read.element != 0 || !known_[read.value]) return std::nullopt;
    const auto indices = indices_of(rule, read, place);
    if (!indices) return std::nullopt;
    arguments.push_back(as_number(atoms_.substitute(*known_[read.value], *indices)));
  }
  for (const auto& [letter, index] : place) {
    const bool is_new = std::none_of(
        rule.operands.begin(), rule.operands.end(), [letter = letter](const Operand& read) {
          return std::any_of(read.letters.begin(), read.letters.end(), [&](const DimLetters& dim) {
            return std::find(dim.begin(), dim.end(), letter) != dim.end();
          });
        });
    if (is_new) arguments.push_back(index);
  }
  const Expr value = atoms_.applied(call.node().id, std::move(arguments));
  return call.result().dtype == DType::kBool ? Elements::of(Formula::not_zero(value))
                                             : Elements::of(value);
}

}  // namespace autosp
