// Rematerialization for Python.
#pragma once

#include <nanobind/nanobind.h>

namespace autosp::python {

void bind_remat(nanobind::module_& module);

}  // namespace autosp::python
