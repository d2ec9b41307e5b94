// Joint graphs at other lengths, and what their steps hold besides activations, as Python sees
// them.
//
//   _engine.with_length(graph, base, value) -> JointGraph   # see remat/lengths.h
//   _engine.held_state(parameters, graph, ranks, sharded) -> HeldState  # see remat/held.h;
//       parameters have elements, element_bytes and requires_grad
//   _engine.longest_length(needed, available, start, step) -> int       # see remat/longest.h
#include "held.h"

#include <nanobind/stl/function.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "remat/held.h"
#include "remat/lengths.h"
#include "remat/longest.h"

namespace autosp::python {

namespace nb = nanobind;

void bind_held(nb::module_& module) {
  module.def("with_length", &with_length, nb::arg("graph"), nb::arg("base"), nb::arg("value"));
  module.def("longest_length", &longest_length, nb::arg("needed"), nb::arg("available"),
             nb::arg("start"), nb::arg("step"));
  nb::class_<HeldState>(module, "HeldState")
      .def_ro("sharded", &HeldState::sharded)
      .def_ro("parameters", &HeldState::parameters)
      .def_ro("gradients", &HeldState::gradients)
      .def_ro("optimizer", &HeldState::optimizer)
      .def_ro("whole", &HeldState::whole)
      .def_ro("inputs", &HeldState::inputs)
      .def_prop_ro("total", &HeldState::total)
      .def_prop_ro("rows", [](const HeldState& state) {
        std::vector<std::tuple<std::string, int64_t, std::string>> rows;
        for (const HeldRow& row : state.rows()) rows.emplace_back(row.what, row.bytes, row.remark);
        return rows;
      });
  module.def(
      "held_state",
      [](const nb::iterable& parameters, const JointGraph& graph, int64_t ranks, bool sharded) {
        std::vector<HeldParameter> held;
        for (const nb::handle parameter : parameters) {
          held.push_back({nb::cast<int64_t>(parameter.attr("elements")),
                          nb::cast<int64_t>(parameter.attr("element_bytes")),
                          nb::cast<bool>(parameter.attr("requires_grad"))});
        }
        return held_state(held, graph, ranks, sharded);
      },
      nb::arg("parameters"), nb::arg("graph"), nb::arg("ranks"), nb::arg("sharded"));
}

}  // namespace autosp::python
