// The trade between memory and time: how much time each byte kept saves.
//
// For every ratio of a byte's price to a nanosecond's the best solution of a segment is a minimum
// cut; all of them are the corners of the lower convex hull of (bytes, nanoseconds), which is found
// by asking, between two corners, for the best one at the ratio of their differences. Segments with
// equal problems have one hull. From the fewest bytes on, steps along the hulls are taken in the
// order of the time that they save per byte, one segment after the other, the last first; each
// gives a plan. Where values may leave for host memory the corners are of bytes on the device, and
// the last of a hull is that in which none leaves: where there is room nothing is copied.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/planner.h"

namespace autosp {

struct FrontierPoint {
  int64_t kept_bytes = 0;       // on the device
  int64_t offloaded_bytes = 0;  // in host memory
  int64_t peak_bytes = 0;
  int64_t recompute_ns = 0;
  int64_t wait_ns = 0;  // for copies to and from host memory
  int64_t step_ns = 0;
};

enum class Offload : uint8_t {
  kOff,   // nothing leaves
  kAuto,  // what is worth it
  kAll,   // all that may, of what is kept
};

// "off", "auto", "all"; "auto" is kOff where the planner can't offload, and "all" Unsupported, as
// other texts are.
Offload parse_offload(const std::string& text, const Planner& planner);

class Frontier {
 public:
  // `planner` must outlive it. One minimum cut per corner and class of segments, and as many again
  // to see that there is none between; five times as many where values may leave. `offload` is kOff
  // unless the planner can offload.
  Frontier(const Planner& planner, Offload offload);

  // The plan after each step that all segments of a class have taken, without those that another
  // beats in peak and time; from the smallest peak to the fastest.
  std::vector<FrontierPoint> points() const;

  // The fastest plan whose peak is at most `memory_bytes`; where none is, that with the least peak.
  RematPlan fastest(int64_t memory_bytes) const;

  // The plan of the least kept bytes whose recomputation and waiting take at most `overhead` of the
  // step's time without any.
  RematPlan least_peak(double overhead) const;

  // The corners of a class of segments, from the fewest bytes on.
  const std::vector<CutSolution>& hull(int segment_class) const { return hulls_[segment_class]; }

 private:
  struct Step {
    int segment_class;
    int corner;  // that the step leads to
    double ns_per_byte;
  };

  int step_count() const { return static_cast<int>(moves_.size()); }
  RematPlan after(int moves) const;

  const Planner& planner_;
  const Offload offload_;
  std::vector<std::vector<CutSolution>> hulls_;  // per class
  std::vector<Step> steps_;
  std::vector<int> moves_;        // segments, in the order in which each goes to its next corner
  std::vector<int> class_moves_;  // numbers of moves after which a step is complete
};

}  // namespace autosp
