// Plans as Python sees them.
#include "passes/pipeline.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>

#include "ir/text.h"
#include "program.h"
#include "source_line.h"

namespace autosp::python {

namespace {

// A plan and the captured program that it belongs to. Writing it uses the program up.
struct ProgramPlan {
  std::shared_ptr<Program> program;
  Plan plan;
};

ProgramPlan make_plan(std::shared_ptr<Program> program, Options options) {
  Plan made = plan(program->graph, options);
  return {std::move(program), std::move(made)};
}

// For every output the dimension that it is sharded along, or None.
std::vector<std::optional<int64_t>> sharded_dims(const ProgramPlan& self) {
  std::vector<std::optional<int64_t>> result;
  for (const OutputInfo& output : self.plan.outputs) {
    result.push_back(output.sharded ? std::optional(output.dim) : std::nullopt);
  }
  return result;
}

std::vector<nb::object> divisible(const ProgramPlan& self) {
  std::vector<nb::object> result;
  for (const Expr& size : self.plan.divisible) {
    if (!size.is_constant()) result.push_back(size_value(*self.program, size));
  }
  return result;
}

using Row = std::tuple<std::string, std::string, int64_t, int64_t, std::string>;

std::vector<Row> rows(const std::vector<ReportRow>& table) {
  std::vector<Row> result;
  for (const ReportRow& row : table)
    result.emplace_back(row.what, row.value, row.bytes, row.count, row.source);
  return result;
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  nb::class_<Report>(module, "Report",
                     R"(What the compiler did to a program; `str()` is a table for people.

Each row is a tuple (what, value, bytes, count, source): what it is, the value's name and type on a rank, bytes sent or held by
one rank, how many equal rows it stands for, and the model's line that it comes from.)")
      .def_ro("ranks", &Report::ranks)
      .def_prop_ro("exchanges", [](const Report& self) { return rows(self.exchanges); })
      .def_prop_ro("replicated", [](const Report& self) { return rows(self.replicated); })
      .def_prop_ro("outputs", [](const Report& self) { return rows(self.outputs); })
      .def_ro("step_ns", &Report::step_ns, "Nanoseconds of every step of the engine, in order.")
      .def("__str__", &Report::text)
      .def("__repr__", &Report::text);

  nb::class_<ProgramPlan>(module, "Plan",
                          "What every rank of a group will run in place of a program.")
      .def_prop_ro("hash", [](const ProgramPlan& self) { return self.plan.hash; })
      .def_prop_ro("text", [](const ProgramPlan& self) { return print(self.plan.graph); })
      .def_prop_ro("report", [](const ProgramPlan& self) { return self.plan.report; })
      .def_prop_ro("sharded_dims", &sharded_dims,
                   "For every output the dimension that it is sharded along, or None.")
      .def_prop_ro("divisible", &divisible,
                   "Symbolic sizes that the number of ranks must divide, as SymInts.")
      .def(
          "write",
          [](ProgramPlan& self, int64_t rank, const std::string& group) {
            export_module(*self.program, self.plan.graph, rank, group);
          },
          nb::arg("rank"), nb::arg("group"),
          "Rewrites the captured FX module into the program of `rank`, in place and once.");

  nb::class_<Program>(module, "Program", "A captured FX graph module, read by the engine.")
      .def_prop_ro("text", [](const Program& self) { return print(self.graph); })
      .def_ro("user_inputs", &Program::user_inputs,
              "Position and name of every argument that is the user's.")
      .def(
          "plan",
          [](std::shared_ptr<Program> self, int64_t ranks, const std::string& attention,
             const std::string& outputs, bool grad_sync,
             const std::map<std::string, int64_t>& seq_dims, const std::string& print) {
            return make_plan(std::move(self), Options{.ranks = ranks,
                                                      .attention = attention,
                                                      .outputs = outputs,
                                                      .grad_sync = grad_sync,
                                                      .seq_dims = seq_dims,
                                                      .print = print});
          },
          nb::arg("ranks"), nb::kw_only(), nb::arg("attention") = "auto",
          nb::arg("outputs") = "auto", nb::arg("grad_sync") = true,
          nb::arg("seq_dims") = std::map<std::string, int64_t>(), nb::arg("print") = "");
  module.def(
      "read",
      [](nb::object graph_module, std::vector<std::string> packages,
         std::vector<std::string> parameters) {
        return import_module(std::move(graph_module), {std::move(packages), std::move(parameters)});
      },
      nb::arg("graph_module"), nb::arg("packages"), nb::arg("parameters"));
  module.def("source_line", &source_line, nb::arg("trace"), nb::arg("packages"));
  module.def(
      "check_options",
      [](const std::string& attention, const std::string& outputs, bool grad_sync,
         const std::map<std::string, int64_t>& seq_dims) {
        plan(Graph(), Options{.ranks = 1,
                              .attention = attention,
                              .outputs = outputs,
                              .grad_sync = grad_sync,
                              .seq_dims = seq_dims,
                              .print = ""});
      },
      nb::kw_only(), nb::arg("attention"), nb::arg("outputs"), nb::arg("grad_sync"),
      nb::arg("seq_dims"), "Raises Unsupported for values that no program can be compiled with.");
}

}  // namespace autosp::python
