#include "ir/expr.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "ir/expr_algebra.h"

namespace autosp {

using namespace expr_internal;

namespace {

using Term = Expr::Term;
using Factor = Expr::Factor;
using Atom = Expr::Atom;
using AtomKind = Expr::AtomKind;
using Factors = std::vector<Factor>;

std::size_t mix(std::size_t seed, std::size_t value) {
  return (seed ^ (value + 0x9e3779b97f4a7c15ULL + (seed << 6) + (seed >> 2))) * 0x100000001b3ULL;
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

std::int64_t evaluate_atom(const Atom& atom, const std::map<std::string, std::int64_t>& symbols) {
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

Expr substitute_atom(const std::shared_ptr<const Atom>& atom,
                     const std::map<std::string, Expr>& replacements) {
  if (atom->kind == AtomKind::kSymbol) {
    const auto found = replacements.find(atom->name);
    return found == replacements.end() ? Expr::Algebra::from_term(1, {{atom, 1}}) : found->second;
  }
  std::vector<Expr> arguments;
  for (const Expr& e : atom->arguments) arguments.push_back(e.substitute(replacements));
  if (atom->kind == AtomKind::kFloorDiv) return floor_div(arguments[0], arguments[1]);
  if (atom->kind == AtomKind::kMod) return mod(arguments[0], arguments[1]);
  if (atom->kind == AtomKind::kMin) return minimum(std::move(arguments));
  return maximum(std::move(arguments));
}

void collect_symbols(const Expr& e, std::set<std::string>& names) {
  for (const Term& t : e.terms()) {
    for (const Factor& f : t.factors) {
      if (f.atom->kind == AtomKind::kSymbol) names.insert(f.atom->name);
      for (const Expr& argument : f.atom->arguments) collect_symbols(argument, names);
    }
  }
}

}  // namespace

int expr_internal::compare_atoms(const Atom& a, const Atom& b) {
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

struct Expr::Node {
  std::vector<Term> terms;  // largest monomial first, no zero coefficients
  std::size_t hash;
  std::size_t size;
  std::int32_t depth;
};

const std::vector<Term>& Expr::Algebra::terms(const Expr& e, std::vector<Term>& storage) {
  if (e.node_) return e.node_->terms;
  if (e.constant_ != 0) storage.push_back({e.constant_, {}});
  return storage;
}

Expr Expr::Algebra::from_terms(std::vector<Term> terms) {
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
      hash =
          mix(mix(hash, static_cast<std::size_t>(f.atom->kind)), static_cast<std::size_t>(f.power));
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

Expr Expr::Algebra::from_atom(Atom atom) {
  return from_terms({{1, {{std::make_shared<const Atom>(std::move(atom)), 1}}}});
}

Expr Expr::Algebra::from_term(std::int64_t coefficient, Factors factors) {
  return from_terms({{coefficient, std::move(factors)}});
}

Expr Expr::Algebra::add_scaled(const Expr& a, std::int64_t scale, const Factors& monomial,
                               const Expr& b) {
  std::vector<Term> left_storage, right_storage;
  const std::vector<Term>& left = terms(a, left_storage);
  const std::vector<Term>& right = terms(b, right_storage);
  std::vector<Factors> products;  // right's monomials, where they change
  if (!monomial.empty()) {
    for (const Term& t : right) products.push_back(multiply_monomials(t.factors, monomial));
  }
  std::vector<Term> result;
  result.reserve(left.size() + right.size());
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < left.size() || j < right.size()) {
    const Factors* const x = i < left.size() ? &left[i].factors : nullptr;
    const Factors* const y = j == right.size()  ? nullptr
                             : monomial.empty() ? &right[j].factors
                                                : &products[j];
    const int c = !x ? -1 : !y ? 1 : compare_monomials(*x, *y);
    const std::int64_t coefficient =
        multiply_add(c >= 0 ? left[i].coefficient : 0, scale, c <= 0 ? right[j].coefficient : 0);
    if (coefficient != 0) result.push_back({coefficient, c >= 0 ? *x : *y});
    if (c >= 0) ++i;
    if (c <= 0) ++j;
  }
  return from_terms(std::move(result));
}

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
      const std::int64_t value = evaluate_atom(*f.atom, symbols);
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
      product *= power(substitute_atom(f.atom, replacements), f.power);
    }
    sum += product;
  }
  return sum;
}

std::vector<std::string> Expr::symbols() const {
  std::set<std::string> names;
  collect_symbols(*this, names);
  return {names.begin(), names.end()};
}

int compare(const Expr& a, const Expr& b) {
  if (!a.node_ && !b.node_) return compare_int(a.constant_, b.constant_);
  if (a.node_ == b.node_) return 0;
  std::vector<Term> left_storage, right_storage;
  const std::vector<Term>& left = Expr::Algebra::terms(a, left_storage);
  const std::vector<Term>& right = Expr::Algebra::terms(b, right_storage);
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
  std::vector<Term> a_storage, b_storage;
  const std::vector<Term>& a_terms = Expr::Algebra::terms(a, a_storage);
  const std::vector<Term>& b_terms = Expr::Algebra::terms(b, b_storage);
  const bool a_is_shorter = a_terms.size() < b_terms.size();
  Expr sum;
  for (const Term& t : a_is_shorter ? a_terms : b_terms) {
    sum = Expr::Algebra::add_scaled(sum, t.coefficient, t.factors, a_is_shorter ? b : a);
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

}  // namespace autosp
