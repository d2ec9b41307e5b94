#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "ir/expr.h"
#include "ir/expr_algebra.h"

namespace autosp {

using namespace expr_internal;

namespace {

using Algebra = Expr::Algebra;
using Term = Expr::Term;
using Factor = Expr::Factor;
using Atom = Expr::Atom;
using AtomKind = Expr::AtomKind;
using Factors = std::vector<Factor>;
using Rewritten = std::optional<Expr>;

constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

struct Division {
  Expr quotient, remainder;
};

// std::gcd of magnitudes; kInt64Min has none in int64 and counts as coprime to everything.
std::int64_t gcd_int(std::int64_t a, std::int64_t b) {
  return a == kInt64Min || b == kInt64Min ? 1 : std::gcd(a, b);
}

std::optional<Factors> divide_monomials(const Factors& a, const Factors& b) {
  Factors result;
  auto j = b.begin();
  for (const Factor& f : a) {
    const int c = j == b.end() ? -1 : compare_atoms(*f.atom, *j->atom);
    if (c > 0) return std::nullopt;
    if (c < 0) {
      result.push_back(f);
      continue;
    }
    if (f.power < j->power) return std::nullopt;
    if (f.power > j->power) result.push_back({f.atom, f.power - j->power});
    ++j;
  }
  if (j != b.end()) return std::nullopt;
  return result;
}

Factors common_monomial(const Factors& a, const Factors& b) {
  Factors result;
  auto j = b.begin();
  for (const Factor& f : a) {
    while (j != b.end() && compare_atoms(*j->atom, *f.atom) < 0) ++j;
    if (j != b.end() && compare_atoms(*j->atom, *f.atom) == 0) {
      result.push_back({f.atom, std::min(f.power, j->power)});
    }
  }
  return result;
}

// Runs a rewriting that may leave int64 or the limits although its result is not needed.
template <typename Rewrite>
auto attempt(Rewrite rewrite) -> decltype(rewrite()) {
  try {
    return rewrite();
  } catch (const std::overflow_error&) {
    return std::nullopt;
  }
}

bool leads_negative(const Expr& e) {
  const std::vector<Term> terms = e.terms();
  return !terms.empty() && terms[0].coefficient < 0;
}

std::int64_t constant_term(const Expr& e) {
  const std::vector<Term> terms = e.terms();
  return !terms.empty() && terms.back().factors.empty() ? terms.back().coefficient : 0;
}

// Applies f to every coefficient (of a constant: the constant).
template <typename F>
Expr map_coefficients(const Expr& e, F f) {
  std::vector<Term> result;
  for (Term& t : e.terms()) {
    t.coefficient = f(t.coefficient, t.factors.empty());
    if (t.coefficient != 0) result.push_back(std::move(t));
  }
  return Algebra::from_terms(std::move(result));
}

// a = quotient*b + remainder, where no term of the remainder can be divided further. With
// exact set: nothing unless the remainder is zero. Nothing too where it takes too many steps.
std::optional<Division> divide(const Expr& a, const Expr& b, bool exact) {
  const Term lead = b.terms()[0];
  Division result;
  Expr rest = a;
  for (std::size_t step = 0; !(rest == 0); ++step) {
    if (step > 4 * Expr::kMaxTerms) return std::nullopt;
    const Term first = rest.terms()[0];
    const auto monomial = divide_monomials(first.factors, lead.factors);
    const bool divides = monomial && !(lead.coefficient == -1 && first.coefficient == kInt64Min);
    const std::int64_t ratio = divides ? first.coefficient / lead.coefficient : 0;
    if (exact && (ratio == 0 || first.coefficient % lead.coefficient != 0)) return std::nullopt;
    if (ratio == 0) {
      const Expr term = Algebra::from_term(first.coefficient, first.factors);
      result.remainder += term;
      rest -= term;
    } else {
      result.quotient += Algebra::from_term(ratio, *monomial);
      rest = Algebra::add_scaled(rest, multiply(ratio, -1), *monomial, b);
    }
  }
  return result;
}

// The range of a sum of remainders by constants.
std::optional<std::pair<std::int64_t, std::int64_t>> range(const Expr& e) {
  std::int64_t low = 0;
  std::int64_t high = 0;
  for (const Term& t : e.terms()) {
    std::int64_t reach = t.coefficient;
    if (t.factors.empty()) {
      low = add(low, reach);
      high = add(high, reach);
      continue;
    }
    const Atom& atom = *t.factors[0].atom;
    if (degree(t.factors) != 1 || atom.kind != AtomKind::kMod) return std::nullopt;
    const auto divisor = atom.arguments[1].as_constant();
    if (!divisor || *divisor < 0) return std::nullopt;
    reach = multiply(reach, *divisor - 1);
    (reach < 0 ? low : high) = add(reach < 0 ? low : high, reach);
  }
  return std::make_pair(low, high);
}

// floor(e/divisor) where it is the same over the whole range of e.
std::optional<std::int64_t> constant_quotient(const Expr& e, std::int64_t divisor) {
  const auto bounds = range(e);
  if (!bounds) return std::nullopt;
  const std::int64_t quotient = floor_div_int(bounds->first, divisor);
  if (quotient != floor_div_int(bounds->second, divisor)) return std::nullopt;
  return quotient;
}

// The greatest common divisor of divisor and all coefficients of e but the constant's.
std::int64_t symbolic_content(const Expr& e, std::int64_t divisor) {
  std::int64_t g = divisor;
  for (const Term& t : e.terms()) {
    if (!t.factors.empty()) g = gcd_int(g, t.coefficient);
  }
  return g;
}

// The largest single term that divides a and b, with a positive coefficient.
Expr common_term(const Expr& a, const Expr& b) {
  std::vector<Term> all = a.terms();
  for (Term& t : b.terms()) all.push_back(std::move(t));
  std::int64_t g = 0;
  Factors monomial = all[0].factors;
  for (const Term& t : all) {
    g = gcd_int(g, t.coefficient);
    monomial = common_monomial(monomial, t.factors);
  }
  return Algebra::from_term(g, std::move(monomial));
}

// The atom that e consists of, or null.
std::shared_ptr<const Atom> single_atom(const Expr& e) {
  const std::vector<Term> terms = e.terms();
  const bool is_atom =
      terms.size() == 1 && terms[0].coefficient == 1 && degree(terms[0].factors) == 1;
  return is_atom ? terms[0].factors[0].atom : nullptr;
}

// The rules below return the rewritten division, or nothing where none applies: only then is
// an atom made, so that an atom's own arguments never change when it is built again.

// Divides both sides by the largest term that they have in common.
template <typename Rebuild>
Rewritten cancel(const Expr& a, const Expr& b, Rebuild rebuild) {
  const Expr g = common_term(a, b);
  if (g == 1) return std::nullopt;
  const auto x = divide(a, g, true);
  const auto y = divide(b, g, true);
  if (!x || !y) return std::nullopt;
  return rebuild(x->quotient, y->quotient, g);
}

Rewritten rewrite_floor_div_by(const Expr& a, std::int64_t c) {
  const Expr whole = map_coefficients(a, [c](std::int64_t k, bool is_constant) {
    return is_constant ? floor_div_int(k, c) : k / c;
  });
  if (!(whole == 0)) return whole + floor_div(a - whole * c, c);
  if (leads_negative(a)) return -floor_div(add(c, -1) - a, c);
  if (const std::int64_t g = symbolic_content(a, c); g > 1) {
    return floor_div(map_coefficients(a, [g](std::int64_t k, bool) { return floor_div_int(k, g); }),
                     c / g);
  }
  // floor((floor(x/y) + k)/c) = floor((x + k*y)/(y*c))
  const std::int64_t k = constant_term(a);
  if (const auto inner = single_atom(a - k); inner && inner->kind == AtomKind::kFloorDiv) {
    const Expr& x = inner->arguments[0];
    const Expr& y = inner->arguments[1];
    return floor_div(x + k * y, y * c);
  }
  if (const auto quotient = constant_quotient(a, c)) return Expr(*quotient);
  return std::nullopt;
}

Rewritten rewrite_floor_div(const Expr& a, const Expr& b) {
  if (a == 0) return a;
  if (leads_negative(b)) return floor_div(-a, -b);
  if (b == 1) return a;
  if (const auto c = b.as_constant()) return rewrite_floor_div_by(a, *c);
  if (const auto division = divide(a, b, false); division && !(division->quotient == 0)) {
    return division->quotient + floor_div(division->remainder, b);
  }
  return cancel(a, b, [](const Expr& x, const Expr& y, const Expr&) { return floor_div(x, y); });
}

Rewritten rewrite_mod_by(const Expr& a, std::int64_t c) {
  const Expr reduced = map_coefficients(a, [c](std::int64_t k, bool is_constant) {
    const std::int64_t r = mod_int(k, c);
    return !is_constant && r > c / 2 ? r - c : r;
  });
  if (!(reduced == a)) return mod(reduced, c);
  if (const std::int64_t g = symbolic_content(a, c); g > 1) {
    const std::int64_t k = constant_term(a);
    const Expr part =
        map_coefficients(a, [g](std::int64_t x, bool) { return floor_div_int(x, g); });
    return g * mod(part, c / g) + mod_int(k, g);
  }
  // k*Mod(x, m) and k*x differ by a multiple of k*m.
  Expr opened = a;
  for (const Term& t : a.terms()) {
    if (degree(t.factors) != 1 || t.factors[0].atom->kind != AtomKind::kMod) continue;
    const Atom& inner = *t.factors[0].atom;
    const auto m = inner.arguments[1].as_constant();
    if (!m || multiply(t.coefficient, *m) % c != 0) continue;
    opened += t.coefficient * inner.arguments[0] - Algebra::from_term(t.coefficient, t.factors);
  }
  if (!(opened == a)) return mod(opened, c);
  if (const auto quotient = constant_quotient(a, c)) return a - multiply(*quotient, c);
  return std::nullopt;
}

Rewritten rewrite_mod(const Expr& a, const Expr& b) {
  if (a == 0) return a;
  if (leads_negative(b)) return -mod(-a, -b);
  if (b == 1) return Expr(0);
  if (const auto c = b.as_constant()) return rewrite_mod_by(a, *c);
  if (const auto division = divide(a, b, false); division && !(division->quotient == 0)) {
    return mod(division->remainder, b);
  }
  return cancel(a, b, [](const Expr& x, const Expr& y, const Expr& g) { return g * mod(x, y); });
}

Expr extremum(AtomKind kind, std::vector<Expr> operands) {
  if (operands.empty()) throw std::invalid_argument("size expression: min or max of nothing");
  std::vector<Expr> flat;
  for (Expr& e : operands) {
    const auto inner = single_atom(e);
    if (inner && inner->kind == kind) {
      flat.insert(flat.end(), inner->arguments.begin(), inner->arguments.end());
    } else {
      flat.push_back(std::move(e));
    }
  }
  std::sort(flat.begin(), flat.end(), [](const Expr& a, const Expr& b) { return b < a; });
  std::vector<Expr> kept;
  for (const Expr& e : flat) {
    const auto covers = [kind](const Expr& a, const Expr& b) {
      const auto bounds = attempt([&] { return range(a - b); });
      return bounds && (kind == AtomKind::kMin ? bounds->second <= 0 : bounds->first >= 0);
    };
    if (std::any_of(kept.begin(), kept.end(), [&](const Expr& k) { return covers(k, e); })) {
      continue;
    }
    std::erase_if(kept, [&](const Expr& k) { return covers(e, k); });
    kept.push_back(e);
    if (kept.size() > Expr::kMaxTerms) throw_too_large();
  }
  if (kept.size() == 1) return kept[0];
  return Algebra::from_atom({kind, "", std::move(kept)});
}

}  // namespace

Expr floor_div(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant())
    return floor_div_int(a.constant_value(), b.constant_value());
  if (b == 0) throw_zero_division();
  if (auto rewritten = attempt([&] { return rewrite_floor_div(a, b); })) return *rewritten;
  return Algebra::from_atom({AtomKind::kFloorDiv, "", {a, b}});
}

Expr mod(const Expr& a, const Expr& b) {
  if (a.is_constant() && b.is_constant()) return mod_int(a.constant_value(), b.constant_value());
  if (b == 0) throw_zero_division();
  if (auto rewritten = attempt([&] { return rewrite_mod(a, b); })) return *rewritten;
  return Algebra::from_atom({AtomKind::kMod, "", {a, b}});
}

Expr ceil_div(const Expr& a, const Expr& b) {
  if (const auto c = b.as_constant(); c && *c < 0) return ceil_div(-a, -b);
  return floor_div(a + b - 1, b);
}

Expr minimum(std::vector<Expr> operands) { return extremum(AtomKind::kMin, std::move(operands)); }

Expr maximum(std::vector<Expr> operands) { return extremum(AtomKind::kMax, std::move(operands)); }

std::optional<Expr> divide_exact(const Expr& a, const Expr& b) {
  if (b == 0) return std::nullopt;
  const auto division = attempt([&] { return divide(a, b, true); });
  if (!division) return std::nullopt;
  return division->quotient;
}

}  // namespace autosp
