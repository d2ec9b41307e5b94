// A joint graph at lengths other than those that it was captured at.
#pragma once

#include <cstdint>

#include "remat/joint_graph.h"

namespace autosp {

// The graph of a program at `length`, from its graphs at two others. Every size is taken from the
// line through its two, which is exact for multiples of what the program divides lengths by; else
// it is rounded up. Throws Unsupported where the program runs other operators at the second length
// than at the first. Linear.
JointGraph at_length(const JointGraph& first, int64_t first_length, const JointGraph& second,
                     int64_t second_length, int64_t length);

}  // namespace autosp
