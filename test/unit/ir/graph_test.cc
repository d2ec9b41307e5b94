#include "ir/graph.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "support/error.h"

namespace autosp {
namespace {

TEST(Arg, ConstantSizesAreIntegers) {
  const Expr s = Expr::symbol("s");
  EXPECT_EQ(Arg::size_of(s - s + 3), Arg::integer_of(3));
  EXPECT_EQ(Arg::size_of(s).kind, Arg::Kind::kSize);
  EXPECT_EQ(Arg::sizes_of({2, s}), Arg::list_of({Arg::integer_of(2), Arg::size_of(s)}));
}

TEST(Arg, IntegersReadAsExpressions) {
  const Expr s = Expr::symbol("s");
  EXPECT_EQ(Arg::size_of(s + 1).as_expr(), s + 1);
  EXPECT_EQ(Arg::integer_of(-4).as_expr(), Expr(-4));
  EXPECT_EQ(Arg::bool_of(true).as_expr(), Expr(1));
  EXPECT_FALSE(Arg::float_of(1).is_integral());
  EXPECT_FALSE(Arg::none().is_integral());
  EXPECT_THROW((void)Arg::string_of("1").as_expr(), InternalError);
}

TEST(Arg, EqualityLooksAtKindAndNesting) {
  EXPECT_NE(Arg::integer_of(1), Arg::bool_of(true));
  EXPECT_NE(Arg::integer_of(1), Arg::float_of(1));
  EXPECT_NE(Arg::list_of({Arg::of(0)}), Arg::tuple_of({Arg::of(0)}));
  EXPECT_NE(Arg::string_of("x"), Arg::literal_of("x"));
  EXPECT_EQ(Arg::slice_of(Arg::none(), Arg::of(1), Arg::none()),
            Arg::slice_of(Arg::none(), Arg::of(1), Arg::none()));
}

TEST(Graph, OperandsAreVisitedInOrderAndNested) {
  const Graph graph = parse_graph(R"(
    %a: f32[] = input user "a"
    %b: f32[] = input user "b"
    %c: f32[] = f((%b, [slice(None, %a, None)]), 1, key=%b)
    return ()
  )");
  std::vector<NodeId> seen;
  for_each_operand(graph.node(2), [&](NodeId value) { seen.push_back(value); });
  EXPECT_EQ(seen, (std::vector<NodeId>{1, 0, 1}));
}

TEST(Graph, UsersOncePerUserAndOutputsLast) {
  const Graph graph = parse_graph(R"(
    %a: f32[] = input user "a"
    %b: f32[] = torch.mul(%a, %a)
    %c: f32[] = torch.add(%a, other=%b)
    return (%c, (%a, %c))
  )");
  EXPECT_EQ(users(graph), (std::vector<std::vector<NodeId>>{{1, 2, 3}, {2}, {3}}));
}

TEST(Graph, BytesAtTheHintedLengths) {
  const Graph graph = parse_graph(R"(
    symbols s=100, t=3
    %a: bf16[s, t] = input user "a"
    %b: (f32[s + 1], i64[], none, size(s)) = f(%a)
    return ()
  )");
  EXPECT_EQ(graph.bytes(graph.node(0).type), 600);
  EXPECT_EQ(graph.bytes(graph.node(1).type), 404 + 8);
  EXPECT_EQ(graph.bytes(Type::scalar()), 0);
  EXPECT_THROW((void)graph.hint(Expr::symbol("unknown")), std::out_of_range);
}

}  // namespace
}  // namespace autosp
