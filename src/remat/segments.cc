#include "remat/segments.h"

#include <algorithm>
#include <cstddef>

namespace autosp {

namespace {

// Per position of the forward the bytes that are made before it and read by the forward at or after
// it; parameters and inputs aside. What lives across two attentions is no residual stream but
// shared by blocks: it counts to the end, and from the beginning where a block makes it, so that it
// is not what makes positions of that block, or of the last one, narrow.
std::vector<int64_t> crossing_bytes(const JointFacts& facts) {
  const auto& attentions = facts.attentions;
  std::vector<int> last_use(facts.forward_end, -1);
  for (int i = 0; i < facts.forward_end; ++i) {
    if (!facts.required[i] || facts.phase[i] != Phase::kForward) continue;
    for (const int input : facts.graph.nodes[i].inputs) last_use[facts.storage[input]] = i;
  }
  std::vector<int64_t> bytes(facts.forward_end + 1, 0);
  for (int i = 0; i < facts.forward_end; ++i) {
    if (facts.phase[i] != Phase::kForward || last_use[i] <= i) continue;
    // All outputs of an operator are made with it.
    const int made = facts.kernel[i] == Kernel::kItem ? facts.graph.nodes[i].inputs[0] : i;
    const auto next = std::upper_bound(
        attentions.begin(), attentions.end(), i,
        [](int node, const AttentionSpan& attention) { return node < attention.begin; });
    const bool shared = attentions.end() - next >= 2 && next[1].end < last_use[i];
    const int end = shared ? facts.forward_end : last_use[i] + 1;
    bytes[shared && next != attentions.begin() ? 0 : made + 1] += facts.graph.nodes[i].bytes;
    bytes[end] -= facts.graph.nodes[i].bytes;
  }
  for (size_t p = 1; p < bytes.size(); ++p) bytes[p] += bytes[p - 1];
  return bytes;
}

// The last narrowest position of (begin, end].
int last_narrowest(const std::vector<int64_t>& bytes, int begin, int end) {
  int best = end;
  for (int p = end; p > begin; --p) {
    if (bytes[p] < bytes[best]) best = p;
  }
  return best;
}

// The required operators of [begin, end), in order; views aside, of which a first block may have
// more than the others.
std::vector<int> operators_in(const JointFacts& facts, int begin, int end) {
  std::vector<int> result;
  for (int i = begin; i < end; ++i) {
    const bool runs = facts.required[i] && facts.phase[i] == Phase::kForward;
    if (runs && facts.kernel[i] != Kernel::kView) result.push_back(i);
  }
  return result;
}

// Where the last block ends: one past the operators from its beginning that are like the end of an
// earlier segment, of which the first may begin before its block; the longest such that an
// attention is among. -1 if there are none.
int end_of_last_block(const JointFacts& facts, const std::vector<int>& begins) {
  const auto& nodes = facts.graph.nodes;
  const auto alike = [&](int a, int b) {
    return nodes[a].target == nodes[b].target && nodes[a].shape == nodes[b].shape;
  };
  const std::vector<int> last = operators_in(facts, begins.back(), facts.forward_end);
  const auto attention =
      std::find_if(last.begin(), last.end(), [&](int node) { return facts.attention[node]; });
  size_t longest = static_cast<size_t>(attention - last.begin());
  bool found = false;
  for (size_t s = begins.size() - 1; s-- > 0;) {
    const std::vector<int> block = operators_in(facts, begins[s], begins[s + 1]);
    for (size_t length = std::min(block.size(), last.size()); length > longest; --length) {
      if (std::equal(block.end() - static_cast<std::ptrdiff_t>(length), block.end(), last.begin(),
                     alike)) {
        longest = length;
        found = true;
      }
    }
  }
  return found ? last[longest - 1] + 1 : -1;
}

// The position before which the last product of matrices begins, or -1 if an attention is after it.
int before_last_product(const JointFacts& facts, const std::vector<int64_t>& bytes, int begin) {
  for (int i = facts.forward_end - 1; i > begin; --i) {
    if (facts.required[i] && facts.kernel[i] == Kernel::kMatmul) {
      return last_narrowest(bytes, begin, i);
    }
  }
  return -1;
}

void assign_nodes(const JointFacts& facts, Segments& segments) {
  const auto& nodes = facts.graph.nodes;
  const int count = static_cast<int>(nodes.size());
  segments.of.assign(count, -1);
  int segment = 0;
  for (int i = 0; i < count; ++i) {
    if (facts.phase[i] != Phase::kForward) continue;
    if (facts.kernel[i] == Kernel::kItem) {
      segments.of[i] = segments.of[nodes[i].inputs[0]];
      continue;
    }
    while (segment + 1 < segments.count() && segments.begin[segment + 1] <= i) ++segment;
    segments.of[i] = segment;
  }

  segments.crossing.assign(count, false);
  for (int i = 0; i < count; ++i) {
    if (facts.phase[i] != Phase::kForward) continue;
    for (const int input : nodes[i].inputs) {
      const int base = facts.storage[input];
      if (facts.phase[base] == Phase::kForward && segments.of[base] < segments.of[i]) {
        segments.crossing[facts.keeper[base]] = true;
      }
    }
  }
}

}  // namespace

Segments find_segments(const JointFacts& facts) {
  const std::vector<AttentionSpan>& attentions = facts.attentions;
  const std::vector<int64_t> bytes = crossing_bytes(facts);

  Segments segments;
  segments.begin = {0};
  int previous = 0;
  for (const AttentionSpan& attention : attentions) {
    const int position = last_narrowest(bytes, previous, attention.begin);
    if (!operators_in(facts, segments.begin.back(), position).empty()) {
      segments.begin.push_back(position);
    }
    previous = attention.end + 1;
  }
  if (!attentions.empty()) {
    int tail = end_of_last_block(facts, segments.begin);
    if (tail <= attentions.back().end) tail = before_last_product(facts, bytes, previous);
    if (tail > previous && tail < facts.forward_end) {
      segments.begin.push_back(tail);
      segments.has_tail = true;
    }
  }
  for (const int position : segments.begin) segments.width.push_back(bytes[position]);
  assign_nodes(facts, segments);
  return segments;
}

}  // namespace autosp
