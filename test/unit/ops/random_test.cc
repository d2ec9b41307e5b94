#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

std::string dropout(const std::string& arguments) {
  return "%x: f32[2, s]; %p: scalar; %y: f32[2, s] = torch.nn.functional.dropout(%x" + arguments +
         ")";
}

TEST(Random, DropoutThatDrawsNothingIsPointwise) {
  EXPECT_EQ(rule_of(dropout(", p=0.0, training=True")), "(d0)(d1) -> (d0)(d1)");
  EXPECT_EQ(refusal_of(dropout(", p=0.0, training=True")), "");
  EXPECT_EQ(refusal_of(dropout(", 0, True, False")), "");
  EXPECT_EQ(refusal_of(dropout(", p=0.1, training=False")), "");
  EXPECT_EQ(refusal_of(dropout(", %p, False")), "");
}

TEST(Random, DropoutThatDrawsIsRefused) {
  const std::string text =
      "dropout with p > 0 is not supported yet, since every rank would need its own part of one "
      "mask: set it to 0 or call "
      "model.eval()";
  EXPECT_EQ(refusal_of(dropout(", p=0.1, training=True")), text);
  EXPECT_EQ(refusal_of(dropout("")), text);  // torch's default is to draw
  EXPECT_EQ(refusal_of(dropout(", p=0.1")), text);
  // A probability that is only known at run time may be above 0.
  EXPECT_EQ(refusal_of(dropout(", p=%p, training=True")), text);
}

TEST(Random, DrawingIsRefused) {
  EXPECT_NE(refusal_of("%x: f32[2]; %y: f32[2] = torch.rand_like(%x)"), "");
  EXPECT_NE(refusal_of("%y: f32[2, s] = torch.randn(2, s, dtype=@torch.float32)"), "");
  EXPECT_NE(refusal_of("%x: f32[2]; %y: f32[2] = torch.bernoulli(%x)"), "");
  EXPECT_NE(refusal_of("%x: f32[2]; %y: f32[2] = Tensor.uniform_(%x, 0.0, 1.0)"), "");
}

}  // namespace
}  // namespace autosp
