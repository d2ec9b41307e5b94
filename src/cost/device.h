// What a device can do, for estimates of time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace autosp {

// Rates of one device: of the built-in ones as the vendor states them (of an MI250 one of its two
// dies), without structured sparsity; of a measured one such that the shares below, which are taken
// of every device's, give what was measured. `link` is what one device can send to its neighbours
// in one direction, `host` what it can copy to or from pinned host memory.
struct Device {
  std::string name;
  double flops_16bit = 0;  // per second; of matrix products in float16 and bfloat16
  double flops_32bit = 0;  // in float32 without a reduced-precision mode
  double flops_64bit = 0;
  double memory_bytes_per_second = 0;
  double link_bytes_per_second = 0;
  double host_bytes_per_second = 0;  // in one direction; 0: there is no memory but the host's
  int64_t launch_ns = 0;             // of a kernel or a collective, where it is not hidden
  int64_t memory_bytes = 0;          // 0: not stated

  bool operator==(const Device&) const = default;
};

// Shares of the peak rates that well-tuned kernels reach on long sequences.
inline constexpr double kMatmulShare = 0.7;
inline constexpr double kAttentionShare = 0.5;
inline constexpr double kMemoryShare = 0.8;
inline constexpr double kLinkShare = 0.8;
inline constexpr double kHostShare = 0.8;

// The device as a line that find_device reads back, exactly:
//   flops_16bit=9.89e+14 flops_32bit=… … memory_bytes=80000000000 name=NVIDIA H100
std::string print(const Device& device);

// What programs reach of its rates, as a table of lines: "NVIDIA H100\n  memory   2.68 TB/s\n…".
std::string reached_text(const Device& device);

// A built-in device by its name, "a100", "h100", "h200", "mi250", "mi300" or "cpu", or one as
// printed. Throws Unsupported: with the list for any other name; for a line without some member, or
// with a rate that is no positive number (host_bytes_per_second, launch_ns and memory_bytes may be
// zero).
Device find_device(std::string_view text);

// The built-in device that torch calls by this name, as "NVIDIA H100 80GB HBM3" or "cpu". Throws
// Unsupported with the list for any other.
Device device_for(std::string_view torch_name);

std::vector<std::string> device_names();

}  // namespace autosp
