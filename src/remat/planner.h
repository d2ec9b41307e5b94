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

  // Every segment but the tail as `bans` says with the fewest bytes.
  RematPlan fewest_bytes(const Bans& bans) const;

  // Per segment one solution of its class; the tail's is ignored. Verifies the plan.
  RematPlan assemble(const std::vector<const CutSolution*>& solutions) const;

  // All left to torch.
  RematPlan nothing() const;

 private:
  const JointGraph& graph_;
  JointFacts facts_;
  std::vector<int64_t> ns_;
  int64_t step_ns_ = 0;
  Segments segments_;
  std::vector<SegmentCut> cuts_;
  std::vector<int> class_of_;        // per segment
  std::vector<int> representative_;  // per class a segment
  CutSolution tail_;
};

}  // namespace autosp
