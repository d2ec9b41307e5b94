// The common refinement of two factorisations of one number of elements: how a view relates
// dimensions.
//
//   [b*s, d]  -> [b, s, d]   pieces b, s, d    left (b s)(d)    right (b)(s)(d)
//   [6, 4]    -> [2, 12]     pieces 2, 3, 4    left (2 3)(4)    right (2)(3 4)
//   [4, 6, d] -> [6, 4, d]   4·6 and 6·4 share no piece: those belong to one side, d to both
//
// Sizes are divided exactly as polynomials (divide_exact), so a piece that both sides share is the
// same axis for every length. Where two sides stop dividing each other, matching goes on from the
// other end of the group and what stays in between is not shared. Cost: product of the two ranks.
#pragma once

#include <string>
#include <vector>

#include "ir/expr.h"
#include "ops/op.h"

namespace autosp {

struct Refinement {
  struct Piece {
    Expr size;
    bool shared = true;  // false: a piece of one side alone
  };
  std::vector<Piece> pieces;
  // For each dimension its pieces, outermost first; a dimension of size 1 has none.
  std::vector<std::vector<int>> left;
  std::vector<std::vector<int>> right;
};

Refinement refine(const std::vector<Expr>& left, const std::vector<Expr>& right);

// The rule of every operator that keeps the order of elements: one operand `value` of shape `from`,
// one result of shape `to`. Shared pieces are pass letters, the others whole.
Application reshape_application(NodeId value, const std::vector<Expr>& from,
                                const std::vector<Expr>& to);

}  // namespace autosp
