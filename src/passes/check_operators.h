// The engine's own operators, as the checker expects them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>

#include "sharding/placement.h"

namespace autosp {

// What a conversion reads and gives; a sharded side is cut along the dimension in its second
// argument.
struct Conversion {
  std::string_view target;
  Placement::Kind from;
  Placement::Kind to;
};
inline constexpr Conversion kConversions[] = {
    {"autosp.r_to_v", Placement::Kind::kReplicated, Placement::Kind::kVarying},
    {"autosp.r_to_s", Placement::Kind::kReplicated, Placement::Kind::kSharded},
    {"autosp.v_to_s", Placement::Kind::kVarying, Placement::Kind::kSharded},
    {"autosp.s_to_r", Placement::Kind::kSharded, Placement::Kind::kReplicated},
    {"autosp.s_to_v", Placement::Kind::kSharded, Placement::Kind::kVarying},
    {"autosp.p_to_r", Placement::Kind::kPartial, Placement::Kind::kReplicated},
    {"autosp.p_to_v", Placement::Kind::kPartial, Placement::Kind::kVarying},
    {"autosp.p_to_s", Placement::Kind::kPartial, Placement::Kind::kSharded},
    {"autosp.r_to_p", Placement::Kind::kReplicated, Placement::Kind::kPartial},
    {"autosp.v_to_r", Placement::Kind::kVarying, Placement::Kind::kReplicated},
    {"autosp.mask_tail", Placement::Kind::kSharded, Placement::Kind::kSharded},
};

// Operators of the engine that see all rows of a sharded dimension: where their arguments have that
// dimension and its global length (0: nowhere), and whether the result has its rows or is the same
// on every rank.
struct RowOperator {
  std::string_view target;
  size_t dim;
  size_t size;
  bool keeps_rows;
};
inline constexpr RowOperator kRowOperators[] = {
    {"autosp.scan_rows", 2, 0, true},      {"autosp.scan_extremes", 2, 0, true},
    {"autosp.softmax_rows", 2, 3, true},   {"autosp.flip_rows", 1, 2, true},
    {"autosp.edge_rows", 1, 2, true},      {"autosp.reduce_rows", 3, 6, false},
    {"autosp.variance_rows", 2, 7, false}, {"autosp.extreme_rows", 2, 4, false},
};

inline const RowOperator* find_row_operator(std::string_view target) {
  const auto* found = std::find_if(std::begin(kRowOperators), std::end(kRowOperators),
                                   [&](const RowOperator& op) { return op.target == target; });
  return found == std::end(kRowOperators) ? nullptr : found;
}

}  // namespace autosp
