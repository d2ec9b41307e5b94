// AOTAutograd's joint graph as rematerialization sees it: who reads whom, and how many bytes.
//
// As text, one node a line, which parses back:
//
//   %mm: bfloat16[128,32] 8192B = aten.mm.default(%x, %t) random view  # model.py:3
//   output(%loss, %logits | %grad, -)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace autosp {

struct JointNode {
  std::string name;
  std::string target;       // "aten.mm.default", "getitem", "placeholder:primal", "output", …
  std::vector<int> inputs;  // in order; of the output node everything returned, -1 for nothing
  int64_t bytes = 0;        // of its tensor; 0 where the value is none, or several
  std::vector<int64_t> shape;
  std::string dtype;
  bool view = false;       // its value lies in its first input's storage
  bool random = false;     // draws random numbers, or is a seed
  bool mutates = false;    // writes to an argument
  bool causal = false;     // an attention in which a query sees no later key
  bool tagged = false;     // the user decided: inside of a checkpoint region
  bool parameter = false;  // a primal that stays whatever is kept
  std::string source;      // the model's line
};

struct JointGraph {
  std::vector<JointNode> nodes;  // a node reads only earlier ones; the last is the output
  int forward_outputs = 0;       // how many of the output's values are the forward's
};

inline bool is_primal(const JointNode& node) { return node.target == "placeholder:primal"; }
inline bool is_tangent(const JointNode& node) { return node.target == "placeholder:tangent"; }
inline bool is_constant(const JointNode& node) { return node.target == "get_attr"; }
inline bool is_input(const JointNode& node) {
  return is_primal(node) || is_tangent(node) || is_constant(node);
}

// Throws InternalError unless the nodes are as JointGraph says. Linear.
void verify(const JointGraph& graph);

// The model's line of a node, or of the closest one ahead of it that has one.
std::string source_near(const JointGraph& graph, int node);

std::string print(const JointGraph& graph);

// Throws std::invalid_argument with the line for text that print does not write.
JointGraph parse_joint_graph(std::string_view text);

}  // namespace autosp
