#include "cost/device.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include "support/error.h"

namespace autosp {

namespace {

const std::vector<Device>& devices() {
  static const std::vector<Device> table = {
      {"a100", 312e12, 19.5e12, 19.5e12, 2.039e12, 300e9, 32e9, 4000, 80'000'000'000},
      {"h100", 989e12, 67e12, 67e12, 3.35e12, 450e9, 64e9, 4000, 80'000'000'000},
      {"h200", 989e12, 67e12, 67e12, 4.8e12, 450e9, 64e9, 4000, 141'000'000'000},
      {"mi250", 191.5e12, 47.9e12, 47.9e12, 1.638e12, 100e9, 36e9, 5000, 64'000'000'000},
      {"mi300", 1307e12, 163.4e12, 163.4e12, 5.3e12, 448e9, 64e9, 5000, 192'000'000'000},
      {"cpu", 2e12, 2e12, 1e12, 200e9, 10e9, 0, 1000, 0},
  };
  return table;
}

constexpr std::pair<const char*, double Device::*> kRates[] = {
    {"flops_16bit", &Device::flops_16bit},
    {"flops_32bit", &Device::flops_32bit},
    {"flops_64bit", &Device::flops_64bit},
    {"memory_bytes_per_second", &Device::memory_bytes_per_second},
    {"link_bytes_per_second", &Device::link_bytes_per_second},
    {"host_bytes_per_second", &Device::host_bytes_per_second}};

constexpr std::pair<const char*, int64_t Device::*> kCounts[] = {
    {"launch_ns", &Device::launch_ns}, {"memory_bytes", &Device::memory_bytes}};

template <typename Number>
std::string text_of(Number value) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr);
}

// Takes "key=number " from the front of the text.
template <typename Number>
bool take(std::string_view& text, std::string_view key, Number& value) {
  if (text.substr(0, key.size()) != key || text.substr(key.size(), 1) != "=") return false;
  const char* const begin = text.data() + key.size() + 1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (error != std::errc() || rest == end || *rest != ' ') return false;
  text.remove_prefix(static_cast<size_t>(rest - text.data()) + 1);
  return true;
}

// "3.21 TB/s" for 3.21e12.
std::string scaled(double value, const char* unit) {
  constexpr std::pair<const char*, double> kPrefixes[] = {
      {"P", 1e15}, {"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}, {"µ", 1e-6}};
  const auto* prefix =
      std::find_if(std::begin(kPrefixes), std::end(kPrefixes) - 1,
                   [value](const auto& candidate) { return value >= candidate.second; });
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.3g %s%s", value / prefix->second, prefix->first, unit);
  return buffer;
}

Device parse_device(std::string_view line) {
  Device device;
  std::string_view text = line;
  bool good = true;
  for (const auto& [key, member] : kRates) {
    good =
        good && take(text, key, device.*member) && std::isfinite(device.*member) &&
        (device.*member > 0 || (device.*member == 0 && member == &Device::host_bytes_per_second));
  }
  for (const auto& [key, member] : kCounts) {
    good = good && take(text, key, device.*member) && device.*member >= 0;
  }
  constexpr std::string_view kName = "name=";
  if (!good || text.substr(0, kName.size()) != kName) {
    throw Unsupported("no device of the cost model: \"" + std::string(line) + "\"");
  }
  device.name = text.substr(kName.size());
  return device;
}

[[noreturn]] void refuse(std::string_view name) {
  std::string known;
  for (const Device& device : devices()) known += (known.empty() ? "" : ", ") + device.name;
  throw Unsupported("no device \"" + std::string(name) +
                    "\" is known to the cost model; known are " + known +
                    "; autosp.calibrate() measures the one at hand");
}

bool is_alnum(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// Whether `word` begins in `text` after no letter or digit ("GH200" is no H200) and goes on with no
// digit ("MI300X" is an MI300).
bool has_word(std::string_view text, std::string_view word) {
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool begins = at == 0 || !is_alnum(text[at - 1]);
    if (begins && (end == text.size() || !std::isdigit(static_cast<unsigned char>(text[end])))) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::string print(const Device& device) {
  std::string text;
  for (const auto& [key, member] : kRates) {
    text += std::string(key) + "=" + text_of(device.*member) + " ";
  }
  for (const auto& [key, member] : kCounts) {
    text += std::string(key) + "=" + text_of(device.*member) + " ";
  }
  return text + "name=" + device.name;
}

std::string reached_text(const Device& device) {
  struct Row {
    const char* what;
    double value;
    const char* unit;
  };
  const Row rows[] = {
      {"products in 16 bit", device.flops_16bit * kMatmulShare, "FLOP/s"},
      {"products in 32 bit", device.flops_32bit * kMatmulShare, "FLOP/s"},
      {"products in 64 bit", device.flops_64bit * kMatmulShare, "FLOP/s"},
      {"memory", device.memory_bytes_per_second * kMemoryShare, "B/s"},
      {"host", device.host_bytes_per_second * kHostShare, "B/s"},
      {"link", device.link_bytes_per_second * kLinkShare, "B/s"},
      {"launch", static_cast<double>(device.launch_ns) * 1e-9, "s"},
      {"capacity", static_cast<double>(device.memory_bytes), "B"},
  };
  std::string out = device.name;
  for (const Row& row : rows) {
    if (row.value == 0) continue;
    char label[32];
    std::snprintf(label, sizeof label, "\n  %-20s ", row.what);
    out += label + scaled(row.value, row.unit);
  }
  return out;
}

Device find_device(std::string_view text) {
  if (text.find('=') != std::string_view::npos) return parse_device(text);
  for (const Device& device : devices()) {
    if (device.name == text) return device;
  }
  refuse(text);
}

Device device_for(std::string_view torch_name) {
  std::string lower(torch_name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return static_cast<char>(std::tolower(c)); });
  for (const Device& device : devices()) {
    if (has_word(lower, device.name)) return device;
  }
  refuse(torch_name);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : devices()) names.push_back(device.name);
  return names;
}

}  // namespace autosp
