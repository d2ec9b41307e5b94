#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Sequence, Scans) {
  EXPECT_EQ(rule_of("%x: bool[2, s]; %y: i64[2, s] = Tensor.cumsum(%x, -1)"),
            "(d0)(d1) -> (d0)(d1)  scan d1");
  EXPECT_EQ(rule_of("%x: f32[8, 8]; %y: f32[8, 8] = torch.cumsum(%x, dim=0)"),
            "(d0)(d1) -> (d0)(d1)  scan d0");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: (f32[2, s], i64[2, s]) = torch.cummax(%x, 1)"),
            "(d0)(d1) -> (d0)(d1), (d0)(d1)  scan d1");
}

TEST(Sequence, DifferencesOfNeighbours) {
  EXPECT_EQ(
      rule_of("%x: i64[2, s]; %p: i64[2, 1]; %y: i64[2, s] = torch.diff(%x, prepend=%p, dim=-1)"),
      "(d0)(d1), (d0)() -> (d0)(d1)  window d1");
  // Fewer rows than before: a shifted copy.
  EXPECT_EQ(rule_of("%x: i64[2, s]; %y: i64[2, s - 1] = torch.diff(%x)"),
            "(d0)(d1) -> (d0)(y1)  window d1, shift y1 of d1");
  EXPECT_EQ(rule_of("%x: i64[2, s]; %p: i64[2, 3]; %y: i64[2, s + 2] = torch.diff(%x, append=%p)"),
            "(d0)(d1), (d0)(append) -> (d0)(y1)  whole d1, whole append, whole y1");
}

TEST(Sequence, PaddingShiftsWherePadded) {
  EXPECT_EQ(rule_of("%x: i64[2, s]; %y: i64[2, s + 1] = torch._C._nn.pad(%x, (0, 1), value=-100)"),
            "(d0)(d1) -> (d0)(y1)  window d1, shift y1 of d1");
  EXPECT_EQ(
      rule_of("%x: f32[2, s, 8]; %y: f32[2, s, 16] = torch.nn.functional.pad(%x, [0, 8, 0, 0])"),
      "(d0)(d1)(d2) -> (d0)(d1)(y2)  window d2, shift y2 of d2");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[2, s] = torch.nn.functional.pad(%x, (0, 0))"),
            "(d0)(d1) -> (d0)(d1)");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %y: f32[5, s + n] = torch.nn.functional.pad(%x, (n, 0, 1, 2))"),
            "(d0)(d1) -> (y0)(y1)  window d0, whole d1, whole y1, shift y0 of d0");
}

TEST(Sequence, RowsAreSortedIntoABag) {
  EXPECT_EQ(
      rule_of("%x: f32[1, s]; %y: (f32[1, s], i64[1, s]) = torch.sort(%x, -1, descending=True)"),
      "()(d1) -> ()(y), ()(y)  bag y of d1");
  EXPECT_EQ(rule_of("%x: i64[s]; %y: i64[s] = torch.argsort(%x)"), "(d0) -> (y)  bag y of d0");
  // Several orders.
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: (f32[s, 8], i64[s, 8]) = torch.sort(%x, 0)"),
            "(d0)(d1) -> (y)(d1), (y)(d1)  whole d0, whole y");
}

TEST(Sequence, OrdersSeeAllRows) {
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: f32[s, 8] = torch.flip(%x, (0,))"),
            "(d0)(d1) -> (d0)(d1)  scan d0");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: f32[s, 8] = Tensor.flip(%x, -1)"),
            "(d0)(d1) -> (d0)(d1)  scan d1");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: f32[s, 8] = torch.roll(%x, 1, 0)"),
            "(d0)(d1) -> (d0)(d1)  window d0");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: f32[s, 8] = torch.roll(%x, 1)"),
            "(d0)(d1) -> (d0)(d1)  whole d0, whole d1");
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: (f32[s, 2], i64[s, 2]) = torch.topk(%x, 2, dim=-1)"),
            "(d0)(d1) -> (d0)(k), (d0)(k)  whole d1, whole k");
  // All of them are still another order.
  EXPECT_EQ(rule_of("%x: f32[s, 8]; %y: (f32[s, 8], i64[s, 8]) = torch.topk(%x, 8, -1)"),
            "(d0)(d1) -> (d0)(k), (d0)(k)  whole d1, whole k");
}

TEST(Sequence, ConvolutionsSeeNeighbours) {
  EXPECT_EQ(rule_of("%x: f32[2, 8, s]; %w: f32[8, 1, 4]; %b: f32[8]; %y: f32[2, 8, s + 3] = "
                    "torch.conv1d(%x, %w, %b, 1, 3, 1, 8)"),
            "(n0)(n1)(n2), (w0)()(k0), (bias) -> (n0)(o)(y2)  whole n1, window n2, whole o, whole "
            "w0, whole k0, shift y2 of n2, whole bias");
  EXPECT_EQ(
      rule_of("%x: f32[2, 8, s]; %w: f32[16, 8, 1]; %y: f32[2, 16, s] = torch.conv1d(%x, %w)"),
      "(n0)(n1)(n2), (w0)(w1)() -> (n0)(o)(n2)  whole n1, whole o, whole w0, whole w1");
  // A stride skips positions even with a kernel of one.
  EXPECT_EQ(
      rule_of(
          "%x: f32[8, 64]; %w: f32[16, 8, 1]; %y: f32[16, 32] = torch.conv1d(%x, %w, stride=2)"),
      "(n0)(n1), (w0)(w1)() -> (o)(y1)  whole n0, whole n1, whole o, whole w0, whole w1, whole y1");
}

}  // namespace
}  // namespace autosp
