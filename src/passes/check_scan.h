// A registered scan that ranks run in turns (ops/registered.h), as the checker reads it.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace autosp {

struct ScanInTurns {
  // Values with the dimension of each that is a rank's part, and of the results; -1: none, a whole
  // operand, a state.
  std::vector<std::pair<NodeId, int>> operands;
  std::vector<int> results;
  Expr size = Expr(0);  // global, of that dimension
  bool exact = false;
};

// What the call says of itself, which must be what the operator's rule says: else `fail` throws.
ScanInTurns read_scan(const Graph& graph, const Node& node,
                      const std::function<void(const std::string&)>& fail);

}  // namespace autosp
