#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Norm, LayerNormSeesItsLastDimensionsWhole) {
  EXPECT_EQ(rule_of("%x: f32[8, 8, 8]; %w: f32[8]; %b: f32[8]; %y: f32[8, 8, 8] = "
                    "torch.nn.functional.layer_norm(%x, (8,), %w, %b, "
                    "1e-05)"),
            "(d0)(d1)(d2), (d2), (d2) -> (d0)(d1)(d2)  whole d2");
  EXPECT_EQ(rule_of("%x: f32[2, 3, 4]; %b: f32[3, 4]; %y: f32[2, 3, 4] = torch.layer_norm(%x, [3, "
                    "4], None, %b)"),
            "(d0)(d1)(d2), (d1)(d2) -> (d0)(d1)(d2)  whole d1, whole d2");
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %w: f32[8]; %y: f32[2, s, 8] = "
                    "torch.nn.functional.rms_norm(%x, (8,), %w, 1e-06)"),
            "(d0)(d1)(d2), (d2) -> (d0)(d1)(d2)  whole d2");
}

TEST(Norm, StatisticsOverPositionsAreWhole) {
  EXPECT_EQ(rule_of("%x: f32[2, 8, s]; %w: f32[8]; %y: f32[2, 8, s] = "
                    "torch.nn.functional.group_norm(%x, 4, %w)"),
            "(d0)(d1)(d2), (d1) -> (d0)(d1)(d2)  whole d1, whole d2");
  EXPECT_EQ(rule_of("%x: f32[2, 8, s]; %y: f32[2, 8, s] = torch.nn.functional.instance_norm(%x)"),
            "(d0)(d1)(d2) -> (d0)(d1)(d2)  whole d2");
}

TEST(Norm, BatchNormPassesOnlyWithRunningStatistics) {
  const std::string graph =
      "%x: f32[2, 8, s]; %m: f32[8]; %v: f32[8]; %y: f32[2, 8, s] = "
      "torch.nn.functional.batch_norm(%x, %m, %v, "
      "None, None, ";
  EXPECT_EQ(rule_of(graph + "False)"), "(d0)(d1)(d2), (d1), (d1) -> (d0)(d1)(d2)");
  EXPECT_EQ(refusal_of(graph + "False)"), "");
  EXPECT_NE(refusal_of(graph + "True)").find("statistics over all tokens"), std::string::npos);
}

TEST(Norm, SoftmaxSeesAllOfItsDimension) {
  EXPECT_EQ(rule_of("%x: f32[2, 4, s, s]; %y: f32[2, 4, s, s] = torch.nn.functional.softmax(%x, "
                    "dim=-1, dtype=@torch.float32)"),
            "(d0)(d1)(d2)(d3) -> (d0)(d1)(d2)(d3)  scan d3");
  EXPECT_EQ(rule_of("%x: f32[s, s]; %y: f32[s, s] = Tensor.softmax(%x, 0)"),
            "(d0)(d1) -> (d0)(d1)  scan d0");
  // torch's default dimension, by rank.
  EXPECT_EQ(rule_of("%x: f32[2, 3]; %y: f32[2, 3] = torch.nn.functional.softmax(%x)"),
            "(d0)(d1) -> (d0)(d1)  scan d1");
  EXPECT_EQ(rule_of("%x: f32[2, 3, 4]; %y: f32[2, 3, 4] = torch.nn.functional.log_softmax(%x)"),
            "(d0)(d1)(d2) -> (d0)(d1)(d2)  scan d0");
  EXPECT_TRUE(find_op("torch.softmax")->softmax);
  EXPECT_FALSE(find_op("torch.log_softmax")->softmax);
}

TEST(Norm, Similarities) {
  EXPECT_EQ(
      rule_of("%x: f32[s, 8]; %y: f32[s, 8] = torch.nn.functional.normalize(%x, p=2.0, dim=-1)"),
      "(d0)(d1) -> (d0)(d1)  whole d1");
  EXPECT_EQ(rule_of("%x: f32[s, 1, 8]; %k: f32[1, s, 8]; %y: f32[s, s] = "
                    "torch.cosine_similarity(%x, %k, dim=-1)"),
            "(d0)()(x), ()(d1)(x) -> (d0)(d1)  whole x");
}

}  // namespace
}  // namespace autosp
