// What a step holds, for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace autosp::python {

void bind_held(nanobind::module_& module);

}  // namespace autosp::python
