// Puts plans together from the solutions of the segments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/policy.h"
#include "remat/segment_cut.h"

namespace autosp {

// Segments with equal problems have one solution, found once.
class Planner {
 public:
  // `graph` must outlive it and has been verified.
  Planner(const JointGraph& graph, const std::string& device, int64_t ranks);
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  const JointFacts& facts() const { return facts_; }
  const Segments& segments() const { return segments_; }
  int segment_classes() const { return static_cast<int>(representative_.size()); }
  int class_of(int segment) const { return class_of_[segment]; }
  bool is_tail(int segment) const { return segments_.has_tail && segment == segments_.count() - 1; }

  CutSolution solve(int segment_class, const Bans& bans, const CutWeights& weights) const {
    return cuts_[representative_[segment_class]].solve(bans, weights);
  }

  // Also says what of the kept values leaves for host memory: the best of a few cuts, with
  // different costs of leaving.
  CutSolution solve_with_offload(int segment_class, const CutWeights& weights) const;

  // Whether the device has host memory to copy to.
  bool can_offload() const { return link_.exists(); }

  // Every segment but the tail as `bans` says with the fewest bytes.
  RematPlan fewest_bytes(const Bans& bans, bool all_leave) const;

  // Per segment one solution of its class; the tail's is ignored. With `all_leave` every kept value
  // that may leave does. Verifies the plan.
  RematPlan assemble(const std::vector<const CutSolution*>& solutions, bool all_leave) const;

  // The plan with these actions, wherever they come from, without waiting for copies.
  RematPlan simulate_actions(std::vector<Action> actions) const;

  // The node of the forward in whose storage the value lies, of views behind the forward.
  int forward_node(int node) const;

  // All left to torch.
  RematPlan nothing() const;

 private:
  const JointGraph& graph_;
  JointFacts facts_;
  Device device_;
  std::vector<int64_t> ns_;
  int64_t step_ns_ = 0;
  HostLink link_;
  Segments segments_;
  Offloading offloading_;
  std::vector<SegmentCut> cuts_;
  std::vector<int> class_of_;        // per segment
  std::vector<int> representative_;  // per class a segment
  CutSolution tail_;
};

}  // namespace autosp
