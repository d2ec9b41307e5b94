#include "ir/verify.h"

#include <gtest/gtest.h>

#include <functional>

#include "ir/text.h"
#include "support/error.h"

namespace autosp {
namespace {

std::string error_of(const Graph& graph) {
  try {
    verify(graph);
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no error";
}

// The complaint about a valid graph after a change of it.
std::string after(const std::function<void(Graph&)>& change) {
  Graph graph = parse_graph(R"(
    symbols s=8
    subgraph "body" { %i: f32[2] = input user "i" return (%i,) }
    %x: f32[s, 4] = input user "x"
    %y: f32[4, s] = torch.transpose(%x, 0, 1, key=slice(None, s, None)) loc "m.py:7"
    %z: f32[2] = wrap(graph(0), %y)
    return (%y, [%z])
  )");
  EXPECT_EQ(error_of(graph), "no error");
  change(graph);
  return error_of(graph);
}

void expect_says(const std::string& error, std::string_view part) {
  EXPECT_NE(error.find(part), std::string::npos) << error;
}

TEST(Verify, Structure) {
  expect_says(after([](Graph& g) { g.node(1).id = 2; }), "its id is 2, its place 1");
  expect_says(after([](Graph& g) { g.node(1).name = "x"; }), "two nodes have this name");
  expect_says(after([](Graph& g) { g.node(1).name = "a b"; }), "the name is not well formed");
  expect_says(after([](Graph& g) { g.node(1).name = "1a"; }), "the name is not well formed");
  expect_says(after([](Graph& g) { g.node(1).target = ""; }), "a call of nothing");
  expect_says(after([](Graph& g) { g.node(0).args = {Arg::none()}; }), "an input with arguments");
}

TEST(Verify, TheErrorNamesNodeOperatorAndLine) {
  expect_says(after([](Graph& g) { g.node(1).args[0] = Arg::of(2); }),
              "%y (torch.transpose) from m.py:7: reads %z before its definition");
}

TEST(Verify, Arguments) {
  expect_says(after([](Graph& g) { g.node(1).args[0] = Arg::of(1); }), "before its definition");
  expect_says(after([](Graph& g) { g.node(1).args[0] = Arg::of(3); }), "names no node");
  expect_says(after([](Graph& g) { g.node(1).args[0] = Arg::of(kNoNode); }), "names no node");
  expect_says(after([](Graph& g) { g.node(1).kwargs[0].second.items[1] = Arg::of(2); }),
              "before its definition");
  expect_says(after([](Graph& g) { g.node(1).kwargs[0].second.items.pop_back(); }),
              "a slice without three parts");
  expect_says(after([](Graph& g) { g.node(1).kwargs[0].second.items[1].size = 3; }),
              "a constant size");
  expect_says(after([](Graph& g) { g.node(1).kwargs[0].first = "a b"; }), "keyword");
  expect_says(after([](Graph& g) { g.node(1).kwargs.push_back(g.node(1).kwargs[0]); }),
              "given twice");
  expect_says(after([](Graph& g) { g.node(2).args[0].integer = 1; }), "names no subgraph");
}

TEST(Verify, Outputs) {
  expect_says(after([](Graph& g) { g.outputs[1].items[0] = Arg::of(3); }), "the graph's outputs: ");
  expect_says(after([](Graph& g) { g.outputs[0] = Arg::of(kNoNode); }), "names no node");
}

TEST(Verify, Subgraphs) {
  expect_says(after([](Graph& g) { g.subgraphs[0].second->outputs = {Arg::of(1)}; }),
              "names no node");
  expect_says(after([](Graph& g) { g.subgraphs[0].second = nullptr; }),
              "the subgraph body is missing");
}

TEST(Verify, NamedLengths) {
  const Expr half = floor_div(Expr::symbol("s"), 2);
  EXPECT_EQ(after([&](Graph& g) { g.definitions = {{"u", half}}; }), "no error");
  expect_says(after([&](Graph& g) { g.definitions = {{"u v", half}}; }), "not well formed");
  expect_says(after([&](Graph& g) { g.definitions = {{"u", half}, {"u", half}}; }), "twice");
  expect_says(after([&](Graph& g) {
                g.definitions = {{"u", half}};
                g.hints["u"] = 3;
              }),
              "the hint of the length u is not that of (s//2)");
}

TEST(Verify, NegativeSizes) {
  expect_says(after([](Graph& g) { g.node(0).type.shape[1] = -1; }),
              "a negative size in f32[s, -1]");
  EXPECT_EQ(after([](Graph& g) { g.node(0).type.shape[1] = 0; }), "no error");
}

std::string error_of_line(const std::string& line) {
  return error_of(
      parse_graph("symbols s=8, t=8, u=16\n%x: f32[s, 4] = input user \"x\"\n"
                  "%p: (f32[2], i64[s]) = f(%x)\n" +
                  line + "\nreturn ()"));
}

TEST(Verify, ElementsOfTuples) {
  EXPECT_EQ(error_of_line("%y: i64[s] = _operator.getitem(%p, 1)"), "no error");
  EXPECT_EQ(error_of_line("%y: f32[2] = _operator.getitem(%p, -2)"), "no error");
  EXPECT_EQ(error_of_line("%y: (f32[2],) = _operator.getitem(%p, slice(0, 1, None))"), "no error");
  expect_says(error_of_line("%y: f32[2] = _operator.getitem(%p, 1)"), "the element is i64[s]");
  expect_says(error_of_line("%y: f32[2] = _operator.getitem(%p, 2)"), "no such element");
  expect_says(error_of_line("%y: f32[2] = _operator.getitem(%p, -3)"), "no such element");
}

TEST(Verify, ViewsKeepTheNumberOfElements) {
  EXPECT_EQ(error_of_line("%y: f32[4*s] = Tensor.view(%x, -1)"), "no error");
  EXPECT_EQ(error_of_line("%y: f32[2, 2*s] = Tensor.reshape(%x, (2, -1))"), "no error");
  EXPECT_EQ(error_of_line("%y: f32[4, s] = torch.reshape(%x, shape=[4, s])"), "no error");
  // Equal under a guard of the program: 8 at the hinted lengths.
  EXPECT_EQ(error_of_line("%y: f32[t, 4] = Tensor.view(%x, t, 4)"), "no error");
  // Without a hint nothing is decided.
  EXPECT_EQ(error_of_line("%y: f32[v, 4] = Tensor.view(%x, v, 4)"), "no error");
  expect_says(error_of_line("%y: f32[4*s + 1] = Tensor.view(%x, -1)"),
              "has not as many elements as f32[4*s + 1]");
  expect_says(error_of_line("%y: f32[u, 4] = torch.reshape(%x, (u, 4))"),
              "has not as many elements");
  expect_says(error_of_line("%y: f32[s, 5] = Tensor.view(%x, s, 5)"), "has not as many elements");
}

TEST(Verify, ViewsWriteOutTheSizesOfTheirType) {
  expect_says(error_of_line("%y: f32[s, 4] = Tensor.view(%x, u, 4)"),
              "writes out the size u in dimension 0");
  expect_says(error_of_line("%y: f32[s, 4] = Tensor.view(%x, (-1, 2))"),
              "writes out the size 2 in dimension 1");
  expect_says(error_of_line("%y: f32[s, 4] = Tensor.view(%x, s, 2, 2)"), "another number of sizes");
  // A view as another dtype has no sizes and may change the number of elements.
  EXPECT_EQ(error_of_line("%y: i64[s, 2] = Tensor.view(%x, @torch.int64)"), "no error");
}

}  // namespace
}  // namespace autosp
