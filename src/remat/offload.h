// Kept values that wait for the backward in host memory.
//
// Such a value is copied out when it has been made. Its memory on the device is free again when the
// last segment of the forward that reads it has ended, and taken again when the backward comes to
// the segment after that one: copies have a segment's time in both directions. The values that the
// last block reads are needed again right away, and stay.
//
//   forward   | block 0     | block 1     | last block | tail
//   x1          made, copied  read … freed
//   backward    x1's last use | x1 is read | copied back … | tail
#pragma once

#include <cstdint>
#include <vector>

#include "remat/segments.h"

namespace autosp {

// Copies of less are not worth their launch.
inline constexpr int64_t kLeastOffload = int64_t{1} << 20;

// Of a segment's time, what copies can run along with.
inline constexpr double kHiddenShare = 0.9;

struct Offloading {
  // Per node: the value may leave if it is kept there. It is of at least kLeastOffload bytes,
  // nothing writes to it, it is no output of the forward, and neither the last block nor the tail
  // reads it.
  std::vector<bool> possible;
  // Per node of the forward: the last segment that reads its storage in the forward.
  std::vector<int> last_reader;
};

// Linear in nodes and inputs.
Offloading find_offloading(const JointFacts& facts, const Segments& segments);

// What copies cost. A segment's copies out run along with its forward and those in with its
// backward, in kHiddenShare of the time of each; what is left is waited for.
class HostLink {
 public:
  // `backward_share`: the backward's time over the forward's. A device with nowhere to copy to has
  // no link.
  HostLink(const Device& device, double backward_share);

  bool exists() const { return ns_per_byte_ > 0; }
  double ns_per_byte() const { return ns_per_byte_; }

  // For `bytes` that leave a segment whose forward takes `forward_ns`. Convex in `bytes`.
  int64_t wait_ns(int64_t bytes, int64_t forward_ns) const;

 private:
  double ns_per_byte_ = 0;
  double backward_share_ = 0;
};

}  // namespace autosp
