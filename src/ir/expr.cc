#include "ir/expr.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

namespace autosp {

namespace {

using Term = Expr::Term;
using Factor = Expr::Factor;
using Atom = Expr::Atom;
using AtomKind = Expr::AtomKind;
using Factors = std::vector<Factor>;

constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();

[[noreturn]] void throw_overflow() {
  throw std::overflow_error("size expression: a value does not fit 64 bits");
}

[[noreturn]] void throw_too_large() {
  throw std::overflow_error("size expression: too many terms or nested too deeply");
}

[[noreturn]] void throw_zero_division() {
  throw std::domain_error("size expression: division by zero");
}

std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_add_overflow(a, b, &result)) throw_overflow();
  return result;
}

std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) throw_overflow();
  return result;
}

// a + b*c, where only the result has to fit.
std::int64_t multiply_add(std::int64_t a, std::int64_t b, std::int64_t c) {
  const __int128 result = a + static_cast<__int128>(b) * c;
  if (result != static_cast<std::int64_t>(result)) throw_overflow();
  return static_cast<std::int64_t>(result);
}

std::int64_t floor_div_int(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_zero_division();
  if (b == -1) return multiply(a, -1);
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

std::int64_t mod_int(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_zero_division();
  if (b == -1) return 0;
  const std::int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

// std::gcd of magnitudes; kInt64Min has none in int64 and counts as coprime to everything.
std::int64_t gcd_int(std::int64_t a, std::int64_t b) {
  return a == kInt64Min || b == kInt64Min ? 1 : std::gcd(a, b);
}

int compare_int(std::int64_t a, std::int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

std::size_t mix(std::size_t seed, std::size_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2))) * 0x100000001b3ULL;
}

int compare_atoms(const Atom& a, const Atom& b) {
  if (&a == &b) return 0;
  if (a.kind != b.kind) return a.kind < b.kind ? -1 : 1;
  if (a.kind == AtomKind::kSymbol) return compare_int(a.name.compare(b.name), 0);
  const std::size_t shared = std::min(a.arguments.size(), b.arguments.size());
  for (std::size_t i = 0; i < shared; ++i) {
    if (const int c = compare(a.arguments[i], b.arguments[i])) return c;
  }
  return compare_int(static_cast<std::int64_t>(a.arguments.size()),
                     static_cast<std::int64_t>(b.arguments.size()));
}

std::int64_t degree(const Factors& factors) {
  std::int64_t sum = 0;
  for (const Factor& f : factors) sum += f.power;
  return sum;
}

// Graded lexicographic: compatible with multiplication and a well-order, as long division needs.
int compare_monomials(const Factors& a, const Factors& b) {
  if (const int c = compare_int(degree(a), degree(b))) return c;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (const int c = compare_atoms(*a[i].atom, *b[i].atom)) return -c;
    if (const int c = compare_int(a[i].power, b[i].power)) return c;
  }
  return 0;
}

Factors multiply_monomials(const Factors& a, const Factors& b) {
  if (degree(a) + degree(b) > Expr::kMaxDegree) throw_too_large();
  Factors result;
  result.reserve(a.size() + b.size());
  auto i = a.begin();
  auto j = b.begin();
  while (i != a.end() || j != b.end()) {
    const int c = i == a.end() ? 1 : j == b.end() ? -1 : compare_atoms(*i->atom, *j->atom);
    if (c < 0) {
      result.push_back(*i++);
    } else if (c > 0) {
      result.push_back(*j++);
    } else {
      result.push_back({i->atom, i->power + j->power});
      ++i, ++j;
    }
  }
  return result;
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

}  // namespace

struct Expr::Node {
  std::vector<Term> terms;  // largest monomial first, no zero coefficients
  std::size_t hash;
  std::size_t size;
  std::int32_t depth;
};

struct Expr::Algebra {
  using Rewritten = std::optional<Expr>;

  // terms: sorted, distinct monomials, coefficients other than zero.
  static Expr from_terms(std::vector<Term> terms) {
    if (terms.empty()) return 0;
    if (terms.size() == 1 && terms[0].factors.empty()) return terms[0].coefficient;
    if (terms.size() > kMaxTerms) throw_too_large();
    auto node = std::make_shared<Node>();
    std::size_t hash = terms.size();
    std::size_t size = terms.size();
    std::int32_t depth = 0;
    for (const Term& term : terms) {
      hash = mix(hash, static_cast<std::size_t>(term.coefficient));
      for (const Factor& f : term.factors) {
        hash = mix(mix(hash, static_cast<std::size_t>(f.atom->kind)),
                   static_cast<std::size_t>(f.power));
        for (const char c : f.atom->name) hash = mix(hash, static_cast<unsigned char>(c));
        for (const Expr& e : f.atom->arguments) {
          hash = mix(hash, e.hash());
          size += 1 + (e.node_ ? e.node_->size : 0);
          depth = std::max(depth, 1 + (e.node_ ? e.node_->depth : 0));
        }
      }
    }
    if (size > kMaxSize || depth > kMaxDepth) throw_too_large();
    node->terms = std::move(terms);
    node->hash = hash;
    node->size = size;
    node->depth = depth;
    Expr result;
    result.node_ = std::move(node);
    return result;
  }

  static Expr from_atom(Atom atom) {
    return from_terms({{1, {{std::make_shared<const Atom>(std::move(atom)), 1}}}});
  }

  static Expr from_term(std::int64_t coefficient, Factors factors) {
    return from_terms({{coefficient, std::move(factors)}});
  }

  // a + scale * monomial * b, one merge: multiplying by a monomial keeps the order of terms.
  static Expr add_scaled(const Expr& a, std::int64_t scale, const Factors& monomial,
                         const Expr& b) {
    const std::vector<Term> left = a.terms();
    std::vector<Term> right = b.terms();
    for (Term& t : right) {
      if (!monomial.empty()) t.factors = multiply_monomials(t.factors, monomial);
    }
    std::vector<Term> result;
    result.reserve(left.size() + right.size());
    auto i = left.begin();
    auto j = right.begin();
    while (i != left.end() || j != right.end()) {
      const int c = i == left.end()    ? -1
                    : j == right.end() ? 1
                                       : compare_monomials(i->factors, j->factors);
      const Factors& factors = c >= 0 ? i->factors : j->factors;
      const std::int64_t coefficient =
          multiply_add(c >= 0 ? i->coefficient : 0, scale, c <= 0 ? j->coefficient : 0);
      if (coefficient != 0) result.push_back({coefficient, factors});
      if (c >= 0) ++i;
      if (c <= 0) ++j;
    }
    return from_terms(std::move(result));
  }

  static bool leads_negative(const Expr& e) {
    return e.node_ ? e.node_->terms[0].coefficient < 0 : e.constant_ < 0;
  }

  static std::int64_t constant_term(const Expr& e) {
    if (!e.node_) return e.constant_;
    const Term& last = e.node_->terms.back();
    return last.factors.empty() ? last.coefficient : 0;
  }

  // Applies f to every coefficient (of a constant: the constant).
  template <typename F>
  static Expr map_coefficients(const Expr& e, F f) {
    std::vector<Term> result;
    for (Term& t : e.terms()) {
      t.coefficient = f(t.coefficient, t.factors.empty());
      if (t.coefficient != 0) result.push_back(std::move(t));
    }
    return from_terms(std::move(result));
  }

  struct Division {
    Expr quotient, remainder;
  };

  // a = quotient*b + remainder, where no term of the remainder can be divided further. With
  // exact set: nothing unless the remainder is zero. Nothing too where it takes too many steps.
  static std::optional<Division> divide(const Expr& a, const Expr& b, bool exact) {
    const Term lead = b.terms()[0];
    Division result;
    Expr rest = a;
    for (std::size_t step = 0; !(rest == 0); ++step) {
      if (step > 4 * kMaxTerms) return std::nullopt;
      const Term first = rest.terms()[0];
      const auto monomial = divide_monomials(first.factors, lead.factors);
      const bool divides = monomial && !(lead.coefficient == -1 && first.coefficient == kInt64Min);
      const std::int64_t ratio = divides ? first.coefficient / lead.coefficient : 0;
      if (exact && (ratio == 0 || first.coefficient % lead.coefficient != 0)) return std::nullopt;
      if (ratio == 0) {
        const Expr term = from_term(first.coefficient, first.factors);
        result.remainder += term;
        rest -= term;
      } else {
        result.quotient += from_term(ratio, *monomial);
        rest = add_scaled(rest, multiply(ratio, -1), *monomial, b);
      }
    }
    return result;
  }

  // The range of a sum of remainders by constants.
  static std::optional<std::pair<std::int64_t, std::int64_t>> range(const Expr& e) {
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
  static std::optional<std::int64_t> constant_quotient(const Expr& e, std::int64_t divisor) {
    const auto bounds = range(e);
    if (!bounds) return std::nullopt;
    const std::int64_t quotient = floor_div_int(bounds->first, divisor);
    if (quotient != floor_div_int(bounds->second, divisor)) return std::nullopt;
    return quotient;
  }

  // The greatest common divisor of divisor and all coefficients of e but the constant's.
  static std::int64_t symbolic_content(const Expr& e, std::int64_t divisor) {
    std::int64_t g = divisor;
    for (const Term& t : e.terms()) {
      if (!t.factors.empty()) g = gcd_int(g, t.coefficient);
    }
    return g;
  }

  // The largest single term that divides a and b, with a positive coefficient.
  static Expr common_term(const Expr& a, const Expr& b) {
    std::vector<Term> all = a.terms();
    for (Term& t : b.terms()) all.push_back(std::move(t));
    std::int64_t g = 0;
    Factors monomial = all[0].factors;
    for (const Term& t : all) {
      g = gcd_int(g, t.coefficient);
      monomial = common_monomial(monomial, t.factors);
    }
    return from_term(g, std::move(monomial));
  }

  // The rules below return the rewritten division, or nothing where none applies: only then is
  // an atom made, so that an atom's own arguments never change when it is built again.
  static Rewritten rewrite_floor_div(const Expr& a, const Expr& b) {
    if (a == 0) return a;
    if (leads_negative(b)) return floor_div(-a, -b);
    if (b == 1) return a;
    if (const auto c = b.as_constant()) return rewrite_floor_div_by(a, *c);
    if (const auto division = divide(a, b, false); division && !(division->quotient == 0)) {
      return division->quotient + floor_div(division->remainder, b);
    }
    return cancel(a, b, [](const Expr& x, const Expr& y, const Expr&) { return floor_div(x, y); });
  }

  static Rewritten rewrite_floor_div_by(const Expr& a, std::int64_t c) {
    const Expr whole = map_coefficients(a, [c](std::int64_t k, bool is_constant) {
      return is_constant ? floor_div_int(k, c) : k / c;
    });
    if (!(whole == 0)) return whole + floor_div(a - whole * c, c);
    if (leads_negative(a)) return -floor_div(add(c, -1) - a, c);
    if (const std::int64_t g = symbolic_content(a, c); g > 1) {
      return floor_div(
          map_coefficients(a, [g](std::int64_t k, bool) { return floor_div_int(k, g); }), c / g);
    }
    // floor((floor(x/y) + k)/c) = floor((x + k*y)/(y*c))
    const std::int64_t k = constant_term(a);
    if (const Atom* inner = single_atom(a - k); inner && inner->kind == AtomKind::kFloorDiv) {
      const Expr& x = inner->arguments[0];
      const Expr& y = inner->arguments[1];
      return floor_div(x + k * y, y * c);
    }
    if (const auto quotient = constant_quotient(a, c)) return Expr(*quotient);
    return std::nullopt;
  }

  static Rewritten rewrite_mod(const Expr& a, const Expr& b) {
    if (a == 0) return a;
    if (leads_negative(b)) return -mod(-a, -b);
    if (b == 1) return Expr(0);
    if (const auto c = b.as_constant()) return rewrite_mod_by(a, *c);
    if (const auto division = divide(a, b, false); division && !(division->quotient == 0)) {
      return mod(division->remainder, b);
    }
    return cancel(a, b, [](const Expr& x, const Expr& y, const Expr& g) { return g * mod(x, y); });
  }

  static Rewritten rewrite_mod_by(const Expr& a, std::int64_t c) {
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
      opened += t.coefficient * inner.arguments[0] - from_term(t.coefficient, t.factors);
    }
    if (!(opened == a)) return mod(opened, c);
    if (const auto quotient = constant_quotient(a, c)) return a - multiply(*quotient, c);
    return std::nullopt;
  }

  template <typename Rebuild>
  static Rewritten cancel(const Expr& a, const Expr& b, Rebuild rebuild) {
    const Expr g = common_term(a, b);
    if (g == 1) return std::nullopt;
    const auto x = divide(a, g, true);
    const auto y = divide(b, g, true);
    if (!x || !y) return std::nullopt;
    return rebuild(x->quotient, y->quotient, g);
  }

  // The atom that e consists of, or null.
  static const Atom* single_atom(const Expr& e) {
    if (!e.node_ || e.node_->terms.size() != 1) return nullptr;
    const Term& t = e.node_->terms[0];
    return t.coefficient == 1 && degree(t.factors) == 1 ? t.factors[0].atom.get() : nullptr;
  }

  static Expr extremum(AtomKind kind, std::vector<Expr> operands) {
    if (operands.empty()) throw std::invalid_argument("size expression: min or max of nothing");
    std::vector<Expr> flat;
    for (Expr& e : operands) {
      const Atom* inner = single_atom(e);
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
      if (kept.size() > kMaxTerms) throw_too_large();
    }
    if (kept.size() == 1) return kept[0];
    return from_atom({kind, "", std::move(kept)});
  }

  static std::int64_t evaluate_atom(const Atom& atom,
                                    const std::map<std::string, std::int64_t>& symbols) {
    if (atom.kind == AtomKind::kSymbol) {
      const auto found = symbols.find(atom.name);
      if (found == symbols.end()) throw std::out_of_range("no value for the symbol " + atom.name);
      return found->second;
    }
    std::int64_t value = atom.arguments[0].evaluate(symbols);
    for (std::size_t i = 1; i < atom.arguments.size(); ++i) {
      const std::int64_t other = atom.arguments[i].evaluate(symbols);
      value = atom.kind == AtomKind::kFloorDiv ? floor_div_int(value, other)
              : atom.kind == AtomKind::kMod    ? mod_int(value, other)
              : atom.kind == AtomKind::kMin    ? std::min(value, other)
                                               : std::max(value, other);
    }
    return value;
  }

  static Expr substitute_atom(const std::shared_ptr<const Atom>& atom,
                              const std::map<std::string, Expr>& replacements) {
    if (atom->kind == AtomKind::kSymbol) {
      const auto found = replacements.find(atom->name);
      return found == replacements.end() ? from_term(1, {{atom, 1}}) : found->second;
    }
    std::vector<Expr> arguments;
    for (const Expr& e : atom->arguments) arguments.push_back(e.substitute(replacements));
    switch (atom->kind) {
      case AtomKind::kFloorDiv:
        return floor_div(arguments[0], arguments[1]);
      case AtomKind::kMod:
        return mod(arguments[0], arguments[1]);
      default:
        return extremum(atom->kind, std::move(arguments));
    }
  }

  static void collect_symbols(const Expr& e, std::set<std::string>& names) {
    if (!e.node_) return;
    for (const Term& t : e.node_->terms) {
      for (const Factor& f : t.factors) {
        if (f.atom->kind == AtomKind::kSymbol) names.insert(f.atom->name);
        for (const Expr& argument : f.atom->arguments) collect_symbols(argument, names);
      }
    }
  }
};

Expr Expr::symbol(std::string_view name) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (name.empty() || !is_letter(name[0]) ||
      !std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); })) {
    throw std::invalid_argument("not the name of a size symbol: '" + std::string(name) + "'");
  }
  return Algebra::from_atom({AtomKind::kSymbol, std::string(name), {}});
}

std::int64_t Expr::constant_value() const {
  if (node_) throw std::logic_error("not a constant size: " + to_string());
  return constant_;
}

std::optional<std::int64_t> Expr::as_constant() const {
  if (node_) return std::nullopt;
  return constant_;
}

std::vector<Expr::Term> Expr::terms() const {
  if (node_) return node_->terms;
  if (constant_ == 0) return {};
  return {{constant_, {}}};
}

std::size_t Expr::hash() const {
  return node_ ? node_->hash : mix(0, static_cast<std::size_t>(constant_));
}

std::int64_t Expr::evaluate(const std::map<std::string, std::int64_t>& symbols) const {
  if (!node_) return constant_;
  std::int64_t sum = 0;
  for (const Term& t : node_->terms) {
    std::int64_t product = t.coefficient;
    for (const Factor& f : t.factors) {
      const std::int64_t value = Algebra::evaluate_atom(*f.atom, symbols);
      for (std::int32_t i = 0; i < f.power; ++i) product = multiply(product, value);
    }
    sum = add(sum, product);
  }
  return sum;
}

Expr Expr::substitute(const std::map<std::string, Expr>& replacements) const {
  if (!node_) return *this;
  Expr sum;
  for (const Term& t : node_->terms) {
    Expr product = t.coefficient;
    for (const Factor& f : t.factors) {
      product *= power(Algebra::substitute_atom(f.atom, replacements), f.power);
    }
    sum += product;
  }
  return sum;
}

std::vector<std::string> Expr::symbols() const {
  std::set<std::string> names;
  Algebra::collect_symbols(*this, names);
  return {names.begin(), names.end()};
}

int compare(const Expr& a, const Expr& b) {
  if (!a.node_ && !b.node_) return compare_int(a.constant_, b.constant_);
  if (a.node_ == b.node_) return 0;
  const std::vector<Term> left = a.terms();
  const std::vector<Term> right = b.terms();
  for (std::size_t i = 0; i < left.size() && i < right.size(); ++i) {
    if (const int c = compare_monomials(left[i].factors, right[i].factors)) return c;
    if (const int c = compare_int(left[i].coefficient, right[i].coefficient)) return c;
  }
  return compare_int(static_cast<std::int64_t>(left.size()),
                     static_cast<std::int64_t>(right.size()));
}

bool operator==(const Expr& a, const Expr& b) {
  if (!a.node_ || !b.node_) return !a.node_ && !b.node_ && a.constant_ == b.constant_;
  return a.node_ == b.node_ || (a.node_->hash == b.node_->hash && compare(a, b) == 0);
}

Expr Expr::operator-() const { return *this * -1; }

Expr operator+(const Expr& a, const Expr& b) {
  if (!a.node_ && !b.node_) return add(a.constant_, b.constant_);
  return Expr::Algebra::add_scaled(a, 1, {}, b);
}

Expr operator-(const Expr& a, const Expr& b) {
  if (!a.node_ && !b.node_) return multiply_add(a.constant_, -1, b.constant_);
  return Expr::Algebra::add_scaled(a, -1, {}, b);
}

Expr operator*(const Expr& a, const Expr& b) {
  if (!a.node_ && !b.node_) return multiply(a.constant_, b.constant_);
  const bool a_shorter = a.terms().size() < b.terms().size();
  const Expr& longer = a_shorter ? b : a;
  Expr sum;
  for (const Term& t : (a_shorter ? a : b).terms()) {
    sum = Expr::Algebra::add_scaled(sum, t.coefficient, t.factors, longer);
  }
  return sum;
}

Expr power(const Expr& x, std::int64_t exponent) {
  if (exponent < 0) throw std::invalid_argument("size expression: negative exponent");
  Expr result = 1;
  Expr square = x;
  for (std::int64_t e = exponent; e > 0; e >>= 1) {
    if (e & 1) result *= square;
    if (e > 1) square *= square;
  }
  return result;
}

Expr floor_div(const Expr& a, const Expr& b) {
  using Algebra = Expr::Algebra;
  if (a.is_constant() && b.is_constant()) return floor_div_int(a.constant_, b.constant_);
  if (b == 0) throw_zero_division();
  if (auto rewritten = attempt([&] { return Algebra::rewrite_floor_div(a, b); })) return *rewritten;
  return Algebra::from_atom({AtomKind::kFloorDiv, "", {a, b}});
}

Expr mod(const Expr& a, const Expr& b) {
  using Algebra = Expr::Algebra;
  if (a.is_constant() && b.is_constant()) return mod_int(a.constant_, b.constant_);
  if (b == 0) throw_zero_division();
  if (auto rewritten = attempt([&] { return Algebra::rewrite_mod(a, b); })) return *rewritten;
  return Algebra::from_atom({AtomKind::kMod, "", {a, b}});
}

Expr ceil_div(const Expr& a, const Expr& b) {
  if (const auto c = b.as_constant(); c && *c < 0) return ceil_div(-a, -b);
  return floor_div(a + b - 1, b);
}

Expr minimum(std::vector<Expr> operands) {
  return Expr::Algebra::extremum(AtomKind::kMin, std::move(operands));
}

Expr maximum(std::vector<Expr> operands) {
  return Expr::Algebra::extremum(AtomKind::kMax, std::move(operands));
}

std::optional<Expr> divide_exact(const Expr& a, const Expr& b) {
  using Algebra = Expr::Algebra;
  if (b == 0) return std::nullopt;
  const auto division = attempt([&] { return Algebra::divide(a, b, true); });
  if (!division) return std::nullopt;
  return division->quotient;
}

}  // namespace autosp
