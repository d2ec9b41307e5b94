#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

const std::string kHidden = "symbols b=2, s=16\n%x: f32[b, s, 32] = input user \"x\"\n";

// -------------------------------------------------------------------------------------------
// slices and numbers

TEST(Index, AllOfADimensionPassesHoweverItIsWritten) {
  for (const char* all : {"slice(None, None, None)", "slice(0, None, None)", "slice(None, s, None)",
                          "slice(0, s, 1)", "slice(None, 9223372036854775807, None)"}) {
    EXPECT_EQ(
        rule_of(kHidden + "%y: f32[b, s, 32] = _operator.getitem(%x, (slice(None, None, None), " +
                all + "))"),
        "(x0)(x1)(x2) -> (x0)(x1)(x2)")
        << all;
  }
  EXPECT_EQ(rule_of(kHidden + "%y: f32[b, s, 32] = _operator.getitem(%x, slice(None, None, None))"),
            "(x0)(x1)(x2) -> (x0)(x1)(x2)");
}

TEST(Index, ATrimAtTheEndIsAPrefix) {
  // The older label shift; by its form, so also where the length is a number.
  EXPECT_EQ(rule_of(kHidden + "%y: f32[b, s - 1, 32] = _operator.getitem(%x, (Ellipsis, "
                              "slice(None, -1, None), slice(None, None, None)))"),
            "(x0)(x1)(x3) -> (x0)(y1)(x3)  prefix y1 of x1");
  EXPECT_EQ(rule_of("%x: f32[2, 16] = input user \"x\"\n%y: f32[2, 15] = _operator.getitem(%x, "
                    "(Ellipsis, slice(None, -1, None)))"),
            "(x0)(x1) -> (x0)(y1)  prefix y1 of x1");
  // A causal convolution's extra rows at the end, S less a number.
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[s + 3] = input user \"x\"\n%y: f32[s] = "
                    "_operator.getitem(%x, slice(None, s, None))"),
            "(x0) -> (y0)  prefix y0 of x0");
}

TEST(Index, ATableCutToTheSequenceIsAnAxisOfItsOwn) {
  EXPECT_EQ(rule_of("symbols s=16\n%x: i64[1, 512] = input buffer \"x\"\n%y: i64[1, s] = "
                    "_operator.getitem(%x, (slice(None, None, None), slice(None, s, None)))"),
            "()(x0) -> ()(y0)  whole x0, whole y0");
  // The same with numbers: 16 of 512 is no trim.
  EXPECT_EQ(rule_of("%x: i64[512]\n%y: i64[16] = _operator.getitem(%x, slice(None, 16, None))"),
            "(x0) -> (y0)  pick x0, whole y0");
}

TEST(Index, ATrimAtTheStartNeedsNeighbours) {
  EXPECT_EQ(rule_of("symbols b=2, s=16\n%x: i64[b, s + 1]\n%y: i64[b, s] = _operator.getitem(%x, "
                    "(Ellipsis, slice(1, None, None)))"),
            "(x0)(x1) -> (x0)(y1)  window x1, shift y1 of x1");
  EXPECT_EQ(rule_of("%x: f32[16]\n%y: f32[14] = _operator.getitem(%x, slice(1, -1, None))"),
            "(x0) -> (y0)  window x0, shift y0 of x0");
}

TEST(Index, OtherCutsAreWhole) {
  // rotate_half cuts the features, the rest passes.
  EXPECT_EQ(rule_of("symbols b=2, s=16\n%x: f32[b, 4, s, 8]\n%y: f32[b, 4, s, 4] = "
                    "_operator.getitem(%x, (Ellipsis, slice(None, 4, None)))"),
            "(x0)(x1)(x2)(x3) -> (x0)(x1)(x2)(y3)  whole x3, whole y3");
  EXPECT_EQ(rule_of(kHidden + "%y: f32[b, 1, 32] = _operator.getitem(%x, (slice(None, None, None), "
                              "slice(-1, None, None)))"),
            "(x0)(x1)(x2) -> (x0)()(x2)  pick x1");
  EXPECT_EQ(rule_of("%x: f32[16]\n%y: f32[8] = _operator.getitem(%x, slice(0, None, 2))"),
            "(x0) -> (y0)  whole x0, whole y0");
}

TEST(Index, NumbersSelectAndNoneMakesADimension) {
  EXPECT_EQ(
      rule_of(kHidden + "%y: f32[b, 32] = _operator.getitem(%x, (slice(None, None, None), 0))"),
      "(x0)(x1)(x2) -> (x0)(x2)  pick x1");
  EXPECT_EQ(rule_of("symbols s=16\n%x: i64[s] = input user \"x\"\n%y: i64[1, 1, s, 1] = "
                    "_operator.getitem(%x, (None, None, slice(None, None, None), None))"),
            "(x0) -> ()()(x0)()");
}

TEST(Index, LocalSlicesOfTheShardedDimensionBecomeFull) {
  EXPECT_EQ(local_form(kHidden + "%y: f32[b, s, 4] = _operator.getitem(%x, (slice(None, None, "
                                 "None), slice(None, s, None), slice(4, 8, None)))",
                       "x1"),
            "%n0: f32[b, (s//2), 4] = _operator.getitem(%x, (slice(None, None, None), slice(None, "
            "None, None), slice(4, 8, None)))\n%n0");
  EXPECT_EQ(local_form(kHidden + "%y: f32[b, s - 1, 32] = _operator.getitem(%x, (slice(None, None, "
                                 "None), slice(None, -1, None)))",
                       "x1"),
            "%n0: f32[b, s - 1, 32] = _operator.getitem(%x, (slice(None, None, None), slice(None, "
            "None, None)))\n%n0");
}

TEST(Index, NarrowAndSelect) {
  EXPECT_EQ(rule_of(kHidden + "%y: f32[b, s, 8] = Tensor.narrow(%x, -1, 8, 8)"),
            "(x0)(x1)(x2) -> (x0)(x1)(y2)  pick x2, whole y2");
  const std::string trim = kHidden + "%y: f32[b, s - 1, 32] = torch.narrow(%x, 1, 0, s - 1)";
  EXPECT_EQ(rule_of(trim), "(x0)(x1)(x3) -> (x0)(y1)(x3)  prefix y1 of x1");
  EXPECT_EQ(local_form(trim, "x1"),
            "%n0: f32[b, s - 1, 32] = _operator.getitem(%x, (slice(None, None, None), slice(None, "
            "None, None), slice(None, None, None)))\n%n0");
  EXPECT_EQ(rule_of(kHidden + "%y: f32[b, 32] = Tensor.select(%x, 1, -1)"),
            "(x0)(x1)(x2) -> (x0)(x2)  pick x1");
}

// ------------------------------------------------------------------------------------------------
// index tensors

TEST(Index, PackedSequenceIdsByQueryAndKey) {
  EXPECT_EQ(rule_of(R"(symbols b=2, s=16
    %p: i64[b, s] = input user "p"
    %i: i64[b, 1, 1, 1] = input user "i"
    %q: i64[1, 1, s, 1] = input user "q"
    %y: i64[b, 1, s, 1] = _operator.getitem(%p, (%i, %q)))"),
            "(x2)(x3), (i0)()()(), ()()(i2)() -> (i0)()(i2)()  pick x2, pick x3");
}

TEST(Index, TensorsStandWhereTorchPutsThem) {
  const std::string x = "%x: f32[2, 3, 4, 5] = input user \"x\"\n%i: i64[7] = input user \"i\"\n";
  const auto all = std::string("slice(None, None, None)");
  // Together: in their place. Apart: in front. A number selects first and does not count.
  EXPECT_EQ(rule_of(x + "%y: f32[2, 7, 5] = _operator.getitem(%x, (" + all + ", %i, %i))"),
            "(x1)(x2)(x3)(x4), (i0), (i0) -> (x1)(i0)(x4)  pick x2, pick x3");
  EXPECT_EQ(rule_of(x + "%y: f32[7, 3, 5] = _operator.getitem(%x, (%i, " + all + ", %i))"),
            "(x1)(x2)(x3)(x4), (i0), (i0) -> (i0)(x2)(x4)  pick x1, pick x3");
  EXPECT_EQ(rule_of(x + "%y: f32[2, 7] = _operator.getitem(%x, (" + all + ", %i, 0, %i))"),
            "(x1)(x2)(x3)(x4), (i0), (i0) -> (x1)(i0)  pick x2, pick x3, pick x4");
  EXPECT_EQ(rule_of(x + "%y: f32[7, 1, 4, 5] = _operator.getitem(%x, (%i, None, %i))"),
            "(x1)(x2)(x3)(x4), (i0), (i0) -> (i0)()(x3)(x4)  pick x1, pick x2");
  EXPECT_EQ(rule_of(x + "%y: f32[2, 3, 7, 5] = _operator.getitem(%x, (Ellipsis, %i, " + all + "))"),
            "(x1)(x2)(x3)(x4), (i0) -> (x1)(x2)(i0)(x4)  pick x3");
}

TEST(Index, AConstantListIsACut) {
  EXPECT_EQ(rule_of("%x: f32[2, 8] = input user \"x\"\n%y: f32[2, 2] = _operator.getitem(%x, "
                    "(Ellipsis, [0, 3]))"),
            "(x1)(x2) -> (x1)(i0)  whole i0, pick x2");
}

TEST(Index, MasksAreWhole) {
  EXPECT_EQ(rule_of("symbols n=5\n%x: f32[2, 8] = input user \"x\"\n%m: bool[2, 8] = input user "
                    "\"m\"\n%y: f32[n] = _operator.getitem(%x, %m)"),
            "(x0)(x1), (x2)(x3) -> (y4)  whole x0, whole x1, whole x2, whole x3, whole y4");
}

TEST(Index, AnElementOfATuple) {
  EXPECT_EQ(rule_of(R"(symbols b=2, s=16
    %x: f32[b, s, 96] = input user "x"
    %t: (f32[b, s, 32], f32[b, s, 64]) = Tensor.split(%x, [32, 64], -1)
    %y: f32[b, s, 64] = _operator.getitem(%t, -1))"),
            "(x0)(x1)(x2) -> (x0)(x1)(x2)");
}

// ---------------------------------------------------------------------------------------------
// gather and scatter

TEST(Index, GatherJoinsWhatIndexAndOperandShare) {
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[s, 97] = input user \"x\"\n%i: i64[s, 1] = input user "
                    "\"i\"\n%y: f32[s, 1] = torch.gather(%x, -1, %i)"),
            "(i0)(x1), (i0)() -> (i0)()  pick x1");
  EXPECT_EQ(rule_of("%x: f32[6, 8] = input user \"x\"\n%i: i64[4, 3] = input user \"i\"\n%y: "
                    "f32[4, 3] = Tensor.gather(%x, dim=1, index=%i)"),
            "(x0)(x1), (i0)(i1) -> (i0)(i1)  whole i0, whole x0, pick x1");
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[s, 8] = input user \"x\"\n%i: i64[1, 3] = input user "
                    "\"i\"\n%y: f32[s, 3] = torch.take_along_dim(%x, %i, dim=1)"),
            "(i0)(x), ()(i1) -> (i0)(i1)  whole x");
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[97, 8] = input user \"x\"\n%i: i64[s] = input user "
                    "\"i\"\n%y: f32[s, 8] = torch.index_select(%x, 0, %i)"),
            "(x0)(x1), (i) -> (i)(x1)  pick x0");
}

TEST(Index, OneHotMakesAWholeDimension) {
  EXPECT_EQ(rule_of("symbols s=16\n%i: i64[2, s]\n%y: i64[2, s, 5] = torch._C._nn.one_hot(%i, 5)"),
            "(d0)(d1) -> (d0)(d1)(g)  whole g");
}

TEST(Index, ScatterIsWholeAlongItsDimension) {
  const std::string x =
      "symbols s=16\n%x: f32[s, 8] = input user \"x\"\n%i: i64[s, 2] = input user \"i\"\n%v: "
      "f32[s, 2] = input user \"v\"\n";
  EXPECT_EQ(rule_of(x + "%y: f32[s, 8] = Tensor.scatter(%x, 1, %i, %v)"),
            "(x0)(x1), (x0)(i2), (x0)(i3) -> (x0)(x1)  whole x1, whole i2, whole i3");
  EXPECT_EQ(rule_of(x + "%y: f32[s, 8] = torch.scatter(%x, 1, %i, value=1.0)"),
            "(x0)(x1), (x0)(i2) -> (x0)(x1)  whole x1, whole i2");
  EXPECT_EQ(
      rule_of("symbols s=16\n%x: f32[s, 8] = input user \"x\"\n%i: i64[4] = input user \"i\"\n%v: "
              "f32[4, 8] = input user \"v\"\n%y: f32[s, 8] = Tensor.index_add(%x, 0, %i, %v)"),
      "(x0)(x1), (i2), (i3)(x1) -> (x0)(x1)  whole x0, whole i2, whole i3");
  // Fewer rows in the index than in the operand: the rows are not the same axis.
  EXPECT_EQ(rule_of("%x: f32[6, 8] = input user \"x\"\n%i: i64[4, 2] = input user \"i\"\n%y: "
                    "f32[6, 8] = torch.scatter(%x, 1, %i, 1.0)"),
            "(x0)(x1), (i2)(i3) -> (x0)(x1)  whole x0, whole x1, whole i2, whole i3");
}

TEST(Index, WritingByIndexKeepsOtherDimensions) {
  EXPECT_EQ(
      rule_of("symbols s=16\n%x: f32[9, s] = input user \"x\"\n%i: i64[4] = input user \"i\"\n%v: "
              "f32[4, s] = input user \"v\"\n%y: f32[9, s] = torch.index_put(%x, (%i,), %v)"),
      "(x1)(x2), (i0), (i0)(x2) -> (x1)(x2)  whole i0, whole x1");
}

TEST(Index, SliceScatter) {
  const std::string x = "symbols s=16\n%x: f32[s, 8] = input user \"x\"\n";
  EXPECT_EQ(
      rule_of(
          x +
          "%v: f32[s, 4] = input user \"v\"\n%y: f32[s, 8] = torch.slice_scatter(%x, %v, 1, 0, 4)"),
      "(x0)(x1), (x0)(y) -> (x0)(x1)  window x1, whole y");
  const std::string all =
      x + "%v: f32[s, 8] = input user \"v\"\n%y: f32[s, 8] = torch.slice_scatter(%x, %v)";
  EXPECT_EQ(rule_of(all), "(x0)(x1), (x0)(x1) -> (x0)(x1)");
  EXPECT_EQ(local_form(all, "x0"), "%v");
  EXPECT_EQ(
      rule_of(x +
              "%v: f32[s] = input user \"v\"\n%y: f32[s, 8] = torch.select_scatter(%x, %v, 1, 0)"),
      "(x0)(x1), (x0) -> (x0)(x1)  window x1");
}

TEST(Index, InPlaceSpellingsNameTheCallThatGivesTheValue) {
  for (const auto& [written, value] : {std::pair{"Tensor.scatter_add_", "torch.scatter_add"},
                                       {"Tensor.index_copy_", "torch.index_copy"},
                                       {"Tensor.tril_", "torch.tril"},
                                       {"Tensor.unsqueeze_", "torch.unsqueeze"}}) {
    const OpDef* op = find_op(written);
    ASSERT_NE(op, nullptr) << written;
    EXPECT_EQ(op->functional, value);
    EXPECT_NE(find_op(value), nullptr) << value;
  }
}

TEST(Index, AnAssignmentIsAnEffect) { EXPECT_TRUE(find_op("_operator.setitem")->effect); }

}  // namespace
}  // namespace autosp
