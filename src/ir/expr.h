#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace autosp {

// An exact integer expression over symbols: a length, an offset, a number of elements.
//
// A value is immutable and always in canonical form, so that == decides equality of the form:
// a polynomial with int64 coefficients over atoms, where an atom is a symbol or a floor division,
// a remainder, a minimum or a maximum of canonical expressions. (s + 2)*2 - s is s + 4,
// floor_div(6*s + 3, 4) is s + ((s + 1)//2), floor_div(8*u, 4) is 2*u, floor_div(s*t, t) is s.
//
// Every rewriting holds for all integer values of the symbols for which no divisor is zero;
// division and remainder round as Python's // and %. Equality is sound and, among polynomials,
// complete; two expressions that hide the same value behind divisions may compare unequal.
//
// Copies cost a reference count, constants do not allocate. Sums are linear in the number of
// terms, products in its product. Everything throws std::overflow_error when a coefficient or an
// evaluated value leaves int64 or the expression passes the limits below (so that hostile text
// cannot exhaust memory or stack), and std::domain_error on division by zero.
class Expr {
 public:
  static constexpr std::size_t kMaxTerms = 256;     // of one sum, and operands of a min or max
  static constexpr std::size_t kMaxSize = 4096;     // terms and operands, nested ones counted
  static constexpr std::int32_t kMaxDepth = 100;    // nesting of atoms
  static constexpr std::int32_t kMaxDegree = 1000;  // of one product

  enum class AtomKind : std::uint8_t { kSymbol, kFloorDiv, kMod, kMin, kMax };
  struct Atom;
  struct Algebra;  // the implementation's own

  // A power of an atom. The power is positive.
  struct Factor {
    std::shared_ptr<const Atom> atom;
    std::int32_t power;
  };

  // coefficient * factors[0] * factors[1] ...; distinct atoms, in order; empty for a constant.
  struct Term {
    std::int64_t coefficient;
    std::vector<Factor> factors;
  };

  Expr() = default;                               // zero
  Expr(std::int64_t value) : constant_(value) {}  // NOLINT(google-explicit-constructor)

  static Expr constant(std::int64_t value) { return Expr(value); }

  // name: a letter or underscore, then letters, digits and underscores (all ASCII), otherwise
  // std::invalid_argument.
  static Expr symbol(std::string_view name);

  // Reads what to_string writes and what Python's str() of a torch size expression prints: + - *
  // ** // % with Python's precedence, parentheses, FloorDiv, CleanDiv, Mod, PythonMod,
  // ModularIndexing(a, b, c) = (a//b)%c, Min and Max. Anything else, and text nested too deeply,
  // throws std::invalid_argument that names the offending token and its position.
  static Expr parse(std::string_view text);

  bool is_constant() const { return node_ == nullptr; }
  std::int64_t constant_value() const;  // std::logic_error when it is not a constant
  std::optional<std::int64_t> as_constant() const;

  // The value for the given symbols; std::out_of_range with the name of one that is missing.
  std::int64_t evaluate(const std::map<std::string, std::int64_t>& symbols) const;

  // All symbols replaced at once; those without an entry stay.
  Expr substitute(const std::map<std::string, Expr>& replacements) const;

  std::vector<std::string> symbols() const;  // sorted, each once

  // Python syntax: "2*s77 + 1", "s27*s52", "((s27 + 1)//2)", "Mod(s27, 2)", "Min(s27, 4)".
  // parse(e.to_string()) == e.
  std::string to_string() const;

  // The sum's terms, largest first (total degree, then atoms): the constant is last. Zero has none.
  std::vector<Term> terms() const;

  std::size_t hash() const;

  Expr operator-() const;
  friend Expr operator+(const Expr& a, const Expr& b);
  friend Expr operator-(const Expr& a, const Expr& b);
  friend Expr operator*(const Expr& a, const Expr& b);
  Expr& operator+=(const Expr& other) { return *this = *this + other; }
  Expr& operator-=(const Expr& other) { return *this = *this - other; }
  Expr& operator*=(const Expr& other) { return *this = *this * other; }

  friend bool operator==(const Expr& a, const Expr& b);

  // Orders by form: a total order for sorted containers, the same in every process. It says
  // nothing about which value is smaller.
  friend bool operator<(const Expr& a, const Expr& b) { return compare(a, b) < 0; }
  friend int compare(const Expr& a, const Expr& b);

 private:
  struct Node;  // two terms or more, or one with factors

  std::shared_ptr<const Node> node_;
  std::int64_t constant_ = 0;  // the value when there is no node
};

struct Expr::Atom {
  AtomKind kind;
  std::string name;             // of a symbol, otherwise empty
  std::vector<Expr> arguments;  // two for a division or remainder, two or more for min and max
};

Expr floor_div(const Expr& a, const Expr& b);
Expr mod(const Expr& a, const Expr& b);  // a - b*floor_div(a, b): has the sign of b

// The least integer not below a/b, written as floor_div(a + b - 1, b): b must be positive where
// it is not a constant.
Expr ceil_div(const Expr& a, const Expr& b);

// One operand or more (std::invalid_argument otherwise).
Expr minimum(std::vector<Expr> operands);
Expr maximum(std::vector<Expr> operands);
inline Expr min(const Expr& a, const Expr& b) { return minimum({a, b}); }
inline Expr max(const Expr& a, const Expr& b) { return maximum({a, b}); }

// The q with q*b == a as polynomials over their atoms; nothing where there is none or b is zero.
std::optional<Expr> divide_exact(const Expr& a, const Expr& b);

// x to a non-negative power (std::invalid_argument otherwise); x**0 is 1.
Expr power(const Expr& x, std::int64_t exponent);

}  // namespace autosp

template <>
struct std::hash<autosp::Expr> {
  std::size_t operator()(const autosp::Expr& e) const { return e.hash(); }
};
