// What a plan does, for people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "remat/policy.h"

namespace autosp {

// One operator of the model in one segment, for all nodes with the same target and source line.
struct RematRow {
  std::string what;              // the operator's target
  std::string source;            // the model's line
  int segment = 0;               // -1: of what the backward alone runs, or of all segments
  int64_t kept_bytes = 0;        // of its values kept on the device for the backward
  int64_t recomputed_bytes = 0;  // of its values made again
  int64_t offloaded_bytes = 0;   // of its values kept in host memory
  int64_t recompute_ns = 0;
  int count = 0;  // nodes of which something is kept or made again
};

// In the order of the first node of each.
std::vector<RematRow> describe(const JointGraph& graph, const RematPlan& plan);

// The same with every row in segment -1: an operator of all layers is one row.
std::vector<RematRow> merge_segments(const std::vector<RematRow>& rows);

// The same with all operators of a segment in one row without a name, in the order of segments.
std::vector<RematRow> merge_operators(const std::vector<RematRow>& rows);

// Tables of the segments and of the operators.
std::string summary(const JointGraph& graph, const RematPlan& plan);

}  // namespace autosp
