#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Einsum, LinearSumsItsInput) {
  EXPECT_EQ(
      rule_of(
          "%x: f32[2, s, 8]; %w: f32[9, 8]; %y: f32[2, s, 9] = torch._C._nn.linear(%x, %w, None)"),
      "(d0)(d1)(i), (o)(i) -> (d0)(d1)(o)  sum i");
  EXPECT_EQ(rule_of("%x: f32[8]; %w: f32[9, 8]; %y: f32[9] = torch._C._nn.linear(%x, %w)"),
            "(i), (o)(i) -> (o)  sum i");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %w: f32[8]; %y: f32[s] = torch._C._nn.linear(%x, %w)"),
            "(d0)(i), (i) -> (d0)  sum i");
}

TEST(Einsum, ABiasIsAddedOnce) {
  // Partial sums would each carry the bias.
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %w: f32[8, 8]; %b: f32[8]; %y: f32[2, s, 8] = "
                    "torch._C._nn.linear(%x, %w, %b)"),
            "(d0)(d1)(i), (o)(i), (o) -> (d0)(d1)(o)  whole i");
  EXPECT_EQ(
      rule_of("%b: f32[9]; %x: f32[s, 8]; %w: f32[8, 9]; %y: f32[s, 9] = torch.addmm(%b, %x, %w)"),
      "(d1), (d0)(k), (k)(d1) -> (d0)(d1)  whole k");
  EXPECT_EQ(rule_of("%a: f32[6, 1, s]; %q: f32[6, s, 8]; %k: f32[6, 8, s]; %y: f32[6, s, s] = "
                    "Tensor.baddbmm(%a, batch1=%q, "
                    "batch2=%k, beta=1.0, alpha=0.5)"),
            "(d0)()(d2), (d0)(d1)(k), (d0)(k)(d2) -> (d0)(d1)(d2)  whole k");
}

TEST(Einsum, MatmulByRanks) {
  EXPECT_EQ(
      rule_of(
          "%x: f32[2, 4, s, 8]; %y: f32[2, 4, 8, s]; %z: f32[2, 4, s, s] = torch.matmul(%x, %y)"),
      "(d0)(d1)(m)(k), (d0)(d1)(k)(n) -> (d0)(d1)(m)(n)  sum k");
  EXPECT_EQ(
      rule_of("%x: f32[1, 4, 1]; %y: f32[1, 1, s]; %z: f32[1, 4, s] = _operator.matmul(%x, %y)"),
      "()(m)(), ()()(n) -> ()(m)(n)");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: f32[3, 8, 9]; %z: f32[3, s, 9] = torch.matmul(%x, %y)"),
            "(m)(k), (d0)(k)(n) -> (d0)(m)(n)  sum k");
  EXPECT_EQ(rule_of("%x: f32[8]; %y: f32[8]; %z: f32[] = torch.matmul(%x, %y)"),
            "(k), (k) -> []  sum k");
  EXPECT_EQ(rule_of("%x: f32[8]; %y: f32[3, 8, 8]; %z: f32[3, 8] = torch.matmul(%x, %y)"),
            "(k), (d0)(k)(n) -> (d0)(n)  sum k");
  EXPECT_EQ(rule_of("%x: f32[3, 8, 8]; %y: f32[8]; %z: f32[3, 8] = Tensor.matmul(%x, %y)"),
            "(d0)(m)(k), (k) -> (d0)(m)  sum k");
}

TEST(Einsum, ProductsOfFixedRank) {
  EXPECT_EQ(rule_of("%x: f32[8, 8]; %y: f32[8, 8]; %z: f32[8, 8] = torch.mm(%x, mat2=%y)"),
            "(m)(k), (k)(n) -> (m)(n)  sum k");
  EXPECT_EQ(rule_of("%x: f32[s, s, s]; %y: f32[s, s, s]; %z: f32[s, s, s] = Tensor.bmm(%x, %y)"),
            "(b)(m)(k), (b)(k)(n) -> (b)(m)(n)  sum k");
  EXPECT_EQ(rule_of("%x: f32[s]; %y: f32[4]; %z: f32[s, 4] = torch.outer(%x, %y)"),
            "(i), (j) -> (i)(j)");
}

TEST(Einsum, ReadsItsEquation) {
  EXPECT_EQ(rule_of("%q: f32[2, s, 4, 8]; %k: f32[2, s, 4, 8]; %y: f32[2, 4, s, s] = "
                    "torch.functional.einsum(\"bqhd,bkhd->bhqk\", "
                    "%q, %k)"),
            "(b)(q)(h)(d), (b)(k)(h)(d) -> (b)(h)(q)(k)  sum d");
  EXPECT_EQ(rule_of("%q: f32[2, 3, s, 8]; %k: f32[3, 8, 5]; %y: f32[2, 3, s, 5] = "
                    "torch.einsum(\"... i j, ...jk -> ...ik\", [%q, %k])"),
            "(d0)(d1)(i)(j), (d1)(j)(k) -> (d0)(d1)(i)(k)  sum j");
  // Without an arrow: letters that stand once, in the alphabet's order.
  EXPECT_EQ(
      rule_of("%x: f32[3, 4]; %y: f32[4, 5]; %z: f32[5, 3] = torch.einsum(\"zk,ka\", %x, %y)"),
      "(z)(k), (k)(a) -> (a)(z)  sum k");
  EXPECT_EQ(
      rule_of("%x: f32[1, 4]; %y: f32[s, 4]; %z: f32[s] = torch.einsum(\"bk,bk->b\", %x, %y)"),
      "()(k), (b)(k) -> (b)  sum k");
}

TEST(Einsum, DiagonalsAreWhole) {
  EXPECT_EQ(rule_of("%x: f32[s, s]; %y: f32[s] = torch.einsum(\"ii->i\", %x)"),
            "(i)(i) -> (i)  whole i");
}

TEST(Einsum, RefusesWhatItCannotRead) {
  EXPECT_THROW(rule_of("%x: f32[3, 3]; %y: f32[3] = torch.einsum(%x, [0, 1], [0])"), Unsupported);
  EXPECT_THROW(rule_of("%x: f32[3, 3]; %y: f32[3] = torch.einsum(\"i1->i\", %x)"), Unsupported);
  EXPECT_THROW(rule_of("%x: f32[3, 3]; %y: f32[3] = torch.einsum(\"ij,jk->i\", %x)"), Unsupported);
}

TEST(Einsum, EmbeddingReadsItsTableWhole) {
  EXPECT_EQ(rule_of("%i: i64[2, s]; %w: f32[97, 8]; %y: f32[2, s, 8] = "
                    "torch.nn.functional.embedding(%i, %w, None, None, 2.0, "
                    "False, False)"),
            "(d0)(d1), (v)(d) -> (d0)(d1)(d)  whole v");
  EXPECT_EQ(
      rule_of("%i: i64[s]; %w: f32[s, s]; %y: f32[s, s] = torch.nn.functional.embedding(%i, %w)"),
      "(d0), (v)(d) -> (d0)(d)  whole v");
  EXPECT_NE(refusal_of("%i: i64[s]; %w: f32[9, 8]; %y: f32[s, 8] = "
                       "torch.nn.functional.embedding(%i, %w, max_norm=1.0)"),
            "");
  EXPECT_NE(refusal_of("%i: i64[s]; %w: f32[9, 8]; %y: f32[s, 8] = "
                       "torch.nn.functional.embedding(%i, %w, sparse=True)"),
            "");
}

}  // namespace
}  // namespace autosp
