#include "ir/known_sizes.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace autosp {
namespace {

struct Multiple {
  std::string symbol;
  int64_t of = 1;
};

// The atom that an expression is a multiple of, or nullptr.
const Expr::Atom* only_atom(const Expr& size) {
  if (size.is_constant()) return nullptr;
  const std::vector<Expr::Term> terms = size.terms();
  const bool alone =
      terms.size() == 1 && terms[0].factors.size() == 1 && terms[0].factors[0].power == 1;
  // Terms keep their atoms alive as long as the expression does.
  return alone ? terms[0].factors[0].atom.get() : nullptr;
}

// The difference without factors that all of its terms have.
Expr without_common_factors(Expr difference) {
  const std::vector<Expr::Term> terms = difference.terms();
  int64_t number = 0;
  for (const Expr::Term& term : terms) number = std::gcd(number, term.coefficient);
  difference = *divide_exact(difference, Expr(number));
  for (const Expr::Factor& factor : terms[0].factors) {
    for (int power = 0; power < factor.power; ++power) {
      Expr atom;
      switch (factor.atom->kind) {
        case Expr::AtomKind::kSymbol:
          atom = Expr::symbol(factor.atom->name);
          break;
        case Expr::AtomKind::kFloorDiv:
          atom = floor_div(factor.atom->arguments[0], factor.atom->arguments[1]);
          break;
        default:
          continue;
      }
      if (const std::optional<Expr> rest = divide_exact(difference, atom)) difference = *rest;
    }
  }
  return difference;
}

// A remainder that is zero says what its symbol is a multiple of.
std::optional<Multiple> from_remainder(const Expr& remainder) {
  const Expr::Atom* atom = only_atom(remainder);
  if (atom == nullptr || atom->kind != Expr::AtomKind::kMod) return std::nullopt;
  const std::optional<int64_t> divisor = atom->arguments[1].as_constant();
  const std::vector<Expr::Term> terms = atom->arguments[0].terms();
  if (!divisor || *divisor < 2 || terms.size() != 1 || terms[0].factors.size() != 1 ||
      terms[0].factors[0].power != 1)
    return std::nullopt;
  const Expr::Atom& of = *terms[0].factors[0].atom;
  const int64_t rest = *divisor / std::gcd(*divisor, terms[0].coefficient);
  if (of.kind != Expr::AtomKind::kSymbol || rest == 1) return std::nullopt;
  return Multiple{of.name, rest};
}

// s == n*(s//n) says the same.
std::optional<Multiple> from_quotient(const Expr& difference) {
  for (const Expr::Term& term : difference.terms()) {
    if (term.factors.size() != 1) continue;
    const Expr::Atom& atom = *term.factors[0].atom;
    if (atom.kind != Expr::AtomKind::kFloorDiv) continue;
    const std::vector<std::string> names = atom.arguments[0].symbols();
    const std::optional<int64_t> divisor = atom.arguments[1].as_constant();
    if (!divisor || names.size() != 1 || atom.arguments[0] != Expr::symbol(names[0])) continue;
    const Expr rest = atom.arguments[0] - Expr(*divisor) * floor_div(atom.arguments[0], *divisor);
    if (difference == rest || difference == -rest) return Multiple{names[0], *divisor};
  }
  return std::nullopt;
}

bool mentions(const Expr& size, const std::string& symbol) {
  const std::vector<std::string> symbols = size.symbols();
  return std::find(symbols.begin(), symbols.end(), symbol) != symbols.end();
}

}  // namespace

KnownSizes known_sizes(const std::vector<SizeGuard>& guards) {
  std::map<std::string, int64_t> multiples;
  std::map<std::string, Expr> solved;
  for (const SizeGuard& guard : guards) {
    const Expr difference = guard.left - guard.right;
    if (difference.is_constant()) continue;
    std::optional<Multiple> found = from_remainder(difference);
    if (!found && guard.equal) found = from_quotient(without_common_factors(difference));
    if (found) {
      int64_t& of = multiples.try_emplace(found->symbol, 1).first->second;
      of = std::lcm(of, found->of);
    }
  }
  KnownSizes known;
  for (const auto& [symbol, of] : multiples) {
    const std::string quotient = symbol + "_" + std::to_string(of);
    known.quotients.push_back({quotient, symbol, of});
    known.replacements.emplace(symbol, Expr(of) * Expr::symbol(quotient));
  }
  for (const SizeGuard& guard : guards) {
    const Expr difference = (guard.left - guard.right).substitute(known.replacements);
    if (!guard.equal || difference.is_constant()) continue;
    const Expr rest = without_common_factors(difference);
    for (const Expr::Term& term : rest.terms()) {
      if (term.factors.size() != 1 || term.factors[0].power != 1 ||
          term.factors[0].atom->kind != Expr::AtomKind::kSymbol ||
          (term.coefficient != 1 && term.coefficient != -1))
        continue;
      const std::string& symbol = term.factors[0].atom->name;
      const Expr other = Expr::symbol(symbol) - rest * Expr(term.coefficient);
      const bool divided = std::any_of(
          known.quotients.begin(), known.quotients.end(),
          [&](const KnownSizes::Quotient& quotient) { return quotient.symbol == symbol; });
      const bool used = std::any_of(solved.begin(), solved.end(), [&](const auto& entry) {
        return entry.first == symbol || mentions(entry.second, symbol) ||
               mentions(other, entry.first);
      });
      if (divided || used || mentions(other, symbol)) continue;
      solved.emplace(symbol, other);
      break;
    }
  }
  known.replacements.insert(solved.begin(), solved.end());
  return known;
}

}  // namespace autosp
