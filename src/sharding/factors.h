// Factors: the unit in which dimensions are compared. A dimension is an ordered product of factors;
// factors that must be the same axis are joined in a union-find, and a factor that some view opens
// is split into parts for all of its class at once.
//
//   view [B*S, D] -> [B, S, H, K]      the class of D becomes (H K) wherever it stands
//
// Joining is by dataflow alone: equal sizes never join anything. Near-constant time an operation.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/expr.h"

namespace autosp {

using FactorId = int32_t;
using FactorList = std::vector<FactorId>;  // an ordered product, outermost first

class FactorTable {
 public:
  FactorId add(Expr size);

  // The representative of the factor's class. It may be split.
  FactorId find(FactorId factor) const;
  const Expr& size(FactorId factor) const;

  // The unsplit factors that the list stands for, as representatives.
  FactorList leaves(const FactorList& factors) const;
  FactorList leaves(FactorId factor) const { return leaves(FactorList{factor}); }

  // Joins two ordered products of the same total size, splitting factors where one divides another.
  // Returns false, with the common prefix joined, where the products have no common refinement.
  bool join(const FactorList& left, const FactorList& right);

 private:
  void unite(FactorId left, FactorId right);
  void append_leaves(FactorId factor, FactorList& out) const;

  struct Entry {
    FactorId parent;
    Expr size;
    FactorList parts;  // of a representative; empty when unsplit
  };
  mutable std::vector<Entry> entries_;
};

}  // namespace autosp
