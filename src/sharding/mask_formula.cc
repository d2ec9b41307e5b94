#include "sharding/mask_formula.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>

namespace autosp {
namespace {

// No program has symbols that begin like these.
constexpr std::string_view kIndex = "__index";
constexpr std::string_view kAtom = "__atom";

constexpr double kHiddenNumber = -1e30;

Formula combined(Formula::Kind kind, const Formula& left, const Formula& right) {
  Formula out{kind};
  for (const Formula* side : {&left, &right}) {
    for (Formula& part : side->parts_of(kind)) {
      if (part.kind != kind && part.parts.empty() &&
          (part.kind == Formula::Kind::kAll || part.kind == Formula::Kind::kAny)) {
        return part;  // true or anything, false and anything
      }
      if (std::find(out.parts.begin(), out.parts.end(), part) == out.parts.end())
        out.parts.push_back(std::move(part));
    }
  }
  return out.parts.size() == 1 ? out.parts[0] : out;
}

// The term that is a number times one minimum or maximum, if there is just one such term.
std::optional<Expr::Term> only_extremum(const Expr& value) {
  std::optional<Expr::Term> found;
  for (const Expr::Term& term : value.terms()) {
    if (term.factors.size() != 1 || term.factors[0].power != 1) continue;
    const Expr::AtomKind kind = term.factors[0].atom->kind;
    if (kind != Expr::AtomKind::kMin && kind != Expr::AtomKind::kMax) continue;
    if (found) return std::nullopt;
    found = term;
  }
  return found;
}

std::string text(const Formula& formula) {
  static constexpr std::string_view kSigns = "&|>=!";
  std::string out = "(";
  out += kSigns[static_cast<size_t>(formula.kind)];
  out += formula.value.to_string();
  for (const Formula& part : formula.parts) out += text(part);
  return out + ")";
}

std::string text(const std::vector<Expr>& exprs) {
  std::string out;
  for (const Expr& expr : exprs) out += "|" + expr.to_string();
  return out;
}

}  // namespace

Expr product(const Expr::Term& term) {
  Expr out(term.coefficient);
  for (const Expr::Factor& factor : term.factors) {
    const Expr::Atom& atom = *factor.atom;
    Expr base;
    switch (atom.kind) {
      case Expr::AtomKind::kSymbol:
        base = Expr::symbol(atom.name);
        break;
      case Expr::AtomKind::kFloorDiv:
        base = floor_div(atom.arguments[0], atom.arguments[1]);
        break;
      case Expr::AtomKind::kMod:
        base = mod(atom.arguments[0], atom.arguments[1]);
        break;
      case Expr::AtomKind::kMin:
        base = minimum(atom.arguments);
        break;
      case Expr::AtomKind::kMax:
        base = maximum(atom.arguments);
        break;
    }
    out *= power(base, factor.power);
  }
  return out;
}

std::string index_name(size_t dim) { return std::string(kIndex) + std::to_string(dim); }
Expr index_along(size_t dim) { return Expr::symbol(index_name(dim)); }

Formula Formula::at_least_zero(const Expr& value) {
  if (const auto known = value.as_constant()) return constant(*known >= 0);
  const std::optional<Expr::Term> term = only_extremum(value);
  if (!term) return {Kind::kAtLeast, value};
  const Expr::Atom& atom = *term->factors[0].atom;
  const Expr rest = value - product(*term);
  const bool all = (atom.kind == Expr::AtomKind::kMin) == (term->coefficient > 0);
  Formula out = constant(all);
  for (const Expr& operand : atom.arguments) {
    const Formula part = at_least_zero(rest + Expr(term->coefficient) * operand);
    out = all ? both(out, part) : either(out, part);
  }
  return out;
}

Formula Formula::zero(const Expr& value) {
  if (const auto known = value.as_constant()) return constant(*known == 0);
  return {Kind::kZero, value.terms()[0].coefficient < 0 ? -value : value};
}

Formula Formula::not_zero(const Expr& value) { return negated(zero(value)); }

std::vector<Formula> Formula::parts_of(Kind of) const {
  return kind == of ? parts : std::vector<Formula>{*this};
}

Formula negated(const Formula& formula) {
  using Kind = Formula::Kind;
  switch (formula.kind) {
    case Kind::kAtLeast:
      return {Kind::kAtLeast, Expr(-1) - formula.value};
    case Kind::kZero:
      return {Kind::kNotZero, formula.value};
    case Kind::kNotZero:
      return {Kind::kZero, formula.value};
    case Kind::kAll:
    case Kind::kAny:
      break;
  }
  Formula out{formula.kind == Kind::kAll ? Kind::kAny : Kind::kAll};
  for (const Formula& part : formula.parts) out.parts.push_back(negated(part));
  return out;
}

Formula both(const Formula& left, const Formula& right) {
  return combined(Formula::Kind::kAll, left, right);
}
Formula either(const Formula& left, const Formula& right) {
  return combined(Formula::Kind::kAny, left, right);
}

Expr Atoms::intern(const std::string& key, Atom atom) {
  const auto [place, added] = known_.emplace(key, atoms_.size());
  if (added) {
    for (const Expr& argument : atom.arguments) atom.size += size(argument);
    atom.size += size(atom.truth);
    atoms_.push_back(std::move(atom));
  }
  return Expr::symbol(std::string(kAtom) + std::to_string(place->second));
}

Expr Atoms::read(NodeId node, std::vector<Expr> indices) {
  const std::string key = "read " + std::to_string(node) + text(indices);
  return intern(key, {.kind = Kind::kRead, .node = node, .arguments = std::move(indices)});
}

Expr Atoms::applied(NodeId node, std::vector<Expr> arguments) {
  const std::string key = "applied " + std::to_string(node) + text(arguments);
  return intern(key, {.kind = Kind::kApplied, .node = node, .arguments = std::move(arguments)});
}

Expr Atoms::truth(const Formula& formula) {
  if (formula.is_true() || formula.is_false()) return Expr(formula.is_true() ? 1 : 0);
  return intern("truth " + text(formula), {.kind = Kind::kTruth, .truth = formula});
}

Expr Atoms::number(double value) {
  return intern("number " + std::to_string(std::bit_cast<uint64_t>(value)),
                {.kind = Kind::kNumber, .number = value});
}

Expr Atoms::hidden() { return intern("hidden", {.kind = Kind::kHidden, .number = kHiddenNumber}); }

const Atoms::Atom* Atoms::find(const std::string& symbol) const {
  if (!symbol.starts_with(kAtom)) return nullptr;
  size_t place = 0;
  const char* const end = symbol.data() + symbol.size();
  const auto [last, error] = std::from_chars(symbol.data() + kAtom.size(), end, place);
  return error == std::errc() && last == end && place < atoms_.size() ? &atoms_[place] : nullptr;
}

const Atoms::Atom* Atoms::find(const Expr& expr) const {
  const std::vector<std::string> symbols = expr.symbols();
  return symbols.size() == 1 && expr == Expr::symbol(symbols[0]) ? find(symbols[0]) : nullptr;
}

Expr Atoms::substitute(const Expr& expr, const Substitution& indices) {
  Substitution replaced;
  for (const std::string& symbol : expr.symbols()) {
    if (const auto index = indices.find(symbol); index != indices.end()) {
      replaced.insert(*index);
      continue;
    }
    const Atom* found = find(symbol);
    if (found == nullptr || found->size == 1) continue;
    const Atom atom = *found;  // interning moves the others
    if (atom.kind == Kind::kTruth) {
      replaced[symbol] = truth(substitute(atom.truth, indices));
      continue;
    }
    std::vector<Expr> arguments;
    for (const Expr& argument : atom.arguments) arguments.push_back(substitute(argument, indices));
    replaced[symbol] = atom.kind == Kind::kRead ? read(atom.node, std::move(arguments))
                                                : applied(atom.node, std::move(arguments));
  }
  return expr.substitute(replaced);
}

Formula Atoms::substitute(const Formula& formula, const Substitution& indices) {
  switch (formula.kind) {
    case Formula::Kind::kAtLeast:
      return Formula::at_least_zero(substitute(formula.value, indices));
    case Formula::Kind::kZero:
      return Formula::zero(substitute(formula.value, indices));
    case Formula::Kind::kNotZero:
      return Formula::not_zero(substitute(formula.value, indices));
    case Formula::Kind::kAll:
    case Formula::Kind::kAny:
      break;
  }
  const bool all = formula.kind == Formula::Kind::kAll;
  Formula out = Formula::constant(all);
  for (const Formula& part : formula.parts) {
    const Formula changed = substitute(part, indices);
    out = all ? both(out, changed) : either(out, changed);
  }
  return out;
}

Elements Atoms::substitute(const Elements& elements, const Substitution& indices) {
  if (elements.is_truth()) return Elements::of(substitute(elements.truth, indices));
  return Elements::of(substitute(elements.number, indices));
}

size_t Atoms::size(const Expr& expr) const {
  size_t sum = 0;
  for (const std::string& symbol : expr.symbols()) {
    const Atom* atom = find(symbol);
    sum += atom == nullptr ? 1 : atom->size;
  }
  return sum;
}

size_t Atoms::size(const Formula& formula) const {
  size_t sum = size(formula.value);
  for (const Formula& part : formula.parts) sum += 1 + size(part);
  return sum;
}

std::optional<double> numeric(const Atoms& atoms, const Expr& expr) {
  double sum = 0;
  for (const Expr::Term& term : expr.terms()) {
    auto product = static_cast<double>(term.coefficient);
    for (const Expr::Factor& factor : term.factors) {
      const Atoms::Atom* atom = atoms.find(factor.atom->name);
      if (atom == nullptr ||
          (atom->kind != Atoms::Kind::kNumber && atom->kind != Atoms::Kind::kHidden)) {
        return std::nullopt;
      }
      for (int32_t i = 0; i < factor.power; ++i) product *= atom->number;
    }
    sum += product;
  }
  return sum;
}

}  // namespace autosp
