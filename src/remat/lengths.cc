#include "remat/lengths.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "support/error.h"

namespace autosp {

namespace {

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

// The value of the polynomial in `base` that `size` is, at `value`; -1 where it is none.
int64_t evaluate(int64_t size, int64_t base, int64_t value) {
  int64_t result = 0;
  int64_t power = 1;
  while (size != 0) {
    int64_t digit = size % base;
    if (digit > base / 2) digit -= base;
    if (std::abs(digit) > base / 64) return -1;
    result += digit * power;
    size = (size - digit) / base;
    power *= value;
  }
  return result;
}

}  // namespace

JointGraph with_length(const JointGraph& graph, int64_t base, int64_t value) {
  JointGraph result = graph;
  for (JointNode& node : result.nodes) {
    const int64_t element_bytes = node.bytes / std::max<int64_t>(elements(node.shape), 1);
    for (int64_t& size : node.shape) {
      const int64_t captured = size;
      size = evaluate(captured, base, value);
      if (size < 0) {
        throw Unsupported(
            "a size of " + node.target + (node.source.empty() ? "" : " at " + node.source) + ", " +
            std::to_string(captured) + " where a rank's length is " + std::to_string(base) +
            ", is not known for a length of " + std::to_string(value));
      }
    }
    node.bytes = element_bytes * elements(node.shape);
  }
  return result;
}

}  // namespace autosp
