// Which values of a joint graph the forward keeps for the backward, and which it makes again.
//
// All policies work inside of segments (segments.h) and keep what crosses their boundaries, which
// of a transformer is each block's input, and what is drawn at random. Of the rest they keep:
//
//   off             what torch's own partitioner chooses: every node is left to it
//   sac             the outputs of attentions; exchanges are repeated
//   sac+exchanges   also what the exchanges ahead of attentions gave; the exchange of an
//   attention's
//                   output, which is kept before it, is repeated
//   full            nothing; attentions run again
//   memory          as much as fits into memory_bytes, the most time saved per byte first
//   overhead        as little as `overhead` of the step's time allows
//   auto            as memory; the least peak where that doesn't fit; sac where memory_bytes is 0
//
// With offload "all" every kept value that may leaves for host memory (offload.h). With "auto" the
// policies that look for the best plan, memory, overhead and auto, weigh leaving against staying
// and running again; the others don't offload.
//
// The tail keeps what products and reductions make, under every policy: its backward comes right
// after its forward, so nothing would be gained. What the user put into checkpoint regions is left
// as it is, but for what leaves a region for a later segment, which is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/peak.h"
#include "remat/segments.h"

namespace autosp {

struct RematPolicy {
  std::string name = "sac";
  int64_t memory_bytes = 0;     // for what Peak counts: parameters and gradients are not in it
  double overhead = 0;          // 0.07: at most 7% more time
  std::string device = "h100";  // as find_device reads
  int64_t ranks = 1;            // that take part in an exchange
  std::string offload = "off";  // "auto", "all"
};

struct RematPlan {
  std::vector<Action> actions;  // per node; kLeave for what is not the forward's
  Segments segments;
  Peak peak;                 // of policy off: nothing
  int64_t recompute_ns = 0;  // of what runs again
  int64_t wait_ns = 0;       // for copies to and from host memory
  int64_t step_ns = 0;       // of a forward and a backward with both
  std::vector<int64_t> node_ns;
};

// Throws Unsupported for an unknown policy, device or offload, for offload "all" on a device
// without host memory beside its own, for a negative overhead, and, with policy memory, for fewer
// bytes than any plan needs. The same graph and policy give the same plan. Linear in the nodes but
// for one minimum cut (memory, overhead, auto: a few dozen) per distinct segment.
RematPlan plan_remat(const JointGraph& graph, const RematPolicy& policy);

// Throws InternalError unless what runs again depends only on what its own segment makes again and
// on kept values, parameters and inputs, and of an operator with several outputs either all run
// again or none.
void verify(const JointFacts& facts, const Segments& segments, const std::vector<Action>& actions);

}  // namespace autosp
