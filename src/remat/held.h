// What a rank holds in a training step besides activations.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/segments.h"

namespace autosp {

// Of the forward's inputs that are neither parameters nor buffers.
int64_t input_bytes(const JointGraph& graph);

// Per segment the parameters and buffers that its operators read. Linear.
std::vector<int64_t> parameter_bytes(const JointGraph& graph, const Segments& segments);

struct HeldParameter {
  int64_t elements = 0;
  int64_t element_bytes = 0;
  bool trained = false;
};

// Bytes of each part, for people.
struct HeldRow {
  std::string what;
  int64_t bytes = 0;
  std::string remark;
};

// `sharded`: parameters, their gradients and the optimizer's states are cut over the ranks, as
// ZeRO-3 (arXiv 1910.02054) and FSDP do, and of one segment of the program at a time (the one with
// the most) weights and gradients are whole; else every rank holds all of them. The optimizer is
// Adam: two moments, and a master copy of parameters below 32 bits, in float32: with 16-bit or
// 32-bit parameters 16 bytes each in all. What needs no gradient has neither gradients nor states.
struct HeldState {
  bool sharded = false;
  int64_t parameters = 0;
  int64_t gradients = 0;
  int64_t optimizer = 0;
  int64_t whole = 0;  // weights and gradients of the segment that is whole
  int64_t inputs = 0;

  int64_t total() const { return parameters + gradients + optimizer + whole + inputs; }
  std::vector<HeldRow> rows() const;
};

// The state of one of `ranks` ranks (one is never sharded) for the parameters and the joint graph
// of a program.
HeldState held_state(const std::vector<HeldParameter>& parameters, const JointGraph& graph,
                     int64_t ranks, bool sharded);

}  // namespace autosp
