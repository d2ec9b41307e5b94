// Rematerialization as Python sees it: what AOTAutograd's joint graph keeps for the backward.
//
//   node = _engine.JointNode(
//       name: str,               # of the FX node
//       target: str,             # "aten.mm.default", "_c10d_functional.wait_tensor.default",
//                                # "getitem", "placeholder:primal", "placeholder:tangent",
//                                # "get_attr", "output"; of a higher-order operator its name
//       inputs: list[int] = [],  # positions of the nodes that it reads; of the output node all
//                                # outputs, the forward's first; None among them as -1
//       bytes: int = 0,          # of its tensor with hinted sizes; 0 for none, several, sizes
//       shape: list[int] = [],   # hinted; [] where bytes is 0
//       dtype: str = "",         # "bfloat16", …
//       *, view=False,           # its value lies in its first input's storage
//       random=False,            # draws random numbers, or is a seed
//       mutates=False,           # writes to an argument
//       causal=False,            # an attention that was called with is_causal=True
//       tagged=False,            # meta["recompute"] is the user's own
//       parameter=False,         # a primal that lives on whatever is kept: parameters, buffers
//       source: str = "")        # the model's line, for reports
//   graph = _engine.JointGraph(nodes, forward_outputs: int)
//   graph.text -> str            # one node a line; _engine.parse_joint_graph(text) reads it back
//
//   plan = graph.plan(policy="sac", *, device="h100", ranks=1, memory_bytes=0, overhead=0.0,
//                     offload="off")
//       policy: "off", "sac", "sac+exchanges", "full", "auto", "memory" (the fastest plan whose
//       peak is at most memory_bytes, as "auto" is), "overhead" (the least peak for at most
//       `overhead` of the step's estimated time more). device: a built-in's name or a Device's
//       text. offload: "all" that is kept and may leave the device; "auto": "auto" with a budget,
//       "memory" and "overhead" offload what is worth it, the others nothing. Raises Unsupported
//       for a budget below the least, an unknown device, policy or offload, and for offload="all"
//       with policy "off" or a device without host_bytes_per_second.
//   plan.actions -> list[int]    # per node: 0 leave, 1 save (MUST_SAVE), 2 MUST_RECOMPUTE,
//                                # 3 offload (MUST_SAVE, and in host memory meanwhile)
//   plan.saved, plan.recomputed -> list[int]  # nodes that are kept (3 too), and that run again
//   plan.offloaded -> list[int]  # nodes with action 3
//   plan.absences -> list[(node, freed_after, fetched_before)]  # per offloaded node: the operator
//       of the forward after which its memory on the device is free, and that of the backward (or a
//       forward's that runs again there) before which it is copied back; so far ahead of its use
//       that the copies have time, and counted so in the peak
//   plan.segments -> int         # segments that are recomputed on their own
//   plan.kept_bytes (on the device), plan.offloaded_bytes, plan.peak_bytes, plan.peak_at (a node's
//   name), plan.peak -> Peak, plan.recompute_ns, plan.wait_ns (for copies), plan.step_ns (with
//   both), str(plan). With "off" nothing is known of what torch keeps: simulate.
//   plan.rows -> list of rows: what, source, segment (the last of a transformer is the tail; -1:
//       the backward's own), kept_bytes, offloaded_bytes, recomputed_bytes, recompute_ns, count
//   plan.merged_rows -> the same, an operator of all segments in one row
//   plan.segment_rows -> the same, all operators of a segment in one row without a name
//   graph.simulate(saved: list[int], *, offloaded=[], device="h100", ranks=1) -> the plan that
//       keeps these nodes, as the stock partitioner's, and makes all else again (its step_ns
//       without copies). Views that stand behind the forward count as what they are views of
//   Peak: kept_bytes, offloaded_bytes, peak_bytes, peak_at, peak_source, in_backward, and parts, a
//       dict of peak_bytes by category: kept, offloaded (on the device: not yet gone or back
//       again), forward, recomputed, gradients, tail (logits, loss and their gradients), outputs
//   graph.frontier(*, device="h100", ranks=1, offload="off") -> list of points with kept_bytes,
//       offloaded_bytes, peak_bytes, recompute_ns, wait_ns, step_ns, from the smallest peak to the
//       fastest.
//
// Bytes are those of storages. Parameters, inputs and gradients are counted nowhere.
#include "remat.h"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <tuple>
#include <utility>

#include "remat/frontier.h"
#include "remat/policy.h"
#include "remat/report.h"
#include "support/error.h"

namespace autosp::python {

namespace nb = nanobind;

namespace {

// A plan with the graph that its numbers refer to.
struct GraphPlan {
  std::shared_ptr<JointGraph> graph;
  RematPlan plan;
};

std::string node_name(const JointGraph& graph, int node) {
  return node < 0 ? std::string() : graph.nodes[node].name;
}

struct GraphPeak {
  std::shared_ptr<JointGraph> graph;
  Peak peak;
  int64_t recompute_ns = 0;
  int64_t step_ns = 0;
};

GraphPlan simulate_saved(const std::shared_ptr<JointGraph>& graph, const std::vector<int>& saved,
                         const std::vector<int>& offloaded, const std::string& device,
                         int64_t ranks) {
  const Planner planner(*graph, device, ranks);
  std::vector<Action> actions(graph->nodes.size(), Action::kRecompute);
  for (const int node : saved) {
    ensure(node >= 0 && node < static_cast<int>(actions.size()), "a node of the joint graph");
    actions[planner.forward_node(node)] = Action::kSave;
  }
  for (const int node : offloaded) actions.at(static_cast<size_t>(node)) = Action::kOffload;
  return {graph, planner.simulate_actions(std::move(actions))};
}

nb::dict parts_of(const Peak& peak) {
  nb::dict parts;
  for (size_t k = 0; k < kPartNames.size(); ++k) parts[kPartNames[k]] = peak.parts[k];
  return parts;
}

std::vector<int> offloaded_nodes(const Peak& peak) {
  std::vector<int> nodes;
  for (const Absence& absence : peak.offloaded) nodes.push_back(absence.node);
  return nodes;
}

std::vector<std::tuple<int, int, int>> absences(const Peak& peak) {
  std::vector<std::tuple<int, int, int>> result;
  for (const Absence& absence : peak.offloaded) {
    result.emplace_back(absence.node, absence.freed_after, absence.fetched_before);
  }
  return result;
}

std::vector<int> action_numbers(const GraphPlan& self) {
  std::vector<int> result;
  for (const Action action : self.plan.actions) result.push_back(static_cast<int>(action));
  return result;
}

void bind_nodes(nb::module_& module) {
  nb::class_<JointNode>(module, "JointNode", "A node of a joint graph, as the engine needs it.")
      .def(
          "__init__",
          [](JointNode* self, std::string name, std::string target, std::vector<int> inputs,
             int64_t bytes, std::vector<int64_t> shape, std::string dtype, bool view, bool random,
             bool mutates, bool causal, bool tagged, bool parameter, std::string source) {
            new (self) JointNode{std::move(name),
                                 std::move(target),
                                 std::move(inputs),
                                 bytes,
                                 std::move(shape),
                                 std::move(dtype),
                                 view,
                                 random,
                                 mutates,
                                 causal,
                                 tagged,
                                 parameter,
                                 std::move(source)};
          },
          nb::arg("name"), nb::arg("target"), nb::arg("inputs") = std::vector<int>(),
          nb::arg("bytes") = 0, nb::arg("shape") = std::vector<int64_t>(), nb::arg("dtype") = "",
          nb::kw_only(), nb::arg("view") = false, nb::arg("random") = false,
          nb::arg("mutates") = false, nb::arg("causal") = false, nb::arg("tagged") = false,
          nb::arg("parameter") = false, nb::arg("source") = "")
      .def_ro("name", &JointNode::name)
      .def_ro("target", &JointNode::target)
      .def_ro("bytes", &JointNode::bytes)
      .def_ro("source", &JointNode::source);
}

void bind_results(nb::module_& module) {
  nb::class_<GraphPeak>(module, "Peak", "What a forward and its backward take.")
      .def_prop_ro("kept_bytes", [](const GraphPeak& self) { return self.peak.kept_bytes; })
      .def_prop_ro("offloaded_bytes",
                   [](const GraphPeak& self) { return self.peak.offloaded_bytes; })
      .def_prop_ro("peak_bytes", [](const GraphPeak& self) { return self.peak.peak_bytes; })
      .def_prop_ro("peak_at",
                   [](const GraphPeak& self) { return node_name(*self.graph, self.peak.at); })
      .def_prop_ro("peak_source",
                   [](const GraphPeak& self) {
                     return self.peak.at < 0 ? std::string()
                                             : source_near(*self.graph, self.peak.at);
                   })
      .def_prop_ro("parts", [](const GraphPeak& self) { return parts_of(self.peak); })
      .def_ro("recompute_ns", &GraphPeak::recompute_ns)
      .def_ro("step_ns", &GraphPeak::step_ns)
      .def_prop_ro("in_backward", [](const GraphPeak& self) { return self.peak.in_backward; })
      .def_prop_ro("saved", [](const GraphPeak& self) { return self.peak.saved; });
  nb::class_<RematRow>(module, "RematRow", "One operator of the model.")
      .def_ro("what", &RematRow::what)
      .def_ro("source", &RematRow::source)
      .def_ro("segment", &RematRow::segment)
      .def_ro("kept_bytes", &RematRow::kept_bytes)
      .def_ro("offloaded_bytes", &RematRow::offloaded_bytes)
      .def_ro("recomputed_bytes", &RematRow::recomputed_bytes)
      .def_ro("recompute_ns", &RematRow::recompute_ns)
      .def_ro("count", &RematRow::count);
  nb::class_<FrontierPoint>(module, "FrontierPoint", "One plan on the frontier.")
      .def_ro("kept_bytes", &FrontierPoint::kept_bytes)
      .def_ro("offloaded_bytes", &FrontierPoint::offloaded_bytes)
      .def_ro("peak_bytes", &FrontierPoint::peak_bytes)
      .def_ro("recompute_ns", &FrontierPoint::recompute_ns)
      .def_ro("wait_ns", &FrontierPoint::wait_ns)
      .def_ro("step_ns", &FrontierPoint::step_ns);
  nb::class_<GraphPlan>(module, "RematPlan", "What is kept and what is made again.")
      .def_prop_ro("actions", &action_numbers, "Per node: 0 leave, 1 save, 2 recompute, 3 offload.")
      .def_prop_ro(
          "saved", [](const GraphPlan& self) { return self.plan.peak.saved; },
          "The nodes that are kept, in order.")
      .def_prop_ro(
          "recomputed", [](const GraphPlan& self) { return self.plan.peak.recomputed; },
          "The nodes that run again, in order.")
      .def_prop_ro(
          "offloaded", [](const GraphPlan& self) { return offloaded_nodes(self.plan.peak); },
          "Those of the kept nodes that wait in host memory, in order.")
      .def_prop_ro(
          "absences", [](const GraphPlan& self) { return absences(self.plan.peak); },
          "Per offloaded node: node, freed after this one, fetched before this one.")
      .def_prop_ro("segments", [](const GraphPlan& self) { return self.plan.segments.count(); })
      .def_prop_ro("kept_bytes", [](const GraphPlan& self) { return self.plan.peak.kept_bytes; })
      .def_prop_ro("offloaded_bytes",
                   [](const GraphPlan& self) { return self.plan.peak.offloaded_bytes; })
      .def_prop_ro("peak_bytes", [](const GraphPlan& self) { return self.plan.peak.peak_bytes; })
      .def_prop_ro("peak",
                   [](const GraphPlan& self) {
                     return GraphPeak{self.graph, self.plan.peak, self.plan.recompute_ns,
                                      self.plan.step_ns};
                   })
      .def_prop_ro("peak_at",
                   [](const GraphPlan& self) { return node_name(*self.graph, self.plan.peak.at); })
      .def_prop_ro("recompute_ns", [](const GraphPlan& self) { return self.plan.recompute_ns; })
      .def_prop_ro("wait_ns", [](const GraphPlan& self) { return self.plan.wait_ns; })
      .def_prop_ro("step_ns", [](const GraphPlan& self) { return self.plan.step_ns; })
      .def_prop_ro("rows", [](const GraphPlan& self) { return describe(*self.graph, self.plan); })
      .def_prop_ro(
          "merged_rows",
          [](const GraphPlan& self) { return merge_segments(describe(*self.graph, self.plan)); })
      .def_prop_ro(
          "segment_rows",
          [](const GraphPlan& self) { return merge_operators(describe(*self.graph, self.plan)); })
      .def("__str__", [](const GraphPlan& self) { return summary(*self.graph, self.plan); });
}

}  // namespace

void bind_remat(nb::module_& module) {
  bind_nodes(module);
  bind_results(module);
  nb::class_<JointGraph>(module, "JointGraph", "A joint graph of forward and backward.")
      .def(
          "__init__",
          [](JointGraph* self, std::vector<JointNode> nodes, int forward_outputs) {
            JointGraph graph{std::move(nodes), forward_outputs};
            verify(graph);
            new (self) JointGraph(std::move(graph));
          },
          nb::arg("nodes"), nb::arg("forward_outputs"))
      .def_prop_ro("text", [](const JointGraph& self) { return print(self); })
      .def(
          "plan",
          [](std::shared_ptr<JointGraph> self, const std::string& policy, const std::string& device,
             int64_t ranks, int64_t memory_bytes, double overhead, const std::string& offload) {
            RematPlan plan =
                plan_remat(*self, {policy, memory_bytes, overhead, device, ranks, offload});
            return GraphPlan{std::move(self), std::move(plan)};
          },
          nb::arg("policy") = "sac", nb::kw_only(), nb::arg("device") = "h100",
          nb::arg("ranks") = 1, nb::arg("memory_bytes") = 0, nb::arg("overhead") = 0.0,
          nb::arg("offload") = "off")
      .def("simulate", &simulate_saved, nb::arg("saved"), nb::kw_only(),
           nb::arg("offloaded") = std::vector<int>(), nb::arg("device") = "h100",
           nb::arg("ranks") = 1)
      .def(
          "frontier",
          [](const JointGraph& self, const std::string& device, int64_t ranks,
             const std::string& offload) {
            const Planner planner(self, device, ranks);
            return Frontier(planner, parse_offload(offload, planner)).points();
          },
          nb::kw_only(), nb::arg("device") = "h100", nb::arg("ranks") = 1,
          nb::arg("offload") = "off");
  module.def(
      "parse_joint_graph",
      [](const std::string& text) {
        JointGraph graph = parse_joint_graph(text);
        verify(graph);
        return graph;
      },
      nb::arg("text"));
}

}  // namespace autosp::python
