// The checker against draws for other places than those that a rank holds.
#include <gtest/gtest.h>

#include "ir/text.h"
#include "passes/check.h"
#include "support/error.h"

namespace autosp {
namespace {

// A sequence of s tokens, 2 ranks, u tokens each.
bool accepts(const std::string& draw, Placement output = Placement::sharded({1, 0})) {
  const std::string text = R"(symbols rank=0, s=16, u=8
let u = size((s//2))
%seed: i64[] = input seed "seed"
%x: f32[2, s, 4] = input user "x" grad
%p: f32[2, u, 4] = autosp.r_to_s(%x, 1, u, True, rank, 2, @group)
%h: f32[2, u + 1, 4] = autosp.halo(%p, 1, 1, 0, s, True, False, False, 0.0, rank, 2, @group)
)" + draw + "return (%y,)\n";
  try {
    check_placements(parse_graph(text), {output});
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

std::string uniform(const std::string& rest) {
  return "%y: f32[2, u, 4] = autosp.uniform(%p, %seed, 0, 2, 3" + rest + ")\n";
}

TEST(CheckDraws, PlacesOfARank) {
  EXPECT_TRUE(accepts(uniform(", 1, s, u*rank")));
  EXPECT_FALSE(accepts(uniform(""))) << "every rank draws the same";
  EXPECT_FALSE(accepts(uniform(", 0, s, u*rank"))) << "along another dimension";
  EXPECT_FALSE(accepts(uniform(", 1, s, 0"))) << "every rank draws the first part";
  EXPECT_FALSE(accepts(uniform(", 1, s, u*rank + 1"))) << "next to them";
  EXPECT_FALSE(accepts(uniform(", 1, s + 2, u*rank"))) << "of a longer sequence";
}

TEST(CheckDraws, PlacesOfAll) {
  const auto whole = [](const std::string& rest) {
    return "%y: f32[2, s, 4] = autosp.uniform(%x, %seed, 0, 2, 3" + rest + ")\n";
  };
  EXPECT_TRUE(accepts(whole(""), Placement::replicated()));
  EXPECT_FALSE(accepts(whole(", 1, s, u*rank"), Placement::replicated()))
      << "other numbers on every rank";
}

TEST(CheckDraws, PlacesThatANeighbourHasToo) {
  const auto extended = [](const std::string& rest) {
    return "%z: f32[2, u + 1, 4] = autosp.uniform(%h, %seed, 0, 2, 3" + rest +
           ")\n%y: f32[2, u, 4] = _operator.getitem(%z, (slice(None, None, None), slice(1, u + 1, "
           "None)))\n";
  };
  EXPECT_TRUE(accepts(extended(", 1, s + 1, u*rank")));
  EXPECT_FALSE(accepts(extended(", 1, s + 1, (u + 1)*rank"))) << "two numbers for one place";
}

}  // namespace
}  // namespace autosp
