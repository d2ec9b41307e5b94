#include "cost/device.h"

#include "support/error.h"

namespace autosp {

namespace {

const std::vector<Device>& devices() {
  static const std::vector<Device> table = {
      {"a100", 312e12, 19.5e12, 19.5e12, 2.039e12, 300e9, 4000},
      {"h100", 989e12, 67e12, 67e12, 3.35e12, 450e9, 4000},
      {"h200", 989e12, 67e12, 67e12, 4.8e12, 450e9, 4000},
      {"mi250", 191.5e12, 47.9e12, 47.9e12, 1.638e12, 100e9, 5000},
      {"mi300", 1307e12, 163.4e12, 163.4e12, 5.3e12, 448e9, 5000},
      {"cpu", 2e12, 2e12, 1e12, 200e9, 10e9, 1000},
  };
  return table;
}

}  // namespace

const Device& find_device(std::string_view name) {
  std::string known;
  for (const Device& device : devices()) {
    if (device.name == name) return device;
    known += (known.empty() ? "" : ", ") + device.name;
  }
  throw Unsupported("no device \"" + std::string(name) +
                    "\" is known to the cost model; known are " + known);
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (const Device& device : devices()) names.push_back(device.name);
  return names;
}

}  // namespace autosp
