// What a node of a per-rank graph sends to other ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace autosp {

// Of one of `ranks` ranks, in bytes at the hinted lengths; `backward` is what its adjoint sends
// where a gradient flows through it.
struct Sent {
  std::string_view collective;  // "all_gather", "all_to_all", …: the forward's if it sends anything
  int64_t forward = 0;
  int64_t backward = 0;
};

// `gradient`: by node, whether a gradient flows through it. Nothing for nodes that don't
// communicate.
std::optional<Sent> sent_by(const Graph& graph, const Node& node, int ranks,
                            const std::vector<bool>& gradient);

}  // namespace autosp
