// What a device can do, for estimates of time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace autosp {

// Peak rates of one device as its vendor states them (of an MI250 one of its two dies), without
// structured sparsity. `link` is what one device can send to its neighbours in one direction.
struct Device {
  std::string name;
  double flops_16bit = 0;  // per second; of matrix products in float16 and bfloat16
  double flops_32bit = 0;  // in float32 without a reduced-precision mode
  double flops_64bit = 0;
  double memory_bytes_per_second = 0;
  double link_bytes_per_second = 0;
  int64_t launch_ns = 0;  // of a kernel or a collective, where it is not hidden
};

// Shares of the peak rates that well-tuned kernels reach on long sequences.
inline constexpr double kMatmulShare = 0.7;
inline constexpr double kAttentionShare = 0.5;
inline constexpr double kMemoryShare = 0.8;
inline constexpr double kLinkShare = 0.8;

// The built-in device of this name: "a100", "h100", "h200", "mi250", "mi300", "cpu". Throws
// Unsupported with the list for any other.
const Device& find_device(std::string_view name);

std::vector<std::string> device_names();

}  // namespace autosp
