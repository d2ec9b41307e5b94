// The graph that every pass reads and writes: a list of nodes in execution order, one value a node.
//
// It mirrors Torch-IR: a node calls a torch function or method by its dotted name, arguments are
// values or nested Python constants. Node ids are positions, so `id` order is execution order; a
// pass that inserts or removes nodes writes a new graph (`GraphBuilder` in ir/builder.h copies what
// stays).
//
// A per-rank graph is the same structure with local shapes; the rank's number appears as the size
// symbol `kRankSymbol` until export substitutes it, so the printed plan is the same on every rank.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/expr.h"
#include "ir/type.h"

namespace autosp {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;
inline constexpr std::string_view kRankSymbol = "rank";

// One argument of a call: a value, a size, or a Python constant; lists, tuples and slices nest.
struct Arg {
  enum class Kind : uint8_t {
    kNone,
    kValue,
    kInt,
    kFloat,
    kBool,
    kString,
    kSize,
    kSlice,
    kList,
    kTuple,
    kEllipsis,
    kLiteral,
    kGraph,
  };

  Kind kind = Kind::kNone;
  NodeId value = kNoNode;  // kValue
  int64_t integer = 0;     // kInt, kBool (0 or 1), kGraph (index into Graph::subgraphs)
  double number = 0;       // kFloat
  std::string text;        // kString; kLiteral: Python's repr of a constant (dtype, device, …)
  Expr size = Expr(0);     // kSize
  std::vector<Arg> items;  // kSlice (start, stop, step), kList, kTuple

  static Arg none() { return {}; }
  static Arg of(NodeId value);
  static Arg integer_of(int64_t value);
  static Arg float_of(double value);
  static Arg bool_of(bool value);
  static Arg string_of(std::string text);
  static Arg size_of(Expr size);  // a constant size becomes kInt
  static Arg slice_of(Arg start, Arg stop, Arg step);
  static Arg list_of(std::vector<Arg> items);
  static Arg tuple_of(std::vector<Arg> items);
  static Arg sizes_of(const std::vector<Expr>& sizes);  // a list of sizes
  static Arg literal_of(std::string repr);
  static Arg ellipsis();
  static Arg graph_of(int64_t index);

  bool is_none() const { return kind == Kind::kNone; }
  bool is_value() const { return kind == Kind::kValue; }
  // kInt, kBool and kSize as an expression.
  bool is_integral() const;
  Expr as_expr() const;
  bool operator==(const Arg&) const = default;
};

using Kwargs = std::vector<std::pair<std::string, Arg>>;

enum class NodeKind : uint8_t { kInput, kCall };

// What an input is to the program; decided by where Dynamo found it, never by its name.
// kSeed: the number that all random numbers of a call come from, drawn anew for every call; the
// engine adds it (passes/seed_random.h).
enum class InputKind : uint8_t { kUser, kParameter, kBuffer, kConstant, kSeed };

struct Node {
  NodeId id = kNoNode;
  NodeKind kind = NodeKind::kCall;
  std::string name;    // unique in the graph, printed as %name
  std::string target;  // dotted name of the callable: "torch._C._nn.linear", "Tensor.view",
                       // "autosp.r_to_v"; for inputs the user-visible name of the argument
  std::vector<Arg> args;
  Kwargs kwargs;
  Type type;
  std::string source;       // the model's line, "model.py:238 in forward: y = …"; may be empty
  int32_t origin = -1;      // index of the FX node it came from, -1 when the engine made it
  int32_t checkpoint = -1;  // the region that the user recomputes in the backward, in the order of
                            // the program; -1 outside of them
  InputKind input = InputKind::kUser;  // inputs only
  bool requires_grad = false;          // inputs only
};

struct Graph {
  std::vector<Node> nodes;
  std::vector<Arg> outputs;              // as the program returns them; values, constants, nested
  std::map<std::string, int64_t> hints;  // symbol -> the length it has at compile time
  // Names for local lengths of a per-rank graph, in order of first use: ("shard0", (s//2)). Shapes
  // and arguments use the names; export substitutes the expressions. A local length of 1 thus stays
  // visible as a length. A name that stands for an earlier name alone, ("shard2", shard0), is that
  // of a trimmed axis: it has the shards of the axis it was cut from, and the last rows are
  // padding.
  std::vector<std::pair<std::string, Expr>> definitions;
  std::vector<std::pair<std::string, std::shared_ptr<Graph>>>
      subgraphs;  // bodies of higher-order operators

  const Node& node(NodeId id) const { return nodes[static_cast<size_t>(id)]; }
  Node& node(NodeId id) { return nodes[static_cast<size_t>(id)]; }
  NodeId size() const { return static_cast<NodeId>(nodes.size()); }
  // Bytes of a tensor value at the hinted lengths; tuples are summed, other types are 0.
  int64_t bytes(const Type& type) const;
  int64_t hint(const Expr& size) const { return size.evaluate(hints); }
};

// Calls `visit(NodeId)` for each value in `arg`, in order.
template <class Visit>
void for_each_value(const Arg& arg, Visit&& visit) {
  if (arg.is_value()) visit(arg.value);
  for (const Arg& item : arg.items) for_each_value(item, visit);
}
template <class Visit>
void for_each_operand(const Node& node, Visit&& visit) {
  for (const Arg& arg : node.args) for_each_value(arg, visit);
  for (const auto& [key, arg] : node.kwargs) for_each_value(arg, visit);
}

// Users of every node, in execution order; an output use counts as the id `graph.size()`.
std::vector<std::vector<NodeId>> users(const Graph& graph);

}  // namespace autosp
