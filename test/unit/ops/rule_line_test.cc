#include "ops/rule_line.h"

#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

std::string interpret(std::string_view line, std::string_view program) {
  const Program parsed(program);
  const OpDef op{.name = "op", .signature = "a, b=None, c=None, d=None"};
  return to_string(interpret_rule(line, Call(parsed.graph(), parsed.node(), op)));
}

TEST(RuleLine, BindsLettersByPlace) {
  EXPECT_EQ(interpret("… i, o i -> … o  sum i",
                      "%x: f32[2, s, 8]; %w: f32[9, 8]; %y: f32[2, s, 9] = f(%x, %w)"),
            "(d0)(d1)(i), (o)(i) -> (d0)(d1)(o)  sum i");
}

TEST(RuleLine, SizesDecideNothing) {
  EXPECT_EQ(interpret("… i, o i -> … o  sum i",
                      "%x: f32[8, 8, 8]; %w: f32[8, 8]; %y: f32[8, 8, 8] = f(%x, %w)"),
            "(d0)(d1)(i), (o)(i) -> (d0)(d1)(o)  sum i");
}

TEST(RuleLine, SkipsWhatIsNoTensor) {
  EXPECT_EQ(
      interpret("…, w -> …", "%x: f32[2, 3]; %w: f32[5]; %y: f32[2, 3] = f(%x, None, 1.0, %w)"),
      "(d0)(d1), (w) -> (d0)(d1)");
  EXPECT_EQ(interpret("…, w -> …", "%x: f32[2, 3]; %y: f32[2, 3] = f(%x)"), "(d0)(d1) -> (d0)(d1)");
}

TEST(RuleLine, AlignsAndStretchesLeadingDimensions) {
  EXPECT_EQ(interpret("… m k, … k n -> … m n  sum k",
                      "%x: f32[2, 1, 4, 5]; %y: f32[7, 5, 6]; %z: f32[2, 7, 4, 6] = f(%x, %y)"),
            "(d0)()(m)(k), (d1)(k)(n) -> (d0)(d1)(m)(n)  sum k");
}

TEST(RuleLine, SizeOneHasNoLetter) {
  EXPECT_EQ(interpret("b q, b k -> q k", "%x: f32[1, 4]; %y: f32[1, 1]; %z: f32[4, 1] = f(%x, %y)"),
            "()(q), ()() -> (q)()");
  // Stretched along a named letter.
  EXPECT_EQ(interpret("q k, q k -> q k", "%x: f32[4, 1]; %y: f32[1, 5]; %z: f32[4, 5] = f(%x, %y)"),
            "(q)(), ()(k) -> (q)(k)");
}

TEST(RuleLine, TheLastPatternServesTheRest) {
  EXPECT_EQ(interpret("… -> …", "%x: f32[3]; %y: f32[]; %z: f32[3] = f(%x, %y, %x)"),
            "(d0), [], (d0) -> (d0)");
}

TEST(RuleLine, KnowsKindsAndSeveralResults) {
  EXPECT_EQ(interpret("x v -> v, k  gather v, scan x, index k",
                      "%x: f32[3, 4]; %z: (f32[4], i64[5]) = f(%x)"),
            "(x)(v) -> (v), (k)  scan x, whole v, index k");
}

TEST(RuleLine, ScalarResults) {
  EXPECT_EQ(interpret("k, k ->  sum k", "%x: f32[3]; %z: f32[] = f(%x, %x)"),
            "(k), (k) -> []  sum k");
}

TEST(RuleLine, RefusesShapesThatDoNotFit) {
  EXPECT_THROW(interpret("b k -> b", "%x: f32[3]; %z: f32[3] = f(%x)"), Unsupported);
  EXPECT_THROW(interpret("b -> b, b", "%x: f32[3]; %z: f32[3] = f(%x)"), Unsupported);
  EXPECT_THROW(interpret("b -> b  odd b", "%x: f32[3]; %z: f32[3] = f(%x)"), InternalError);
}

TEST(RuleLine, SharedShapes) {
  EXPECT_EQ(rule_of("%x: f32[2, 3, 4]; %y: f32[2] = torch.sum(%x, [-1, 1])"),
            "(d0)(d1)(d2) -> (d0)  sum d1, sum d2");
  EXPECT_EQ(rule_of("%x: f32[2, 3]; %y: f32[] = torch.sum(%x, [])"),
            "(d0)(d1) -> []  sum d0, sum d1");
  EXPECT_THROW(rule_of("%x: f32[2, 3]; %y: f32[2] = torch.sum(%x, 2)"), Unsupported);
}

}  // namespace
}  // namespace autosp
