// Joint graphs at other lengths, and what their steps hold besides activations, as Python sees
// them.
//
//   _engine.at_length(first, first_length, second, second_length, length) -> JointGraph
//       see remat/lengths.h; raises Unsupported where the two run other operators
//   _engine.input_bytes(graph) -> int            # of what is neither parameter nor buffer
//   _engine.parameter_bytes(graph) -> list[int]  # that each segment's forward reads
#include "held.h"

#include <nanobind/stl/vector.h>

#include "remat/held.h"
#include "remat/lengths.h"

namespace autosp::python {

namespace nb = nanobind;

void bind_held(nb::module_& module) {
  module.def("at_length", &at_length, nb::arg("first"), nb::arg("first_length"), nb::arg("second"),
             nb::arg("second_length"), nb::arg("length"));
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
