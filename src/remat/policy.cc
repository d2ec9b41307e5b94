#include "remat/policy.h"

#include "remat/frontier.h"
#include "remat/planner.h"
#include "support/error.h"

namespace autosp {

RematPlan plan_remat(const JointGraph& graph, const RematPolicy& policy) {
  verify(graph);
  const Planner planner(graph, policy.device, policy.ranks);
  const bool is_auto = policy.name == "auto";
  if (policy.name == "off") return planner.nothing();
  if (policy.name == "full") return planner.fewest_bytes({});
  if (policy.name == "sac" || (is_auto && policy.memory_bytes == 0)) {
    return planner.fewest_bytes({.attention = true});
  }
  if (policy.name == "sac+exchanges") {
    return planner.fewest_bytes({.attention = true, .exchanges_before_attention = true});
  }
  if (policy.name == "overhead") {
    if (policy.overhead < 0) throw Unsupported("checkpointing: the overhead is below 0");
    return Frontier(planner).least_peak(policy.overhead);
  }
  if (!is_auto && policy.name != "memory") {
    throw Unsupported("checkpointing=\"" + policy.name +
                      "\" is none of off, sac, sac+exchanges, full, auto");
  }
  const Frontier frontier(planner);
  RematPlan plan = frontier.fastest(policy.memory_bytes);
  if (!is_auto && plan.peak.peak_bytes > policy.memory_bytes) {
    const int at = plan.peak.at;
    const std::string where =
        at < 0 ? ""
               : ", at " + graph.nodes[at].name + " (" + graph.nodes[at].target + ")" +
                     (graph.nodes[at].source.empty() ? "" : ", " + graph.nodes[at].source);
    throw Unsupported("checkpointing: memory_bytes=" + std::to_string(policy.memory_bytes) +
                      " is below the least that any plan needs, " +
                      std::to_string(plan.peak.peak_bytes) + " bytes in the " +
                      (plan.peak.in_backward ? "backward" : "forward") + where);
  }
  return plan;
}

void verify(const JointFacts& facts, const Segments& segments, const std::vector<Action>& actions) {
  const auto& nodes = facts.graph.nodes;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (facts.phase[i] != Phase::kForward) continue;
    if (actions[i] == Action::kSave && facts.kernel[i] == Kernel::kItem && facts.can_keep(i)) {
      ensure(actions[nodes[i].inputs[0]] != Action::kRecompute,
             "an output of an operator that runs again is kept");
    }
    if (actions[i] != Action::kRecompute) continue;
    for (const int input : nodes[i].inputs) {
      if (facts.phase[input] != Phase::kForward || actions[input] != Action::kRecompute) continue;
      // A view of what an earlier segment keeps costs nothing there; what the user recomputes is
      // the user's to know.
      const int base = facts.storage[input];
      const bool at_hand = facts.phase[base] != Phase::kForward ||
                           actions[facts.keeper[base]] == Action::kSave || nodes[base].tagged;
      ensure(segments.of[input] == segments.of[i] || at_hand || nodes[input].bytes == 0,
             "a recomputed value depends on a recomputed value of another segment");
    }
  }
}

}  // namespace autosp
