#include "ir/builder.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ir/verify.h"
#include "support/error.h"

namespace autosp {
namespace {

const Type kVector = Type::tensor(DType::kFloat32, {4});

Graph example() {
  return parse_graph(R"(
    symbols s=8
    subgraph "body" { return () }
    %x: f32[4] = input user "x"
    %y: f32[4] = torch.sin(%x) loc "m.py:3"
    %y_1: f32[4] = torch.add(%y, %x)
    return (%y_1, [%y])
  )");
}

TEST(GraphBuilder, CopyingEverythingGivesTheSameGraph) {
  const Graph graph = example();
  GraphBuilder builder(graph);
  for (const Node& node : graph.nodes) builder.copy(node);
  EXPECT_EQ(print(builder.finish(graph.outputs)), print(graph));
}

TEST(GraphBuilder, InsertedCallsLeaveTheNamesOfCopiesAlone) {
  const Graph graph = example();
  GraphBuilder builder(graph);
  builder.copy(graph.node(0));
  // Before %y and %y_1 are copied: neither name may be taken.
  const NodeId twice = builder.call("torch.mul", {builder.mapped(Arg::of(0)), Arg::integer_of(2)},
                                    kVector, &graph.node(1));
  builder.map(0, twice);
  builder.copy(graph.node(1));
  builder.copy(graph.node(2));
  builder.call("torch.cos", {Arg::of(twice)}, kVector, nullptr);
  const Graph result = builder.finish(graph.outputs);
  verify(result);
  EXPECT_EQ(print(result), R"(symbols s=8
subgraph "body" {
  return ()
}
%x: f32[4] = input user "x"
%y_2: f32[4] = torch.mul(%x, 2) loc "m.py:3"
%y: f32[4] = torch.sin(%y_2) loc "m.py:3"
%y_1: f32[4] = torch.add(%y, %y_2)
%cos: f32[4] = torch.cos(%y_2)
return (%y_1, [%y])
)");
}

TEST(GraphBuilder, ASecondCopyGetsANewName) {
  const Graph graph = example();
  GraphBuilder builder(graph);
  builder.copy(graph.node(0));
  builder.copy(graph.node(1));
  const NodeId again = builder.copy(graph.node(1));
  EXPECT_EQ(builder.graph().node(again).name, "y_2");
  EXPECT_EQ(builder.mapped(1), again);
}

TEST(GraphBuilder, EngineMadeNodesHaveNoOrigin) {
  Graph graph = example();
  graph.node(1).origin = 7;
  GraphBuilder builder(graph);
  builder.copy(graph.node(0));
  EXPECT_EQ(builder.graph().node(builder.copy(graph.node(1))).origin, 7);
  EXPECT_EQ(builder.graph().node(builder.call("f", {}, kVector, &graph.node(1))).origin, -1);
}

TEST(GraphBuilder, UnwrittenValuesAreInternalErrors) {
  const Graph graph = example();
  GraphBuilder builder(graph);
  EXPECT_FALSE(builder.is_mapped(0));
  EXPECT_THROW((void)builder.mapped(0), InternalError);
  EXPECT_THROW(builder.copy(graph.node(1)), InternalError);
  EXPECT_THROW((void)builder.finish(graph.outputs), InternalError);
  EXPECT_THROW(builder.map(3, 0), InternalError);
}

TEST(RemoveDeadCode, KeepsInputsEffectsAndWhatTheyRead) {
  Graph graph = parse_graph(R"(
    %x: f32[4] = input user "x"
    %unused: f32[4] = input user "unused"
    %dead: f32[4] = torch.sin(%x)
    %dead_too: f32[4] = torch.cos(%dead)
    %read: f32[4] = torch.neg(%x)
    %st: none = effect(%read)
    %y: f32[4] = torch.add(%x, %x)
    return ((%y,),)
  )");
  const auto is_effect = [](const Node& node) { return node.target == "effect"; };
  EXPECT_TRUE(remove_dead_code(graph, is_effect));
  verify(graph);
  EXPECT_EQ(print(graph), R"(%x: f32[4] = input user "x"
%unused: f32[4] = input user "unused"
%read: f32[4] = torch.neg(%x)
%st: none = effect(%read)
%y: f32[4] = torch.add(%x, %x)
return ((%y,),)
)");
  EXPECT_FALSE(remove_dead_code(graph, is_effect));
}

}  // namespace
}  // namespace autosp
