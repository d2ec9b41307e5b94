#include "remat/offload.h"

#include <algorithm>
#include <cmath>

namespace autosp {

Offloading find_offloading(const JointFacts& facts, const Segments& segments) {
  const auto& nodes = facts.graph.nodes;
  const int count = static_cast<int>(nodes.size());
  const int last_block = segments.count() - (segments.has_tail ? 2 : 1);
  Offloading result{std::vector<bool>(count, false), std::vector<int>(count, -1)};

  // Per storage, by the node that makes it.
  std::vector<int> reader(count, -1);
  std::vector<bool> stays(count, false);
  for (int i = 0; i < count; ++i) {
    const int segment = segments.of[i];
    reader[facts.storage[i]] = std::max(reader[facts.storage[i]], segment);
    for (const int input : nodes[i].inputs) {
      if (input < 0) continue;
      const int base = facts.storage[input];
      if (facts.required[i]) reader[base] = std::max(reader[base], segment);
      if (nodes[i].mutates) stays[base] = true;
    }
  }
  for (const int output : nodes.back().inputs) {
    if (output >= 0) stays[facts.storage[output]] = true;
  }
  for (int i = 0; i < count; ++i) {
    if (facts.phase[i] != Phase::kForward) continue;
    const int base = facts.storage[i];
    result.last_reader[i] = reader[base];
    result.possible[i] = facts.can_keep(i) && nodes[i].bytes >= kLeastOffload && !nodes[i].tagged &&
                         !stays[base] && reader[base] < last_block;
  }
  return result;
}

HostLink::HostLink(const Device& device, double backward_share) : backward_share_(backward_share) {
  if (device.host_bytes_per_second > 0) {
    ns_per_byte_ = 1e9 / (device.host_bytes_per_second * kHostShare);
  }
}

int64_t HostLink::wait_ns(int64_t bytes, int64_t forward_ns) const {
  const double copy_ns = static_cast<double>(bytes) * ns_per_byte_;
  const double hidden_ns = static_cast<double>(forward_ns) * kHiddenShare;
  return std::llround(std::max(copy_ns - hidden_ns, 0.0) +
                      std::max(copy_ns - hidden_ns * backward_share_, 0.0));
}

}  // namespace autosp
