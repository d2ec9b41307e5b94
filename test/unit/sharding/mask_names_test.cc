#include "sharding/mask_names.h"

#include <gtest/gtest.h>

#include "ir/text.h"

namespace autosp {
namespace {

// The name of %mask over [..., queries, keys]. There are the numbers %k of keys [s] and %q of
// queries [s, 1], numbers of the user's, %a and %b [2, s], and %slopes of four heads.
std::string name(const std::string& lines) {
  const Graph graph = parse_graph(R"(symbols s=16
%a: i64[2, s] = input user "segments"
%b: i64[2, s] = input user "others"
%pad: bool[2, 1, 1, s] = input user "pad"
%slopes: f32[4, 1, 1] = input parameter "slopes" grad
%table: f32[32, 4] = input parameter "table" grad
%k: i64[s] = torch.arange(s)
%q: i64[s, 1] = Tensor.unsqueeze(%k, 1)
%le: bool[s, s] = _operator.le(%k, %q)
)" + lines + "\nreturn (%mask,)\n");
  const NodeId mask = graph.outputs[0].value;
  const size_t rank = graph.node(mask).type.shape.size();
  MaskElements elements(graph, {mask}, MaskElements::Floats::kReal, [](NodeId) { return false; });
  return mask_name(graph, elements, mask, {rank - 2, rank - 1, kNoNode});
}

TEST(MaskNames, Causal) {
  EXPECT_EQ(name("%mask: bool[s, s] = _operator.ge(%q, %k)"), "causal");
  EXPECT_EQ(name(R"(%gt: bool[s, s] = torch.gt(%k, %q)
%mask: bool[s, s] = _operator.invert(%gt))"),
            "causal");
  EXPECT_EQ(name(R"(%one: f32[s, s] = torch.ones(s, s)
%low: f32[s, s] = torch.tril(%one)
%mask: bool[s, s] = _operator.eq(%low, 1))"),
            "causal");
  EXPECT_EQ(name(R"(%inf: f32[s, s] = torch.full((s, s), -inf)
%mask: f32[s, s] = torch.triu(%inf, diagonal=1))"),
            "causal");
  EXPECT_EQ(name(R"(%one: f32[s, s] = torch.ones(s, s)
%low: f32[s, s] = torch.tril(%one)
%high: f32[s, s] = _operator.sub(1.0, %low)
%mask: f32[s, s] = _operator.mul(%high, -1e9))"),
            "causal");
  EXPECT_EQ(name(R"(%more: bool[2, 4, s, s] = Tensor.expand(%le, 2, 4, s, s)
%mask: bool[8, s, s] = Tensor.reshape(%more, 8, s, s))"),
            "causal");
}

TEST(MaskNames, WhatHidesDoesSoWhenItIsScaled) {
  const std::string mask = "%bias: f32[s, s] = torch.where(%le, 0.0, -3.4028234663852886e+38)\n";
  EXPECT_EQ(name(mask + "%mask: f32[s, s] = _operator.truediv(%bias, 2.5)"), "causal");
  EXPECT_EQ(name(mask + "%mask: f32[s, s] = _operator.mul(%bias, 0.5)"), "causal");
  EXPECT_EQ(name(mask + "%mask: f32[s, s] = _operator.truediv(%bias, -2.5)"), "as written");
}

TEST(MaskNames, CausalIsNotWhatLooksLikeIt) {
  EXPECT_EQ(name("%mask: bool[s, s] = torch.lt(%k, %q)"), "causal offset -1");
  EXPECT_EQ(name(R"(%one: bool[s, s] = torch.ones(s, s, dtype=@torch.bool)
%mask: bool[s, s] = torch.tril(%one, diagonal=2))"),
            "causal offset 2");
  EXPECT_EQ(name("%mask: bool[s, s] = torch.ge(%k, %q)"), "as written");
  EXPECT_EQ(name("%mask: bool[s, s] = Tensor.transpose(%le, 0, 1)"), "as written");
  EXPECT_EQ(name("%mask: bool[s, s] = torch.ne(%k, %q)"), "as written");
  EXPECT_EQ(name(R"(%twice: i64[s, 1] = _operator.mul(%q, 2)
%mask: bool[s, s] = torch.le(%k, %twice))"),
            "as written");
  // Rounded, other numbers are equal.
  EXPECT_EQ(name(R"(%kf: bf16[s] = Tensor.to(%k, @torch.bfloat16)
%qf: bf16[s, 1] = Tensor.to(%q, @torch.bfloat16)
%mask: bool[s, s] = torch.le(%kf, %qf))"),
            "as written");
  // A small number hides nothing.
  EXPECT_EQ(name(R"(%one: f32[s, s] = torch.full((s, s), -2.0)
%mask: f32[s, s] = torch.triu(%one, diagonal=1))"),
            "score term");
}

TEST(MaskNames, Windows) {
  EXPECT_EQ(name(R"(%from: i64[s, 1] = _operator.sub(%q, 6)
%near: bool[s, s] = torch.gt(%k, %from)
%mask: bool[s, s] = _operator.and_(%near, %le))"),
            "causal, window 6");
  EXPECT_EQ(name(R"(%from: i64[s, 1] = _operator.sub(%q, 6)
%near: bool[s, s] = torch.ge(%k, %from)
%mask: bool[s, s] = torch.mul(%near, %le))"),
            "causal, window 7");
  EXPECT_EQ(name(R"(%far: i64[s, s] = _operator.sub(%q, %k)
%size: i64[s, s] = torch.abs(%far)
%mask: bool[s, s] = torch.le(%size, 3))"),
            "two-sided window 3");
  EXPECT_EQ(name(R"(%one: bool[s, s] = torch.ones(s, s, dtype=@torch.bool)
%high: bool[s, s] = torch.triu(%one, diagonal=-3)
%mask: bool[s, s] = torch.tril(%high, diagonal=3))"),
            "two-sided window 3");
  EXPECT_EQ(name(R"(%far: i64[s, s] = _operator.sub(%q, %k)
%size: i64[s, s] = torch.abs(%far)
%near: bool[s, s] = torch.le(%size, 3)
%mask: bool[s, s] = _operator.and_(%near, %le))"),
            "causal, window 4");
  EXPECT_EQ(name(R"(%from: i64[s, 1] = _operator.sub(%q, 6)
%mask: bool[s, s] = torch.gt(%k, %from))"),
            "as written");
  EXPECT_EQ(name(R"(%from: i64[s, 1] = _operator.sub(%q, 6)
%near: bool[s, s] = torch.gt(%k, %from)
%mask: bool[s, s] = _operator.or_(%near, %le))"),
            "as written");
}

TEST(MaskNames, Chunks) {
  const std::string chunks = R"(%kc: i64[s] = _operator.floordiv(%k, 5)
%qc: i64[s, 1] = _operator.floordiv(%q, 5)
)";
  EXPECT_EQ(name(chunks + R"(%same: bool[s, s] = torch.eq(%kc, %qc)
%mask: bool[s, s] = _operator.and_(%same, %le))"),
            "causal, chunks of 5");
  EXPECT_EQ(name(chunks + "%mask: bool[s, s] = torch.ne(%kc, %qc)"), "as written");
  EXPECT_EQ(name(chunks + "%mask: bool[s, s] = torch.le(%kc, %qc)"), "as written");
  EXPECT_EQ(name(R"(%kc: i64[s] = _operator.mod(%k, 5)
%qc: i64[s, 1] = _operator.mod(%q, 5)
%mask: bool[s, s] = torch.eq(%kc, %qc))"),
            "as written");
  EXPECT_EQ(name(R"(%kc: i64[s] = _operator.floordiv(%k, 5)
%qc: i64[s, 1] = _operator.floordiv(%q, 4)
%mask: bool[s, s] = torch.eq(%kc, %qc))"),
            "as written");
}

TEST(MaskNames, Documents) {
  const std::string rows = "%rows: i64[2, s, 1] = Tensor.unsqueeze(%a, 2)\n";
  EXPECT_EQ(name(rows + R"(%columns: i64[2, 1, s] = Tensor.unsqueeze(%a, 1)
%mask: bool[2, s, s] = torch.eq(%rows, %columns))"),
            "document by segments");
  EXPECT_EQ(name(rows + R"(%columns: i64[2, 1, s] = Tensor.unsqueeze(%b, 1)
%mask: bool[2, s, s] = torch.eq(%rows, %columns))"),
            "as written");
  EXPECT_EQ(name(rows + R"(%columns: i64[2, 1, s] = Tensor.unsqueeze(%a, 1)
%mask: bool[2, s, s] = torch.ne(%rows, %columns))"),
            "as written");
  EXPECT_EQ(name(rows + R"(%columns: i64[2, 1, s] = Tensor.unsqueeze(%a, 1)
%more: i64[2, 1, s] = torch.add(%columns, 1)
%mask: bool[2, s, s] = torch.eq(%rows, %more))"),
            "as written");
  EXPECT_EQ(name(R"(%start: bool[2, s] = torch.eq(%a, 0)
%seen: i64[2, s] = torch.cumsum(%start, -1)
%batch: i64[2] = torch.arange(2)
%each: i64[2, 1, 1, 1] = Tensor.view(%batch, 2, 1, 1, 1)
%rows: i64[2, 1, s, 1] = _operator.getitem(%seen, (%each, %q))
%columns: i64[2, 1, 1, s] = _operator.getitem(%seen, (%each, %k))
%same: bool[2, 1, s, s] = torch.eq(%rows, %columns)
%mask: bool[2, 1, s, s] = torch.logical_and(%same, %le))"),
            "causal, document by seen");
  EXPECT_EQ(name(R"(%end: bool[2, s] = torch.eq(%a, 3)
%seen: i64[2, s] = torch.cumsum(%end, -1)
%number: i64[2, s] = torch.sub(%seen, %end)
%rows: i64[2, s, 1] = Tensor.unsqueeze(%number, 2)
%columns: i64[2, 1, s] = Tensor.unsqueeze(%number, 1)
%mask: bool[2, s, s] = torch.eq(%rows, %columns))"),
            "document by -(segments - 3 == 0) + seen");
}

TEST(MaskNames, Padding) {
  EXPECT_EQ(name("%mask: bool[2, 1, s, s] = torch.mul(%pad, %le)"), "causal, padding of keys");
  EXPECT_EQ(name(R"(%rows: bool[2, 1, s, 1] = Tensor.transpose(%pad, 2, 3)
%mask: bool[2, 1, s, s] = torch.mul(%rows, %le))"),
            "causal, padding of queries");
  EXPECT_EQ(name(R"(%number: f32[2, 1, 1, s] = Tensor.float(%pad)
%hole: f32[2, 1, 1, s] = torch.rsub(%number, 1.0)
%mask: f32[2, 1, 1, s] = _operator.mul(%hole, -1e9))"),
            "padding of keys");
  EXPECT_EQ(name(R"(%real: i64[2, 1, 1, s] = Tensor.view(%a, 2, 1, 1, s)
%number: f32[2, 1, 1, s] = Tensor.to(%real, @torch.float32)
%hole: f32[2, 1, 1, s] = torch.rsub(%number, 1.0)
%mask: f32[2, 1, 1, s] = _operator.mul(%hole, -3.4028234663852886e+38))"),
            "padding of keys");
  EXPECT_EQ(name("%mask: bool[2, 1, s, s] = _operator.or_(%pad, %le)"), "as written");
  EXPECT_EQ(name("%mask: bool[s] = torch.ge(%k, 3)"), "as written");
}

TEST(MaskNames, Prefixes) {
  EXPECT_EQ(name(R"(%start: bool[s] = torch.lt(%k, 4)
%mask: bool[s, s] = _operator.or_(%start, %le))"),
            "prefix 4");
  EXPECT_EQ(name(R"(%end: bool[s] = torch.gt(%k, 4)
%mask: bool[s, s] = _operator.or_(%end, %le))"),
            "as written");
  EXPECT_EQ(name(R"(%start: bool[s, 1] = torch.lt(%q, 4)
%mask: bool[s, s] = _operator.or_(%start, %le))"),
            "as written");
}

TEST(MaskNames, WhatIsNotRecognisedIsSaidBesideWhatIs) {
  EXPECT_EQ(name(R"(%odd: i64[s] = _operator.mod(%k, 2)
%even: bool[s] = torch.eq(%odd, 0)
%mask: bool[s, s] = _operator.and_(%even, %le))"),
            "causal, as written");
  EXPECT_EQ(name("%mask: f32[s, s] = input user \"m\""), "as written");
  EXPECT_EQ(name("%mask: bool[s, s] = torch.ones(s, s, dtype=@torch.bool)"), "");
}

TEST(MaskNames, ScoreTerms) {
  const std::string far = "%far: i64[s, s] = _operator.sub(%k, %q)\n";
  EXPECT_EQ(name(far + "%mask: f32[4, s, s] = torch.mul(%slopes, %far)"), "ALiBi");
  EXPECT_EQ(name("%mask: f32[4, 1, s] = torch.mul(%slopes, %k)"), "ALiBi");
  EXPECT_EQ(name(far + R"(%bias: f32[4, s, s] = torch.mul(%slopes, %far)
%mask: f32[4, s, s] = torch.where(%le, %bias, -inf))"),
            "causal, ALiBi");
  EXPECT_EQ(name(far + R"(%half: f32[s, s] = torch.mul(%far, 0.5)
%mask: f32[s, s] = torch.where(%le, %half, -inf))"),
            "causal, score term");
  EXPECT_EQ(name(far + R"(%square: i64[s, s] = torch.mul(%far, %far)
%mask: f32[4, s, s] = torch.mul(%slopes, %square))"),
            "score term");
  EXPECT_EQ(name(far + R"(%place: i64[s, s] = torch.clamp(%far, -8, 7)
%at: i64[s, s] = _operator.add(%place, 8)
%bias: f32[s, s, 4] = torch.nn.functional.embedding(%at, %table)
%mask: f32[4, s, s] = Tensor.permute(%bias, 2, 0, 1))"),
            "relative bias");
  EXPECT_EQ(name(far + R"(%size: i64[s, s] = torch.abs(%far)
%float: f32[s, s] = Tensor.float(%size)
%log: f32[s, s] = torch.log1p(%float)
%at: i64[s, s] = Tensor.long(%log)
%bias: f32[s, s, 4] = _operator.getitem(%table, (%at,))
%mask: f32[4, s, s] = Tensor.permute(%bias, 2, 0, 1))"),
            "relative bias");
  EXPECT_EQ(name(R"(%sum: i64[s, s] = _operator.add(%k, %q)
%bias: f32[s, s, 4] = torch.nn.functional.embedding(%sum, %table)
%mask: f32[4, s, s] = Tensor.permute(%bias, 2, 0, 1))"),
            "as written");
}

}  // namespace
}  // namespace autosp
