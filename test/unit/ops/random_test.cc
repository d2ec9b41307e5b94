#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

std::string dropout(const std::string& arguments) {
  return "%x: f32[2, s]; %p: scalar; %y: f32[2, s] = torch.nn.functional.dropout(%x" + arguments +
         ")";
}

bool draws(const std::string& text) {
  const Program program(text);
  return program.op().draws(program.call());
}

TEST(Random, DropoutThatDrawsNothingIsPointwise) {
  EXPECT_EQ(rule_of(dropout(", p=0.0, training=True")), "(d0)(d1) -> (d0)(d1)");
  for (const char* arguments :
       {", p=0.0, training=True", ", 0, True, False", ", p=0.1, training=False", ", %p, False"}) {
    EXPECT_FALSE(draws(dropout(arguments))) << arguments;
    EXPECT_EQ(refusal_of(dropout(arguments)), "") << arguments;
  }
}

TEST(Random, DropoutDraws) {
  for (const char* arguments : {", p=0.1, training=True", "", ", p=0.1", ", 1"}) {
    EXPECT_TRUE(draws(dropout(arguments))) << arguments;
    EXPECT_EQ(refusal_of(dropout(arguments)), "") << arguments;
  }
}

TEST(Random, DropoutWithAValueOfTheProgramIsRefused) {
  for (const char* arguments : {", p=%p, training=True", ", 0.1, %p"}) {
    EXPECT_FALSE(draws(dropout(arguments))) << arguments;
    EXPECT_NE(refusal_of(dropout(arguments)).find("a value of the program"), std::string::npos);
  }
}

TEST(Random, DrawingInAnyShape) {
  EXPECT_TRUE(draws("%x: f32[2]; %y: f32[2] = torch.rand_like(%x)"));
  EXPECT_TRUE(draws("%y: f32[2, s] = torch.randn(2, s, dtype=@torch.float32)"));
  EXPECT_TRUE(draws("%x: f32[2]; %y: f32[2] = torch.bernoulli(%x)"));
  EXPECT_TRUE(draws("%x: f32[2]; %y: f32[2] = Tensor.uniform_(%x, 0.0, 1.0)"));
  EXPECT_FALSE(draws("%x: f32[2]; %y: f32[2] = torch.bernoulli(%x, generator=@generator)"));
}

TEST(Random, DrawingOfOtherKindsIsRefused) {
  const std::string generator = "%x: f32[2]; %y: f32[2] = torch.bernoulli(%x, generator=@mine)";
  EXPECT_NE(refusal_of(generator).find("a generator of its own"), std::string::npos);
  for (const char* text :
       {"%y: i64[s] = torch.randperm(s)", "%x: f32[2]; %y: f32[2] = torch.poisson(%x)"}) {
    EXPECT_NE(refusal_of(text).find("on any number of ranks"), std::string::npos) << text;
  }
}

TEST(Random, PartsAreNumberedWhereTheyStand) {
  const std::string uniform =
      "%x: f32[2, 8, 4]; %seed: i64[]; %y: f32[2, 8, 4] = autosp.uniform(%x, %seed, 5, 2, 3)";
  EXPECT_EQ(rule_of(uniform), "(d0)(d1)(d2), [] -> (d0)(d1)(d2)");
  EXPECT_EQ(local_form(uniform, "d1"),
            "%n0: f32[2, 4, 4] = autosp.uniform(%x, %seed, 5, 2, 3, 1, 8, 4*rank)\n%n0");
  EXPECT_EQ(local_form(uniform, "d2"),
            "%n0: f32[2, 8, 2] = autosp.uniform(%x, %seed, 5, 2, 3, 2, 4, 2*rank)\n%n0");
}

}  // namespace
}  // namespace autosp
