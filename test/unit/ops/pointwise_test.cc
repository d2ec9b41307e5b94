#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Pointwise, BroadcastsFromTheEnd) {
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %b: f32[8]; %y: f32[2, s, 8] = _operator.add(%x, %b)"),
            "(d0)(d1)(d2), (d2) -> (d0)(d1)(d2)");
  EXPECT_EQ(
      rule_of(
          "%k: i64[1, 1, 1, s]; %q: i64[1, 1, s, 1]; %y: bool[1, 1, s, s] = _operator.le(%k, %q)"),
      "()()()(d3), ()()(d2)() -> ()()(d2)(d3)");
}

TEST(Pointwise, BatchEqualToLengthEqualToWidth) {
  EXPECT_EQ(rule_of("%x: f32[8, 8, 8]; %b: f32[8]; %y: f32[8, 8, 8] = torch.mul(%x, %b)"),
            "(d0)(d1)(d2), (d2) -> (d0)(d1)(d2)");
  EXPECT_EQ(rule_of("%x: f32[8, 1, 8]; %b: f32[1, 8, 1]; %y: f32[8, 8, 8] = torch.mul(%x, %b)"),
            "(d0)()(d2), ()(d1)() -> (d0)(d1)(d2)");
}

TEST(Pointwise, ScalarsAndScalarTensors) {
  EXPECT_EQ(rule_of("%x: f32[s]; %c: f32[]; %y: f32[s] = torch.where(%x, %c, -1.0)"),
            "(d0), [] -> (d0)");
  EXPECT_EQ(rule_of("%x: f32[s]; %y: f32[s] = _operator.sub(1, %x)"), "(d0) -> (d0)");
  EXPECT_EQ(rule_of("%x: f32[s]; %lo: f32[1]; %y: f32[s] = torch.clamp(%x, min=%lo)"),
            "(d0), () -> (d0)");
  EXPECT_EQ(rule_of("%x: f32[s]; %m: bool[s]; %y: f32[s] = Tensor.masked_fill(%x, %m, -inf)"),
            "(d0), (d0) -> (d0)");
}

TEST(Pointwise, NumbersHaveNoLetters) {
  EXPECT_EQ(rule_of("%a: scalar; %y: scalar = _operator.mul(%a, 2.0)"), "-> []");
  EXPECT_EQ(rule_of("%x: f32[s]; %a: scalar; %y: f32[s] = _operator.mul(%x, %a)"), "(d0) -> (d0)");
}

TEST(Pointwise, CastsTakeTheirTemplatesDtypeOnly) {
  EXPECT_EQ(rule_of("%x: f32[2, s]; %o: bf16[s, s]; %y: bf16[2, s] = Tensor.type_as(%x, %o)"),
            "(d0)(d1) -> (d0)(d1)");
  EXPECT_EQ(rule_of("%x: f32[2, s]; %o: bf16[s, s]; %y: bf16[2, s] = Tensor.to(%x, %o)"),
            "(d0)(d1) -> (d0)(d1)");
  EXPECT_EQ(rule_of("%x: f32[2]; %y: bf16[2] = Tensor.to(%x, @\"device(type='cpu')\", "
                    "@torch.bfloat16, True)"),
            "(d0) -> (d0)");
  EXPECT_EQ(rule_of("%x: f32[2]; %y: bf16[2] = Tensor.to(%x, dtype=@torch.bfloat16, device=None)"),
            "(d0) -> (d0)");
  EXPECT_EQ(rule_of("%x: i64[2]; %y: f32[2] = Tensor.float(%x)"), "(d0) -> (d0)");
}

TEST(Pointwise, EverySpellingIsOneOperator) {
  for (const char* target : {"_operator.add", "torch.add", "Tensor.add", "Tensor.__radd__"}) {
    ASSERT_NE(find_op(target), nullptr) << target;
    EXPECT_EQ(find_op(target)->name, "add");
  }
  EXPECT_EQ(find_op("torch._C._nn.gelu"), find_op("torch.nn.functional.gelu"));
  EXPECT_EQ(find_op("torch._C._nn.log_sigmoid"), find_op("torch.nn.functional.logsigmoid"));
}

TEST(Pointwise, InPlaceFormsNameTheirValue) {
  EXPECT_EQ(find_op("_operator.iadd")->functional, "_operator.add");
  EXPECT_EQ(find_op("_operator.iand")->functional, "_operator.and_");
  EXPECT_EQ(find_op("_operator.itruediv")->functional, "_operator.truediv");
  EXPECT_EQ(find_op("Tensor.masked_fill_")->functional, "torch.masked_fill");
  EXPECT_EQ(find_op("Tensor.clamp_")->functional, "torch.clamp");
  EXPECT_TRUE(find_op("Tensor.clamp")->functional.empty());
}

TEST(Pointwise, SaysWhereNoGradientFlows) {
  EXPECT_FALSE(find_op("_operator.le")->differentiable);
  EXPECT_FALSE(find_op("Tensor.detach")->differentiable);
  EXPECT_FALSE(find_op("torch.logical_and")->differentiable);
  EXPECT_TRUE(find_op("torch.where")->differentiable);
}

TEST(Pointwise, RefusesWhatItCannotDo) {
  EXPECT_NE(refusal_of("%m: bool[s]; %y: (i64[4],) = torch.where(%m)").find("give both branches"),
            std::string::npos);
  EXPECT_EQ(refusal_of("%m: bool[s]; %y: f32[s] = torch.where(%m, 1.0, 0.0)"), "");
  EXPECT_NE(refusal_of("%x: f32[s]; %y: f32[s] = torch.nn.functional.relu(%x, inplace=True)")
                .find("inplace=True"),
            std::string::npos);
  EXPECT_EQ(refusal_of("%x: f32[s]; %y: f32[s] = torch.nn.functional.silu(%x, inplace=False)"), "");
}

TEST(Pointwise, ChannelSlopesAndGates) {
  EXPECT_EQ(rule_of("%x: f32[2, 3, s]; %w: f32[3]; %y: f32[2, 3, s] = torch.prelu(%x, %w)"),
            "(d0)(d1)(d2), (d1) -> (d0)(d1)(d2)");
  EXPECT_EQ(rule_of("%x: f32[2, 3, s]; %w: f32[1]; %y: f32[2, 3, s] = torch.prelu(%x, %w)"),
            "(d0)(d1)(d2), () -> (d0)(d1)(d2)");
  EXPECT_EQ(rule_of("%x: f32[2, s, 8]; %y: f32[2, s, 4] = torch.nn.functional.glu(%x)"),
            "(d0)(d1)(d2) -> (d0)(d1)(half)  whole d2, whole half");
}

}  // namespace
}  // namespace autosp
