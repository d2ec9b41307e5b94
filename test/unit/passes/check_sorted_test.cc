// The checker against experts' groups and counts at a length that the ranks don't divide, each
// broken in one place.
#include <gtest/gtest.h>

#include <string>

#include "ir/text.h"
#include "passes/check.h"
#include "support/error.h"

namespace autosp {
namespace {

// 13 tokens on 2 ranks, 7 each, two experts for every token.
constexpr const char* kProgram = R"(symbols rank=0, s=13, u=7
let u = size(((s + 1)//2))
%x: f32[2, s, 16] = input user "x" grad
%ids: i64[2, s, 2] = input user "ids"
%up: f32[4, 16, 16] = input parameter "up" grad
%p: f32[2, u, 16] = autosp.r_to_s(%x, 1, u, False, rank, 2, @group)
%i: i64[2, u, 2] = autosp.r_to_s(%ids, 1, u, False, rank, 2, @group)
%h: f32[2*u, 16] = torch.reshape(%p, [2*u, 16])
%e: i64[4*u] = torch.reshape(%i, [4*u])
%sort: (i64[4*u], i64[4*u]) = torch.sort(%e)
%key: i64[4*u] = _operator.getitem(%sort, 0)
%perm: i64[4*u] = _operator.getitem(%sort, 1)
%row: i64[4*u] = _operator.floordiv(%perm, 2)
%sel: f32[4*u, 16] = _operator.getitem(%h, %row)
%f: f32[4*u] = Tensor.float(%key)
%m: f32[4*u] = autosp.mask_sorted(%f, %perm, 0, 2, u, s, 4.0, rank)
%n: f32[4] = torch.histc(%m, bins=4, min=0, max=3)
%c: f32[4] = torch.histc(%f, bins=4, min=0, max=3)
%r: f32[4] = autosp.p_to_r(%n, @group)
%ends: i32[4] = torch.cumsum(%c, dim=0, dtype=@torch.int32)
%w: f32[4, 16, 16] = autosp.r_to_v(%up, 2, @group)
%y: f32[4*u, 16] = torch._grouped_mm(%sel, %w, offs=%ends)
%o: i64[4*u] = Tensor.new_empty(%perm, [4*u])
%k: i64[4*u] = torch.arange(0, 4*u)
%inv: i64[4*u] = torch.index_put(%o, (%perm,), %k)
%z: f32[4*u, 16] = _operator.getitem(%y, %inv)
%t: f32[2, u, 2, 16] = torch.reshape(%z, [2, u, 2, 16])
%q: f32[2, u, 16] = torch.sum(%t, 2)
return (%q, %r)
)";

bool accepts(const std::string& from, const std::string& to) {
  std::string text = kProgram;
  const size_t at = text.find(from);
  if (at == std::string::npos) throw std::runtime_error("not in the program: " + from);
  text.replace(at, from.size(), to);
  try {
    check_placements(parse_graph(text), {Placement::sharded({1, 0}), Placement::replicated()});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

TEST(CheckSorted, CountsAndGroups) {
  EXPECT_TRUE(accepts("return", "return"));
  EXPECT_FALSE(accepts("histc(%m", "histc(%f")) << "counts with rows past the end";
  EXPECT_FALSE(accepts("histc(%f", "histc(%m")) << "groups without them";
  EXPECT_FALSE(accepts("cumsum(%c", "cumsum(%n")) << "groups without them";
  EXPECT_FALSE(accepts("p_to_r(%n", "p_to_r(%c")) << "counts with them";
}

TEST(CheckSorted, MasksOfSortedRows) {
  const std::string mask = "autosp.mask_sorted(%f, %perm, 0, 2, u, s, 4.0, rank)";
  const auto with = [&](const std::string& arguments) {
    return accepts(mask, "autosp.mask_sorted(%f, " + arguments + ")");
  };
  EXPECT_TRUE(with("%perm, 0, 1, 2*u, 2*s, 4.0, rank"));
  EXPECT_FALSE(with("%row, 0, 2, u, s, 4.0, rank")) << "positions of something else";
  EXPECT_FALSE(with("%key, 0, 2, u, s, 4.0, rank")) << "no positions";
  EXPECT_FALSE(with("%perm, 0, 1, u, s, 4.0, rank")) << "one expert a token";
  EXPECT_FALSE(with("%perm, 0, 2, u, s + 1, 4.0, rank")) << "another length";
  EXPECT_FALSE(with("%perm, 0, 2, u, s, 4.0, 0")) << "the first rank's rows";
}

}  // namespace
}  // namespace autosp
