// The cost model's devices for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace autosp::python {

void bind_cost(nanobind::module_& module);

}  // namespace autosp::python
