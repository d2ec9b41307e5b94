#include "sharding/axes.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "sharding/attention.h"
#include "support/error.h"
#include "unit/passes/programs.h"

namespace autosp {
namespace {

NodeId named(const Graph& graph, std::string_view name) {
  for (const Node& node : graph.nodes) {
    if (node.name == name) return node.id;
  }
  throw std::runtime_error("no value %" + std::string(name));
}

// "2 s* 8": the leaves of each dimension, a star behind token axes, "." between leaves of one
// dimension.
std::string axes_of(const Axes& axes, std::string_view name) {
  std::string out;
  for (const FactorList& dim : axes.value_leaves(named(axes.graph(), name), 0)) {
    if (!out.empty()) out += ' ';
    if (dim.empty()) out += '1';
    for (size_t i = 0; i < dim.size(); ++i) {
      out += (i == 0 ? "" : ".") + axes.factors().size(dim[i]).to_string() +
             (axes.is_token(dim[i]) ? "*" : "");
    }
  }
  return out;
}

struct Analysed {
  Graph graph;
  Axes axes;
  std::vector<AttentionRegion> regions;
  explicit Analysed(const char* text, const std::map<std::string, int>& seq_dims = {})
      : graph(parse_graph(text)), axes(graph, seq_dims), regions(find_attention(axes)) {}
  std::string of(std::string_view name) const { return axes_of(axes, name); }
};

TEST(Axes, TokensAreFoundFromAttentionToInputsAndOutputs) {
  const Analysed layer(programs::kLayer);
  EXPECT_EQ(layer.of("ids"), "2 s*");
  EXPECT_EQ(layer.of("x"), "2 s* 8");
  EXPECT_EQ(layer.of("i"), "s*");
  EXPECT_EQ(layer.of("q"), "2 4 s* 2");
  EXPECT_EQ(layer.of("logits"), "2 s* 32");
  EXPECT_EQ(layer.of("q0"), "2 s* 4.2");
  EXPECT_EQ(layer.of("wq"), "4.2 8") << "a projection has the heads of what it makes";
  EXPECT_EQ(layer.of("wo"), "8 4.2") << "and of what it reads";
}

TEST(Axes, TrimmedTokensAreTokensThatFollowTheirAxis) {
  const Analysed layer(programs::kLayer);
  EXPECT_EQ(layer.of("cut"), "2 s - 1* 32");
  EXPECT_EQ(layer.of("flat"), "2.s - 1* 32");
  EXPECT_EQ(layer.of("labels"), "2.s - 1*");
  const FactorId trimmed = layer.axes.value_leaves(named(layer.graph, "cut"), 0)[1][0];
  const FactorId tokens = layer.axes.value_leaves(named(layer.graph, "ids"), 0)[1][0];
  EXPECT_NE(trimmed, tokens);
  EXPECT_EQ(layer.axes.shard_base(trimmed), tokens);
  EXPECT_EQ(layer.axes.shard_base(tokens), tokens);
}

// Batch, tokens, width and heads of one size: dataflow tells them apart.
TEST(Axes, SizesDecideNothing) {
  const Analysed same(R"(
%x: f32[16, 16, 16] = input user "x" grad
%w: f32[16, 16] = input parameter "w" grad
%h: f32[16, 16, 16] = torch._C._nn.linear(%x, %w)
%h4: f32[16, 16, 16, 1] = Tensor.view(%h, 16, 16, 16, 1)
%q: f32[16, 16, 16, 1] = Tensor.transpose(%h4, 1, 2)
%a: f32[16, 16, 16, 1] = torch._C._nn.scaled_dot_product_attention(%q, %q, %q)
return (%a,)
)");
  EXPECT_EQ(same.of("x"), "16 16* 16");
  EXPECT_EQ(same.of("q"), "16 16 16* 1");
  EXPECT_EQ(same.of("w"), "16 16");
  EXPECT_EQ(same.axes.token_axes().size(), 1U);
}

TEST(Axes, EncoderAndDecoderHaveTheirOwnTokens) {
  const Analysed both(programs::kTwoLengths);
  EXPECT_EQ(both.of("x"), "2 s* 4 8");
  EXPECT_EQ(both.of("y"), "2 t* 4 8");
  EXPECT_EQ(both.of("c"), "2 4 t* 8");
  ASSERT_EQ(both.axes.token_axes().size(), 2U);
}

TEST(Axes, TokensBesideTheBatchInOneDimension) {
  const Analysed merged(R"(symbols s=16
%x: f32[3*s, 8] = input user "x" grad
%q0: f32[3, s, 4, 2] = Tensor.view(%x, 3, s, 4, 2)
%q: f32[3, 4, s, 2] = Tensor.transpose(%q0, 1, 2)
%a: f32[3, 4, s, 2] = torch._C._nn.scaled_dot_product_attention(%q, %q, %q)
return (%a,)
)");
  EXPECT_EQ(merged.of("x"), "3.s* 4.2");
  EXPECT_EQ(merged.axes.token_occurrences(named(merged.graph, "x"), 0),
            (std::vector<Occurrence>{{0, 1}}));
}

TEST(Axes, NamedDimensions) {
  const char* text = R"(
%x: f32[2, 16, 8] = input user "x" grad
%w: f32[8, 8] = input parameter "w" grad
%y: f32[2, 16, 8] = torch._C._nn.linear(%x, %w)
return (%y,)
)";
  EXPECT_EQ(Analysed(text).of("y"), "2 16 8");
  EXPECT_EQ(Analysed(text, {{"x", 1}}).of("y"), "2 16* 8");
  EXPECT_EQ(Analysed(text, {{"x", -2}}).of("y"), "2 16* 8");
  EXPECT_THROW(Analysed(text, {{"w", 1}}), Unsupported) << "parameters have no tokens";
  EXPECT_THROW(Analysed(text, {{"x", -4}}), Unsupported);
}

TEST(Axes, ActivationsDependOnTokensAndWeights) {
  const Analysed layer(programs::kLayer);
  const auto activation = [&](std::string_view name) {
    return layer.axes.facts(named(layer.graph, name)).activation();
  };
  EXPECT_TRUE(activation("x"));
  EXPECT_TRUE(activation("a"));
  EXPECT_TRUE(activation("logits"));
  EXPECT_FALSE(activation("ids"));
  EXPECT_FALSE(activation("f")) << "made from positions alone";
  EXPECT_FALSE(activation("labels"));
  EXPECT_FALSE(activation("emb"));
  EXPECT_FALSE(activation("size")) << "made from parameters alone";
}

TEST(Axes, GradientsFlowFromParametersUnlessTheyAreStopped) {
  const Analysed graph(R"(
%x: f32[2, 16, 8] = input user "x"
%w: f32[8, 8] = input parameter "w" grad
%y: f32[2, 16, 8] = torch._C._nn.linear(%x, %w)
%mask: bool[2, 16, 8] = torch.gt(%y, 0)
%stop: f32[2, 16, 8] = Tensor.detach(%y)
%c: c64[2, 16, 4] = torch.complex(%y, %y)
%off: none = torch._C._set_grad_enabled(False)
%n: f32[2, 16, 8] = torch.exp(%y)
%on: none = torch._C._set_grad_enabled(True)
%z: f32[2, 16, 8] = torch.exp(%y)
%u: f32[2, 16, 8] = mylib.unknown(%y)
return (%z, %n, %mask, %stop, %c, %u)
)");
  const auto flows = [&](std::string_view name) {
    return graph.axes.facts(named(graph.graph, name)).differentiable;
  };
  EXPECT_FALSE(flows("x"));
  EXPECT_TRUE(flows("w"));
  EXPECT_TRUE(flows("y"));
  EXPECT_FALSE(flows("mask"));
  EXPECT_FALSE(flows("stop"));
  EXPECT_TRUE(flows("c")) << "complex numbers carry gradients";
  EXPECT_FALSE(flows("n"));
  EXPECT_TRUE(flows("z"));
  EXPECT_TRUE(flows("u")) << "who knows";
}

}  // namespace
}  // namespace autosp
