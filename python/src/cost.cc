// The devices of the cost model as Python sees them.
//
//   device = _engine.Device(
//       name: str, flops_16bit: float, flops_32bit: float, flops_64bit: float,
//       memory_bytes_per_second: float, link_bytes_per_second: float,
//       host_bytes_per_second: float,  # to or from pinned memory; 0: nowhere to offload to
//       launch_ns: int, memory_bytes: int)
//   Rates are peaks, of which the model takes a share (MATMUL_SHARE, MEMORY_SHARE, LINK_SHARE,
//   HOST_SHARE): what was measured is divided by it. Raises Unsupported for a rate that is no
//   positive number.
//   device.reached_text -> str        # what programs reach of it, for people
//   device.text -> str                # _engine.find_device(text) gives the device back, exactly
//   _engine.find_device(text: str)    # a built-in one's name, or such a text
//   _engine.device_for(torch_name)    # the built-in one: "NVIDIA H100 80GB HBM3", "cpu", …
//   _engine.device_names()
#include "cost.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "cost/device.h"

namespace autosp::python {

namespace nb = nanobind;

void bind_cost(nb::module_& module) {
  nb::class_<Device>(module, "Device", "What a device can do, for estimates of time.")
      .def(
          "__init__",
          [](Device* self, std::string name, double flops_16bit, double flops_32bit,
             double flops_64bit, double memory_bytes_per_second, double link_bytes_per_second,
             double host_bytes_per_second, int64_t launch_ns, int64_t memory_bytes) {
            const Device device{std::move(name),
                                flops_16bit,
                                flops_32bit,
                                flops_64bit,
                                memory_bytes_per_second,
                                link_bytes_per_second,
                                host_bytes_per_second,
                                launch_ns,
                                memory_bytes};
            new (self) Device(find_device(print(device)));
          },
          nb::arg("name"), nb::arg("flops_16bit"), nb::arg("flops_32bit"), nb::arg("flops_64bit"),
          nb::arg("memory_bytes_per_second"), nb::arg("link_bytes_per_second"),
          nb::arg("host_bytes_per_second"), nb::arg("launch_ns"), nb::arg("memory_bytes"))
      .def_prop_ro("reached_text", &reached_text)
      .def_ro("name", &Device::name)
      .def_ro("flops_16bit", &Device::flops_16bit)
      .def_ro("flops_32bit", &Device::flops_32bit)
      .def_ro("flops_64bit", &Device::flops_64bit)
      .def_ro("memory_bytes_per_second", &Device::memory_bytes_per_second)
      .def_ro("link_bytes_per_second", &Device::link_bytes_per_second)
      .def_ro("host_bytes_per_second", &Device::host_bytes_per_second)
      .def_ro("launch_ns", &Device::launch_ns)
      .def_ro("memory_bytes", &Device::memory_bytes)
      .def_prop_ro("text", [](const Device& self) { return print(self); })
      .def("__repr__", [](const Device& self) { return "Device(" + print(self) + ")"; })
      .def("__eq__", [](const Device& self, const Device& other) { return self == other; })
      .def("__hash__", [](const Device& self) { return std::hash<std::string>()(print(self)); });
  module.def("find_device", &find_device, nb::arg("text"));
  module.def("device_for", &device_for, nb::arg("torch_name"));
  module.def("device_names", &device_names, "The devices that the cost model knows.");
  module.attr("MATMUL_SHARE") = kMatmulShare;
  module.attr("MEMORY_SHARE") = kMemoryShare;
  module.attr("LINK_SHARE") = kLinkShare;
  module.attr("HOST_SHARE") = kHostShare;
}

}  // namespace autosp::python
