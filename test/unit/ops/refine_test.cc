#include "ops/refine.h"

#include <gtest/gtest.h>

namespace autosp {
namespace {

// "(b s)(d) = (b)(s)(d)", unshared pieces in brackets.
std::string text(const std::vector<Expr>& left, const std::vector<Expr>& right) {
  const Refinement r = refine(left, right);
  const auto side = [&r](const std::vector<std::vector<int>>& dims) {
    std::string out;
    for (const std::vector<int>& dim : dims) {
      out += '(';
      for (size_t i = 0; i < dim.size(); ++i) {
        const Refinement::Piece& piece = r.pieces[static_cast<size_t>(dim[i])];
        const std::string size = piece.size.to_string();
        out += (i == 0 ? "" : " ") + (piece.shared ? size : '[' + size + ']');
      }
      out += ')';
    }
    return out;
  };
  return side(r.left) + " = " + side(r.right);
}

const Expr b = Expr::symbol("b");
const Expr s = Expr::symbol("s");
const Expr t = Expr::symbol("t");

TEST(Refine, SplitsAndMergesSymbolicDimensions) {
  EXPECT_EQ(text({b * s, 32}, {b, s, 32}), "(b s)(32) = (b)(s)(32)");
  EXPECT_EQ(text({b, s, 4, 8}, {b, s, 32}), "(b)(s)(4)(8) = (b)(s)(4 8)");
  EXPECT_EQ(text({b, 2, 2, s, 8}, {b, 4, s, 8}), "(b)(2)(2)(s)(8) = (b)(2 2)(s)(8)");
}

TEST(Refine, FindsPiecesThatNeitherSideNames) {
  EXPECT_EQ(text({6, 4}, {2, 12}), "(2 3)(4) = (2)(3 4)");
  EXPECT_EQ(text({6 * s}, {2, 3 * s}), "(2 3*s) = (2)(3*s)");
}

TEST(Refine, DimensionsOfSizeOneHaveNoPieces) {
  EXPECT_EQ(text({1, s, 1}, {s}), "()(s)() = (s)");
  EXPECT_EQ(text({1, 1}, {}), "()() = ");
}

TEST(Refine, AGroupWithoutRefinementLeavesTheOthersAlone) {
  EXPECT_EQ(text({4, 6}, {6, 4}), "([4])([6]) = ([6])([4])");
  EXPECT_EQ(text({b, 4, 6, s}, {b, 6, 4, s}), "(b)([4])([6])(s) = (b)([6])([4])(s)");
}

TEST(Refine, KeepsTheEndsOfAGroupThatDoMatch) {
  // Rows of s stay in order although what is inside them is regrouped, and the other way round.
  EXPECT_EQ(text({s, 4, 6}, {6 * s, 4}), "(s)([4])([6]) = (s [6])([4])");
  EXPECT_EQ(text({4, 6, s}, {6, 4 * s}), "([4])([6])(s) = ([6])([4] s)");
  // A length cut into chunks under a guard is no product of them, the features still pass.
  EXPECT_EQ(text({b, s, 32}, {b, floor_div(s, 8), 8, 32}), "(b)([s])(32) = (b)([(s//8)])([8])(32)");
}

TEST(Refine, ATransposedShapeIsARegroupingOfRowsOnlyWhereOneLengthDividesTheOther) {
  EXPECT_EQ(text({b, s, 2 * s}, {b, 2 * s, s}), "(b)(s)(2 s) = (b)(s 2)(s)");
  EXPECT_EQ(text({b, s, 2 * t}, {b, 2 * t, s}), "(b)([s])([2*t]) = (b)([2*t])([s])");
}

TEST(Refine, EmptyTensors) { EXPECT_EQ(text({b, 0, 8}, {b, 0, 8}), "(b)(0)(8) = (b)(0)(8)"); }

}  // namespace
}  // namespace autosp
