#include "sharding/attention.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "support/error.h"
#include "unit/passes/programs.h"

namespace autosp {
namespace {

struct Found {
  Graph graph;
  Axes axes;
  std::vector<AttentionRegion> regions;

  explicit Found(const std::string& text)
      : graph(parse_graph(text)), axes(graph, {}), regions(find_attention(axes)) {}

  std::string names(const std::vector<NodeId>& nodes) const {
    std::string out;
    for (NodeId node : nodes) out += (out.empty() ? "" : " ") + graph.node(node).name;
    return out;
  }
  std::string head(size_t region) const {
    return axes.factors().size(regions.at(region).head).to_string();
  }
};

TEST(Regions, AFusedOperatorIsARegion) {
  Found found(programs::kLayer);
  ASSERT_EQ(found.regions.size(), 1U);
  EXPECT_EQ(found.names(found.regions[0].core), "a");
  choose_heads(found.axes, 2, found.regions);
  EXPECT_EQ(found.head(0), "4");
  EXPECT_EQ(found.names(found.regions[0].spread), "");
}

TEST(Regions, RepeatedKeysBelongToTheRegionFromWhereTheyAreSmall) {
  Found found(programs::kGrouped);
  choose_heads(found.axes, 2, found.regions);
  ASSERT_EQ(found.regions.size(), 1U);
  EXPECT_EQ(found.names(found.regions[0].core), "a");
  EXPECT_EQ(found.names(found.regions[0].spread), "k3 kr v3 vr");
  EXPECT_EQ(found.head(0), "4") << "the heads that keys have";
}

TEST(Regions, ASoftmaxBetweenTwoProducts) {
  Found found(programs::kEager);
  choose_heads(found.axes, 2, found.regions);
  ASSERT_EQ(found.regions.size(), 1U);
  EXPECT_EQ(found.names(found.regions[0].core), "products scaled biased scores soft a");
  EXPECT_EQ(found.head(0), "4");
  EXPECT_EQ(found.axes.token_axes().size(), 1U);
}

TEST(Regions, ProductsAsEinsumsAndBatchedProducts) {
  const std::string einsum = R"(symbols s=16
%x: f32[2, s, 4, 8] = input user "x" grad
%scores: f32[2, 4, s, s] = torch.functional.einsum("bqhd,bkhd->bhqk", %x, %x)
%soft: f32[2, 4, s, s] = torch.softmax(%scores, -1)
%a: f32[2, s, 4, 8] = torch.functional.einsum("bhqk,bkhd->bqhd", %soft, %x)
return (%a,)
)";
  Found first(einsum);
  ASSERT_EQ(first.regions.size(), 1U);
  EXPECT_EQ(first.names(first.regions[0].core), "scores soft a");
  Found second(R"(symbols s=16
%q: f32[8, s, 4] = input user "q" grad
%k: f32[8, 4, s] = Tensor.transpose(%q, 1, 2)
%scores: f32[8, s, s] = torch.bmm(%q, %k)
%mask: f32[s, s] = torch.zeros(s, s)
%masked: f32[8, s, s] = torch.add(%scores, %mask)
%soft: f32[8, s, s] = torch.nn.functional.softmax(%masked, -1)
%same: f32[8, s, s] = torch.nn.functional.dropout(%soft, 0.0)
%a: f32[8, s, 4] = torch.bmm(%same, %q)
return (%a,)
)");
  ASSERT_EQ(second.regions.size(), 1U);
  EXPECT_EQ(second.names(second.regions[0].core), "scores masked soft same a");
}

TEST(Regions, WhatIsAddedToAProductIsNoFactorOfIt) {
  Found found(R"(symbols s=16
%q: f32[8, s, 4] = input user "q" grad
%slopes: f32[8, 1, 1] = input parameter "slopes" grad
%i: i64[s] = torch.arange(s)
%bias: f32[8, 1, s] = torch.mul(%slopes, %i)
%k: f32[8, 4, s] = Tensor.transpose(%q, 1, 2)
%scores: f32[8, s, s] = torch.baddbmm(%bias, %q, %k)
%soft: f32[8, s, s] = torch.nn.functional.softmax(%scores, -1)
%a: f32[8, s, 4] = torch.bmm(%soft, %q)
return (%a,)
)");
  choose_heads(found.axes, 2, found.regions);
  ASSERT_EQ(found.regions.size(), 1U);
  EXPECT_EQ(found.names(found.regions[0].core), "scores soft a");
  EXPECT_EQ(found.head(0), "8");
}

TEST(Regions, ScoresByKeysThenQueriesToo) {
  // softmax over dimension 1 of [keys, queries] scores.
  Found found(R"(symbols s=16, t=8
%q: f32[4, t, 8] = input user "q" grad
%k: f32[4, s, 8] = input user "k" grad
%qt: f32[4, 8, t] = Tensor.transpose(%q, 1, 2)
%scores: f32[4, s, t] = torch.matmul(%k, %qt)
%soft: f32[4, s, t] = torch.softmax(%scores, 1)
%st: f32[4, t, s] = Tensor.transpose(%soft, 1, 2)
%a: f32[4, t, 8] = torch.matmul(%st, %k)
return (%a,)
)");
  ASSERT_EQ(found.regions.size(), 1U);
  EXPECT_EQ(found.names(found.regions[0].core), "scores soft st a");
  EXPECT_EQ(found.axes.token_axes().size(), 2U) << "queries and keys";
}

TEST(Regions, ARouterIsNone) {
  Found found(R"(symbols s=16
%x: f32[2, s, 8] = input user "x" grad
%gate: f32[4, 8] = input parameter "gate" grad
%experts: f32[4, 8] = input parameter "experts" grad
%scores: f32[2, s, 4] = torch._C._nn.linear(%x, %gate)
%soft: f32[2, s, 4] = torch.softmax(%scores, -1)
%y: f32[2, s, 8] = torch.matmul(%soft, %experts)
return (%y,)
)");
  EXPECT_TRUE(found.regions.empty());
  EXPECT_TRUE(found.axes.token_axes().empty());
}

TEST(Regions, ASoftmaxWithoutValuesIsNone) {
  Found found(R"(symbols s=16
%x: f32[2, s, 8] = input user "x" grad
%xt: f32[2, 8, s] = Tensor.transpose(%x, 1, 2)
%scores: f32[2, s, s] = torch.matmul(%x, %xt)
%soft: f32[2, s, s] = torch.softmax(%scores, -1)
return (%soft,)
)");
  EXPECT_TRUE(found.regions.empty());
}

TEST(Regions, WidthsAreNoHeads) {
  // Queries, keys and values are one tensor, so that the widths of scores and results are one axis:
  // not a choice.
  Found found(R"(
%x: f32[3, 16, 8] = input user "x" grad
%a: f32[3, 16, 8] = torch._C._nn.scaled_dot_product_attention(%x, %x, %x)
return (%a,)
)");
  choose_heads(found.axes, 2, found.regions);
  EXPECT_EQ(found.regions[0].head, -1);
  choose_heads(found.axes, 3, found.regions);
  EXPECT_EQ(found.head(0), "3");
}

TEST(Regions, HeadsBeforeBatch) {
  Found found(R"(
%x: f32[4, 8, 16, 2] = input user "x" grad
%a: f32[4, 8, 16, 2] = torch._C._nn.scaled_dot_product_attention(%x, %x, %x)
return (%a,)
)");
  choose_heads(found.axes, 4, found.regions);
  EXPECT_EQ(found.head(0), "8");
}

}  // namespace
}  // namespace autosp
