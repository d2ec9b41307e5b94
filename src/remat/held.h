// What a step holds besides activations.
#pragma once

#include <cstdint>
#include <vector>

#include "remat/segments.h"

namespace autosp {

// Of the forward's inputs that are neither parameters nor buffers.
int64_t input_bytes(const JointGraph& graph);

// Per segment the parameters and buffers that its operators read. Linear.
std::vector<int64_t> parameter_bytes(const JointGraph& graph, const Segments& segments);

}  // namespace autosp
