// Figures and tables for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace autosp::python {

void bind_text(nanobind::module_& module);

}  // namespace autosp::python
