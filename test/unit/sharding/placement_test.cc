#include "sharding/placement.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/pipeline.h"
#include "support/error.h"
#include "unit/passes/programs.h"

namespace autosp {
namespace {

struct Placed {
  Graph graph;
  Axes axes;
  std::vector<AttentionRegion> regions;
  std::optional<Placements> placements;

  explicit Placed(const std::string& text, int ranks = 2)
      : graph(parse_graph(text)), axes(graph, {}), regions(find_attention(axes)) {
    choose_heads(axes, ranks, regions);
    placements.emplace(axes, ranks, regions);
  }

  // "R", "V", "P" or "S1": what the value is where it is made.
  std::string of(std::string_view name) const {
    for (const Node& node : graph.nodes) {
      if (node.name != name) continue;
      const Placement placement = placements->produced(node.id, 0);
      switch (placement.kind) {
        case Placement::Kind::kReplicated:
          return "R";
        case Placement::Kind::kVarying:
          return "V";
        case Placement::Kind::kPartial:
          return "P";
        case Placement::Kind::kSharded:
          return "S" + std::to_string(placement.where.dim);
      }
    }
    throw std::runtime_error("no value %" + std::string(name));
  }
};

TEST(Placement, ALayerIsCutByTokensAndItsAttentionByHeads) {
  const Placed layer(programs::kLayer);
  for (const char* name : {"x", "h", "n", "q0", "y", "logits", "cut"})
    EXPECT_EQ(layer.of(name), "S1") << name;
  EXPECT_EQ(layer.of("q"), "S2") << "by tokens";
  EXPECT_EQ(layer.of("a"), "S1") << "by heads";
  EXPECT_EQ(layer.of("ce"), "P");
  EXPECT_EQ(layer.of("i"), "S0") << "positions are made in place";
  EXPECT_EQ(layer.of("next"), "V") << "labels are shifted whole";
  EXPECT_EQ(layer.of("size"), "R");
  EXPECT_EQ(layer.of("decay"), "R");
  EXPECT_EQ(layer.of("loss"), "R");
}

TEST(Placement, WhatOnlyPartsReadVaries) {
  const Placed graph(R"(symbols s=16
%x: f32[2, s, 4, 8] = input user "x" grad
%w: f32[8, 8] = input parameter "w" grad
%read: f32[8, 8] = Tensor.t(%w)
%shared: f32[8, 8] = torch.exp(%w)
%y: f32[2, s, 4, 8] = torch.matmul(%x, %read)
%z: f32[2, s, 4, 8] = torch.matmul(%y, %shared)
%q: f32[2, 4, s, 8] = Tensor.transpose(%z, 1, 2)
%a: f32[2, 4, s, 8] = torch._C._nn.scaled_dot_product_attention(%q, %q, %q)
%norm: f32[] = torch.sum(%shared)
return (%a, %norm)
)");
  EXPECT_EQ(graph.of("read"), "V");
  EXPECT_EQ(graph.of("shared"), "R") << "it is also read whole";
}

TEST(Placement, MasksOfWholeTokensStayWhole) {
  const Placed eager(programs::kEager);
  EXPECT_NE(eager.of("keys").substr(0, 1), "S");
  EXPECT_EQ(eager.of("soft"), "S1");
  EXPECT_EQ(eager.of("t"), "S1");
}

TEST(Placement, EachTokenAxisIsCutByItself) {
  const Placed both(programs::kTwoLengths);
  EXPECT_EQ(both.of("xp"), "S1");
  EXPECT_EQ(both.of("yp"), "S1");
  EXPECT_EQ(both.of("e"), "S1") << "by heads";
  EXPECT_EQ(both.of("c"), "S1") << "by heads";
  EXPECT_EQ(both.of("ek"), "S1");
  EXPECT_EQ(both.of("z"), "S1");
}

TEST(Placement, OneDimensionOfTwoTokenAxesIsCut) {
  // Scores that are made outside of an attention: rows and columns are tokens.
  const Placed graph(R"(symbols s=65536
%x: f32[2, s, 4] = input user "x" grad
%w: f32[4, 4] = input parameter "w" grad
%y: f32[2, s, 4] = torch._C._nn.linear(%x, %w)
%a: f32[2, s, 4] = torch._C._nn.scaled_dot_product_attention(%y, %y, %y)
%t: f32[2, 4, s] = Tensor.transpose(%a, 1, 2)
%scores: f32[2, s, s] = torch.matmul(%a, %t)
%positive: f32[2, s, s] = torch.relu(%scores)
%sum: f32[2, s] = torch.sum(%positive, -1)
return (%sum,)
)");
  EXPECT_EQ(graph.of("scores"), "S1");
  EXPECT_EQ(graph.of("positive"), "S1");
  EXPECT_EQ(graph.of("sum"), "S1");
}

TEST(Placement, RefusesActivationsThatWouldBeWhole) {
  EXPECT_THROW(Placed(R"(symbols s=16
%x: f32[2, 4, s, 8] = input user "x" grad
%a: f32[2, 4, s, 8] = torch._C._nn.scaled_dot_product_attention(%x, %x, %x)
%y: f32[2, 4, (s + 1)//2, 8] = _operator.getitem(%a, (slice(None, None, None), slice(None, None, None), slice(None, None, 2)))
return (%y,)
)"),
               Unsupported);
}

// Plans are compared between ranks by their text.
TEST(Placement, TwoRunsGiveOneText) {
  for (const char* text :
       {programs::kLayer, programs::kGrouped, programs::kEager, programs::kTwoLengths}) {
    Options options;
    options.ranks = 2;
    const Plan first = plan(parse_graph(text), options);
    const Plan second = plan(parse_graph(text), options);
    EXPECT_EQ(print(first.graph), print(second.graph));
    EXPECT_EQ(first.hash, second.hash);
    options.ranks = 4;
    EXPECT_NE(plan(parse_graph(text), options).hash, first.hash);
  }
}

TEST(Placement, OneRankChangesNothing) {
  const Graph graph = parse_graph(programs::kEager);
  EXPECT_EQ(print(plan(graph, {}).graph), print(graph));
}

}  // namespace
}  // namespace autosp
