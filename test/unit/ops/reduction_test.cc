#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Reduction, SumsDisappearOrStayAsOnes) {
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %y: f32[2, 8] = torch.sum(%x, 1)"),
            "(d0)(d1)(d2) -> (d0)(d2)  sum d1");
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %y: f32[2, s, 1] = Tensor.mean(%x, -1, keepdim=True)"),
            "(d0)(d1)(d2) -> (d0)(d1)()  sum d2");
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %y: f32[] = Tensor.sum(%x)"),
            "(d0)(d1)(d2) -> []  sum d0, sum d1, sum d2");
  EXPECT_EQ(rule_of("%x: f32[8, 8, 8]; %y: f32[8] = torch.sum(%x, dim=(0, -1))"),
            "(d0)(d1)(d2) -> (d1)  sum d0, sum d2");
  EXPECT_EQ(rule_of("%x: f32[1, 8]; %y: f32[8] = torch.sum(%x, axis=0)"), "()(d1) -> (d1)");
}

TEST(Reduction, MaximumIsThreeOperators) {
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[] = torch.max(%x)"), "(d0)(d1) -> []  max d0, max d1");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: (f32[2], i64[2]) = torch.max(%x, 1)"),
            "(d0)(d1) -> (d0), (d0)  max d1");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %z: f32[s]; %y: f32[2, s] = torch.max(%x, %z)"),
            "(d0)(d1), (d1) -> (d0)(d1)");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %z: f32[s]; %y: f32[2, s] = torch.min(%x, other=%z)"),
            "(d0)(d1), (d1) -> (d0)(d1)");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[2, 1] = torch.amax(%x, -1, True)"),
            "(d0)(d1) -> (d0)()  max d1");
}

TEST(Reduction, OthersJoinWhatEachPartGives) {
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: i64[2] = torch.argmax(%x, -1)"),
            "(d0)(d1) -> (d0)  max d1");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[2] = torch.logsumexp(%x, -1)"),
            "(d0)(d1) -> (d0)  max d1");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[2, 1] = Tensor.norm(%x, p=2, dim=-1, keepdim=True)"),
            "(d0)(d1) -> (d0)()  max d1");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[2] = Tensor.var(%x, -1, False)"),
            "(d0)(d1) -> (d0)  max d1");
  // The first flag of var(unbiased), not dimension 0.
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[] = Tensor.var(%x, False)"),
            "(d0)(d1) -> []  whole d0, whole d1");
}

TEST(Reduction, SumAlongShardsIsPartial) {
  EXPECT_EQ(local_form("%x: f32[2, 64, 8]; %y: f32[2, 8] = Tensor.sum(%x, 1)", "d1"),
            "%n0: f32[2, 8] = torch.sum(%x, [1], False)\n"
            "%n0");
  EXPECT_EQ(local_form("%x: bool[64]; %y: i64[] = Tensor.sum(%x)", "d0", /*ragged=*/true),
            "%n0: bool[32] = test.fill(%x, 0.0)\n"
            "%n1: i64[] = torch.sum(%n0, [0], False)\n"
            "%n1");
}

TEST(Reduction, HalfPartsAreAddedInSinglePrecision) {
  EXPECT_EQ(local_form("%x: bf16[2, 64]; %y: bf16[2, 1] = torch.sum(%x, -1, True)", "d1"),
            "%n0: f32[2, 1] = torch.sum(%x, [1], True, dtype=@torch.float32)\n"
            "%n1: f32[2, 1] = autosp.p_to_r(%n0)\n"
            "%n2: bf16[2, 1] = Tensor.to(%n1, @torch.bfloat16)\n"
            "R %n2");
}

TEST(Reduction, MeanDividesByTheGlobalCount) {
  EXPECT_EQ(local_form("%x: f32[2, s, 8]; %y: f32[8] = torch.mean(%x, [0, 1])", "d1"),
            "%n0: f32[8] = torch.sum(%x, [0, 1], False)\n"
            "%n1: f32[8] = autosp.p_to_r(%n0)\n"
            "%n2: f32[8] = torch.div(%n1, 2*s)\n"
            "R %n2");
  EXPECT_EQ(local_form("%x: f16[s, 8]; %y: f16[8] = torch.mean(%x, 0)", "d0", /*ragged=*/true),
            "%n0: f16[(s//2), 8] = test.fill(%x, 0.0)\n"
            "%n1: f32[8] = torch.sum(%n0, [0], False, dtype=@torch.float32)\n"
            "%n2: f32[8] = autosp.p_to_r(%n1)\n"
            "%n3: f32[8] = torch.div(%n2, s)\n"
            "%n4: f16[8] = Tensor.to(%n3, @torch.float16)\n"
            "R %n4");
  EXPECT_EQ(
      local_form("%x: bf16[s, 8]; %y: f32[8] = torch.mean(%x, 0, dtype=@torch.float32)", "d0"),
      "%n0: f32[8] = torch.sum(%x, [0], False, dtype=@torch.float32)\n"
      "%n1: f32[8] = autosp.p_to_r(%n0)\n"
      "%n2: f32[8] = torch.div(%n1, s)\n"
      "R %n2");
}

TEST(Reduction, AnotherShardedDimensionChangesNothing) {
  EXPECT_EQ(local_form("%x: bf16[2, 64, 8]; %y: bf16[2, 64, 1] = Tensor.mean(%x, -1, keepdim=True)",
                       "d1"),
            "%n0: bf16[2, 32, 1] = Tensor.mean(%x, -1, keepdim=True)\n"
            "%n0");
}

}  // namespace
}  // namespace autosp
