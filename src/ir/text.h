// The text form of a graph, one node a line; every dump, text test and bug report uses it.
//
//   symbols s27=4096, s52=2
//   let shard0 = size((s27//2))
//   subgraph "body" {
//     %x: f32[s27] = input user "x"
//     return (%x,)
//   }
//   %ids: i64[s52, s27] = input user "L_kwargs_input_ids_"
//   %w: f32[97, 32] = input parameter "L_self_w" grad
//   %e: f32[s52, s27, 32] = torch.nn.functional.embedding(%ids, %w, None) loc "model.py:4 in f"
//   %t: f32[s52, s27, 32] = torch.tanh(%e) checkpoint 0 loc "model.py:5 in f"
//   %a: i64[s27] = torch.arange(s27, device=@"device(type='cpu')")
//   %sp: (f32[4], f32[4]) = Tensor.chunk(%x, 2, -1)
//   return (%e, %a)
//
// Hinted symbols, named lengths (Graph::definitions) and subgraphs come first, in this order.
//
// Types: a dtype with a shape ("f32[2, s27 + 1]", "bool[]"), "size(s27 + 1)", "scalar", "none",
// "other", and tuples "(a, b)", "(a,)", "()".
//
// Arguments: values "%x", integers and size expressions, floats (always with a point, an exponent,
// "inf" or "nan"), strings in double quotes, "None", "True", "False", "Ellipsis",
// "slice(start, stop, step)", lists, tuples, "graph(0)" for a subgraph by its index, and other
// Python constants by their repr: "@torch.float32", or quoted.
//
// "//" divides inside a size and elsewhere starts a comment that ends with its line. Line breaks
// mean nothing else, but a size or string stays on its line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace autosp {

// A text that is no graph. `line` and `column` count from 1; the text says all three.
class ParseError : public std::runtime_error {
 public:
  ParseError(int64_t line, int64_t column, const std::string& what)
      : std::runtime_error(std::to_string(line) + ":" + std::to_string(column) + ": " + what),
        line_(line),
        column_(column) {}
  int64_t line() const { return line_; }
  int64_t column() const { return column_; }

 private:
  int64_t line_;
  int64_t column_;
};

// The text of a graph; everything but `Node::origin`. parse_graph(print(g)) gives g back.
std::string print(const Graph& graph);
std::string print(const Type& type);
// An argument, with values under their names in `graph`.
std::string print(const Graph& graph, const Arg& arg);
// One node's line, without indentation or line break.
std::string print(const Graph& graph, const Node& node);

// The graph of a text. Throws ParseError for anything else, values used before their line and names
// given twice included. Linear in the text for bounded nesting; nesting deeper than a fixed limit
// is an error.
Graph parse_graph(std::string_view text);

}  // namespace autosp
