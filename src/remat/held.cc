#include "remat/held.h"

namespace autosp {

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

}  // namespace autosp
