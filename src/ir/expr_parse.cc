#include <charconv>
#include <limits>
#include <stdexcept>
#include <utility>

#include "ir/expr.h"

namespace autosp {

namespace {

using Term = Expr::Term;
using Factor = Expr::Factor;
using Atom = Expr::Atom;
using AtomKind = Expr::AtomKind;

constexpr std::int64_t kInt64Min = std::numeric_limits<std::int64_t>::min();
constexpr int kMaxNesting = 3 * Expr::kMaxDepth;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

// Recursive descent over the Python subset
//   sum     = product (('+' | '-') product)*
//   product = unary (('*' | '//' | '%') unary)*
//   unary   = ('+' | '-') unary | power
//   power   = atom ['**' unary]
//   atom    = number | name | name '(' sum (',' sum)* ')' | '(' sum ')'
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { advance(); }

  Expr parse() {
    Expr result = sum();
    if (!token_.empty()) fail("unexpected");
    return result;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("size expression: " + what + " " +
                                (token_.empty() ? "end" : "'" + std::string(token_) + "'") +
                                " at position " + std::to_string(start_) + " of '" +
                                std::string(text_.substr(0, 200)) + "'");
  }

  void advance() {
    while (end_ < text_.size() && (text_[end_] == ' ' || text_[end_] == '\t')) ++end_;
    start_ = end_;
    if (end_ == text_.size()) {
      token_ = {};
      return;
    }
    const char c = text_[end_++];
    if (is_letter(c) || is_digit(c)) {
      while (end_ < text_.size() &&
             (is_letter(text_[end_]) || is_digit(text_[end_]) || text_[end_] == '.')) {
        ++end_;
      }
    } else if ((c == '*' || c == '/') && end_ < text_.size() && text_[end_] == c) {
      ++end_;
    }
    token_ = text_.substr(start_, end_ - start_);
  }

  bool accept(std::string_view expected) {
    if (token_ != expected) return false;
    advance();
    return true;
  }

  void expect(std::string_view expected) {
    if (!accept(expected)) fail("expected '" + std::string(expected) + "' before");
  }

  Expr sum() {
    if (++nesting_ > kMaxNesting) fail("nested too deeply at");
    Expr result = product();
    while (token_ == "+" || token_ == "-") {
      const bool adds = accept("+");
      if (!adds) advance();
      const Expr right = product();
      result = adds ? result + right : result - right;
    }
    --nesting_;
    return result;
  }

  Expr product() {
    Expr result = unary();
    for (;;) {
      if (accept("*")) {
        result *= unary();
      } else if (accept("//")) {
        result = floor_div(result, unary());
      } else if (accept("%")) {
        result = mod(result, unary());
      } else {
        return result;
      }
    }
  }

  Expr unary() {
    bool negative = false;
    while (token_ == "+" || token_ == "-") {
      if (token_ == "-") negative = !negative;
      advance();
    }
    if (negative && token_ == "9223372036854775808") {
      advance();
      if (token_ == "**") fail("a value does not fit 64 bits before");
      return kInt64Min;
    }
    const Expr result = raised();
    return negative ? -result : result;
  }

  Expr raised() {
    Expr base = atom();
    if (token_ != "**") return base;
    advance();
    if (++nesting_ > kMaxNesting) fail("nested too deeply at");
    const std::size_t start = start_;
    const auto exponent = unary().as_constant();
    --nesting_;
    if (!exponent || *exponent < 0) {
      throw std::invalid_argument("size expression: the exponent at position " +
                                  std::to_string(start) + " is not a non-negative number in '" +
                                  std::string(text_.substr(0, 200)) + "'");
    }
    return power(base, *exponent);
  }

  Expr atom() {
    if (accept("(")) {
      Expr inner = sum();
      expect(")");
      return inner;
    }
    if (token_.empty() || !(is_digit(token_[0]) || is_letter(token_[0]))) fail("unexpected");
    if (is_digit(token_[0])) return number();
    if (token_.find('.') != std::string_view::npos) fail("unsupported");
    const std::string_view name = token_;
    const std::size_t start = start_;
    advance();
    return token_ == "(" ? call(name, start) : Expr::symbol(name);
  }

  Expr number() {
    std::int64_t value = 0;
    const char* const last = token_.data() + token_.size();
    const auto [stop, error] = std::from_chars(token_.data(), last, value);
    if (error == std::errc::result_out_of_range) fail("does not fit 64 bits:");
    if (stop != last) fail("not an integer:");
    advance();
    return value;
  }

  Expr call(std::string_view name, std::size_t start) {
    const bool is_division = name == "FloorDiv" || name == "CleanDiv";
    const bool is_mod = name == "Mod" || name == "PythonMod";
    const bool is_modular_indexing = name == "ModularIndexing";
    const bool is_extremum = name == "Min" || name == "Max";
    if (!is_division && !is_mod && !is_modular_indexing && !is_extremum) {
      token_ = name;
      start_ = start;
      fail("unsupported function");
    }
    expect("(");
    std::vector<Expr> arguments = {sum()};
    while (accept(",")) arguments.push_back(sum());
    expect(")");
    const std::size_t wanted = is_modular_indexing ? 3 : 2;
    if (is_extremum) {
      return name == "Min" ? minimum(std::move(arguments)) : maximum(std::move(arguments));
    }
    if (arguments.size() != wanted) {
      token_ = name;
      start_ = start;
      fail("wrong number of arguments to");
    }
    if (is_division) return floor_div(arguments[0], arguments[1]);
    if (is_mod) return mod(arguments[0], arguments[1]);
    return mod(floor_div(arguments[0], arguments[1]), arguments[2]);
  }

  std::string_view text_;
  std::string_view token_;  // empty at the end
  std::size_t start_ = 0;   // of the token
  std::size_t end_ = 0;
  int nesting_ = 0;
};

void print(const Expr& e, std::string& out);

bool is_one_operand(const Expr& e) {
  const std::vector<Term> terms = e.terms();
  if (terms.empty()) return true;
  if (terms.size() > 1) return false;
  const Term& t = terms[0];
  if (t.factors.empty()) return t.coefficient > 0;
  return t.coefficient == 1 && t.factors.size() == 1 && t.factors[0].power == 1;
}

void print_operand(const Expr& e, std::string& out) {
  const bool parenthesize = !is_one_operand(e);
  if (parenthesize) out += '(';
  print(e, out);
  if (parenthesize) out += ')';
}

void print_atom(const Atom& atom, std::string& out) {
  if (atom.kind == AtomKind::kSymbol) {
    out += atom.name;
    return;
  }
  if (atom.kind == AtomKind::kFloorDiv) {
    out += '(';
    print_operand(atom.arguments[0], out);
    out += "//";
    print_operand(atom.arguments[1], out);
    out += ')';
    return;
  }
  out += atom.kind == AtomKind::kMod ? "Mod(" : atom.kind == AtomKind::kMin ? "Min(" : "Max(";
  for (std::size_t i = 0; i < atom.arguments.size(); ++i) {
    if (i > 0) out += ", ";
    print(atom.arguments[i], out);
  }
  out += ')';
}

void print_term(const Term& term, std::uint64_t magnitude, std::string& out) {
  bool first = true;
  if (magnitude != 1 || term.factors.empty()) {
    out += std::to_string(magnitude);
    first = false;
  }
  for (const Factor& f : term.factors) {
    if (!first) out += '*';
    first = false;
    print_atom(*f.atom, out);
    if (f.power != 1) out += "**" + std::to_string(f.power);
  }
}

void print(const Expr& e, std::string& out) {
  const std::vector<Term> terms = e.terms();
  if (terms.empty()) out += '0';
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const std::int64_t coefficient = terms[i].coefficient;
    // -2**63 has no positive counterpart to subtract.
    const bool extreme = coefficient == kInt64Min;
    if (i == 0) {
      if (coefficient < 0) out += '-';
    } else {
      out += extreme ? " + -" : coefficient < 0 ? " - " : " + ";
    }
    const auto magnitude = static_cast<std::uint64_t>(coefficient);
    print_term(terms[i], coefficient < 0 ? ~magnitude + 1 : magnitude, out);
  }
}

}  // namespace

Expr Expr::parse(std::string_view text) { return Parser(text).parse(); }

std::string Expr::to_string() const {
  std::string out;
  print(*this, out);
  return out;
}

}  // namespace autosp
