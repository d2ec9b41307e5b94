// The checker against operators on rows of other ranks, each broken in one place.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/check.h"
#include "support/error.h"

namespace autosp {
namespace {

bool accepts_program(const std::string& text, const Placement& output) {
  try {
    check_placements(parse_graph(text), {output});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

// A sequence of s rows, 2 ranks, u rows each; t is the length of a trimmed copy.
bool accepts(const std::string& body, const Placement& output = Placement::sharded({1, 0})) {
  const std::string text = R"(symbols rank=0, s=16, u=8, t=8
let u = size((s//2))
let t = size(u)
%x: f32[2, s, 4] = input user "x" grad
%w: f32[4, 4, 3] = input parameter "w" grad
%p: f32[2, u, 4] = autosp.r_to_s(%x, 1, u, True, rank, 2, @group)
)" + body + "return (%y,)\n";
  return accepts_program(text, output);
}

// g groups of 4 rows, 2 ranks, u groups each, as rows (%p) and in groups (%v).
bool accepts_groups(const std::string& body) {
  const std::string text = R"(symbols rank=0, g=8, u=4
let u = size((g//2))
%x: f32[2, 4*g, 4] = input user "x" grad
%p: f32[2, 4*u, 4] = autosp.r_to_s(%x, 1, 4*u, True, rank, 2, @group)
%v: f32[2, u, 4, 4] = torch.reshape(%p, [2, u, 4, 4])
)" + body + "return (%y,)\n";
  return accepts_program(text, Placement::sharded({1, 0}));
}

std::string halo(const std::string& length, const std::string& amounts,
                 const std::string& flags = "True, False", const std::string& size = "s") {
  return "%y: f32[2, " + length + ", 4] = autosp.halo(%p, 1, " + amounts + ", " + size + ", " +
         flags + ", False, 0.0, rank, 2, @group)\n";
}

TEST(CheckRows, NeighboursRows) {
  EXPECT_TRUE(accepts(halo("u", "1, -1")));
  EXPECT_TRUE(accepts(halo("u", "2, -2", "True, True")));
  EXPECT_FALSE(accepts(halo("u", "1, 0"))) << "a row more than it says";
  EXPECT_FALSE(accepts(halo("u", "1, -1", "False, False"))) << "there is no padding";
  EXPECT_FALSE(accepts(halo("u", "1, -1", "False, True"))) << "around an end that lies elsewhere";
  EXPECT_FALSE(accepts(halo("u", "1, -1", "True, False", "s + 1"))) << "another length";
  EXPECT_FALSE(accepts(halo("u - 1", "-1, 0"))) << "fewer rows than a part";
  EXPECT_FALSE(accepts(halo("u + 1", "1, 0"))) << "an output with rows that two ranks have";
}

TEST(CheckRows, KernelsOverThem) {
  const auto kernel = [](const std::string& before, const std::string& padding,
                         const std::string& length) {
    return "%c: f32[2, 4, u] = Tensor.transpose(%p, 1, 2)\n"
           "%h: f32[2, 4, u + 2] = autosp.halo(%c, 2, " +
           before +
           ", s, True, False, False, 0.0, rank, 2, @group)\n"
           "%v: f32[4, 4, 3] = autosp.r_to_v(%w, 2, @group)\n"
           "%k: f32[2, 4, " +
           length + "] = torch.conv1d(%h, %v, None, 1, " + padding +
           ")\n"
           "%y: f32[2, " +
           length + ", 4] = Tensor.transpose(%k, 1, 2)\n";
  };
  EXPECT_TRUE(accepts(kernel("2, 0", "0", "u")));
  EXPECT_TRUE(accepts(kernel("1, 1", "0", "u")));
  EXPECT_FALSE(accepts(kernel("1, 1", "1", "u + 2"))) << "rows made up between ranks";
  EXPECT_FALSE(
      accepts("%c: f32[2, 4, u] = Tensor.transpose(%p, 1, 2)\n"
              "%v: f32[4, 4, 3] = autosp.r_to_v(%w, 2, @group)\n"
              "%k: f32[2, 4, u - 2] = torch.conv1d(%c, %v)\n"
              "%y: f32[2, u - 2, 4] = Tensor.transpose(%k, 1, 2)\n"))
      << "a kernel that sees its own part alone";
}

TEST(CheckRows, RowsPastTheEnd) {
  const auto repeat = [](const std::string& dim, const std::string& size,
                         const std::string& exact) {
    return "%y: f32[2, u, 4] = autosp.edge_rows(%p, " + dim + ", " + size + ", " + exact +
           ", rank, 2, @group)\n";
  };
  EXPECT_TRUE(accepts(repeat("1", "s", "True")));
  EXPECT_FALSE(accepts(repeat("0", "s", "True"))) << "another dimension";
  EXPECT_FALSE(accepts(repeat("1", "s - 1", "True"))) << "another length";
  EXPECT_FALSE(accepts(repeat("1", "s", "False"))) << "there is no padding";
}

TEST(CheckRows, SlicesOfThem) {
  const auto cut = [](const std::string& slice, const std::string& length) {
    return "%h: f32[2, u + 3, 4] = autosp.halo(%p, 1, 1, 2, s, True, False, False, 0.0, rank, 2, "
           "@group)\n%y: f32[2, " +
           length + ", 4] = _operator.getitem(%h, (slice(None, None, None), " + slice + "))\n";
  };
  EXPECT_TRUE(accepts(cut("slice(3, u + 3, None)", "u")));
  EXPECT_FALSE(accepts(cut("slice(4, u + 4, None)", "u"))) << "rows that it has not";
  EXPECT_FALSE(accepts(cut("slice(0, u, 2)", "u"))) << "not the rows in order";
  EXPECT_FALSE(accepts(cut("slice(0, u - 1, None)", "u - 1")));
}

TEST(CheckRows, RowsThatTwoRanksHaveAreNotAddedUp) {
  EXPECT_FALSE(accepts(
      "%h: f32[2, u + 3, 4] = autosp.halo(%p, 1, 1, 2, s, True, False, False, 0.0, rank, 2, "
      "@group)\n%z: f32[2, 4] = torch.sum(%h, 1)\n"
      "%y: f32[2, 4] = autosp.p_to_r(%z, @group)\n",
      Placement::replicated()));
}

TEST(CheckRows, RowsAtPositions) {
  const std::string take = "%z: f32[2, 1, 4] = autosp.take_rows(%p, 1, s - 1, 1, rank)\n";
  EXPECT_TRUE(
      accepts(take + "%y: f32[2, 1, 4] = autosp.p_to_r(%z, @group)\n", Placement::replicated()));
  EXPECT_TRUE(accepts(take + "%e: f32[2, 4] = torch.select(%z, 1, 0)\n" +
                          "%y: f32[2, 4] = autosp.p_to_r(%e, @group)\n",
                      Placement::replicated()));
  EXPECT_FALSE(accepts(take + "%y: f32[2, 1, 4] = torch.exp(%z)\n", Placement::replicated()))
      << "one rank's rows, zeros for the others";
  const auto at = [](const std::string& from, const std::string& length) {
    return "%q: f32[2, 1, 4] = input parameter \"q\" grad\n"
           "%v: f32[2, 1, 4] = autosp.r_to_v(%q, 2, @group)\n"
           "%r: f32[2, " +
           length + ", 4] = autosp.rows_at(" + from + ", 1, " + length +
           ", 0, s - 1, rank)\n%y: f32[2, u, 4] = torch.add(%p, %r)\n";
  };
  EXPECT_TRUE(accepts(at("%v", "u")));
  EXPECT_FALSE(accepts(at("%q", "u"))) << "a parameter without its reduction";
}

TEST(CheckRows, NeighboursAcrossGroups) {
  const auto near = [](const std::string& length, const std::string& size) {
    return "%h: f32[2, " + length + ", 4] = autosp.halo(%p, 1, 3, 0, " + size +
           ", True, False, False, 0.0, rank, 2, @group)\n"
           "%y: f32[2, 4*u, 4] = _operator.getitem(%h, (slice(None, None, None), "
           "slice(3, 4*u + 3, None)))\n";
  };
  EXPECT_TRUE(accepts_groups(near("4*u + 3", "4*g")));
  EXPECT_FALSE(accepts_groups(near("4*u + 3", "g"))) << "the number of groups for that of rows";
  EXPECT_FALSE(accepts_groups(near("5*u + 3", "4*g"))) << "other groups";
  EXPECT_FALSE(accepts_groups(near("4*u + 4", "4*g")));
}

TEST(CheckRows, InsideOfGroupsAndAcross) {
  EXPECT_TRUE(accepts_groups("%y: f32[2, u, 4, 4] = torch.cumsum(%v, 2)\n"));
  EXPECT_FALSE(accepts_groups("%y: f32[2, u, 4, 4] = torch.cumsum(%v, 1)\n"))
      << "what other ranks' groups have is left out";
  EXPECT_TRUE(accepts_groups(
      "%y: f32[2, u, 4, 4] = autosp.scan_rows(%v, \"cumsum\", 1, rank, 2, @group)\n"));
  EXPECT_FALSE(accepts_groups("%y: f32[2, 4*u, 4] = torch.cumsum(%p, 1)\n"));
  EXPECT_FALSE(
      accepts_groups("%z: f32[2, 4, u, 4] = torch.reshape(%p, [2, 4, u, 4])\n"
                     "%y: f32[2, u, 4, 4] = Tensor.transpose(%z, 1, 2)\n"))
      << "groups whose rows other ranks have";
}

TEST(CheckRows, WhatGroupsHandOn) {
  const auto handed = [](const std::string& whole, const std::string& placement,
                         const std::string& rows) {
    return "%e: f32[2, u, 4] = torch.select(%v, 2, 3)\n"
           "%w: f32[2, " +
           whole + ", 4] = autosp." + placement + "(%e, 1, " + whole +
           ", True, rank, 2, @group)\n"
           "%b: f32[2, " +
           whole +
           " + 1, 4] = torch.nn.functional.pad(%w, (0, 0, 1, 0))\n"
           "%r: f32[2, u + 1, 4] = autosp.rows_at(%b, 1, " +
           rows +
           ")\n"
           "%c: f32[2, u, 4] = _operator.getitem(%r, (slice(None, None, None), "
           "slice(0, u, None)))\n"
           "%y: f32[2, u, 4] = torch.add(%e, %c)\n";
  };
  EXPECT_TRUE(accepts_groups(handed("g", "s_to_v", "u, 1, 0, rank, True")));
  EXPECT_FALSE(accepts_groups(handed("g", "s_to_r", "u, 1, 0, rank, True")))
      << "a row of two ranks gets one's gradient";
  EXPECT_FALSE(accepts_groups(handed("4*g", "s_to_v", "u, 1, 0, rank, True")))
      << "rows, not groups";
  EXPECT_FALSE(accepts_groups(handed("g", "s_to_v", "u + 1, 0, 0, rank")))
      << "takes its neighbour's row for its own";
  EXPECT_FALSE(accepts_groups(handed("g", "s_to_v", "u, 1, 1, rank, True")))
      << "the last row of another dimension";
  EXPECT_FALSE(
      accepts_groups("%e: f32[2, u, 4] = torch.select(%v, 2, 3)\n"
                     "%b: f32[2, u + 1, 4] = torch.nn.functional.pad(%e, (0, 0, 1, 0))\n"
                     "%y: f32[2, u, 4] = _operator.getitem(%b, (slice(None, None, None), "
                     "slice(0, u, None)))\n"))
      << "zeros in front of every rank's groups";
}

}  // namespace
}  // namespace autosp
