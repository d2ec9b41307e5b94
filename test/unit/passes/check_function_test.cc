// The checker against torch.autograd.Functions on parts, each broken in one place.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/check.h"
#include "support/error.h"

namespace autosp {
namespace {

struct Bodies {
  std::string forward = "%y: f32[2, u, 4] = _operator.mul(%x, %w)\nreturn ((%y,), (%w, %x))\n";
  std::string backward = R"(%dx: f32[2, u, 4] = _operator.mul(%g, %w)
%mx: f32[2, u, 4] = autosp.mask_tail(%dx, 1, s, 0.0, rank)
%gx: f32[2, u, 4] = _operator.mul(%g, %x)
%m: f32[2, u, 4] = autosp.mask_tail(%gx, 1, s, 0.0, rank)
%dw: f32[4] = torch.sum(%m, [0, 1], False)
)";
  std::string gradients = "return (%mx, %dw)\n";
  std::string convert = "%v: f32[4] = autosp.r_to_v(%w, 2, @group, True)\n";
  std::string call = "%p, %v";
  std::string result = "f32[2, u, 4]";
};

// A sequence of 15 rows, 2 ranks, 8 rows each, the last of which is padding.
std::string error(const Bodies& bodies, Placement output = Placement::sharded({1, 0})) {
  const std::string symbols = "symbols rank=0, s=15, u=8\nlet u = size(((s + 1)//2))\n";
  const std::string text =
      symbols + "subgraph \"f\" {\n" + symbols +
      "%x: f32[2, u, 4] = input user \"x\" grad\n%w: f32[4] = input user \"w\" grad\n" +
      bodies.forward + "}\nsubgraph \"b\" {\n" + symbols + "%g: " + bodies.result +
      " = input user \"g\"\n%w: f32[4] = input user \"w\" grad\n"
      "%x: f32[2, u, 4] = input user \"x\" grad\n" +
      bodies.backward + bodies.gradients +
      "}\n%x: f32[2, s, 4] = input user \"x\" grad\n%w: f32[4] = input parameter \"w\" grad\n"
      "%p: f32[2, u, 4] = autosp.r_to_s(%x, 1, u, False, rank, 2, @group)\n" +
      bodies.convert + "%f: (" + bodies.result +
      ",) = torch.ops.higher_order.autograd_function_apply(graph(0), graph(1), " + bodies.call +
      ")\n%y: " + bodies.result + " = _operator.getitem(%f, 0)\nreturn (%y,)\n";
  try {
    check_placements(parse_graph(text), {output});
    return "";
  } catch (const InternalError& error) {
    return error.what();
  }
}

bool says(const Bodies& bodies, const std::string& text) {
  return error(bodies).find(text) != std::string::npos;
}

TEST(CheckFunction, AcceptsPartsAndSums) { EXPECT_EQ(error({}), ""); }

TEST(CheckFunction, ParametersAreReduced) {
  EXPECT_TRUE(says({.convert = "", .call = "%p, %w"}, "reads %w, which is R, not V"));
}

TEST(CheckFunction, GradientsAreThoseOfTheArguments) {
  EXPECT_TRUE(says({.gradients = "return (%mx, %w)\n"}, "another gradient"));
  EXPECT_TRUE(says({.gradients = "return (%dx, %dw)\n"}, "a gradient of rows past the end"));
  EXPECT_EQ(error({.gradients = "return (None, %dw)\n"}), "");
}

TEST(CheckFunction, SumsHaveNoRowsPastTheEnd) {
  Bodies bodies;
  bodies.backward.replace(bodies.backward.find("torch.sum(%m"), 12, "torch.sum(%gx");
  EXPECT_TRUE(says(bodies, "sums rows past the end"));
}

TEST(CheckFunction, SummandsGoOnlyWhereTheyAddUp) {
  Bodies bodies{.gradients = "return (%mx, %two)\n"};
  const std::string backward = bodies.backward;
  bodies.backward = backward + "%two: f32[4] = _operator.mul(%dw, 2)\n";
  EXPECT_EQ(error(bodies), "");
  bodies.backward = backward + "%two: f32[4] = _operator.mul(%dw, %w)\n";
  EXPECT_EQ(error(bodies), "");
  for (const char* nonlinear :
       {"_operator.add(%dw, 2)", "_operator.add(%dw, %w)", "_operator.mul(%dw, %dw)",
        "_operator.truediv(2.0, %dw)", "torch.sign(%dw)"}) {
    bodies.backward = backward + "%two: f32[4] = " + nonlinear + "\n";
    EXPECT_TRUE(says(bodies, "reads the partial sum")) << nonlinear;
  }
}

TEST(CheckFunction, ResultsAreParts) {
  const Bodies bodies{.forward = "%z: f32[4] = torch.exp(%w)\nreturn ((%z,), (%w, %x))\n",
                      .backward = "",
                      .gradients = "return (%x, %g)\n",
                      .result = "f32[4]"};
  EXPECT_TRUE(says(bodies, "gives a result that is whole, from parts"));
}

}  // namespace
}  // namespace autosp
