// Joint graphs at other lengths, and what their steps hold besides activations, as Python sees
// them.
//
//   _engine.with_length(graph, base, value) -> JointGraph   # see remat/lengths.h
//   _engine.input_bytes(graph) -> int            # of what is neither parameter nor buffer
//   _engine.parameter_bytes(graph) -> list[int]  # that each segment's forward reads
#include "held.h"

#include <nanobind/stl/vector.h>

#include "remat/held.h"
#include "remat/lengths.h"

namespace autosp::python {

namespace nb = nanobind;

void bind_held(nb::module_& module) {
  module.def("with_length", &with_length, nb::arg("graph"), nb::arg("base"), nb::arg("value"));
  module.def("input_bytes", &input_bytes, nb::arg("graph"));
  module.def(
      "parameter_bytes",
      [](const JointGraph& graph) {
        const JointFacts facts(graph);
        return parameter_bytes(graph, find_segments(facts));
      },
      nb::arg("graph"));
}

}  // namespace autosp::python
