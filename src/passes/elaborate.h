// elaborate: from the program and its placements to the program that one rank runs.
//
//   before  %h: f32[B, s, D] … %q: f32[B, H, s, K] … sdpa(%q, %k, %v)
//   after   %h: f32[B, (s//P), D] … all_to_all([%q, %k, %v]) … sdpa per H/P heads … all_to_all …
//   local again
//
// Sizes written in arguments become local, conversions between placements are inserted before their
// first reader, each once per value, and operators that change along a sharded letter take their
// local form
// (`OpDef::localize`). Queries, keys and values of one attention travel in one exchange. Linear in
// nodes.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "sharding/placement.h"

namespace autosp {

struct ElaborateOptions {
  bool grad_sync = true;         // reduce parameter gradients inside the program
  std::string outputs = "auto";  // "auto", "full" or "local"
};

// What one output is on a rank; the default for outputs that are no tensors.
struct OutputInfo {
  bool sharded = false;
  int64_t dim = -1;     // sharded: the dimension cut along
  Expr size = Expr(0);  // sharded: its global length
};

struct Elaborated {
  Graph graph;
  std::vector<OutputInfo> outputs;  // one entry for each of Graph::outputs
  std::vector<Expr> divisible;      // lengths that the number of ranks must divide
  std::vector<NodeId> locals;       // for each value of the program what was made of it
};

// Throws Unsupported where a length is not divisible or an output is too large to be gathered.
Elaborated elaborate(const Placements& placements, const std::vector<AttentionRegion>& regions,
                     const ElaborateOptions& options);

}  // namespace autosp
