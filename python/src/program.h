// A captured FX graph module beside the engine's graph of it: what import makes and export writes
// back.
//
// Import reads every FX node once. Export rewrites the same module in place: a node that came from
// FX keeps its FX object (callable, call kind, names, stack trace) and gets new arguments and a new
// position; nodes that the engine made are created; the rest is erased. Placeholders never change.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace autosp::python {

namespace nb = nanobind;

// A literal with this text stands for the name of the process group, which is known only at export.
inline constexpr const char* kGroupLiteral = "group";

// Where a size symbol comes from when the program runs: an FX placeholder that is the size (`dim` <
// 0) or a tensor placeholder that has it as dimension `dim`, divided by a number. `value` is the
// SymInt that is divided.
struct SymbolSource {
  nb::object node;
  int dim = -1;
  nb::object value;
  int64_t divisor = 1;
};

// What a captured module and the bodies of its higher-order operators share, so that nodes can move
// from a body to what is around it.
struct Captured {
  std::vector<nb::object> nodes;  // by Node::origin
  std::vector<std::string>
      targets;  // the engine's name of each FX node's callable, "" where it has none
  std::map<std::string, nb::object> literals;  // text of a literal argument -> the object
};

struct Program {
  nb::object module;  // torch.fx.GraphModule
  Graph graph;
  std::shared_ptr<Captured> captured;
  std::vector<nb::object> fx_nodes;  // the module's own, in order
  std::map<std::string, SymbolSource> symbols;
  std::vector<std::pair<Expr, nb::object>> sizes;          // placeholders that are sizes
  std::map<std::string, std::shared_ptr<Program>> bodies;  // by their path below the module
  std::vector<std::pair<int32_t, std::string>>
      user_inputs;            // position and name of the user's arguments
  bool returns_tuple = true;  // false: the body of an operator that returns one value
};

struct ImportOptions {
  std::vector<std::string>
      packages;  // files below these are torch's and AutoSP's own, not the model's
  std::vector<std::string> parameters;  // names of the positional parameters behind a frame's *args
};

// Throws Unsupported for what the engine can't represent (sizes that depend on data, module calls).
// Linear in the nodes and the text of their stack traces.
std::shared_ptr<Program> import_module(nb::object graph_module, const ImportOptions& options);

// Rewrites the module of `program` into `local`, the graph of rank `rank`; a copy of it, which is
// the program's module from then on, where the graph has one more input, the seed. Symbols other
// than the rank's stay symbolic: their arithmetic is written into the FX graph, each expression
// once. Linear in nodes and arguments.
void export_module(Program& program, const Graph& local, int64_t rank, const std::string& group);

// The value of `size` with the SymInts of the program's symbols, as an int or a SymInt.
nb::object size_value(const Program& program, const Expr& size);

void bind_pipeline(nb::module_& module);

}  // namespace autosp::python
