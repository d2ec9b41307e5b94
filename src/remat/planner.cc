#include "remat/planner.h"

#include <algorithm>
#include <map>
#include <utility>

namespace autosp {

namespace {

HostLink link_to_host(const JointFacts& facts, const Device& device,
                      const std::vector<int64_t>& ns) {
  int64_t forward = 1;
  int64_t backward = 0;
  for (size_t i = 0; i < ns.size(); ++i) {
    (facts.for_backward(static_cast<int>(i)) ? backward : forward) += ns[i];
  }
  return {device, static_cast<double>(backward) / static_cast<double>(forward)};
}

}  // namespace

Planner::Planner(const JointGraph& graph, const std::string& device, int64_t ranks)
    : graph_(graph),
      facts_(graph_),
      device_(find_device(device)),
      ns_(node_nanoseconds(facts_, device_, ranks)),
      link_(link_to_host(facts_, device_, ns_)),
      segments_(find_segments(facts_)),
      offloading_(find_offloading(facts_, segments_)),
      cuts_(make_cuts(facts_, segments_, offloading_, ns_)) {
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

CutSolution Planner::solve_with_offload(int segment_class, const CutWeights& weights) const {
  const SegmentCut& cut = cuts_[representative_[segment_class]];
  CutSolution best = cut.solve({}, weights);
  if (!link_.exists() || !cut.any_may_leave()) return best;
  cut.send_away(best, link_, weights);
  const auto cost = [&](const CutSolution& solution) {
    return weights.byte * static_cast<double>(solution.bytes) +
           weights.ns * static_cast<double>(solution.ns);
  };
  for (const double copies : {0.0, 0.5, 1.0, 2.0}) {
    CutWeights with_leaving = weights;
    with_leaving.leaving_ns = copies * link_.ns_per_byte();
    CutSolution solution = cut.solve({}, with_leaving);
    cut.send_away(solution, link_, weights);
    const double difference = cost(solution) - cost(best);
    if (difference < 0 ||
        (difference == 0 && solution.bytes + solution.ns < best.bytes + best.ns)) {
      best = std::move(solution);
    }
  }
  return best;
}

RematPlan Planner::fewest_bytes(const Bans& bans, bool all_leave) const {
  std::vector<CutSolution> solutions;
  for (int c = 0; c < segment_classes(); ++c) {
    solutions.push_back(solve(c, bans, CutWeights::fewest_bytes()));
  }
  std::vector<const CutSolution*> chosen;
  for (int s = 0; s < segments_.count(); ++s) chosen.push_back(&solutions[class_of_[s]]);
  return assemble(chosen, all_leave);
}

RematPlan Planner::assemble(const std::vector<const CutSolution*>& solutions,
                            bool all_leave) const {
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
    if (all_leave && plan.actions[i] == Action::kSave && offloading_.possible[i]) {
      plan.actions[i] = Action::kOffload;
    }
  }
  verify(facts_, segments_, plan.actions);
  plan = simulate_actions(std::move(plan.actions));
  std::replace(plan.actions.begin(), plan.actions.end(), Action::kOffload, Action::kSave);
  std::vector<int64_t> away_bytes(segments_.begin.size(), 0);
  for (const Absence& absence : plan.peak.offloaded) {
    plan.actions[absence.node] = Action::kOffload;
    away_bytes[segments_.of[absence.node]] += facts_.storage_bytes(absence.node);
  }
  for (int s = 0; s < segments_.count(); ++s) {
    plan.wait_ns += link_.wait_ns(away_bytes[s], cuts_[s].forward_ns());
  }
  plan.step_ns += plan.wait_ns;
  return plan;
}

int Planner::forward_node(int node) const {
  while (facts_.phase[node] == Phase::kLate && facts_.kernel[node] == Kernel::kView) {
    node = graph_.nodes[node].inputs[0];
  }
  return node;
}

RematPlan Planner::simulate_actions(std::vector<Action> actions) const {
  RematPlan plan = nothing();
  plan.actions = std::move(actions);
  plan.peak = simulate(facts_, segments_, offloading_, plan.actions);
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
