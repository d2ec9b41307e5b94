// Local shapes and the reshapes that bring a sharded factor to the front of a dimension of its own.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/type.h"
#include "sharding/placement.h"

namespace autosp {

// Shapes of one value under a placement. `leaves` are the value's factors, one list a dimension.
class Layout {
 public:
  Layout(const Axes& axes, int ranks) : axes_(axes), ranks_(ranks) {}

  // Of a body: how long a rank's part of one of its factors is, and whether all parts are equal, is
  // known from outside.
  void give(FactorId leaf, Expr length, bool exact) { given_[leaf] = {std::move(length), exact}; }

  // A rank's length of a sharded factor, as a symbol of its own ("shard0"): the factor's size over
  // the ranks, or the symbol of the axis that a prefix follows ("shard2 = shard0"). Axes of
  // equal lengths share a symbol.
  Expr shard_length(FactorId leaf) const;
  // The same, of a bag as many rows for each token as there are in the whole.
  Expr part_length(FactorId leaf) const;
  // Those symbols with what they stand for, in order of first use.
  const std::vector<std::pair<std::string, Expr>>& definitions() const { return definitions_; }
  // Whether ranks hold exactly 1/P each; else the last rows are padding, copies of the last one.
  bool is_exact(FactorId leaf) const;

  std::vector<Expr> shape(const std::vector<Expr>& global, const std::vector<FactorList>& leaves,
                          const Placement& placement) const;

  // The value's shape with every dimension cut in front of the given occurrences, so that each
  // stands first in a dimension of its own; `dims` receives those dimensions, in the order of
  // `occurrences`.
  std::vector<Expr> isolated(const std::vector<Expr>& global, const std::vector<FactorList>& leaves,
                             const Placement& placement, const std::vector<Occurrence>& occurrences,
                             std::vector<int>* dims) const;

 private:
  Expr leaf_size(const std::vector<FactorList>& leaves, int dim, int position,
                 const Placement& placement) const;

  const Axes& axes_;
  int ranks_;
  std::map<FactorId, std::pair<Expr, bool>> given_;
  mutable std::vector<std::pair<std::string, Expr>> definitions_;
  mutable std::vector<Expr> extents_;  // the global length that each of them belongs to
};

}  // namespace autosp
