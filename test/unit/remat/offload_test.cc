#include "remat/offload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "joint_models.h"
#include "remat/frontier.h"
#include "remat/policy.h"
#include "support/error.h"

namespace autosp {
namespace {

// The transformer with 64 times as many tokens: values of [1024,64] have 8 MiB.
JointGraph long_transformer(const ModelShape& shape) {
  JointGraph graph = transformer(shape);
  for (JointNode& node : graph.nodes) {
    if (node.shape.empty() || node.shape[0] != 1024) continue;
    node.shape[0] *= 64;
    node.bytes *= 64;
  }
  return graph;
}

std::set<std::string> away_names(const JointGraph& graph, const RematPlan& plan) {
  std::set<std::string> names;
  for (const Absence& absence : plan.peak.offloaded) names.insert(graph.nodes[absence.node].name);
  return names;
}

TEST(Offload, LargeValuesThatTheLastBlockDoesNotReadMayLeave) {
  const JointGraph graph = long_transformer({.blocks = 4});
  const JointFacts facts(graph);
  const Segments segments = find_segments(facts);
  const Offloading offloading = find_offloading(facts, segments);
  for (const char* name : {"x1", "x2", "out0", "out2"}) {
    EXPECT_TRUE(offloading.possible[find(graph, name)]) << name;
  }
  // The last block's input and its own values; what all blocks read; a small one.
  for (const char* name : {"x3", "out3", "x4", "rotary", "stat1", "logits"}) {
    EXPECT_FALSE(offloading.possible[find(graph, name)]) << name;
  }
  EXPECT_EQ(offloading.last_reader[find(graph, "x2")], 2);
  EXPECT_EQ(offloading.last_reader[find(graph, "out2")], 2);
}

TEST(Offload, OutputsAndWhatIsWrittenToStay) {
  JointGraph graph = long_transformer({.blocks = 4});
  const auto possible = [&graph](const char* name) -> bool {
    const JointFacts facts(graph);
    return find_offloading(facts, find_segments(facts)).possible[find(graph, name)];
  };
  ASSERT_TRUE(possible("x1"));
  const JointGraph before = graph;
  graph.nodes.back().inputs.insert(graph.nodes.back().inputs.begin(), find(graph, "x1"));
  ++graph.forward_outputs;
  EXPECT_FALSE(possible("x1"));
  graph = before;
  graph.nodes[find(graph, "norm1")].mutates = true;
  EXPECT_FALSE(possible("x1"));
}

TEST(Offload, OfEveryBlockTheSmallValuesStay) {
  const auto plan = [](int blocks) {
    return plan_remat(long_transformer({.blocks = blocks}), {.name = "sac", .offload = "all"});
  };
  const RematPlan small = plan(3);
  const RematPlan large = plan(7);
  const int64_t statistic = 64 * 4096;
  EXPECT_EQ(large.peak.kept_bytes - small.peak.kept_bytes, 4 * statistic);
  EXPECT_EQ(large.peak.offloaded_bytes - small.peak.offloaded_bytes, 4 * 2 * (int64_t{8} << 20));
  // And the peak grows by what stays.
  EXPECT_EQ(large.peak.peak_bytes - small.peak.peak_bytes, 4 * statistic);
}

TEST(Offload, ActionsSayWhatLeaves) {
  const JointGraph graph = long_transformer({.blocks = 5, .exchanges = true});
  const RematPlan stays = plan_remat(graph, {.name = "sac+exchanges", .ranks = 8});
  const RematPlan leaves =
      plan_remat(graph, {.name = "sac+exchanges", .ranks = 8, .offload = "all"});
  EXPECT_EQ(stays.peak.saved, leaves.peak.saved);
  EXPECT_EQ(stays.peak.kept_bytes, leaves.peak.kept_bytes + leaves.peak.offloaded_bytes);
  const auto away = away_names(graph, leaves);
  for (const char* name : {"x2", "got2", "out2"}) EXPECT_EQ(away.count(name), 1u) << name;
  EXPECT_EQ(std::count(leaves.actions.begin(), leaves.actions.end(), Action::kOffload),
            static_cast<std::ptrdiff_t>(away.size()));
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(is_kept(stays.actions[i]), is_kept(leaves.actions[i])) << graph.nodes[i].name;
  }
}

TEST(Offload, CopiesHaveASegmentsTime) {
  const JointGraph graph = long_transformer({.blocks = 5});
  const RematPlan plan = plan_remat(graph, {.name = "sac", .offload = "all"});
  const auto absence = [&](const std::string& name) {
    return *std::find_if(plan.peak.offloaded.begin(), plan.peak.offloaded.end(),
                         [&](const Absence& a) { return graph.nodes[a.node].name == name; });
  };
  const auto segment = [&](int node) { return plan.segments.of[node]; };
  const auto index = [&](const std::string& name) { return find(graph, name); };
  // x1 is made by block 0 and read by block 1.
  EXPECT_EQ(segment(absence("x1").freed_after), 1);
  EXPECT_GE(absence("x1").freed_after, index("x2"));
  EXPECT_EQ(segment(absence("out1").freed_after), 1);
  // Back when block 2's own backward begins, before all of block 1's.
  const int fetched = absence("x1").fetched_before;
  EXPECT_EQ(absence("out1").fetched_before, fetched);
  EXPECT_TRUE(segment(fetched) == 2 || (fetched > index("dx3") && fetched <= index("ddown_w2")))
      << graph.nodes[fetched].name;
}

TEST(Offload, WhatIsBackCountsInThePeak) {
  const JointGraph graph = long_transformer({.blocks = 6});
  const RematPlan stays = plan_remat(graph, {.name = "sac"});
  const RematPlan leaves = plan_remat(graph, {.name = "sac", .offload = "all"});
  EXPECT_LT(leaves.peak.peak_bytes, stays.peak.peak_bytes);
  for (const RematPlan* plan : {&stays, &leaves}) {
    EXPECT_EQ(std::accumulate(plan->peak.parts.begin(), plan->peak.parts.end(), int64_t{0}),
              plan->peak.peak_bytes);
  }
  EXPECT_EQ(stays.peak.parts[static_cast<size_t>(Part::kOffloaded)], 0);
}

TEST(Offload, WaitingGrowsOnlyBeyondWhatIsHidden) {
  Device device = find_device("h100");
  device.host_bytes_per_second = 1e9 / kHostShare;  // a byte a nanosecond
  const HostLink link(device, 2);
  EXPECT_EQ(link.wait_ns(0, 1000), 0);
  EXPECT_EQ(link.wait_ns(900, 1000), 0);
  EXPECT_EQ(link.wait_ns(1000, 1000), 100);
  EXPECT_EQ(link.wait_ns(2000, 1000), 1100 + 200);
  EXPECT_TRUE(link.exists());
  EXPECT_FALSE(HostLink(find_device("cpu"), 2).exists());
}

TEST(Offload, WithABudgetOnlyWhatIsWorthIt) {
  const JointGraph graph = long_transformer({.blocks = 8});
  const Planner planner(graph, "h100", 1);
  const auto off = Frontier(planner, Offload::kOff).points();
  const auto with = Frontier(planner, Offload::kAuto).points();
  // Room for all: nothing leaves.
  const RematPolicy roomy{.name = "auto", .memory_bytes = off.back().peak_bytes, .offload = "auto"};
  EXPECT_TRUE(plan_remat(graph, roomy).peak.offloaded.empty());
  EXPECT_EQ(plan_remat(graph, roomy).recompute_ns, off.back().recompute_ns);
  // Below what any plan without offload needs there still is one.
  EXPECT_LT(with.front().peak_bytes, off.front().peak_bytes);
  const RematPolicy tight{
      .name = "memory", .memory_bytes = off.front().peak_bytes - 1, .offload = "auto"};
  const RematPlan plan = plan_remat(graph, tight);
  EXPECT_LE(plan.peak.peak_bytes, tight.memory_bytes);
  EXPECT_FALSE(plan.peak.offloaded.empty());
  // And at no budget it is slower for having the choice.
  for (const FrontierPoint& point : off) {
    const RematPolicy policy{.name = "memory", .memory_bytes = point.peak_bytes, .offload = "auto"};
    EXPECT_LE(plan_remat(graph, policy).step_ns, point.step_ns);
  }
}

TEST(Offload, CornersOnTheDeviceAreConvexUpToTheOneWithout) {
  const JointGraph graph = long_transformer({.blocks = 5, .exchanges = true});
  const Planner planner(graph, "h100", 8);
  const Frontier frontier(planner, Offload::kAuto);
  const int middle = planner.class_of(1);
  const std::vector<CutSolution>& hull = frontier.hull(middle);
  ASSERT_GE(hull.size(), 3u);
  const auto slope = [&](size_t i) {
    return static_cast<double>(hull[i].ns - hull[i + 1].ns) /
           static_cast<double>(hull[i + 1].bytes - hull[i].bytes);
  };
  for (size_t i = 0; i + 2 < hull.size(); ++i) EXPECT_GT(slope(i), slope(i + 1));
  EXPECT_EQ(hull.back().away_bytes, 0);
  EXPECT_EQ(hull.back().ns, 0);
  EXPECT_GT(hull.front().away_bytes, 0);
  // With the choice no ratio of bytes to time is worse.
  for (const double ns : {0.1, 1.0, 10.0, 100.0, 1000.0}) {
    const CutWeights weights{.byte = 1, .ns = ns};
    const auto cost = [&](const CutSolution& solution) {
      return static_cast<double>(solution.bytes) + ns * static_cast<double>(solution.ns);
    };
    const CutSolution leaving = planner.solve_with_offload(middle, weights);
    EXPECT_LE(cost(leaving), cost(planner.solve(middle, {}, weights)));
    for (const CutSolution& corner : hull) EXPECT_LE(cost(leaving), cost(corner) * (1 + 1e-6));
  }
}

TEST(Offload, TheSameGraphGivesTheSamePlan) {
  const JointGraph graph = long_transformer({.blocks = 5, .exchanges = true});
  const JointGraph copy = parse_joint_graph(print(graph));
  const int64_t budget = plan_remat(graph, {.name = "full", .ranks = 8}).peak.peak_bytes;
  const RematPolicy policy{.name = "auto", .memory_bytes = budget, .ranks = 8, .offload = "auto"};
  const RematPlan plan = plan_remat(graph, policy);
  EXPECT_EQ(plan.actions, plan_remat(copy, policy).actions);
  EXPECT_FALSE(plan.peak.offloaded.empty());
}

TEST(Offload, OverheadBuysMemory) {
  const JointGraph graph = long_transformer({.blocks = 6});
  Device device = find_device("h100");
  device.host_bytes_per_second = 1e12;
  const auto plan = [&](const char* offload) {
    const RematPolicy policy{
        .name = "overhead", .overhead = 0.08, .device = print(device), .offload = offload};
    return plan_remat(graph, policy);
  };
  const RematPlan with = plan("auto");
  const auto step = static_cast<double>(plan_remat(graph, {.name = "off"}).step_ns);
  EXPECT_LE(static_cast<double>(with.recompute_ns + with.wait_ns), 0.08 * step);
  EXPECT_LT(with.peak.kept_bytes, plan("off").peak.kept_bytes);
}

TEST(Offload, ASlowLinkIsNotUsed) {
  const JointGraph graph = long_transformer({.blocks = 6});
  Device device = find_device("h100");
  device.host_bytes_per_second = 1e3;
  const RematPolicy policy{
      .name = "overhead", .overhead = 0.3, .device = print(device), .offload = "auto"};
  const RematPlan plan = plan_remat(graph, policy);
  EXPECT_TRUE(plan.peak.offloaded.empty());
  EXPECT_EQ(plan.wait_ns, 0);
}

TEST(Offload, FixedPoliciesOffloadOnRequestAlone) {
  const JointGraph graph = long_transformer({.blocks = 4});
  for (const char* policy : {"sac", "sac+exchanges", "full"}) {
    EXPECT_TRUE(plan_remat(graph, {.name = policy, .offload = "auto"}).peak.offloaded.empty());
    EXPECT_FALSE(plan_remat(graph, {.name = policy, .offload = "all"}).peak.offloaded.empty());
  }
}

TEST(Offload, BadChoicesAreRefused) {
  const JointGraph graph = long_transformer({.blocks = 3});
  const auto refusal = [&graph](const RematPolicy& policy) -> std::string {
    try {
      plan_remat(graph, policy);
    } catch (const Unsupported& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(refusal({.name = "sac", .device = "cpu", .offload = "all"}).find("accelerator"),
            std::string::npos);
  EXPECT_EQ(refusal({.name = "sac", .device = "cpu", .offload = "auto"}), "");
  EXPECT_NE(refusal({.name = "off", .offload = "all"}).find("\"off\""), std::string::npos);
  EXPECT_NE(refusal({.name = "sac", .offload = "some"}).find("\"some\""), std::string::npos);
}

}  // namespace
}  // namespace autosp
