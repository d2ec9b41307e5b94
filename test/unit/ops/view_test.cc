#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

// -------------------------------------------------------------------------------------------------
// regrouping

TEST(View, MergedBatchAndTokensAreTwoLetters) {
  EXPECT_EQ(rule_of(R"(symbols b=2, s=16
    %x: f32[b*s, 32] = input user "x"
    %y: f32[b, s, 32] = Tensor.view(%x, (b, s, -1)))"),
            "(x0 x1)(x2) -> (x0)(x1)(x2)");
  EXPECT_EQ(rule_of(R"(symbols b=2, s=16
    %x: f32[b, s, 97] = input user "x"
    %y: f32[b*s, 97] = Tensor.view(%x, -1, 97))"),
            "(x0)(x1)(x2) -> (x0 x1)(x2)");
}

TEST(View, TellsTokensFromFeaturesOfTheSameSize) {
  // S = hidden = 64 and B = S: only the order of dimensions counts.
  EXPECT_EQ(rule_of(R"(%x: f32[64, 64, 64] = input user "x"
    %y: f32[64, 64, 8, 8] = Tensor.view(%x, (64, 64, -1, 8)))"),
            "(x0)(x1)(x2 x3) -> (x0)(x1)(x2)(x3)");
}

TEST(View, RepeatKvChain) {
  const std::string keys = R"(symbols b=2, s=16
    %k: f32[b, 2, s, 8] = input user "k"
    %i: f32[b, 2, 1, s, 8] = _operator.getitem(%k, (slice(None, None, None),
      slice(None, None, None), None, slice(None, None, None), slice(None, None, None))))";
  const std::string expanded = keys + "\n%e: f32[b, 2, 2, s, 8] = Tensor.expand(%i, b, 2, 2, s, 8)";
  EXPECT_EQ(rule_of(keys), "(x0)(x1)(x2)(x3) -> (x0)(x1)()(x2)(x3)");
  EXPECT_EQ(rule_of(expanded), "(x0)(x1)()(x3)(x4) -> (x0)(x1)(x2)(x3)(x4)");
  EXPECT_EQ(rule_of(expanded + "\n%r: f32[b, 4, s, 8] = Tensor.reshape(%e, b, 4, s, 8)"),
            "(x0)(x1)(x2)(x3)(x4) -> (x0)(x1 x2)(x3)(x4)");
}

TEST(View, WithoutACommonRefinementOnlyThatGroupIsWhole) {
  EXPECT_EQ(rule_of(R"(symbols s=16
    %x: f32[s, 4, 6] = input user "x"
    %y: f32[s, 6, 4] = torch.reshape(%x, (s, 6, 4)))"),
            "(x0)(x1)(x2) -> (x0)(x3)(x4)  whole x1, whole x2, whole x3, whole x4");
}

TEST(View, SqueezeUnsqueezeFlattenUnflatten) {
  const std::string x = "%x: f32[2, 1, 16, 32] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%y: f32[2, 16, 32] = Tensor.squeeze(%x, 1)"),
            "(x0)()(x1)(x2) -> (x0)(x1)(x2)");
  EXPECT_EQ(rule_of(x + "%y: f32[2, 1, 1, 16, 32] = torch.unsqueeze(%x, dim=1)"),
            "(x0)()(x1)(x2) -> (x0)()()(x1)(x2)");
  EXPECT_EQ(rule_of(x + "%y: f32[2, 1, 512] = torch.flatten(%x, start_dim=-2)"),
            "(x0)()(x1)(x2) -> (x0)()(x1 x2)");
  EXPECT_EQ(rule_of(x + "%y: f32[2, 1, 16, 4, 8] = Tensor.unflatten(%x, -1, (4, 8))"),
            "(x0)()(x1)(x2 x3) -> (x0)()(x1)(x2)(x3)");
  EXPECT_EQ(
      rule_of(x + "%t: f32[32, 32] = input user \"t\"\n%y: f32[32, 32] = Tensor.view_as(%x, %t)"),
      "(x0)()(x1)(x2) -> (x0 x1)(x2)");
}

TEST(View, AnotherDtypeIsPointwiseWhereElementsHaveTheSameBytes) {
  const std::string x = "%x: f32[4, 8] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%y: i32[4, 8] = Tensor.view(%x, @torch.int32)"), "(x0)(x1) -> (x0)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f16[4, 16] = Tensor.view(%x, @torch.float16)"),
            "(x0)(x1) -> (x0)(y)  whole x1, whole y");
}

TEST(View, ComplexPairs) {
  EXPECT_EQ(
      rule_of("%x: f32[4, 8, 2] = input user \"x\"\n%y: c64[4, 8] = torch.view_as_complex(%x)"),
      "(x0)(x1)(x2) -> (x0)(x1)  whole x2");
  EXPECT_EQ(rule_of("%x: c64[4, 8] = input user \"x\"\n%y: f32[4, 8, 2] = torch.view_as_real(%x)"),
            "(x0)(x1) -> (x0)(x1)(p)  whole p");
}

TEST(View, LocalFormsSpellOutLocalSizes) {
  EXPECT_EQ(local_form(R"(symbols b=2, s=16
    %x: f32[b, s, 32] = input user "x"
    %y: f32[b, s, 4, 8] = Tensor.view(%x, (b, s, -1, 8)))",
                       "x1"),
            "%n0: f32[b, (s//2), 4, 8] = torch.reshape(%x, [b, (s//2), 4, 8])\n%n0");
  // A local length of 1 must not be squeezed away.
  EXPECT_EQ(
      local_form("%x: f32[1, 16, 32] = input user \"x\"\n%y: f32[16, 32] = Tensor.squeeze(%x)",
                 "x0"),
      "%n0: f32[8, 32] = torch.reshape(%x, [8, 32])\n%n0");
  EXPECT_EQ(
      local_form("%x: f32[16, 32] = input user \"x\"\n%y: f32[16, 1, 32] = Tensor.unsqueeze(%x, 1)",
                 "x0"),
      "%n0: f32[8, 1, 32] = Tensor.unsqueeze(%x, 1)\n%n0");
}

// ---------------------------------------------------------------------------------------- order of
// dimensions

TEST(View, Permutations) {
  const std::string x = "symbols b=2, s=16\n%x: f32[b, s, 4, 8] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%y: f32[b, 4, s, 8] = Tensor.transpose(%x, 1, -2)"),
            "(x0)(x1)(x2)(x3) -> (x0)(x2)(x1)(x3)");
  EXPECT_EQ(rule_of(x + "%y: f32[s, b, 4, 8] = torch.swapaxes(%x, 1, 0)"),
            "(x0)(x1)(x2)(x3) -> (x1)(x0)(x2)(x3)");
  EXPECT_EQ(rule_of(x + "%y: f32[8, b, 4, s] = Tensor.permute(%x, 3, 0, 2, 1)"),
            "(x0)(x1)(x2)(x3) -> (x3)(x0)(x2)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[8, b, 4, s] = torch.permute(%x, (-1, 0, 2, 1))"),
            "(x0)(x1)(x2)(x3) -> (x3)(x0)(x2)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[b, 4, 8, s] = torch.movedim(%x, 1, -1)"),
            "(x0)(x1)(x2)(x3) -> (x0)(x2)(x3)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[4, 8, b, s] = Tensor.movedim(%x, (2, 3), (0, 1))"),
            "(x0)(x1)(x2)(x3) -> (x2)(x3)(x0)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[b, s, 8, 4] = builtins.getattr(%x, \"mT\")"),
            "(x0)(x1)(x2)(x3) -> (x0)(x1)(x3)(x2)");
  EXPECT_EQ(
      rule_of("%x: f32[4, 8] = input user \"x\"\n%y: f32[8, 4] = builtins.getattr(%x, \"T\")"),
      "(x0)(x1) -> (x1)(x0)");
  EXPECT_EQ(rule_of("%x: f32[4, 8] = input user \"x\"\n%y: f32[8, 4] = Tensor.t(%x)"),
            "(x0)(x1) -> (x1)(x0)");
}

TEST(View, AnUnknownAttributeIsWhole) {
  EXPECT_EQ(
      rule_of("%x: f32[4, 8] = input user \"x\"\n%y: f32[4, 8] = builtins.getattr(%x, \"grad\")"),
      "(x0)(x1) -> (y2)(y3)  whole x0, whole x1, whole y2, whole y3");
}

// -------------------------------------------------------------------------------------------------
// repeating

TEST(View, AnExpandedDimensionIsANewLetter) {
  const std::string ids =
      "symbols b=2, s=16\n%p: i64[1, s] = input user \"p\"\n%y: i64[b, s] = Tensor.expand(%p, b, "
      "-1)";
  EXPECT_EQ(rule_of(ids), "()(x1) -> (x0)(x1)");
  EXPECT_EQ(local_form(ids, "x1"), "%n0: i64[b, (s//2)] = Tensor.expand(%p, b, (s//2))\n%n0");
  // The new dimension itself may be the sharded one.
  EXPECT_EQ(local_form(R"(symbols s=16
    %w: f32[32] = input parameter "w"
    %y: f32[s, 32] = torch.broadcast_to(%w, (s, 32)))",
                       "x0"),
            "%n0: f32[(s//2), 32] = Tensor.expand(%w, (s//2), 32)\n%n0");
}

TEST(View, BroadcastTensorsAndMeshgrid) {
  EXPECT_EQ(rule_of("%x: f32[2, 4]\n%w: f32[4]\n%y: (f32[2, 4], f32[2, 4]) = "
                    "torch.functional.broadcast_tensors(%x, %w)"),
            "(x0)(x1), (x1) -> (x0)(x1), (x0)(x1)");
  EXPECT_EQ(rule_of("%a: i64[2]\n%b: i64[3]\n%y: (i64[3, 2], i64[3, 2]) = "
                    "torch.functional.meshgrid(%a, %b, indexing=\"xy\")"),
            "(x00), (x10) -> (x10)(x00), (x10)(x00)");
}

TEST(View, RepeatPutsCopiesOutsideAndRepeatInterleaveInside) {
  const std::string x = "symbols s=16\n%x: f32[4, s] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%y: f32[2, 4, 3*s] = Tensor.repeat(%x, 2, 1, 3)"),
            "(x0)(x1) -> (r0)(x0)(r2 x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[8, s] = torch.repeat_interleave(%x, repeats=2, dim=0)"),
            "(x0)(x1) -> (x0 r)(x1)");
  EXPECT_EQ(rule_of(x + "%y: f32[12*s] = Tensor.repeat_interleave(%x, 3)"),
            "(x0)(x1) -> (x0 x1 r)");
}

TEST(View, LocalRepeatsCountLocalCopies) {
  const std::string repeat = "%x: f32[4, 16]\n%y: f32[8, 96] = Tensor.repeat(%x, 2, 6)";
  EXPECT_EQ(local_form(repeat, "x1"), "%n0: f32[8, 48] = Tensor.repeat(%x, 2, 6)\n%n0");
  EXPECT_EQ(local_form(repeat, "r1"), "%n0: f32[8, 48] = Tensor.repeat(%x, 2, 3)\n%n0");
  const std::string interleave =
      "%x: f32[4, 8]\n%y: f32[16, 8] = Tensor.repeat_interleave(%x, 4, 0)";
  EXPECT_EQ(local_form(interleave, "x0"),
            "%n0: f32[8, 8] = torch.repeat_interleave(%x, 4, dim=0)\n%n0");
  EXPECT_EQ(local_form(interleave, "r"),
            "%n0: f32[8, 8] = torch.repeat_interleave(%x, 2, dim=0)\n%n0");
}

// --------------------------------------------------------------------------------------------
// apart, together

TEST(View, SplitOfFeaturesPassesTokens) {
  // GPT-2's q, k, v out of one projection.
  EXPECT_EQ(rule_of(R"(symbols b=2, s=16
    %x: f32[b, s, 96] = input user "x"
    %y: (f32[b, s, 32], f32[b, s, 32], f32[b, s, 32]) = Tensor.split(%x, 32, dim=2))"),
            "(x0)(x1)(x2) -> (x0)(x1)(y0), (x0)(x1)(y1), (x0)(x1)(y2)  whole x2, whole y0, whole "
            "y1, whole y2");
  EXPECT_EQ(
      rule_of(
          "%x: f32[4, 2, 8] = input user \"x\"\n%y: (f32[4, 8], f32[4, 8]) = Tensor.unbind(%x, 1)"),
      "(x0)(x1)(x2) -> (x0)(x2), (x0)(x2)  whole x1");
  EXPECT_EQ(rule_of("%x: f32[4, 8] = input user \"x\"\n%y: (f32[4, 8],) = torch.chunk(%x, 1, -1)"),
            "(x0)(x1) -> (x0)(x1)");
}

TEST(View, CatJoinsIntoANewLength) {
  // Rotary's rotate_half.
  EXPECT_EQ(rule_of(R"(symbols s=16
    %x: f32[s, 4] = input user "x"
    %y: f32[s, 8] = torch.cat((%x, %x), dim=-1))"),
            "(x0)(c0), (x0)(c1) -> (x0)(x1)  window x1, whole c0, whole c1");
}

TEST(View, CatIgnoresEmptyOperands) {
  const std::string x = "symbols s=16\n%x: f32[2, s, 4] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%e: f32[0] = input user \"e\"\n%y: f32[2, s, 4] = torch.cat((%e, %x), 1)"),
            "(x0)(x1)(x2) -> (x0)(x1)(x2)");
  EXPECT_EQ(
      rule_of(x + "%e: f32[2, 0, 4] = input user \"e\"\n%y: f32[2, s, 4] = torch.cat((%e, %x), 1)"),
      "(x0)(c0)(x2), (x0)(x1)(x2) -> (x0)(x1)(x2)  whole c0");
}

TEST(View, StackMakesANewDimension) {
  EXPECT_EQ(rule_of(R"(symbols s=16
    %x: f32[s, 4] = input user "x"
    %y: f32[s, 2, 4] = torch.stack((%x, %x), 1))"),
            "(x0)(x1), (x0)(x1) -> (x0)(n)(x1)  whole n");
}

}  // namespace
}  // namespace autosp
