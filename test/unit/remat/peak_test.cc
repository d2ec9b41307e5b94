#include "remat/peak.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "joint_models.h"
#include "remat/planner.h"

namespace autosp {
namespace {

std::vector<Action> keep(const JointGraph& graph, const std::vector<std::string>& names) {
  std::vector<Action> actions(graph.nodes.size(), Action::kRecompute);
  for (const std::string& name : names) actions[find(graph, name)] = Action::kSave;
  return actions;
}

Peak simulate_in(const JointFacts& facts, const std::vector<Action>& actions) {
  const Segments segments = find_segments(facts);
  return simulate(facts, segments, find_offloading(facts, segments), actions);
}

int64_t part(const Peak& peak, Part which) { return peak.parts[static_cast<size_t>(which)]; }

std::vector<std::string> names_of(const JointGraph& graph, const std::vector<int>& nodes) {
  std::vector<std::string> names;
  for (const int node : nodes) names.push_back(graph.nodes[node].name);
  return names;
}

// y = sin(exp(x + 1)), with the sum a view of what exp reads.
const char* const kChain =
    "%x: float32[100] 400B = placeholder:primal()\n"
    "%g: float32[100] 400B = placeholder:tangent()\n"
    "%a: float32[100] 400B = aten.add.Tensor(%x)\n"
    "%v: float32[10,10] 400B = aten.view.default(%a) view\n"
    "%b: float32[10,10] 400B = aten.exp.default(%v)\n"
    "%c: float32[10,10] 400B = aten.sin.default(%b)\n"
    "%cos: float32[10,10] 400B = aten.cos.default(%b)\n"
    "%db: float32[10,10] 400B = aten.mul.Tensor(%g, %cos)\n"
    "%dx: float32[10,10] 400B = aten.mul.Tensor(%db, %b)\n"
    "output(%c | %dx)\n";

TEST(Peak, KeptValuesLiveIntoTheBackward) {
  const JointGraph graph = parse_joint_graph(kChain);
  const JointFacts facts(graph);
  const Peak peak = simulate_in(facts, keep(graph, {"b", "c"}));
  EXPECT_EQ(names_of(graph, peak.saved), (std::vector<std::string>{"b"}));
  EXPECT_TRUE(peak.recomputed.empty());  // the cosine runs in the backward alone
  EXPECT_EQ(peak.kept_bytes, 400);
  // Backward: b, tangent, cosine, product; the gradient is not counted.
  EXPECT_EQ(peak.peak_bytes, 4 * 400);
  EXPECT_EQ(graph.nodes[peak.at].name, "db");
  EXPECT_TRUE(peak.in_backward);
  EXPECT_EQ(part(peak, Part::kKept), 400);
  EXPECT_EQ(part(peak, Part::kGradients), 3 * 400);
}

TEST(Peak, RecomputedValuesAreMadeWhereTheyAreNeeded) {
  const JointGraph graph = parse_joint_graph(kChain);
  const JointFacts facts(graph);
  const Peak peak = simulate_in(facts, keep(graph, {"a"}));
  EXPECT_EQ(names_of(graph, peak.saved), (std::vector<std::string>{"a"}));
  EXPECT_EQ(names_of(graph, peak.recomputed), (std::vector<std::string>{"v", "b"}));
  EXPECT_EQ(peak.kept_bytes, 400);
  // a is gone when the exponential is made again.
  EXPECT_EQ(peak.peak_bytes, 4 * 400);
  EXPECT_EQ(part(peak, Part::kKept), 0);
  EXPECT_EQ(part(peak, Part::kRecomputed), 400);
}

TEST(Peak, KeptViewsCountTheirStorageOnce) {
  const JointGraph graph = parse_joint_graph(kChain);
  const JointFacts facts(graph);
  EXPECT_EQ(simulate_in(facts, keep(graph, {"a", "v"})).kept_bytes, 400);
  EXPECT_EQ(simulate_in(facts, keep(graph, {"v"})).kept_bytes, 400);
}

TEST(Peak, ViewsBehindTheForwardCountAsWhatTheyAreViewsOf) {
  const JointGraph graph = parse_joint_graph(
      "%x: float32[100] 400B = placeholder:primal()\n"
      "%g: float32[100] 400B = placeholder:tangent()\n"
      "%a: float32[100] 400B = aten.exp.default(%x)\n"
      "%c: float32[100] 400B = aten.sin.default(%a)\n"
      "%dy: float32[100] 400B = aten.neg.default(%g)\n"
      "%late: float32[100] 400B = aten.alias.default(%a) view\n"
      "%dx: float32[100] 400B = aten.mul.Tensor(%dy, %late)\n"
      "output(%c | %dx)\n");
  const Planner planner(graph, "h100", 1);
  EXPECT_EQ(planner.forward_node(find(graph, "late")), find(graph, "a"));
  EXPECT_EQ(planner.forward_node(find(graph, "c")), find(graph, "c"));
  const RematPlan plan = planner.simulate_actions(keep(graph, {"a"}));
  EXPECT_EQ(plan.peak.kept_bytes, 400);
  EXPECT_EQ(plan.recompute_ns, 0);
}

TEST(Peak, NothingKeptRunsFromTheInputs) {
  const JointGraph graph = parse_joint_graph(kChain);
  const JointFacts facts(graph);
  const Peak peak = simulate_in(facts, keep(graph, {}));
  EXPECT_EQ(peak.kept_bytes, 0);
  EXPECT_EQ(names_of(graph, peak.recomputed), (std::vector<std::string>{"a", "v", "b"}));
}

TEST(Peak, OutputsOfOneOperatorAreMadeTogether) {
  const JointGraph graph = parse_joint_graph(
      "%x: float32[100] 400B = placeholder:primal()\n"
      "%pair = aten.var_mean.correction(%x)\n"
      "%left: float32[100] 400B = getitem(%pair)\n"
      "%a: float32[100] 400B = aten.sin.default(%left)\n"
      "%right: float32[100] 400B = getitem(%pair)\n"
      "%b: float32[] 4B = aten.dot.default(%a, %right)\n"
      "output(%b |)\n");
  const JointFacts facts(graph);
  const Peak peak = simulate_in(facts, keep(graph, {}));
  EXPECT_EQ(peak.peak_bytes, 3 * 400);
  EXPECT_EQ(graph.nodes[peak.at].name, "a");
}

// Recomputing everything keeps nothing and peaks above keeping the block's inputs.
TEST(Peak, RecomputingAllPeaksHigherThanKeepingBlocks) {
  const JointGraph graph = transformer({.blocks = 12});
  const JointFacts facts(graph);
  std::vector<std::string> inputs = {"x12"};
  std::vector<std::string> nothing;
  for (int b = 0; b < 12; ++b) inputs.push_back("x" + std::to_string(b));
  const Peak all = simulate_in(facts, keep(graph, nothing));
  const Peak blocks = simulate_in(facts, keep(graph, inputs));
  EXPECT_LT(all.kept_bytes, blocks.kept_bytes);
  EXPECT_GT(all.peak_bytes, blocks.peak_bytes);
}

}  // namespace
}  // namespace autosp
