// How much memory a forward and its backward take, by following what lives when.
//
// The two run as torch's partitioner writes them: the forward's operators in the order of the joint
// graph; the backward's too, what is recomputed right before the first of them that needs it. A
// storage lives from the operator that makes it to the last that reads it, and with it all views. A
// kept value lives on into the backward; forward outputs that are not kept are gone when the
// backward begins. Parameters, inputs and the gradients that the backward returns are not counted.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/facts.h"

namespace autosp {

enum class Action : uint8_t {
  kLeave,      // stock decides
  kSave,       // kept if the backward needs it
  kRecompute,  // made again in the backward
};

struct Peak {
  int64_t kept_bytes = 0;  // of the storages kept for the backward
  int64_t peak_bytes = 0;
  int at = -1;                     // the node that runs then
  bool in_backward = false;        // or in the forward
  int64_t kept_at_peak = 0;        // of peak_bytes, those kept for the backward
  int64_t recomputed_at_peak = 0;  // and those made again
  std::vector<int> saved;          // the nodes kept, in order
  std::vector<int> recomputed;     // the nodes that run again, in order
};

// The backward needs what its nodes read; of that, nodes with kSave are kept and others made again
// from their inputs. Linear in nodes and inputs, with a sort of what is recomputed.
Peak simulate(const JointFacts& facts, const std::vector<Action>& actions);

}  // namespace autosp
