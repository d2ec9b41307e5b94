// autosp._engine: the compiler as a Python module.
#include <nanobind/nanobind.h>

#include "cost.h"
#include "held.h"
#include "program.h"
#include "remat.h"
#include "rules.h"
#include "support/error.h"
#include "text.h"

namespace autosp::python {

namespace {

void raise(const char* type, const char* text) {
  const nb::object error = nb::module_::import_("autosp.errors").attr(type);
  PyErr_SetObject(error.ptr(), error(text).ptr());
}

// The engine's exceptions arrive as the package's.
void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Unsupported& error) {
    raise("Unsupported", error.what());
  } catch (const InternalError& error) {
    raise("InternalError", error.what());
  }
}

}  // namespace

}  // namespace autosp::python

NB_MODULE(_engine, module) {
  module.doc() =
      "AutoSP's compiler: reads captured programs, plans what each rank runs, writes it back.";
  // Compiled functions live until the interpreter ends, and what they hold with them.
  nanobind::set_leak_warnings(false);
  nanobind::register_exception_translator(autosp::python::translate);
  autosp::python::bind_pipeline(module);
  autosp::python::bind_cost(module);
  autosp::python::bind_remat(module);
  autosp::python::bind_held(module);
  autosp::python::bind_text(module);
  autosp::python::bind_rules(module);
}
