// Figures and tables for people, as Python writes them too.
//
//   _engine.bytes_text(bytes: int) -> str   # "12.3 GiB"
//   _engine.time_text(ns: int) -> str       # "12.3 ms"
//   _engine.shortened(source: str) -> str   # a line of a model, cut off where it is long
//   _engine.table(rows: list[list[str]], sides: str) -> str   # sides: "lrr", for each column
#include "text.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include "support/text_table.h"

namespace autosp::python {

namespace nb = nanobind;

void bind_text(nb::module_& module) {
  module.def("bytes_text", &bytes_text, nb::arg("bytes"));
  module.def("time_text", &time_text, nb::arg("ns"));
  module.def("shortened", &shortened, nb::arg("source"));
  module.def("table", &table, nb::arg("rows"), nb::arg("sides"));
}

}  // namespace autosp::python
