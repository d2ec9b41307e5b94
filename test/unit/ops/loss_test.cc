#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

const std::string kRows = "%x: f32[64, 97]; %t: i64[64]; ";

std::string cross_entropy(const std::string& inputs, const std::string& arguments,
                          const std::string& type = "f32[]") {
  return inputs + "%y: " + type + " = torch.nn.functional.cross_entropy(%x, %t" + arguments + ")";
}

TEST(Loss, ClassIndices) {
  EXPECT_EQ(rule_of(cross_entropy(kRows, "")), "(t0)(v), (t0) -> []  sum t0, whole v");
  EXPECT_EQ(rule_of(cross_entropy(kRows, ", reduction=\"none\"", "f32[64]")),
            "(t0)(v), (t0) -> (t0)  whole v");
  EXPECT_EQ(rule_of(cross_entropy("%x: f32[97]; %t: i64[]; ", "")), "(v), [] -> []  whole v");
  EXPECT_EQ(rule_of(cross_entropy("%x: f32[2, 97, s]; %t: i64[2, s]; %w: f32[97]; ", ", %w")),
            "(t0)(v)(t2), (t0)(t2), (v) -> []  sum t0, whole v, sum t2");
  // As many tokens as classes.
  EXPECT_EQ(rule_of(cross_entropy("%x: f32[8, 8, 8]; %t: i64[8, 8]; ", ", reduction=\"sum\"")),
            "(t0)(v)(t2), (t0)(t2) -> []  sum t0, whole v, sum t2");
}

TEST(Loss, Distributions) {
  EXPECT_EQ(rule_of(cross_entropy("%x: f32[8, 8]; %t: f32[8, 8]; ", "")),
            "(t0)(v), (t0)(v) -> []  sum t0, whole v");
  EXPECT_EQ(rule_of(cross_entropy("%x: f32[97]; %t: f32[97]; ", "")), "(v), (v) -> []  whole v");
}

TEST(Loss, MeanDividesByTheGlobalCountOfValidTargets) {
  EXPECT_EQ(local_form(cross_entropy(kRows, ", ignore_index=7"), "t0"),
            "%n0: f32[] = torch.nn.functional.cross_entropy(%x, %t, ignore_index=7, "
            "label_smoothing=0.0, reduction=\"sum\")\n"
            "%n1: bool[32] = torch.ne(%t, 7)\n"
            "%n2: i64[] = torch.sum(%n1, dtype=@torch.int64)\n"
            "%n3: i64[] = autosp.p_to_r(%n2)\n"
            "%n4: f32[] = autosp.p_to_r(%n0)\n"
            "%n5: f32[] = torch.div(%n4, %n3)\n"
            "R %n5");
}

TEST(Loss, PaddingIsIgnored) {
  EXPECT_EQ(
      local_form(cross_entropy(kRows, ", None, None, 7, None, \"sum\""), "t0", /*ragged=*/true),
      "%n0: i64[32] = test.fill(%t, 7.0)\n"
      "%n1: f32[] = torch.nn.functional.cross_entropy(%x, %n0, ignore_index=7, "
      "label_smoothing=0.0, reduction=\"sum\")\n"
      "%n1");
}

TEST(Loss, HalfRowsAreAddedInSinglePrecision) {
  EXPECT_EQ(local_form(cross_entropy("%x: bf16[2, 97, s]; %t: i64[2, s]; ", "", "bf16[]"), "t2"),
            "%n0: bf16[2, (s//2)] = torch.nn.functional.cross_entropy(%x, %t, ignore_index=-100, "
            "label_smoothing=0.0, "
            "reduction=\"none\")\n"
            "%n1: f32[] = torch.sum(%n0, dtype=@torch.float32)\n"
            "%n2: bool[2, (s//2)] = torch.ne(%t, -100)\n"
            "%n3: i64[] = torch.sum(%n2, dtype=@torch.int64)\n"
            "%n4: i64[] = autosp.p_to_r(%n3)\n"
            "%n5: f32[] = autosp.p_to_r(%n1)\n"
            "%n6: f32[] = torch.div(%n5, %n4)\n"
            "%n7: bf16[] = Tensor.to(%n6, @torch.bfloat16)\n"
            "R %n7");
}

TEST(Loss, ClassWeightsAreCountedForValidTargets) {
  EXPECT_EQ(local_form(cross_entropy("%x: f32[64, 97]; %t: i64[64]; %w: f32[97]; ", ", %w"), "t0"),
            "%n0: f32[] = torch.nn.functional.cross_entropy(%x, %t, weight=%w, ignore_index=-100, "
            "label_smoothing=0.0, "
            "reduction=\"sum\")\n"
            "%n1: bool[32] = torch.ne(%t, -100)\n"
            "%n2: i64[32] = torch.where(%n1, %t, 0)\n"
            "%n3: f32[97] = torch.detach(%w)\n"
            "%n4: f32[97, 1] = torch.unsqueeze(%n3, 1)\n"
            "%n5: f32[32, 1] = torch.nn.functional.embedding(%n2, %n4)\n"
            "%n6: f32[32] = torch.squeeze(%n5, -1)\n"
            "%n7: f32[32] = torch.where(%n1, %n6, 0.0)\n"
            "%n8: f32[] = torch.sum(%n7, dtype=@torch.float32)\n"
            "%n9: f32[] = autosp.p_to_r(%n8)\n"
            "%n10: f32[] = autosp.p_to_r(%n0)\n"
            "%n11: f32[] = torch.div(%n10, %n9)\n"
            "R %n11");
}

TEST(Loss, DistributionsDivideByTheRows) {
  const std::string inputs = "%x: f32[2, 97, s]; %t: f32[2, 97, s]; %w: f32[97]; ";
  EXPECT_EQ(local_form(cross_entropy(inputs, ", %w, label_smoothing=0.1"), "t2"),
            "%n0: f32[] = torch.nn.functional.cross_entropy(%x, %t, weight=%w, ignore_index=-100, "
            "label_smoothing=0.1, "
            "reduction=\"sum\")\n"
            "%n1: f32[] = autosp.p_to_r(%n0)\n"
            "%n2: f32[] = torch.div(%n1, 2*s)\n"
            "R %n2");
  // Smoothing would put mass into padding rows.
  EXPECT_THROW(local_form(cross_entropy(inputs, ", label_smoothing=0.1"), "t2", /*ragged=*/true),
               Unsupported);
}

TEST(Loss, WithoutReductionEveryRankKeepsItsRows) {
  EXPECT_EQ(local_form(cross_entropy(kRows, ", reduction=\"none\"", "f32[64]"), "t0"),
            "%n0: f32[32] = torch.nn.functional.cross_entropy(%x, %t, reduction=\"none\")\n%n0");
}

TEST(Loss, OldArgumentNamesAreRefused) {
  EXPECT_NE(refusal_of(cross_entropy(kRows, ", size_average=False")).find("use reduction"),
            std::string::npos);
  EXPECT_EQ(refusal_of(cross_entropy(kRows, "")), "");
}

TEST(Loss, NegativeLogLikelihood) {
  EXPECT_EQ(rule_of("%x: f32[s, 97]; %t: i64[s]; %y: f32[] = torch.nn.functional.nll_loss(%x, %t)"),
            "(t0)(v), (t0) -> []  sum t0, whole v");
  EXPECT_EQ(local_form("%x: f32[64, 97]; %t: i64[64]; %y: f32[] = torch.nn.functional.nll_loss(%x, "
                       "%t, reduction=\"sum\")",
                       "t0"),
            "%n0: f32[] = torch.nn.functional.nll_loss(%x, %t, ignore_index=-100, "
            "reduction=\"sum\")\n%n0");
}

TEST(Loss, ElementLossesDivideByTheGlobalNumberOfElements) {
  EXPECT_EQ(
      rule_of("%x: f32[2, s, 8]; %t: f32[8]; %y: f32[] = torch.nn.functional.mse_loss(%x, %t)"),
      "(t0)(t1)(t2), (t2) -> []  sum t0, sum t1, sum t2");
  EXPECT_EQ(
      local_form(
          "%x: f32[2, s, 8]; %t: f32[2, s, 8]; %y: f32[] = torch.nn.functional.mse_loss(%x, %t)",
          "t1", /*ragged=*/true),
      "%n0: f32[2, (s//2), 8] = test.fill(%x, 0.0)\n"
      "%n1: f32[2, (s//2), 8] = test.fill(%t, 0.0)\n"
      "%n2: f32[] = torch.nn.functional.mse_loss(%n0, %n1, reduction=\"sum\")\n"
      "%n3: f32[] = autosp.p_to_r(%n2)\n"
      "%n4: f32[] = torch.div(%n3, 16*s)\n"
      "R %n4");
  EXPECT_EQ(local_form("%x: f32[64, 8]; %t: f32[64, 8]; %y: f32[] = torch.nn.functional.kl_div(%x, "
                       "%t, reduction=\"batchmean\")",
                       "t0"),
            "%n0: f32[] = torch.nn.functional.kl_div(%x, %t, log_target=False, reduction=\"sum\")\n"
            "%n1: f32[] = autosp.p_to_r(%n0)\n"
            "%n2: f32[] = torch.div(%n1, 64)\n"
            "R %n2");
  // Padding against a target that is broadcast along the sequence would cost something.
  EXPECT_THROW(
      local_form("%x: f32[64, 8]; %t: f32[8]; %y: f32[] = torch.nn.functional.l1_loss(%x, %t)",
                 "t0", /*ragged=*/true),
      Unsupported);
}

TEST(Loss, LogitsOfPaddingAreFarBelowZero) {
  EXPECT_EQ(local_form("%x: f32[64]; %t: f32[64]; %y: f32[] = "
                       "torch.nn.functional.binary_cross_entropy_with_logits(%x, %t, "
                       "reduction=\"sum\")",
                       "t0", /*ragged=*/true),
            "%n0: f32[32] = test.fill(%x, -100.0)\n"
            "%n1: f32[32] = test.fill(%t, 0.0)\n"
            "%n2: f32[] = torch.nn.functional.binary_cross_entropy_with_logits(%n0, %n1, "
            "reduction=\"sum\")\n"
            "%n2");
}

}  // namespace
}  // namespace autosp
