// Registered scans that ranks run in turns: their place in the program of a rank, and what the
// checker says of others.
#include <gtest/gtest.h>

#include <string>

#include "ir/text.h"
#include "ops/registered.h"
#include "passes/check.h"
#include "passes/pipeline.h"
#include "support/error.h"

namespace autosp {
namespace {

void register_scan() {
  register_rule({.name = "test::scan",
                 .targets = {"torch.ops.test.scan.default"},
                 .signature = "x, decay, state",
                 .tensors = 3,
                 .results = 2,
                 .rule = "b t d, d, state b d -> b t d, state b d  scan t"});
}

TEST(ScanInTurns, IsOneCall) {
  register_scan();
  Options options;
  options.ranks = 2;
  const Plan made = plan(
      parse_graph("symbols s=7\n"
                  "%x: f32[2, s, 4] = input user \"x\" grad\n"
                  "%d: f32[4] = input parameter \"d\" grad\n"
                  "%h: f32[2, 4] = input user \"h\" grad\n"
                  "%r: (f32[2, s, 4], f32[2, 4]) = torch.ops.test.scan.default(%x, %d, state=%h)\n"
                  "%y: f32[2, s, 4] = _operator.getitem(%r, 0)\n"
                  "%l: f32[2, 4] = _operator.getitem(%r, 1)\n"
                  "return (%y, %l)\n"),
      options);
  const std::string text = print(made.graph);
  EXPECT_NE(text.find("autosp.passing_state.test.scan.default([1, -1, -1], [1, -1], [2], [1], s, "
                      "False, rank, 2, @group, %r_1, %r_2, state=%r_3)"),
            std::string::npos)
      << text;
  ASSERT_EQ(made.outputs.size(), 2U);
  EXPECT_FALSE(made.outputs[1].sharded) << "the last state is everyone's";
}

bool accepts(const std::string& scan, const Placement& last = Placement::replicated()) {
  register_scan();
  const std::string text =
      "symbols s=8, u=4\nlet u = size((s//2))\n"
      "%x: f32[2, s, 4] = input user \"x\" grad\n"
      "%d: f32[4] = input parameter \"d\" grad\n"
      "%h: f32[2, 4] = input user \"h\" grad\n"
      "%p: f32[2, u, 4] = autosp.r_to_s(%x, 1, u, True, rank, 2, @group)\n"
      "%e: f32[4] = autosp.r_to_v(%d, 2, @group)\n"
      "%g: f32[2, 4] = autosp.r_to_v(%h, 2, @group)\n"
      "%r: (f32[2, u, 4], f32[2, 4]) = autosp.passing_state.test.scan.default(" +
      scan +
      ")\n%y: f32[2, u, 4] = _operator.getitem(%r, 0)\n"
      "%l: f32[2, 4] = _operator.getitem(%r, 1)\n"
      "return (%y, %l)\n";
  try {
    check_placements(parse_graph(text), {Placement::sharded({1, 0}), last});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

TEST(ScanInTurns, IsChecked) {
  const std::string ranks = "rank, 2, @group, ";
  EXPECT_TRUE(accepts("[1, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%p, %d, %g"))
      << "a parameter whose gradient nobody adds up";
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%p, %e, %h"))
      << "a state whose gradient one rank has";
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%x, %e, %g"))
      << "the whole sequence";
  EXPECT_FALSE(accepts("[0, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [-1, -1], [2], [1], s, True, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [1], [1], s, True, " + ranks + "%p, %e, %g"))
      << "another operand for the state";
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [0], s, True, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s - 1, True, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s, False, " + ranks + "%p, %e, %g"));
  EXPECT_FALSE(accepts("[1, -1, -1], [1, -1], [2], [1], s, True, " + ranks + "%p, %e, %g",
                       Placement::partial()));
}

}  // namespace
}  // namespace autosp
