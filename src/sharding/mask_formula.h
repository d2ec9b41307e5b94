// What is known of the elements of a tensor, as expressions and formulas over its own indices.
//
//   torch.arange(s)[:, None] - 3        the element is  index0 - 3
//   kv <= q                             it is true where  index0 - index1 >= 0
//   segments[:, None] == segments       where  segments[index0] - segments[index1] == 0
//
// An element that is computed by something else stands for itself: a *read* of a value at given
// indices, or an operator *applied* to elements. Equal reads are equal symbols, so that expressions
// are compared and put into each other as if they were polynomials of numbers alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace autosp {

// The variable that counts along dimension `dim` of the value at hand.
std::string index_name(size_t dim);
Expr index_along(size_t dim);
// A term of a sum as an expression.
Expr product(const Expr::Term& term);
using Substitution = std::map<std::string, Expr>;

struct Formula {
  enum class Kind : uint8_t {
    kAll,      // every one of `parts` is true; true where there are none
    kAny,      // one of `parts` is true; false where there are none
    kAtLeast,  // value >= 0
    kZero,     // value == 0
    kNotZero,  // value != 0
  };
  Kind kind = Kind::kAll;
  Expr value = Expr(0);
  std::vector<Formula> parts = {};

  static Formula constant(bool value) { return {value ? Kind::kAll : Kind::kAny}; }
  static Formula at_least_zero(const Expr& value);
  static Formula zero(const Expr& value);
  static Formula not_zero(const Expr& value);
  bool is_true() const { return kind == Kind::kAll && parts.empty(); }
  bool is_false() const { return kind == Kind::kAny && parts.empty(); }
  // Itself where it is not one of `kind`, else what that is made of.
  std::vector<Formula> parts_of(Kind kind) const;
  bool operator==(const Formula&) const = default;
};

Formula negated(const Formula& formula);
Formula both(const Formula& left, const Formula& right);
Formula either(const Formula& left, const Formula& right);

// An integer, a number or a truth value for each element.
struct Elements {
  enum class Kind : uint8_t { kNumber, kTruth };
  Kind kind = Kind::kNumber;
  Expr number = Expr(0);
  Formula truth = {};

  static Elements of(Expr number) { return {Kind::kNumber, std::move(number), {}}; }
  static Elements of(Formula truth) { return {Kind::kTruth, Expr(0), std::move(truth)}; }
  bool is_truth() const { return kind == Kind::kTruth; }
};

// The symbols that stand for more than an index or a length.
class Atoms {
 public:
  enum class Kind : uint8_t {
    kRead,     // the element of `node` at `arguments`
    kApplied,  // what `node` computes from the elements `arguments`
    kTruth,    // 1 where `truth` is true, else 0
    kNumber,   // `number`, which is no integer
    kHidden,   // a negative number so large that a softmax leaves nothing of a score
  };
  struct Atom {
    Kind kind = Kind::kRead;
    NodeId node = kNoNode;
    std::vector<Expr> arguments = {};
    Formula truth = {};
    double number = 0;
    size_t size = 1;  // of the whole expression that it stands for
  };

  Expr read(NodeId node, std::vector<Expr> indices);
  Expr applied(NodeId node, std::vector<Expr> arguments);
  Expr truth(const Formula& formula);
  Expr number(double value);
  Expr hidden();

  const Atom* find(const std::string& symbol) const;
  // Of an expression that is one atom alone.
  const Atom* find(const Expr& expr) const;

  // With all indices of the substitution replaced at once, also those of reads.
  Expr substitute(const Expr& expr, const Substitution& indices);
  Formula substitute(const Formula& formula, const Substitution& indices);
  Elements substitute(const Elements& elements, const Substitution& indices);

  // How many symbols and comparisons something is made of.
  size_t size(const Expr& expr) const;
  size_t size(const Formula& formula) const;

  // Calls `visit(symbol, atom)` for each symbol, those that atoms are made of included; the atom is
  // nullptr for an index or a length.
  template <class Visit>
  void for_each_symbol(const Expr& expr, const Visit& visit) const {
    for (const std::string& symbol : expr.symbols()) {
      const Atom* atom = find(symbol);
      visit(symbol, atom);
      if (atom == nullptr) continue;
      for (const Expr& argument : atom->arguments) for_each_symbol(argument, visit);
      for_each_symbol(atom->truth, visit);
    }
  }
  template <class Visit>
  void for_each_symbol(const Formula& formula, const Visit& visit) const {
    for_each_symbol(formula.value, visit);
    for (const Formula& part : formula.parts) for_each_symbol(part, visit);
  }
  template <class Of>
  bool depends_on(const Of& expr, size_t dim) const {
    bool found = false;
    for_each_symbol(
        expr, [&](const std::string& symbol, const Atom*) { found |= symbol == index_name(dim); });
    return found;
  }
  // Whether it has an element that isn't a function of indices and lengths alone.
  template <class Of>
  bool reads(const Of& expr) const {
    bool found = false;
    for_each_symbol(expr, [&](const std::string&, const Atom* atom) {
      found |= atom != nullptr && (atom->kind == Kind::kRead || atom->kind == Kind::kApplied);
    });
    return found;
  }

 private:
  Expr intern(const std::string& key, Atom atom);

  std::vector<Atom> atoms_;
  std::map<std::string, size_t> known_;  // what it is made of -> its place in atoms_
};

// The number that an expression without indices, lengths and reads is, if it is one.
std::optional<double> numeric(const Atoms& atoms, const Expr& expr);

}  // namespace autosp
