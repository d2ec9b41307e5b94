#include "ir/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>

namespace autosp {
namespace {

// Equality of everything but origins.
bool same(const Node& a, const Node& b) {
  return a.id == b.id && a.kind == b.kind && a.name == b.name && a.target == b.target &&
         a.args == b.args && a.kwargs == b.kwargs && a.type == b.type && a.source == b.source &&
         a.input == b.input && a.requires_grad == b.requires_grad;
}

bool same(const Graph& a, const Graph& b) {
  if (a.nodes.size() != b.nodes.size() || a.subgraphs.size() != b.subgraphs.size()) return false;
  for (NodeId id = 0; id < a.size(); ++id) {
    if (!same(a.node(id), b.node(id))) return false;
  }
  for (size_t i = 0; i < a.subgraphs.size(); ++i) {
    if (a.subgraphs[i].first != b.subgraphs[i].first) return false;
    if (!same(*a.subgraphs[i].second, *b.subgraphs[i].second)) return false;
  }
  return a.outputs == b.outputs && a.hints == b.hints && a.definitions == b.definitions;
}

constexpr std::string_view kExample = R"ir(symbols s27=4096, s52=2
let shard0 = size((s27//2))
let shard1 = size(s27*s52)
subgraph "body" {
  symbols s27=4096
  %x: f32[s27] = input user "x" grad
  return ((%x, 1),)
}
%ids: i64[s52, s27] = input user "L_kwargs_input_ids_"
%w: f32[97, 32] = input parameter "L_self_w" grad loc "m.py:1"
%b: bf16[] = input buffer "L_self_b"
%c: c64[0] = input constant "c"
%e: f32[s52, s27, 32] = torch.nn.functional.embedding(%ids, %w, None, None, 2.0, False, True) loc "m.py:2 in forward: \"x\\y\""
%a: i64[s27 + 1] = torch.arange(s27 + 1, device=@"device(type='cpu')", dtype=@torch.int64)
%g: f32[s52, s27, 4] = _operator.getitem(%e, (Ellipsis, slice(None, 4, None)))
%k: f32[s52, s27, 8] = torch.cat((%g, %g), dim=-1)
%sp: (f32[4], (i32[], bool[]), none) = "module.<lambda>"(%k, ((s27 + 1)//2), [], (), (%k,), graph(0))
%st: none = torch._C._set_grad_enabled(False)
%n: size(s27*s52) = torch.sym_max(s27, Mod(s52, 2))
%s: scalar = input(Max(s27, s52))
%o: other = f("tab\t newline\n bell\x07 \x7f é")
%u: other[3, Min(s27, 4)] = g(inf, -inf, nan, -0.0, 1e-05, 1e+22, -5, -s27 + 2)
return (%e, [%a, None], 3)
)ir";

TEST(Text, PrintedTextIsAFixedPoint) { EXPECT_EQ(print(parse_graph(kExample)), kExample); }

TEST(Text, EveryFieldReadsBack) {
  const std::string text = [] {
    std::string result(kExample);
    const size_t nan = result.find("nan, ");  // nan is unlike itself
    return result.erase(nan, 5);
  }();
  const Graph graph = parse_graph(text);
  EXPECT_TRUE(same(graph, parse_graph(print(graph))));

  EXPECT_EQ(graph.hints, (std::map<std::string, int64_t>{{"s27", 4096}, {"s52", 2}}));
  ASSERT_EQ(graph.definitions.size(), 2U);
  EXPECT_EQ(graph.definitions[0].first, "shard0");
  EXPECT_EQ(graph.definitions[0].second, floor_div(Expr::symbol("s27"), 2));
  ASSERT_EQ(graph.subgraphs.size(), 1U);
  EXPECT_TRUE(graph.subgraphs[0].second->node(0).requires_grad);
  const Node& w = graph.node(1);
  EXPECT_EQ(w.kind, NodeKind::kInput);
  EXPECT_EQ(w.input, InputKind::kParameter);
  EXPECT_TRUE(w.requires_grad);
  EXPECT_EQ(w.target, "L_self_w");
  EXPECT_EQ(w.source, "m.py:1");
  EXPECT_EQ(graph.node(2).input, InputKind::kBuffer);
  EXPECT_EQ(graph.node(3).input, InputKind::kConstant);
  const Node& e = graph.node(4);
  EXPECT_EQ(e.target, "torch.nn.functional.embedding");
  EXPECT_EQ(e.source, "m.py:2 in forward: \"x\\y\"");
  EXPECT_EQ(e.args, (std::vector<Arg>{Arg::of(0), Arg::of(1), Arg::none(), Arg::none(),
                                      Arg::float_of(2), Arg::bool_of(false), Arg::bool_of(true)}));
  const Node& a = graph.node(5);
  EXPECT_EQ(a.kwargs, (Kwargs{{"device", Arg::literal_of("device(type='cpu')")},
                              {"dtype", Arg::literal_of("torch.int64")}}));
  EXPECT_EQ(graph.node(6).args[1],
            Arg::tuple_of(
                {Arg::ellipsis(), Arg::slice_of(Arg::none(), Arg::integer_of(4), Arg::none())}));
  EXPECT_EQ(graph.node(8).target, "module.<lambda>");
  EXPECT_EQ(graph.node(8).args[5], Arg::graph_of(0));
  EXPECT_EQ(graph.node(11).kind, NodeKind::kCall);  // a callable named "input"
  EXPECT_EQ(graph.node(12).args[0], Arg::string_of("tab\t newline\n bell\x07 \x7f é"));
}

TEST(Text, FloatsReadBackExactly) {
  using Limits = std::numeric_limits<double>;
  for (const double number : {0.1, 1.0 / 3, 5e-324, Limits::max(), Limits::min(), -0.0, 1e15,
                              123456789.0, Limits::infinity(), -Limits::infinity()}) {
    Graph graph;
    graph.outputs = {Arg::float_of(number)};
    const Arg result = parse_graph(print(graph)).outputs.at(0);
    EXPECT_EQ(result, graph.outputs[0]) << print(graph);
    EXPECT_EQ(std::signbit(result.number), std::signbit(number));
  }
  EXPECT_TRUE(std::isnan(parse_graph("return (nan,)").outputs.at(0).number));
}

TEST(Text, IntegersSizesAndFloatsAreToldApart) {
  const Expr s = Expr::symbol("s");
  const std::vector<Arg> outputs =
      parse_graph(
          "return (1, 1., 1e3, -9223372036854775808, s, (s + 1)*2, (s + 1), ((s),), (3), s - s)")
          .outputs;
  EXPECT_EQ(outputs, (std::vector<Arg>{Arg::integer_of(1), Arg::float_of(1), Arg::float_of(1000),
                                       Arg::integer_of(std::numeric_limits<int64_t>::min()),
                                       Arg::size_of(s), Arg::size_of(2 * s + 2),
                                       Arg::size_of(s + 1), Arg::tuple_of({Arg::size_of(s)}),
                                       Arg::integer_of(3), Arg::integer_of(0)}));
}

TEST(Text, CommentsAndLineBreaksMeanNothing) {
  const Graph graph = parse_graph(R"(// first
    symbols s=4 // a hint
    %x: f32[s, // two
            (s//2)] = input user "x // no comment"
    // return ()
    %y: f32[s] = f(%x, // operand
       s//2,
       key = 1, ) // end
    return (%y,) // last)");
  EXPECT_EQ(print(graph), R"(symbols s=4
%x: f32[s, (s//2)] = input user "x // no comment"
%y: f32[s] = f(%x, (s//2), key=1)
return (%y,)
)");
}

std::string error_of(std::string_view text) {
  try {
    (void)parse_graph(text);
  } catch (const ParseError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Text, ErrorsNameLineAndColumn) {
  EXPECT_EQ(error_of(""), "1:1: expected a node or the return");
  EXPECT_EQ(error_of("%x: f32[2] = f()\n  %x: f32[2] = f()\nreturn ()"),
            "2:4: two values are named %x");
  EXPECT_EQ(error_of("%x: f32[2] = f(%x)\nreturn ()"), "1:17: no value %x before this line");
  EXPECT_EQ(error_of("%x: f33[2] = f()"), "1:5: unknown dtype");
  EXPECT_EQ(error_of("%x: tensor = f()"), "1:5: unknown type");
  EXPECT_EQ(error_of("%x: none = input thing \"x\""), "1:18: unknown kind of input");
  EXPECT_EQ(error_of("%x: none = f(a=1, 2)"),
            "1:19: a positional argument after a keyword argument");
  EXPECT_EQ(error_of("%x: none = f(slice(1, 2))"), "1:14: a slice has three parts");
  EXPECT_EQ(error_of("%x: none = f(\"abc\nd\")"), "1:18: a string without an end");
  EXPECT_EQ(error_of("%x: none = f(\"\\q\")"), "1:16: unknown escape in a string");
  EXPECT_EQ(error_of("return (\"a\" 1)"), "1:13: expected ','");
  EXPECT_EQ(error_of("return (1e999,)"), "1:9: not a number of 64 bits");
  EXPECT_EQ(error_of("symbols s=1, s=2\nreturn ()"), "1:14: two hints for one symbol");
  EXPECT_EQ(error_of("symbols None=1\nreturn ()"), "1:9: no symbol can have this name");
  EXPECT_EQ(error_of("let nan = size(1)"), "1:5: no symbol can have this name");
  EXPECT_EQ(error_of("let u = s//2"), "1:9: expected size(...)");
  EXPECT_EQ(error_of("return (1 + None,)"), "1:9: None is no size");
  EXPECT_EQ(error_of("return ()\n%x: none = f()"), "2:1: nothing may follow the graph's return");
  EXPECT_EQ(error_of("subgraph \"a\" { return ()"), "1:25: expected '}'");
  EXPECT_NE(error_of("return (s + * 2,)").find("1:9: "), std::string::npos);
}

TEST(Text, SubgraphsSeeNoNamesOfTheirSurroundings) {
  EXPECT_EQ(error_of("subgraph \"a\" { %x: none = f() return () }\n%y: none = f(%x)"),
            "2:15: no value %x before this line");
}

TEST(Text, DeepNestingIsAnErrorAndNoCrash) {
  for (const std::string_view open : {"(", "[", "slice("}) {
    std::string text = "return (";
    for (int i = 0; i < 100000; ++i) text += open;
    EXPECT_NE(error_of(text).find("nested too deeply"), std::string::npos) << open;
  }
  std::string types = "%x: ";
  std::string graphs;
  for (int i = 0; i < 100000; ++i) {
    types += '(';
    graphs += "subgraph \"a\" {";
  }
  EXPECT_NE(error_of(types).find("nested too deeply"), std::string::npos);
  EXPECT_NE(error_of(graphs).find("nested too deeply"), std::string::npos);
}

// Seconds of processor time that reading a graph of `lines` nodes takes, the best of three.
double reading_seconds(int lines) {
  std::string text = "%x0: f32[s, 2] = input user \"x\"\n";
  for (int i = 1; i < lines; ++i) {
    const std::string operand = "%x" + std::to_string(i - 1);
    text += "%x" + std::to_string(i) + ": f32[s, 2] = f(" + operand + ", (s, 2), k=s + 1)\n";
  }
  text += "return ()";
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    EXPECT_EQ(parse_graph(text).size(), lines);
    best = std::min(best, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return best;
}

TEST(Text, LongTextsAreReadInLinearTime) {
  // Ten times the text; quadratic time would be a hundred times as long.
  EXPECT_LT(reading_seconds(20000), 40 * reading_seconds(2000));
}

TEST(Text, PiecesPrintAlone) {
  const Graph graph = parse_graph(kExample);
  EXPECT_EQ(print(graph.node(8).type), "(f32[4], (i32[], bool[]), none)");
  EXPECT_EQ(print(graph, graph.node(6).args[1]), "(Ellipsis, slice(None, 4, None))");
  EXPECT_EQ(print(graph, graph.node(7)), "%k: f32[s52, s27, 8] = torch.cat((%g, %g), dim=-1)");
  EXPECT_EQ(print(Type::tuple({})), "()");
  EXPECT_EQ(print(Type::tuple({Type::scalar()})), "(scalar,)");
}

}  // namespace
}  // namespace autosp
