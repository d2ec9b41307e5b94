#include "remat/joint_graph.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "joint_models.h"
#include "remat/facts.h"
#include "support/error.h"

namespace autosp {
namespace {

TEST(JointGraph, TextRoundTrips) {
  const std::string text =
      "%x: float32[4,8] 128B = placeholder:primal()\n"
      "%w: float32[8,2] 64B = placeholder:primal() parameter\n"
      "%size = aten.sym_size.int(%x)\n"
      "%t: float32[2,8] 64B = aten.t.default(%w) view\n"
      "%mm: float32[4,2] 32B = aten.mm.default(%x, %t) random tagged  # model.py:3 in forward\n"
      "output(%mm, - | %t, -)\n";
  const JointGraph graph = parse_joint_graph(text);
  EXPECT_EQ(print(graph), text);
  EXPECT_EQ(graph.forward_outputs, 2);
  EXPECT_EQ(graph.nodes[4].source, "model.py:3 in forward");
  EXPECT_TRUE(graph.nodes[4].tagged);
  EXPECT_EQ(graph.nodes[5].inputs, (std::vector<int>{4, -1, 3, -1}));
  verify(graph);
}

TEST(JointGraph, OutputsOfOneSideOnly) {
  for (const char* text : {"%x = f()\noutput(%x |)\n", "%x = f()\noutput(| %x)\n"}) {
    EXPECT_EQ(print(parse_joint_graph(text)), text);
  }
}

TEST(JointGraph, WrongTextIsRefusedWithItsLine) {
  for (const char* text : {"%a = f()\n%b = g(%c)\n", "%a = f()\n%a = f()\n", "%a = f()\n%b g(%a)\n",
                           "%a = f()\n%b: int8[x] 3B = f()\n", "%a = f()\n%b = f() blue\n"}) {
    try {
      parse_joint_graph(text);
      FAIL() << text;
    } catch (const std::invalid_argument& error) {
      EXPECT_NE(std::string(error.what()).find("line 2"), std::string::npos) << error.what();
    }
  }
}

TEST(JointGraph, OrderIsVerified) {
  JointGraph graph = parse_joint_graph("%a = f()\n%b = g(%a)\noutput(%b |)\n");
  verify(graph);
  graph.nodes[0].inputs = {1};
  EXPECT_THROW(verify(graph), InternalError);
  graph = parse_joint_graph("%a = f()\n");
  EXPECT_THROW(verify(graph), InternalError);
}

TEST(JointFacts, PhasesStoragesAndKeepers) {
  const JointGraph graph = parse_joint_graph(
      "%x: float32[8] 32B = placeholder:primal()\n"
      "%g: float32[8] 32B = placeholder:tangent()\n"
      "%sent: float32[8] 32B = _c10d_functional.all_reduce.default(%x)\n"
      "%got: float32[8] 32B = _c10d_functional.wait_tensor.default(%sent) view\n"
      "%half: float32[4] 16B = aten.slice.Tensor(%got) view\n"
      "%two = aten.split.Tensor(%got) view\n"
      "%left: float32[4] 16B = getitem(%two) view\n"
      "%scale: float32[8] 32B = aten.exp.default(%got)\n"
      "%grad: float32[8] 32B = aten.mul.Tensor(%g, %scale)\n"
      "output(%half, %left | %grad)\n");
  const JointFacts facts(graph);
  const int sent = find(graph, "sent");
  for (const char* name : {"sent", "got", "half", "two", "left"}) {
    EXPECT_EQ(facts.storage[find(graph, name)], sent) << name;
  }
  EXPECT_TRUE(facts.can_keep(find(graph, "got")));  // not before it has arrived
  EXPECT_FALSE(facts.can_keep(sent));
  EXPECT_FALSE(facts.can_keep(find(graph, "half")));
  EXPECT_EQ(facts.phase[find(graph, "scale")], Phase::kLate);
  EXPECT_EQ(facts.phase[find(graph, "two")], Phase::kForward);
  EXPECT_EQ(facts.phase[find(graph, "grad")], Phase::kBackward);
  EXPECT_EQ(facts.forward_end, find(graph, "left") + 1);
}

TEST(JointFacts, WrittenOutAttentionIsFoundBetweenItsProducts) {
  const JointGraph graph = parse_joint_graph(
      "%q: float32[2,8,4] 256B = placeholder:primal()\n"
      "%w: float32[2,4,4] 128B = placeholder:primal() parameter\n"
      "%scores: float32[2,8,8] 512B = aten.bmm.default(%q, %q)\n"
      "%scaled: float32[2,8,8] 512B = aten.div.Tensor(%scores)\n"
      "%weights: float32[2,8,8] 512B = aten._safe_softmax.default(%scaled)\n"
      "%draw = aten.native_dropout.default(%weights) random\n"
      "%dropped: float32[2,8,8] 512B = getitem(%draw)\n"
      "%out: float32[2,8,4] 256B = aten.bmm.default(%dropped, %q)\n"
      "%routes: float32[2,8,4] 256B = aten.bmm.default(%out, %w)\n"
      "%gate: float32[2,8,4] 256B = aten._softmax.default(%routes)\n"
      "%mixed: float32[2,8,4] 256B = aten.bmm.default(%gate, %w)\n"
      "output(%mixed |)\n");
  const JointFacts facts(graph);
  ASSERT_EQ(facts.attentions.size(), 1u);
  EXPECT_EQ(facts.attentions[0].begin, find(graph, "scores"));
  EXPECT_EQ(facts.attentions[0].end, find(graph, "out"));
  EXPECT_TRUE(facts.attention[find(graph, "weights")]);
  EXPECT_TRUE(facts.attention[find(graph, "out")]);
  EXPECT_FALSE(facts.attention[find(graph, "scaled")]);
  EXPECT_FALSE(facts.attention[find(graph, "gate")]);
}

}  // namespace
}  // namespace autosp
