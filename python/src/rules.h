// Rules for the user's own operators, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

namespace autosp::python {

void bind_rules(nanobind::module_& module);

}  // namespace autosp::python
