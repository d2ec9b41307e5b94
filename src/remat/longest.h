// How long a sequence fits.
#pragma once

#include <cstdint>
#include <functional>

namespace autosp {

// The largest multiple of `step`, to a thousandth, whose `needed` bytes are at most `available`,
// where they grow with the length about as a line does. `start` is a multiple to begin with. Throws
// Unsupported where not even one step fits. Some twenty calls of `needed`.
int64_t longest_length(const std::function<int64_t(int64_t)>& needed, int64_t available,
                       int64_t start, int64_t step);

}  // namespace autosp
