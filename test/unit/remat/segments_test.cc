#include "remat/segments.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "joint_models.h"

namespace autosp {
namespace {

std::vector<std::string> first_names(const JointGraph& graph, const Segments& segments) {
  std::vector<std::string> names;
  for (int s = 1; s < segments.count(); ++s) names.push_back(graph.nodes[segments.begin[s]].name);
  return names;
}

std::vector<std::string> kept_between(const JointGraph& graph, const Segments& segments) {
  std::vector<std::string> names;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if (segments.crossing[i]) names.push_back(graph.nodes[i].name);
  }
  return names;
}

TEST(Segments, BlocksBeginWhereTheResidualStreamAloneCrosses) {
  const JointGraph graph = transformer({.blocks = 4});
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  EXPECT_EQ(first_names(graph, segments),
            (std::vector<std::string>{"norm1", "norm2", "norm3", "logits"}));
  EXPECT_TRUE(segments.has_tail);
  EXPECT_EQ(kept_between(graph, segments),
            (std::vector<std::string>{"rotary", "x1", "x2", "x3", "x4"}));
  EXPECT_EQ(segments.width[2], 131072 + 2048);  // x2 and the table that all blocks share
  EXPECT_EQ(segments.of[find(graph, "down2")], 2);
  EXPECT_EQ(segments.of[find(graph, "table")], -1);
  EXPECT_EQ(segments.of[find(graph, "dup2")], -1);
}

TEST(Segments, TwoBlocksAreEnoughToKnowWhereTheLastEnds) {
  const JointGraph graph = transformer({.blocks = 2, .exchanges = true});
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  EXPECT_EQ(first_names(graph, segments), (std::vector<std::string>{"norm1", "logits"}));
  EXPECT_TRUE(segments.has_tail);
}

TEST(Segments, OutputsOfOneOperatorAreNotParted) {
  const JointGraph graph = transformer({.blocks = 4, .dropout = true});
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  EXPECT_EQ(first_names(graph, segments),
            (std::vector<std::string>{"norm1", "norm2", "norm3", "logits"}));
  EXPECT_EQ(segments.of[find(graph, "mask2")], segments.of[find(graph, "draw2")]);
}

TEST(Segments, OneBlockEndsBeforeTheLastProduct) {
  const JointGraph graph = transformer({.blocks = 1});
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  EXPECT_EQ(first_names(graph, segments), (std::vector<std::string>{"logits"}));
}

TEST(Segments, WithoutAttentionAllIsOne) {
  const JointGraph graph = parse_joint_graph(
      "%x: float32[8] 32B = placeholder:primal()\n"
      "%y: float32[8] 32B = aten.sin.default(%x)\n"
      "%z: float32[8] 32B = aten.sin.default(%y)\n"
      "output(%z |)\n");
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  EXPECT_EQ(segments.count(), 1);
  EXPECT_FALSE(segments.has_tail);
}

TEST(Segments, NoBoundaryBetweenAnOperatorAndItsItems) {
  std::string text = "%x0: float32[8] 32B = placeholder:primal()\n";
  for (const std::string n : {"0", "1"}) {
    const std::string next = std::to_string(std::stoi(n) + 1);
    text += "%norm" + n + " = aten.native_layer_norm.default(%x" + n + ")\n";
    text += "%row" + n + ": float32[8] 32B = getitem(%norm" + n + ")\n";
    text += "%mean" + n + ": float32[1] 4B = getitem(%norm" + n + ")\n";
    text += "%q" + n + ": float32[8] 32B = aten.mul.Tensor(%row" + n + ", %mean" + n + ")\n";
    text += "%attention" + n + " = aten._scaled_dot_product_flash_attention.default(%q" + n +
            ", %q" + n + ", %q" + n + ")\n";
    text += "%out" + n + ": float32[8] 32B = getitem(%attention" + n + ")\n";
    text += "%x" + next + ": float32[8] 32B = aten.add.Tensor(%x" + n + ", %out" + n + ")\n";
  }
  const JointGraph graph = parse_joint_graph(text + "output(%x2 |)\n");
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  ASSERT_EQ(segments.count(), 2);
  EXPECT_EQ(first_names(graph, segments), (std::vector<std::string>{"norm1"}));
}

}  // namespace
}  // namespace autosp
