#include "remat/planner.h"

#include <map>

namespace autosp {

Planner::Planner(const JointGraph& graph, const std::string& device, int64_t ranks)
    : graph_(graph),
      facts_(graph_),
      ns_(node_nanoseconds(facts_, find_device(device), ranks)),
      segments_(find_segments(facts_)),
      cuts_(make_cuts(facts_, segments_, ns_)) {
  for (const int64_t ns : ns_) step_ns_ += ns;
  std::map<std::vector<uint64_t>, int> classes;
  for (int s = 0; s < segments_.count(); ++s) {
    const auto [it, is_new] =
        classes.emplace(cuts_[s].signature(), static_cast<int>(representative_.size()));
    if (is_new) representative_.push_back(s);
    class_of_.push_back(it->second);
  }
  if (segments_.has_tail) {
    const Bans bans{.attention = true,
                    .products = true,
                    .reductions = true,
                    .exchanges_before_attention = true,
                    .exchanges = true};
    tail_ = cuts_.back().solve(bans, CutWeights::fewest_bytes());
  }
}

RematPlan Planner::fewest_bytes(const Bans& bans) const {
  std::vector<CutSolution> solutions;
  for (int c = 0; c < segment_classes(); ++c) {
    solutions.push_back(solve(c, bans, CutWeights::fewest_bytes()));
  }
  std::vector<const CutSolution*> chosen;
  for (int s = 0; s < segments_.count(); ++s) chosen.push_back(&solutions[class_of_[s]]);
  return assemble(chosen);
}

RematPlan Planner::assemble(const std::vector<const CutSolution*>& solutions) const {
  RematPlan plan = nothing();
  for (int s = 0; s < segments_.count(); ++s) {
    const std::vector<Action>& actions = is_tail(s) ? tail_.actions : solutions[s]->actions;
    const std::vector<int>& nodes = cuts_[s].nodes();
    for (size_t k = 0; k < nodes.size(); ++k) plan.actions[nodes[k]] = actions[k];
  }
  for (size_t i = 0; i < plan.actions.size(); ++i) {
    const JointNode& node = graph_.nodes[i];
    const bool fixed = node.tagged || node.mutates || node.random || node.dtype.empty();
    // Or torch might move it to the forward and keep it.
    if (facts_.phase[i] == Phase::kLate && !fixed) plan.actions[i] = Action::kRecompute;
  }
  verify(facts_, segments_, plan.actions);
  plan.peak = simulate(facts_, plan.actions);
  for (const int node : plan.peak.recomputed) plan.recompute_ns += ns_[node];
  plan.step_ns += plan.recompute_ns;
  return plan;
}

RematPlan Planner::nothing() const {
  RematPlan plan;
  plan.actions.assign(graph_.nodes.size(), Action::kLeave);
  plan.segments = segments_;
  plan.node_ns = ns_;
  plan.step_ns = step_ns_;
  return plan;
}

}  // namespace autosp
