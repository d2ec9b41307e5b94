#pragma once

// Shared by the sources that implement ir/expr.h, and included by nothing else: 64-bit arithmetic
// that throws instead of wrapping, and the construction of expressions from terms.

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "ir/expr.h"

namespace autosp {

struct Expr::Algebra {
  using Factors = std::vector<Factor>;

  // The terms of e without a copy; of a constant, through storage.
  static const std::vector<Term>& terms(const Expr& e, std::vector<Term>& storage);

  // terms: sorted, distinct monomials, no coefficient zero.
  static Expr from_terms(std::vector<Term> terms);
  static Expr from_term(std::int64_t coefficient, Factors factors);
  static Expr from_atom(Atom atom);

  // a + scale * monomial * b, one merge: multiplying by a monomial keeps the order of terms.
  static Expr add_scaled(const Expr& a, std::int64_t scale, const Factors& monomial, const Expr& b);
};

namespace expr_internal {

int compare_atoms(const Expr::Atom& a, const Expr::Atom& b);

[[noreturn]] inline void throw_overflow() {
  throw std::overflow_error("size expression: a value does not fit 64 bits");
}

[[noreturn]] inline void throw_too_large() {
  throw std::overflow_error("size expression: too many terms or nested too deeply");
}

[[noreturn]] inline void throw_zero_division() {
  throw std::domain_error("size expression: division by zero");
}

inline std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_add_overflow(a, b, &result)) throw_overflow();
  return result;
}

inline std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) throw_overflow();
  return result;
}

// a + b*c, where only the result has to fit.
inline std::int64_t multiply_add(std::int64_t a, std::int64_t b, std::int64_t c) {
  const __int128 result = a + static_cast<__int128>(b) * c;
  if (result != static_cast<std::int64_t>(result)) throw_overflow();
  return static_cast<std::int64_t>(result);
}

inline std::int64_t floor_div_int(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_zero_division();
  if (b == -1) return multiply(a, -1);
  return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

inline std::int64_t mod_int(std::int64_t a, std::int64_t b) {
  if (b == 0) throw_zero_division();
  if (b == -1) return 0;
  const std::int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

inline int compare_int(std::int64_t a, std::int64_t b) { return a < b ? -1 : a > b ? 1 : 0; }

inline std::int64_t degree(const std::vector<Expr::Factor>& factors) {
  std::int64_t sum = 0;
  for (const Expr::Factor& f : factors) sum += f.power;
  return sum;
}

}  // namespace expr_internal
}  // namespace autosp
