#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Creation, ArangeKnowsItsGlobalPosition) {
  const std::string call =
      "symbols s=16\n%y: i64[s] = torch.arange(s, device=@\"device(type='cpu')\")";
  EXPECT_EQ(rule_of(call), "-> (x0)  index x0");
  EXPECT_EQ(local_form(call, "x0"),
            "%n0: i64[(s//2)] = torch.arange(rank*(s//2), rank*(s//2) + (s//2), "
            "device=@\"device(type='cpu')\")\n%n0");
}

TEST(Creation, ArangeBoundsInEveryStyle) {
  const std::string expected = "%n0: i64[8] = torch.arange(16*rank + 3, 16*rank + 19, 2)\n%n0";
  for (const char* bounds :
       {"3, 35, 2", "3, 35, step=2", "3, end=35, step=2", "start=3, end=35, step=2"}) {
    EXPECT_EQ(local_form(std::string("%y: i64[16] = torch.arange(") + bounds + ")", "x0"), expected)
        << bounds;
  }
  EXPECT_EQ(local_form("%y: f32[16] = torch.arange(end=16, dtype=@torch.float32)", "x0"),
            "%n0: f32[8] = torch.arange(8*rank, 8*rank + 8, dtype=@torch.float32)\n%n0");
  EXPECT_EQ(rule_of("%y: f32[10] = torch.arange(0.0, 1.0, 0.1)"), "-> (x0)  whole x0");
}

TEST(Creation, SizesBecomeLocal) {
  EXPECT_EQ(
      local_form("symbols s=16\n%y: f32[2, s] = torch.zeros(2, s, dtype=@torch.float32)", "x1"),
      "%n0: f32[2, (s//2)] = torch.zeros([2, (s//2)], dtype=@torch.float32)\n%n0");
  EXPECT_EQ(
      local_form(
          "symbols s=16\n%y: f32[s, 8] = torch.full((s, 8), -1.5, device=@\"device(type='cpu')\")",
          "x0"),
      "%n0: f32[(s//2), 8] = torch.full([(s//2), 8], -1.5, device=@\"device(type='cpu')\")\n%n0");
}

TEST(Creation, ATemplateLendsNoAxes) {
  const std::string x = "symbols s=16\n%x: f32[s, 8] = input user \"x\"\n";
  EXPECT_EQ(rule_of(x + "%y: f32[s, 8] = torch.zeros_like(%x)"), "-> (x0)(x1)");
  EXPECT_EQ(rule_of(x + "%y: bool[] = Tensor.new_ones(%x, (), dtype=@torch.bool)"), "-> []");
  EXPECT_EQ(
      local_form(x + "%y: f32[s, 8] = torch.zeros_like(%x, memory_format=@torch.preserve_format)",
                 "x0"),
      "%n0: f32[(s//2), 8] = Tensor.new_zeros(%x, [(s//2), 8])\n%n0");
  EXPECT_EQ(local_form(x + "%y: i64[s, 8] = torch.full_like(%x, 7, dtype=@torch.int64)", "x0"),
            "%n0: i64[(s//2), 8] = Tensor.new_full(%x, [(s//2), 8], 7, dtype=@torch.int64)\n%n0");
  EXPECT_EQ(local_form(x + "%y: bool[s] = Tensor.new_ones(%x, s, dtype=@torch.bool)", "x0"),
            "%n0: bool[(s//2)] = Tensor.new_ones(%x, [(s//2)], dtype=@torch.bool)\n%n0");
  EXPECT_EQ(local_form(x + "%y: f32[s] = Tensor.new_full(%x, (s,), 2.0)", "x0"),
            "%n0: f32[(s//2)] = Tensor.new_full(%x, [(s//2)], 2.0)\n%n0");
}

TEST(Creation, ElementsWithAPositionAreWhole) {
  EXPECT_EQ(rule_of("%y: f32[4, 4] = torch.eye(4)"), "-> (x0)(x1)  whole x0, whole x1");
  EXPECT_EQ(rule_of("%y: f32[5] = torch.linspace(0, 1, 5)"), "-> (x0)  whole x0");
  EXPECT_EQ(rule_of("%y: f32[] = torch.tensor(0.5, dtype=@torch.float32)"), "-> []");
  EXPECT_EQ(rule_of("%y: i64[3] = torch.tensor([1, 2, 3])"), "-> (x0)  whole x0");
}

TEST(Creation, TrianglesAreWholeInTheirLastTwoDimensions) {
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[2, s, s] = input user \"x\"\n%y: f32[2, s, s] = "
                    "torch.tril(%x, diagonal=0)"),
            "(d0)(d1)(d2) -> (d0)(d1)(d2)  whole d1, whole d2");
}

TEST(Creation, DependsOnSizesAlone) {
  for (const char* target :
       {"torch.arange", "torch.zeros", "torch.ones_like", "Tensor.new_ones", "torch.tensor"}) {
    EXPECT_TRUE(find_op(target)->creates) << target;
  }
  EXPECT_FALSE(find_op("torch.tril")->creates);
}

}  // namespace
}  // namespace autosp
