// A joint graph at lengths other than the one that it was captured at.
//
// Sizes are polynomials in the length with whole coefficients: 8·u, u·4096, u - 1, u². A program
// that is captured at a length larger than all of them shows them as the digits of its sizes, which
// may be negative.
#pragma once

#include <cstdint>

#include "remat/joint_graph.h"

namespace autosp {

// The graph with `base`, a number of at least 64 times any coefficient, replaced by `value` in
// every size. Throws Unsupported for a size that has a larger digit (a part of the length that is
// no whole multiple of `base`, for one) and for one that comes out negative. Linear.
JointGraph with_length(const JointGraph& graph, int64_t base, int64_t value);

}  // namespace autosp
