#include "remat/policy.h"

#include "remat/frontier.h"
#include "remat/planner.h"
#include "support/error.h"

namespace autosp {

namespace {

std::string location(const JointGraph& graph, int node) {
  const std::string source = source_near(graph, node);
  return graph.nodes[node].name + " (" + graph.nodes[node].target + ")" +
         (source.empty() ? "" : ", " + source);
}

[[noreturn]] void refuse_memory(const JointGraph& graph, const Peak& least, int64_t bytes) {
  std::string parts;
  for (size_t k = 0; k < least.parts.size(); ++k) {
    if (least.parts[k] == 0) continue;
    parts += (parts.empty() ? ": " : ", ") + std::string(kPartNames[k]) + " " +
             std::to_string(least.parts[k]);
  }
  throw Unsupported("checkpointing: memory_bytes=" + std::to_string(bytes) +
                    " is below the least that any plan needs, " + std::to_string(least.peak_bytes) +
                    " bytes in the " + (least.in_backward ? "backward" : "forward") +
                    (least.at < 0 ? "" : ", at " + location(graph, least.at)) + parts);
}

}  // namespace

RematPlan plan_remat(const JointGraph& graph, const RematPolicy& policy) {
  verify(graph);
  const Planner planner(graph, policy.device, policy.ranks);
  const Offload offload = parse_offload(policy.offload, planner);
  const bool all_leave = offload == Offload::kAll;
  const bool is_auto = policy.name == "auto";
  if (policy.name == "off") {
    if (all_leave) {
      throw Unsupported(
          "offload=\"all\" does not go with checkpointing=\"off\": what is kept is torch's to "
          "decide there");
    }
    return planner.nothing();
  }
  if (policy.name == "full") return planner.fewest_bytes({}, all_leave);
  if (policy.name == "sac" || (is_auto && policy.memory_bytes == 0)) {
    return planner.fewest_bytes({.attention = true}, all_leave);
  }
  if (policy.name == "sac+exchanges") {
    return planner.fewest_bytes({.attention = true, .exchanges_before_attention = true}, all_leave);
  }
  if (policy.name == "overhead") {
    if (policy.overhead < 0) throw Unsupported("checkpointing: the overhead is below 0");
    return Frontier(planner, offload).least_peak(policy.overhead);
  }
  if (!is_auto && policy.name != "memory") {
    throw Unsupported("checkpointing=\"" + policy.name +
                      "\" is none of off, sac, sac+exchanges, full, auto");
  }
  RematPlan plan = Frontier(planner, offload).fastest(policy.memory_bytes);
  if (!is_auto && plan.peak.peak_bytes > policy.memory_bytes) {
    refuse_memory(graph, plan.peak, policy.memory_bytes);
  }
  return plan;
}

void verify(const JointFacts& facts, const Segments& segments, const std::vector<Action>& actions) {
  const auto& nodes = facts.graph.nodes;
  for (int i = 0; i < static_cast<int>(nodes.size()); ++i) {
    if (facts.phase[i] != Phase::kForward) continue;
    if (is_kept(actions[i]) && facts.kernel[i] == Kernel::kItem && facts.can_keep(i)) {
      ensure(actions[facts.inputs(i)[0]] != Action::kRecompute,
             "an output of an operator that runs again is kept");
    }
    if (actions[i] != Action::kRecompute) continue;
    for (const int input : facts.inputs(i)) {
      if (facts.phase[input] != Phase::kForward || actions[input] != Action::kRecompute) continue;
      // A view of what an earlier segment keeps costs nothing there; what the user recomputes is
      // the user's to know.
      const int base = facts.storage[input];
      const bool at_hand = facts.phase[base] != Phase::kForward ||
                           is_kept(actions[facts.keeper[base]]) || nodes[base].tagged;
      ensure(segments.of[input] == segments.of[i] || at_hand || facts.bytes[input] == 0,
             "a recomputed value depends on a recomputed value of another segment");
    }
  }
}

}  // namespace autosp
