// What the functions on the scores of a flex_attention make of their numbers.
#include "ops/score_bodies.h"

#include <gtest/gtest.h>

#include <string>

#include "ir/text.h"
#include "passes/check.h"
#include "support/error.h"

namespace autosp {
namespace {

// 2 ranks; 4 heads of 256 tokens, or the 2 heads of one rank.
std::string program(const std::string& score, const std::string& heads, const std::string& tensors,
                    const std::string& before = "") {
  return R"(symbols rank=0, s=256, m=2
let m = size(2)
subgraph "score" {
  %score: f32[] = input user "score" grad
  %b: i32[] = input user "b"
  %h: i32[] = input user "h"
  %q: i32[] = input user "q"
  %k: i32[] = input user "k"
  %t: i32[4] = input user "t"
)" + score +
         R"(  return (%out,)
}
subgraph "mask" {
  %b: i32[] = input user "b"
  %h: i32[] = input user "h"
  %q: i32[] = input user "q"
  %k: i32[] = input user "k"
  %ones: bool[] = Tensor.new_ones(%b, (), dtype=@torch.bool)
  return (%ones,)
}
%x: f32[1, 4, s, 8] = input user "x" grad
%t: i32[4] = input user "t"
%count: i32[1, 1, 2] = input user "count"
%where: i32[1, 1, 2, 2] = input user "where"
)" + before +
         "%a: (f32[1, " + heads + ", s, 8], f32[1, " + heads + ", s], f32[1, " + heads +
         ", s]) = torch.ops.higher_order.flex_attention(%x" + (before.empty() ? "" : "p") + ", %x" +
         (before.empty() ? "" : "p") + ", %x" + (before.empty() ? "" : "p") +
         ", graph(0), (s, s, %count, %where, None, None, None, None, None, None, None, None, None, "
         "None, 128, 128, graph(1)), 0.5, @\"{}\", (" +
         tensors + ",), ())\n%o: f32[1, " + heads +
         ", s, 8] = _operator.getitem(%a, 0)\nreturn (%o,)\n";
}

constexpr const char* kLooksUp = R"(  %n: i32[] = _operator.getitem(%t, %h)
  %out: f32[] = _operator.mul(%score, %n)
)";
constexpr const char* kReads = "  %out: f32[] = _operator.mul(%score, %h)\n";

ScoreReads reads(const std::string& score) {
  const Graph graph = parse_graph(program(score, "4", "%t"));
  const Node& call = graph.nodes[graph.nodes.size() - 2];
  const Call flex(graph, call, *find_op(call.target));
  return score_reads(flex, score_bodies(flex)[0]);
}

TEST(ScoreBodies, Lookups) {
  EXPECT_TRUE(reads(kLooksUp).looked_up[1]);
  EXPECT_EQ(reads(kLooksUp).index, std::vector<int>{1});
  EXPECT_FALSE(reads(kReads).looked_up[1]);
  EXPECT_EQ(reads(kReads).index, std::vector<int>{-1}) << "not read at all";
  // 256 queries have no rows of their own in 4.
  const std::string by_query = R"(  %n: i32[] = _operator.getitem(%t, %q)
  %out: f32[] = _operator.mul(%score, %n)
)";
  EXPECT_FALSE(reads(by_query).looked_up[2]);
  EXPECT_EQ(reads(by_query).index, std::vector<int>{-1});
  const std::string both = R"(  %n: i32[] = _operator.getitem(%t, %h)
  %m: i32[] = _operator.getitem(%t, %k)
  %sum: i32[] = _operator.add(%n, %m)
  %out: f32[] = _operator.mul(%score, %sum)
)";
  EXPECT_FALSE(reads(both).looked_up[1]) << "a part of the tensor would not do for the keys";
  EXPECT_EQ(reads(both).index, std::vector<int>{-1});
}

bool accepts(const std::string& text) {
  try {
    check_placements(parse_graph(text), {Placement::sharded({1, 0})});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

TEST(ScoreBodies, CheckedOnHeadsOfARank) {
  const std::string part =
      "%xp: f32[1, m, s, 8] = autosp.r_to_s(%x, 1, m, True, rank, 2, @group)\n";
  const std::string numbers =
      part + "%tp: i32[m] = autosp.r_to_s(%t, 0, m, True, rank, 2, @group)\n";
  EXPECT_TRUE(accepts(program(kLooksUp, "m", "%tp", numbers)));
  EXPECT_FALSE(accepts(program(kLooksUp, "m", "%t", part))) << "the first heads' on every rank";
  EXPECT_FALSE(accepts(program(kReads, "m", "%tp", numbers))) << "counts from 0 on every rank";
}

}  // namespace
}  // namespace autosp
