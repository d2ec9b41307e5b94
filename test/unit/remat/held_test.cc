#include "remat/held.h"

#include <gtest/gtest.h>

#include <vector>

#include "remat/longest.h"
#include "support/error.h"

namespace autosp {
namespace {

TEST(Held, AdamKeepsMastersOfNarrowParameters) {
  const JointGraph graph;
  const auto optimizer = [&](int64_t element_bytes) {
    return held_state({{10, element_bytes, true}}, graph, 1, true).optimizer;
  };
  EXPECT_EQ(optimizer(2), 10 * (4 + 4 + 4));
  EXPECT_EQ(optimizer(4), 10 * (4 + 4));
  EXPECT_EQ(optimizer(8), 10 * (8 + 8));
}

TEST(Held, FrozenParametersHaveNeitherGradientsNorStates) {
  const HeldState state = held_state({{10, 2, true}, {7, 2, false}}, JointGraph(), 1, false);
  EXPECT_EQ(state.parameters, 34);
  EXPECT_EQ(state.gradients, 20);
  EXPECT_EQ(state.total(), 34 + 20 + 120);
}

TEST(Held, PartsAreRoundedUp) {
  const std::vector<HeldParameter> parameters = {{5, 2, true}};
  EXPECT_EQ(held_state(parameters, JointGraph(), 4, true).parameters, 3);
  EXPECT_EQ(held_state(parameters, JointGraph(), 4, false).parameters, 10);
  EXPECT_FALSE(held_state(parameters, JointGraph(), 1, true).sharded) << "one rank has all";
}

TEST(Longest, IsFoundFromBothSides) {
  for (const int64_t start : {8, 4096, 1 << 30}) {
    int calls = 0;
    const auto needed = [&](int64_t length) { return ++calls, 50 + 3 * length; };
    const int64_t found = longest_length(needed, 30'050, start, 8);
    EXPECT_LE(found, 10'000);
    EXPECT_GE(found, 9'990 / 8 * 8);
    EXPECT_EQ(found % 8, 0);
    EXPECT_LT(calls, 25);
  }
}

TEST(Longest, NothingFits) {
  EXPECT_THROW(longest_length([](int64_t length) { return length; }, 7, 64, 8), Unsupported);
  EXPECT_EQ(longest_length([](int64_t length) { return length; }, 8, 64, 8), 8);
}

}  // namespace
}  // namespace autosp
