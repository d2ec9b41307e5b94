#include "remat/policy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "joint_models.h"
#include "support/error.h"

namespace autosp {
namespace {

constexpr int64_t kRow = 131072;
constexpr int64_t kStat = 4096;

std::vector<std::string> saved_names(const JointGraph& graph, const RematPlan& plan) {
  std::vector<std::string> names;
  for (const int node : plan.peak.saved) names.push_back(graph.nodes[node].name);
  return names;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Bytes that one block more keeps, and peaks.
std::pair<int64_t, int64_t> slopes(ModelShape shape, const std::string& policy) {
  shape.blocks = 3;
  const RematPlan small = plan_remat(transformer(shape), {.name = policy, .ranks = 8});
  shape.blocks = 11;
  const RematPlan large = plan_remat(transformer(shape), {.name = policy, .ranks = 8});
  return {(large.peak.kept_bytes - small.peak.kept_bytes) / 8,
          (large.peak.peak_bytes - small.peak.peak_bytes) / 8};
}

TEST(Policy, BytesKeptPerBlock) {
  EXPECT_EQ(slopes({.exchanges = true}, "sac").first, 2 * kRow + kStat);
  EXPECT_EQ(slopes({.exchanges = true}, "sac+exchanges").first, 3 * kRow + kStat);
  EXPECT_EQ(slopes({.exchanges = true}, "full").first, kRow);
}

TEST(Policy, PeaksGrowByWhatABlockKeeps) {
  for (const char* policy : {"sac", "sac+exchanges", "full"}) {
    const auto [kept, peak] = slopes({.exchanges = true}, policy);
    EXPECT_LE(peak, kept * 11 / 10) << policy;
  }
}

TEST(Policy, SacKeepsBlockInputsAndAttention) {
  const JointGraph graph = transformer({.blocks = 3, .exchanges = true});
  const RematPlan plan = plan_remat(graph, {.name = "sac"});
  const auto saved = saved_names(graph, plan);
  EXPECT_EQ(saved, (std::vector<std::string>{"rotary", "out0", "stat0", "x1", "out1", "stat1", "x2",
                                             "out2", "stat2", "x3", "logits", "count"}));
  for (const char* again : {"got1", "home1", "q1", "up1", "act1"}) {
    EXPECT_EQ(plan.actions[find(graph, again)], Action::kRecompute) << again;
  }
  EXPECT_EQ(plan.actions[find(graph, "dup1")], Action::kLeave);
  EXPECT_EQ(plan.actions[find(graph, "x0")], Action::kRecompute);
}

TEST(Policy, OutputsOfOneOperatorAreKeptTogether) {
  const JointGraph graph = transformer({.blocks = 3, .post_norm = true});
  for (const char* policy : {"sac", "full"}) {
    const RematPlan plan = plan_remat(graph, {.name = policy});
    const auto saved = saved_names(graph, plan);
    EXPECT_TRUE(has(saved, "x2"));
    EXPECT_TRUE(has(saved, "scale1"));
    EXPECT_EQ(plan.actions[find(graph, "normal1")], Action::kSave);
  }
}

TEST(Policy, ExchangesAheadOfAttentionAreKeptOnRequest) {
  const JointGraph graph = transformer({.blocks = 3, .exchanges = true});
  const auto saved = saved_names(graph, plan_remat(graph, {.name = "sac+exchanges"}));
  EXPECT_TRUE(has(saved, "got1"));
  EXPECT_FALSE(has(saved, "home1"));
}

TEST(Policy, FullRunsAttentionAgain) {
  const JointGraph graph = transformer({.blocks = 3});
  const RematPlan plan = plan_remat(graph, {.name = "full"});
  EXPECT_FALSE(has(saved_names(graph, plan), "out1"));
  for (const char* again : {"attention1", "out1", "stat1"}) {
    EXPECT_EQ(plan.actions[find(graph, again)], Action::kRecompute) << again;
  }
}

TEST(Policy, RandomDrawsAreKept) {
  const JointGraph graph = transformer({.blocks = 3, .dropout = true});
  for (const char* policy : {"sac", "full", "auto"}) {
    const RematPlan plan = plan_remat(graph, {.name = policy, .memory_bytes = 1});
    EXPECT_EQ(plan.actions[find(graph, "draw1")], Action::kSave) << policy;
    EXPECT_TRUE(has(saved_names(graph, plan), "mask1")) << policy;
  }
}

TEST(Policy, TheUsersCheckpointRegionsAreLeftAlone) {
  const JointGraph graph = transformer({.blocks = 3, .tagged = true});
  const RematPlan plan = plan_remat(graph, {.name = "sac"});
  const int leaving = find(graph, "x2");  // the next segment's input
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    if (!graph.nodes[i].tagged) continue;
    EXPECT_EQ(plan.actions[i], i == leaving ? Action::kSave : Action::kLeave)
        << graph.nodes[i].name;
  }
  EXPECT_EQ(plan.actions[find(graph, "x1")], Action::kSave);  // the region's input
  EXPECT_EQ(plan.actions[find(graph, "out2")], Action::kSave);
}

TEST(Policy, ForwardOperatorsBehindTheForwardAreNotKept) {
  JointGraph graph = parse_joint_graph(
      "%x: float32[64] 256B = placeholder:primal()\n"
      "%g: float32[64] 256B = placeholder:tangent()\n"
      "%y: float32[64] 256B = aten.sin.default(%x)\n"
      "%dy: float32[64] 256B = aten.neg.default(%g)\n"
      "%sum: float32[] 4B = aten.sum.default(%x)\n"
      "%dx: float32[64] 256B = aten.mul.Tensor(%dy, %sum)\n"
      "output(%y | %dx)\n");
  const RematPlan plan = plan_remat(graph, {.name = "sac"});
  EXPECT_EQ(plan.actions[find(graph, "sum")], Action::kRecompute);
  EXPECT_TRUE(plan.peak.saved.empty());
  EXPECT_EQ(plan.recompute_ns, 0);  // it runs once
}

TEST(Policy, OffLeavesEverythingToTorch) {
  const JointGraph graph = transformer({.blocks = 3});
  const RematPlan plan = plan_remat(graph, {.name = "off"});
  EXPECT_EQ(std::count(plan.actions.begin(), plan.actions.end(), Action::kLeave),
            static_cast<std::ptrdiff_t>(graph.nodes.size()));
}

TEST(Policy, RecomputationStaysInItsSegment) {
  const JointGraph graph = transformer({.blocks = 3});
  const JointFacts facts(graph);
  RematPlan plan = plan_remat(graph, {.name = "sac"});
  verify(facts, plan.segments, plan.actions);
  plan.actions[find(graph, "x1")] = Action::kRecompute;
  EXPECT_THROW(verify(facts, plan.segments, plan.actions), InternalError);
}

TEST(Policy, TheSameGraphGivesTheSamePlan) {
  const JointGraph graph = transformer({.blocks = 5, .exchanges = true});
  const JointGraph copy = parse_joint_graph(print(graph));
  for (const char* policy : {"sac", "full", "auto"}) {
    const RematPolicy choice{.name = policy, .memory_bytes = 45'000'000};
    EXPECT_EQ(plan_remat(graph, choice).actions, plan_remat(copy, choice).actions) << policy;
  }
}

TEST(Policy, BadChoicesAreRefused) {
  const JointGraph graph = transformer({.blocks = 2});
  EXPECT_THROW(plan_remat(graph, {.name = "sometimes"}), Unsupported);
  EXPECT_THROW(plan_remat(graph, {.name = "sac", .device = "abacus"}), Unsupported);
  EXPECT_THROW(plan_remat(graph, {.name = "overhead", .overhead = -1}), Unsupported);
}

}  // namespace
}  // namespace autosp
