// Evaluates index tensors and masks operator by operator, to what their elements are as functions
// of their own indices (sharding/mask_formula.h). Nothing is decided by names or by hinted lengths.
//
// Integers of 32 and 64 bits and truth values are exact where they hold no read.
//
// Linear in the operators evaluated: what is made of too many parts is read as it is.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "ops/op.h"
#include "sharding/mask_formula.h"

namespace autosp {

class MaskElements {
 public:
  // What is known of floating-point numbers: which are ones, or what they would be if they were
  // real numbers and all that hide a score were one. That is enough for a name and no proof.
  enum class Floats : uint8_t { kOnes, kReal };

  // Evaluates `values` and what they are computed from, up to values that are `opaque`, which are
  // read as they are.
  MaskElements(const Graph& graph, const std::vector<NodeId>& values, Floats floats,
               const std::function<bool(NodeId)>& opaque);

  // Nothing for what is no tensor, and what was not asked for.
  const std::optional<Elements>& of(NodeId value) const { return known_[value]; }
  Atoms& atoms() { return atoms_; }
  const Atoms& atoms() const { return atoms_; }

 private:
  using Known = std::optional<Elements>;

  Elements own_read(const Node& node);
  Known evaluate(const Call& call);
  bool is_small(const Elements& elements) const;
  Known as_dtype(const Known& elements, const Call& call);
  bool is_exact(const Expr& number, DType dtype) const;

  Known operand(const Call& call, std::string_view parameter);
  Known argument(const Arg& arg, const Type& result);
  std::optional<Expr> number_argument(const Arg& arg, bool floating);
  std::optional<Expr> number(const Call& call, std::string_view parameter);
  std::optional<Formula> truth(const Call& call, std::string_view parameter);
  Expr as_number(const Elements& elements);
  std::optional<Formula> as_truth(const Elements& elements, const Call& call);
  Known constant(const Arg* arg, const Type& result);

  Known arange(const Call& call) const;
  Known arithmetic(const Call& call, std::string_view name);
  Known quotient(const Call& call, bool remainder);
  Known scaled(const Call& call);
  Known extremum(const Call& call, bool largest);
  Known clamped(const Call& call, std::string_view name);
  Known compare(const Call& call, std::string_view name);
  std::optional<Formula> compare_constants(const Expr& difference, std::string_view name);
  Known logic(const Call& call, std::string_view name);
  Known chosen(const Call& call, const Known& condition, const Known& then, const Known& other);
  Known triangle(const Call& call, bool lower);
  Known difference(const Call& call);
  Known running_total(const Call& call);
  Known added_product(const Call& call);
  Known looked_up(const Call& call);
  Known gathered(const Call& call);
  Known indexed(const Call& call);
  Known indexed_by_tensors(const Node& source, const std::vector<Arg>& items, const Type& result);
  Known moved(const Call& call);
  Known applied(const Call& call);

  const Graph& graph_;
  std::vector<Known> known_;
  Atoms atoms_;
};

// Whether an expression of indices and lengths is >= 0 for all indices within `shape`.
bool is_never_negative(const Expr& expr, const std::vector<Expr>& shape);

}  // namespace autosp
