// What one segment keeps and what it makes again: a minimum cut.
//
// Every value of the segment is kept, made again in the backward, or not needed there. The network
// has for each an edge from "made" to "at hand" with the cost of keeping it, an edge from the
// source to "made" with the cost of making it again, and infinite edges from "at hand" to what
// reads it; what the backward reads leads to the sink. The source's side is what only the forward
// does. Values at hand anyway (parameters, inputs, what crosses the segment's end) have no node.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/peak.h"
#include "remat/segments.h"

namespace autosp {

// What is not made again, random draws and writes aside (they never are).
struct Bans {
  bool attention = false;
  bool products = false;    // of matrices
  bool reductions = false;  // to a quarter of the elements that they read, or less
  bool exchanges_before_attention = false;
  bool exchanges = false;

  bool operator==(const Bans&) const = default;
};

// Costs of a byte kept and of a nanosecond more in the backward, of which only the ratio matters.
struct CutWeights {
  double byte = 1;
  double ns = 0;
  // What a byte costs that leaves for host memory, in nanoseconds; where that is less than staying
  // costs, values that may leave have this cost. Below 0: none may.
  double leaving_ns = -1;

  static CutWeights fewest_bytes() { return {1, 0}; }  // and of those the least time
  static CutWeights least_time() { return {0, 1}; }    // and of those the fewest bytes
};

struct CutSolution {
  std::vector<Action> actions;  // per node of the segment
  int64_t bytes = 0;            // kept on the device, those that cross the end and stay aside
  int64_t ns = 0;               // of what is made again, and waiting for copies
  int64_t away_bytes = 0;       // in host memory
  std::vector<int> may_leave;   // of the kept values, by position in the segment
};

class SegmentCut {
 public:
  // `ns` per node of the graph. All arguments but `segment` must outlive it.
  SegmentCut(const JointFacts& facts, const Segments& segments, const Offloading& offloading,
             const std::vector<int64_t>& ns, int segment, std::vector<int> nodes);

  const std::vector<int>& nodes() const { return nodes_; }

  // Equal for segments with equal solutions.
  const std::vector<uint64_t>& signature() const { return signature_; }

  // One minimum cut: of equal ones the earliest values. Values that the backward doesn't need may
  // have any action.
  CutSolution solve(const Bans& bans, const CutWeights& weights) const;

  // Sends those of the kept values away that are worth waiting for, the largest first.
  void send_away(CutSolution& solution, const HostLink& link, const CutWeights& weights) const;

  int64_t forward_ns() const { return total_ns_; }
  bool any_may_leave() const { return any_may_leave_; }

 private:
  struct Value {
    int64_t bytes = 0;  // -1: can't be kept
    int64_t ns = 0;
    bool outside = false;  // at hand anyway, or the user's: no node of the network
    bool pinned = false;   // one of its outputs is at hand anyway
    bool left = false;     // torch decides
    bool may_leave = false;
    bool alias = false;  // lies in another value's storage
    bool size = false;   // no tensor
    bool for_backward = false;
    bool after_attention = false;
    std::vector<int> inputs;  // of the segment, by position in nodes_
  };

  void describe(int local, const std::vector<int>& local_of);
  bool banned(const Bans& bans, int local) const;

  const JointFacts& facts_;
  const Segments& segments_;
  const Offloading& offloading_;
  std::vector<int> nodes_;
  std::vector<Value> values_;
  std::vector<uint64_t> signature_;
  bool any_may_leave_ = false;
  int64_t total_bytes_ = 0;
  int64_t total_ns_ = 0;
};

// One for every segment, in order. Linear.
std::vector<SegmentCut> make_cuts(const JointFacts& facts, const Segments& segments,
                                  const Offloading& offloading, const std::vector<int64_t>& ns);

}  // namespace autosp
