#include "remat/held.h"

#include <algorithm>

namespace autosp {
namespace {

constexpr int64_t kMasterBytes = 4;  // Adam's states are in float32 at least

int64_t adam_bytes(int64_t element_bytes) {
  const int64_t state = std::max(element_bytes, kMasterBytes);
  return 2 * state + (element_bytes < kMasterBytes ? state : 0);
}

}  // namespace

int64_t input_bytes(const JointGraph& graph) {
  int64_t bytes = 0;
  for (const JointNode& node : graph.nodes) {
    if (is_primal(node) && !node.parameter) bytes += node.bytes;
  }
  return bytes;
}

std::vector<int64_t> parameter_bytes(const JointGraph& graph, const Segments& segments) {
  std::vector<int64_t> bytes(segments.begin.size(), 0);
  std::vector<int> last_reader(graph.nodes.size(), -1);  // segment
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const int segment = segments.of[i];
    if (segment < 0) continue;
    for (const int input : graph.nodes[i].inputs) {
      const JointNode& node = graph.nodes[input];
      if (!node.parameter || last_reader[input] == segment) continue;
      last_reader[input] = segment;
      bytes[segment] += node.bytes;
    }
  }
  return bytes;
}

HeldState held_state(const std::vector<HeldParameter>& parameters, const JointGraph& graph,
                     int64_t ranks, bool sharded) {
  HeldState out;
  out.sharded = sharded && ranks > 1;
  for (const HeldParameter& parameter : parameters) {
    const int64_t bytes = parameter.elements * parameter.element_bytes;
    out.parameters += bytes;
    if (!parameter.trained) continue;
    out.gradients += bytes;
    out.optimizer += parameter.elements * adam_bytes(parameter.element_bytes);
  }
  if (out.sharded) {
    for (int64_t* bytes : {&out.parameters, &out.gradients, &out.optimizer})
      *bytes = (*bytes + ranks - 1) / ranks;
    const std::vector<int64_t> read = parameter_bytes(graph, find_segments(JointFacts(graph)));
    if (!read.empty()) out.whole = 2 * *std::max_element(read.begin(), read.end());
  }
  out.inputs = input_bytes(graph);
  return out;
}

std::vector<HeldRow> HeldState::rows() const {
  const std::string cut = sharded ? "cut over the ranks" : "whole on every rank";
  std::vector<HeldRow> out = {
      {"parameters", parameters, cut},
      {"gradients", gradients, cut},
      {"optimizer", optimizer, cut + "; Adam, master copies below 32 bits"},
  };
  if (sharded)
    out.push_back(
        {"made whole", whole, "weights and gradients of the one segment that is whole at a time"});
  out.push_back({"inputs", inputs, ""});
  return out;
}

}  // namespace autosp
