// How much memory a forward and its backward take, by following what lives when.
//
// The two run as torch's partitioner writes them: the forward's operators in the order of the joint
// graph; the backward's too, what is recomputed right before the first of them that needs it. A
// storage lives from the operator that makes it to the last that reads it, and with it all views. A
// kept value lives on into the backward, one in host memory is off the device as offload.h says;
// forward outputs that are not kept are gone when the backward begins. Parameters, inputs and the
// gradients that the backward returns are not counted.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "remat/offload.h"

namespace autosp {

enum class Action : uint8_t {
  kLeave,      // stock decides
  kSave,       // kept if the backward needs it
  kRecompute,  // made again in the backward
  kOffload,    // kept, in host memory meanwhile
};

inline bool is_kept(Action action) { return action == Action::kSave || action == Action::kOffload; }

// What memory is used for.
enum class Part : uint8_t {
  kKept,        // for the backward
  kOffloaded,   // for the backward, before it has left or after it has come back
  kForward,     // what operators of the forward pass on
  kRecomputed,  // made again in the backward
  kGradients,   // what operators of the backward pass on
  kTail,        // all of the tail: logits, loss, and their gradients
  kOutputs,     // of the forward
};

inline constexpr std::array<const char*, 7> kPartNames = {
    "kept", "offloaded", "forward", "recomputed", "gradients", "tail", "outputs"};

// When an offloaded value is not on the device.
struct Absence {
  int node = -1;
  int freed_after = -1;     // the operator of the forward
  int fetched_before = -1;  // the operator of the backward, perhaps one that runs again
};

struct Peak {
  int64_t kept_bytes = 0;       // of the storages kept on the device for the backward
  int64_t offloaded_bytes = 0;  // and of those in host memory
  int64_t peak_bytes = 0;
  int at = -1;                                        // the node that runs then
  bool in_backward = false;                           // or in the forward
  std::array<int64_t, kPartNames.size()> parts = {};  // of peak_bytes, by Part
  std::vector<int> saved;                             // the nodes kept, wherever, in order
  std::vector<Absence> offloaded;                     // those of them that leave, in order
  std::vector<int> recomputed;                        // the nodes that run again, in order
};

// The backward needs what its nodes read; of that, nodes with kSave and kOffload are kept and
// others made again from their inputs. Of kOffload only what may leave does. Linear in nodes and
// inputs, with a sort of what is recomputed.
Peak simulate(const JointFacts& facts, const Segments& segments, const Offloading& offloading,
              const std::vector<Action>& actions);

}  // namespace autosp
