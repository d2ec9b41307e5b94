// What a plan does, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/policy.h"

namespace autosp {

// One operator of the model, for all nodes with the same target and source line.
struct RematRow {
  std::string what;              // the operator's target
  std::string source;            // the model's line
  int64_t kept_bytes = 0;        // of its values kept for the backward
  int64_t recomputed_bytes = 0;  // of its values made again
  int64_t recompute_ns = 0;
  int count = 0;  // nodes of which something is kept or made again
};

// In the order of the first node of each.
std::vector<RematRow> describe(const JointGraph& graph, const RematPlan& plan);

// A table of the rows and a line with the totals.
std::string summary(const JointGraph& graph, const RematPlan& plan);

}  // namespace autosp
