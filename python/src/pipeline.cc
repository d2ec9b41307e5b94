// Plans as Python sees them.
#include "passes/pipeline.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <optional>

#include "ir/text.h"
#include "passes/report.h"
#include "program.h"
#include "source_line.h"
#include "support/error.h"

namespace autosp::python {

namespace {

// A plan and the captured program that it belongs to. Writing it uses the program up.
struct ProgramPlan {
  std::shared_ptr<Program> program;
  Plan plan;
  int ranks;
};

// A buffer is written to when the program ends, so nothing else may look at its memory meanwhile.
void refuse_shared_buffers(const Program& program, const Graph& local) {
  const auto memory = [&](const Node& node) -> nb::object {
    if (node.origin < 0) return nb::none();
    const nb::object& fx = program.captured->nodes[static_cast<size_t>(node.origin)];
    const nb::object example = fx.attr("meta").attr("get")("example_value");
    if (!nb::hasattr(example, "untyped_storage")) return nb::none();
    return example.attr("untyped_storage")().attr("_cdata");
  };
  for (const Node& write : local.nodes) {
    if (write.target != "Tensor.copy_") continue;
    const Node& buffer = local.node(write.args[0].value);
    const nb::object written = memory(buffer);
    for (const Node& other : local.nodes) {
      if (other.kind != NodeKind::kInput || other.id == buffer.id || written.is_none() ||
          !memory(other).equal(written))
        continue;
      throw Unsupported("the program changes the buffer " + buffer.target + " in place" +
                        (write.source.empty() ? "" : " (" + write.source + ")") +
                        ", which shares memory with the input " + other.target +
                        "; give each memory of its own (.clone())");
    }
  }
}

ProgramPlan make_plan(std::shared_ptr<Program> program, const Options& options) {
  Plan made = plan(program->graph, options);
  refuse_shared_buffers(*program, made.graph);
  return {std::move(program), std::move(made), static_cast<int>(options.ranks)};
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

void bind_report(nb::module_& module) {
  nb::class_<ReportRow>(module, "ReportRow", "One line of a table, for all that is equal to it.")
      .def_ro("what", &ReportRow::what)
      .def_ro("value", &ReportRow::value, "Its type on a rank; 4096/2 is one of two equal parts.")
      .def_ro("bytes", &ReportRow::bytes,
              "Held by one rank; of an exchange, sent by one rank in the forward pass.")
      .def_ro("backward_bytes", &ReportRow::backward_bytes,
              "Of an exchange, sent by one rank in the backward pass.")
      .def_ro("count", &ReportRow::count, "How many equal ones there are; bytes are those of one.")
      .def_ro("source", &ReportRow::source, "The model's line.");
  nb::class_<ReportMask>(module, "ReportMask", "What attentions mask and add to their scores.")
      .def_ro("name", &ReportMask::name, "What it computes, with commas between its parts.")
      .def_ro("cut", &ReportMask::cut, "Which part of it a rank holds.")
      .def_ro("value", &ReportMask::value, "Its type on a rank.")
      .def_ro("bytes", &ReportMask::bytes, "Held by one rank.")
      .def_ro("count", &ReportMask::count, "How many attentions have one like it.");
  nb::class_<ReportOperator>(module, "ReportOperator", "One operator of the program of a rank.")
      .def_ro("name", &ReportOperator::name, "Of the value; of an input what the user calls it.")
      .def_ro("target", &ReportOperator::target)
      .def_ro("operands", &ReportOperator::operands, "Names of the values that it reads.")
      .def_ro("value", &ReportOperator::value, "Its type on a rank.")
      .def_ro("source", &ReportOperator::source, "The model's line.");
  nb::class_<RepeatedWork>(module, "RepeatedWork", "What every rank computes whole.")
      .def_ro("target", &RepeatedWork::target)
      .def_ro("source", &RepeatedWork::source, "The model's line.")
      .def_ro("share", &RepeatedWork::share, "Of the arithmetic of one rank.");
  nb::class_<Report>(module, "Report",
                     "What the compiler did to a program; `str()` is a table for people.")
      .def_ro("ranks", &Report::ranks)
      .def_ro("local_length", &Report::local_length,
              "A rank's part of the longest axis that is cut; 0 where nothing is.")
      .def_ro("exchanges", &Report::exchanges)
      .def_ro("replicated", &Report::replicated)
      .def_ro("repeated", &Report::repeated)
      .def_ro("masks", &Report::masks)
      .def_ro("outputs", &Report::outputs)
      .def_ro("operators", &Report::operators, "The program of one rank, in order.")
      .def("__str__", &Report::text)
      .def("__repr__", &Report::text);
}

std::string unnamed_text(const ProgramPlan& self) {
  Graph graph = self.plan.graph;
  for (Node& node : graph.nodes) node.name = "v" + std::to_string(node.id);
  std::string text;
  for (const std::string& rule : self.plan.rules) text += "// rule " + rule + "\n";
  return text + print(graph);
}

}  // namespace

void bind_pipeline(nb::module_& module) {
  bind_report(module);

  nb::class_<ProgramPlan>(module, "Plan",
                          "What every rank of a group will run in place of a program.")
      .def_prop_ro("hash", [](const ProgramPlan& self) { return self.plan.hash; })
      .def_prop_ro("text", [](const ProgramPlan& self) { return print(self.plan.graph); })
      .def_prop_ro("unnamed_text", &unnamed_text,
                   "Like text, with numbers for names: plans differ first where programs do.")
      .def_prop_ro("report",
                   [](const ProgramPlan& self) { return describe(self.plan, self.ranks); })
      .def_prop_ro(
          "step_ns", [](const ProgramPlan& self) { return self.plan.step_ns; },
          "Nanoseconds of every step of the engine, in order.")
      .def_prop_ro("sharded_dims", &sharded_dims,
                   "For every output the dimension that it is sharded along, or None.")
      .def_prop_ro(
          "regions",
          [](const ProgramPlan& self) {
            const std::vector<Node>& nodes = self.plan.graph.nodes;
            const bool marked = std::any_of(nodes.begin(), nodes.end(),
                                            [](const Node& node) { return node.checkpoint >= 0; });
            return marked ? self.plan.hash : std::string();
          },
          "A text that differs where other operators are the user's to recompute; \"\" for none.")
      .def_prop_ro(
          "draws",
          [](const ProgramPlan& self) {
            const std::vector<Node>& nodes = self.plan.graph.nodes;
            return std::any_of(nodes.begin(), nodes.end(), [](const Node& node) {
              return node.kind == NodeKind::kInput && node.input == InputKind::kSeed;
            });
          },
          "Whether the written module has one more argument behind its inputs, the call's seed.")
      .def_prop_ro("divisible", &divisible,
                   "Symbolic sizes that the number of ranks must divide, as SymInts.")
      .def(
          "write",
          [](ProgramPlan& self, int64_t rank, const std::string& group) {
            export_module(*self.program, self.plan.graph, rank, group);
            return self.program->module;
          },
          nb::arg("rank"), nb::arg("group"),
          "Rewrites the captured FX module into the program of `rank`, once and in place, or a "
          "copy "
          "where the program draws. Returns the module.");

  nb::class_<Program>(module, "Program", "A captured FX graph module, read by the engine.")
      .def_prop_ro("text", [](const Program& self) { return print(self.graph); })
      .def_ro("user_inputs", &Program::user_inputs,
              "Position and name of every argument that is the user's.")
      .def(
          "plan",
          [](std::shared_ptr<Program> self, int64_t ranks, const std::string& attention,
             const std::string& outputs, bool grad_sync,
             const std::map<std::string, int64_t>& seq_dims, int64_t latency_bytes, bool name_masks,
             const std::string& print) {
            return make_plan(std::move(self), Options{.ranks = ranks,
                                                      .attention = attention,
                                                      .outputs = outputs,
                                                      .grad_sync = grad_sync,
                                                      .seq_dims = seq_dims,
                                                      .latency_bytes = latency_bytes,
                                                      .name_masks = name_masks,
                                                      .print = print});
          },
          nb::arg("ranks"), nb::kw_only(), nb::arg("attention") = "auto",
          nb::arg("outputs") = "auto", nb::arg("grad_sync") = true,
          nb::arg("seq_dims") = std::map<std::string, int64_t>(),
          nb::arg("latency_bytes") = kLatencyBytes, nb::arg("name_masks") = false,
          nb::arg("print") = "");
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
