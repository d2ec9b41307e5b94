#include "remat/lengths.h"

#include <algorithm>
#include <string>

#include "support/error.h"

namespace autosp {

namespace {

bool is_same(const JointNode& a, const JointNode& b) {
  return a.name == b.name && a.target == b.target && a.inputs == b.inputs && a.dtype == b.dtype &&
         a.shape.size() == b.shape.size();
}

int64_t elements(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

}  // namespace

JointGraph at_length(const JointGraph& first, int64_t first_length, const JointGraph& second,
                     int64_t second_length, int64_t length) {
  const bool same = first.forward_outputs == second.forward_outputs &&
                    std::equal(first.nodes.begin(), first.nodes.end(), second.nodes.begin(),
                               second.nodes.end(), is_same);
  if (!same || first_length == second_length) {
    throw Unsupported("the program runs other operators at a length of " +
                      std::to_string(second_length) + " than at " + std::to_string(first_length) +
                      ", so its memory at other lengths is not known");
  }
  const int64_t run = second_length - first_length;
  JointGraph graph = first;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    JointNode& node = graph.nodes[i];
    const int64_t element_bytes = node.bytes / std::max<int64_t>(elements(node.shape), 1);
    for (size_t d = 0; d < node.shape.size(); ++d) {
      const int64_t rise = (second.nodes[i].shape[d] - node.shape[d]) * (length - first_length);
      node.shape[d] += rise / run + (rise % run > 0 ? 1 : 0);
    }
    node.bytes = element_bytes * elements(node.shape);
  }
  return graph;
}

}  // namespace autosp
