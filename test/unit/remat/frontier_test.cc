#include "remat/frontier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "joint_models.h"
#include "support/error.h"

namespace autosp {
namespace {

TEST(Frontier, PointsTradePeakForTime) {
  const JointGraph graph = transformer({.blocks = 6, .exchanges = true});
  const Planner planner(graph, "h100", 8);
  const std::vector<FrontierPoint> points = Frontier(planner, Offload::kOff).points();
  ASSERT_GE(points.size(), 3u);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_GT(points[i].peak_bytes, points[i - 1].peak_bytes);
    EXPECT_LT(points[i].recompute_ns, points[i - 1].recompute_ns);
  }
  const RematPlan full = plan_remat(graph, {.name = "full", .ranks = 8});
  EXPECT_EQ(points.front().kept_bytes, full.peak.kept_bytes);
  EXPECT_EQ(points.front().recompute_ns, full.recompute_ns);
}

TEST(Frontier, CornersOfASegmentAreConvexAndBelowEveryCut) {
  const JointGraph graph = transformer({.blocks = 3, .exchanges = true});
  const Planner planner(graph, "a100", 8);
  const Frontier frontier(planner, Offload::kOff);
  const int middle = planner.class_of(1);
  const std::vector<CutSolution>& hull = frontier.hull(middle);
  ASSERT_GE(hull.size(), 3u);
  const auto slope = [&](size_t i) {
    return static_cast<double>(hull[i].ns - hull[i + 1].ns) /
           static_cast<double>(hull[i + 1].bytes - hull[i].bytes);
  };
  for (size_t i = 0; i + 2 < hull.size(); ++i) EXPECT_GT(slope(i), slope(i + 1));
  // The cut of any ratio is a corner, or lies on the line between two.
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    const CutWeights weights{1, std::uniform_real_distribution<double>(0.01, 500)(random)};
    const auto cost = [&](const CutSolution& point) {
      return static_cast<double>(point.bytes) + weights.ns * static_cast<double>(point.ns);
    };
    const double best = cost(planner.solve(middle, {}, weights));
    double corner = cost(hull[0]);
    for (const CutSolution& point : hull) corner = std::min(corner, cost(point));
    EXPECT_NEAR(corner, best, 1e-5 * best);
  }
}

TEST(Frontier, TheEndsAreTheFewestBytesAndTheLeastTime) {
  const JointGraph graph = transformer({.blocks = 4, .exchanges = true});
  const Planner planner(graph, "h100", 8);
  const Frontier frontier(planner, Offload::kOff);
  for (int s = 0; s < planner.segments().count(); ++s) {
    if (planner.is_tail(s)) continue;
    const int c = planner.class_of(s);
    const std::vector<CutSolution>& hull = frontier.hull(c);
    const CutSolution least_bytes = planner.solve(c, {}, {.byte = 1, .ns = 0});
    const CutSolution least_time = planner.solve(c, {}, {.byte = 0, .ns = 1});
    EXPECT_EQ(hull.front().actions, least_bytes.actions);
    EXPECT_EQ(hull.back().bytes, least_time.bytes);
    EXPECT_EQ(hull.back().ns, 0);
  }
  const std::vector<FrontierPoint> points = frontier.points();
  const RematPlan full = plan_remat(graph, {.name = "full", .ranks = 8});
  EXPECT_EQ(points.front().peak_bytes, full.peak.peak_bytes);
  EXPECT_EQ(points.front().step_ns, full.step_ns);
  // Nothing but the tail's cheap operators runs again.
  EXPECT_EQ(points.back().step_ns - points.back().recompute_ns,
            plan_remat(graph, {.name = "off", .ranks = 8}).step_ns);
  EXPECT_LT(points.back().recompute_ns, full.recompute_ns / 20);
}

TEST(Frontier, MoreMemoryIsNeverSlower) {
  const JointGraph graph = transformer({.blocks = 6, .exchanges = true});
  const Planner planner(graph, "h100", 8);
  const Frontier frontier(planner, Offload::kOff);
  const auto points = frontier.points();
  const int64_t least = points.front().peak_bytes;
  const int64_t most = points.back().peak_bytes;
  int64_t previous = INT64_MAX;
  for (int step = 0; step <= 20; ++step) {
    const int64_t budget = least + (most - least) * step / 20;
    const RematPlan plan = frontier.fastest(budget);
    EXPECT_LE(plan.peak.peak_bytes, budget);
    EXPECT_LE(plan.recompute_ns, previous);
    previous = plan.recompute_ns;
  }
  EXPECT_EQ(previous, points.back().recompute_ns);
}

TEST(Frontier, BudgetsBetweenPointsAreUsed) {
  // One class of blocks: between two of its corners some blocks can have taken the step.
  const JointGraph graph = transformer({.blocks = 12});
  const Planner planner(graph, "h100", 1);
  const Frontier frontier(planner, Offload::kOff);
  const auto points = frontier.points();
  size_t widest = 1;
  const auto gap = [&](size_t i) { return points[i].peak_bytes - points[i - 1].peak_bytes; };
  for (size_t i = 2; i < points.size(); ++i) widest = gap(i) > gap(widest) ? i : widest;
  const FrontierPoint& low = points[widest - 1];
  const FrontierPoint& high = points[widest];
  const RematPlan plan = frontier.fastest((low.peak_bytes + high.peak_bytes) / 2);
  EXPECT_LT(plan.recompute_ns, low.recompute_ns);
  EXPECT_GT(plan.recompute_ns, high.recompute_ns);
}

TEST(Frontier, OverheadIsKept) {
  const JointGraph graph = transformer({.blocks = 6, .exchanges = true});
  const int64_t step = plan_remat(graph, {.name = "off", .ranks = 8}).step_ns;
  int64_t previous = 0;
  for (const double overhead : {0.2, 0.1, 0.05, 0.02}) {
    const RematPlan plan =
        plan_remat(graph, {.name = "overhead", .overhead = overhead, .ranks = 8});
    EXPECT_LE(static_cast<double>(plan.recompute_ns), overhead * static_cast<double>(step));
    EXPECT_EQ(plan.step_ns, step + plan.recompute_ns);
    EXPECT_GE(plan.peak.kept_bytes, previous);
    previous = plan.peak.kept_bytes;
  }
}

TEST(Frontier, TooSmallABudgetNamesTheLeast) {
  JointGraph graph = transformer({.blocks = 3});
  for (JointNode& node : graph.nodes) {
    if (!is_input(node) && node.target != "output") node.source = "model.py:7 in forward: x = f(x)";
  }
  const Planner planner(graph, "h100", 1);
  const int64_t least = Frontier(planner, Offload::kOff).points().front().peak_bytes;
  try {
    plan_remat(graph, {.name = "memory", .memory_bytes = least - 1});
    FAIL();
  } catch (const Unsupported& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find(std::to_string(least)), std::string::npos) << text;
    EXPECT_NE(text.find("aten."), std::string::npos) << text;
    EXPECT_NE(text.find("kept 395264, tail 25165828"), std::string::npos) << text;
    EXPECT_NE(text.find("model.py:7"), std::string::npos) << text;
  }
  EXPECT_EQ(plan_remat(graph, {.name = "memory", .memory_bytes = least}).peak.peak_bytes, least);
  // Without a promise, the plan that comes closest.
  EXPECT_EQ(plan_remat(graph, {.name = "auto", .memory_bytes = 1}).peak.peak_bytes, least);
}

TEST(Frontier, EqualBlocksAreSolvedOnce) {
  const JointGraph graph = transformer({.blocks = 40});
  const Planner planner(graph, "h100", 1);
  EXPECT_EQ(planner.segments().count(), 41);
  EXPECT_LE(planner.segment_classes(), 4);
}

}  // namespace
}  // namespace autosp
