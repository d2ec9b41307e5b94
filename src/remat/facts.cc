#include "remat/facts.h"

#include <algorithm>

namespace autosp {

namespace {

// A softmax, or what its decomposition exponentiates with.
bool is_softmax(std::string_view target) {
  const auto is = [&](std::string_view name) {
    return target.substr(0, name.size()) == name && target.size() > name.size() &&
           target[name.size()] == '.';
  };
  return is("aten._softmax") || is("aten._safe_softmax") || is("aten.exp");
}

// A product of two activations, as of queries and keys.
bool is_inner_product(const JointFacts& facts, int node) {
  const auto& nodes = facts.graph.nodes;
  return facts.kernel[node] == Kernel::kMatmul &&
         std::none_of(nodes[node].inputs.begin(), nodes[node].inputs.end(),
                      [&](int input) { return nodes[facts.storage[input]].parameter; });
}

// The closest inner product that `node` reads or is read by, through operators that are fused;
// -1 if there is none. Looks at a bounded number of nodes.
int closest_product(const JointFacts& facts, int node, bool upwards) {
  constexpr size_t kBound = 64;
  std::vector<int> queue = {node};
  const auto visit = [&](int next) {
    if (!facts.required[next] || facts.phase[next] != Phase::kForward) return;
    if (std::find(queue.begin(), queue.end(), next) == queue.end()) queue.push_back(next);
  };
  for (size_t i = 0; i < std::min(queue.size(), kBound); ++i) {
    const int current = queue[i];
    if (i > 0 && is_inner_product(facts, current)) return current;
    const Kernel kernel = facts.kernel[current];
    if (kernel != Kernel::kFused && kernel != Kernel::kView && kernel != Kernel::kItem) continue;
    if (upwards) {
      for (const int input : facts.graph.nodes[current].inputs) visit(input);
    } else {
      for (const int user : facts.users(current)) visit(user);
    }
  }
  return -1;
}

// A value of one operator is written to memory when something outside of the fused neighbourhood
// reads it.
bool is_written(const JointFacts& facts, int node) {
  for (const int user : facts.users(node)) {
    if (facts.for_backward(user) != facts.for_backward(node)) continue;
    if (facts.kernel[user] == Kernel::kView || facts.kernel[user] == Kernel::kItem) {
      if (is_written(facts, user)) return true;
    } else if (facts.kernel[user] != Kernel::kFused) {
      return true;
    }
  }
  return false;
}

}  // namespace

JointFacts::JointFacts(const JointGraph& joint) : graph(joint) {
  const int count = static_cast<int>(graph.nodes.size());
  phase.resize(count);
  kernel.resize(count);
  storage.resize(count);
  keeper.resize(count);
  required.assign(count, false);
  several.assign(count, false);
  attention.assign(count, false);

  user_begin_.assign(count + 2, 0);
  for (const JointNode& node : graph.nodes) {
    for (const int input : node.inputs) {
      if (input >= 0) ++user_begin_[input + 2];
    }
  }
  for (int i = 2; i <= count + 1; ++i) user_begin_[i] += user_begin_[i - 1];
  user_.resize(user_begin_.back());
  for (int i = 0; i < count; ++i) {
    for (const int input : graph.nodes[i].inputs) {
      if (input >= 0) user_[user_begin_[input + 1]++] = i;
    }
  }

  bytes.reserve(count);
  input_begin_.reserve(count + 1);
  for (int i = 0; i < count; ++i) {
    const JointNode& node = graph.nodes[i];
    bytes.push_back(node.bytes);
    if (is_tangent(node)) tangents.push_back(i);
    input_begin_.push_back(static_cast<int>(input_.size()));
    if (i + 1 < count) input_.insert(input_.end(), node.inputs.begin(), node.inputs.end());
  }
  input_begin_.push_back(static_cast<int>(input_.size()));

  for (int i = 0; i < count; ++i) {
    const JointNode& node = graph.nodes[i];
    kernel[i] = kernel_of(node.target);
    if (node.view && kernel[i] != Kernel::kWait && kernel[i] != Kernel::kItem) {
      kernel[i] = Kernel::kView;
    }
    phase[i] = node.target == "output" ? Phase::kOutput
               : is_input(node)        ? Phase::kInput
                                       : Phase::kForward;
    for (const int input : node.inputs) {
      if (input < 0 || phase[i] != Phase::kForward) continue;
      if (is_tangent(graph.nodes[input]) || phase[input] == Phase::kBackward) {
        phase[i] = Phase::kBackward;
      }
    }
    storage[i] = keeper[i] = i;
    if (node.inputs.empty() || phase[i] == Phase::kOutput) continue;
    const int first = node.inputs[0];
    if (kernel[i] == Kernel::kItem) {
      several[first] = true;
      if (kernel[first] == Kernel::kView) storage[i] = storage[first];
    } else if (kernel[i] == Kernel::kView || kernel[i] == Kernel::kWait) {
      storage[i] = storage[first];
      if (kernel[i] == Kernel::kWait) keeper[storage[i]] = i;
    }
  }

  for (int k = 0; k < graph.forward_outputs; ++k) {
    const int output = graph.nodes.back().inputs[k];
    if (output >= 0) required[output] = true;
  }
  for (int i = count - 1; i >= 0; --i) {
    if (!required[i]) continue;
    forward_end = std::max(forward_end, i + 1);
    for (const int input : graph.nodes[i].inputs) required[input] = true;
  }

  for (int i = forward_end; i < count; ++i) {
    if (phase[i] != Phase::kForward) continue;
    // An output is made with its operator.
    const bool is_made_before =
        kernel[i] == Kernel::kItem && phase[graph.nodes[i].inputs[0]] == Phase::kForward;
    if (!is_made_before) phase[i] = Phase::kLate;
  }

  for (int i = 0; i < forward_end; ++i) {
    if (!required[i] || phase[i] != Phase::kForward) continue;
    AttentionSpan span{i, i};
    if (kernel[i] != Kernel::kAttention) {
      if (!is_softmax(graph.nodes[i].target)) continue;
      span = {closest_product(*this, i, true), closest_product(*this, i, false)};
      if (span.begin < 0 || span.end < 0) continue;
      attention[span.end] = true;
    }
    attention[i] = true;
    if (attentions.empty() || attentions.back().end < span.begin) attentions.push_back(span);
  }
}

std::vector<int64_t> node_nanoseconds(const JointFacts& facts, const Device& device,
                                      int64_t ranks) {
  const auto& nodes = facts.graph.nodes;
  const int count = static_cast<int>(nodes.size());
  std::vector<TensorSize> sizes(count);
  std::vector<bool> written(count, true);
  for (int i = 0; i < count; ++i) {
    sizes[i] = {nodes[i].shape, nodes[i].bytes};
    if (facts.kernel[i] == Kernel::kFused && facts.phase[i] != Phase::kInput) {
      written[i] = is_written(facts, i);
    }
  }
  std::vector<int64_t> result(count, 0);
  std::vector<int> seen(count, -1);
  for (int i = 0; i < count; ++i) {
    if (facts.phase[i] == Phase::kInput || facts.phase[i] == Phase::kOutput) continue;
    if (facts.kernel[i] == Kernel::kView || facts.kernel[i] == Kernel::kItem) continue;
    KernelCall call;
    call.target = nodes[i].target;
    call.causal = nodes[i].causal;
    int output = i;
    const bool fused = facts.kernel[i] == Kernel::kFused;
    for (const int input : nodes[i].inputs) {
      call.inputs.push_back(&sizes[input]);
      const int base = facts.storage[input];
      const bool inside =
          fused && !written[base] && facts.for_backward(base) == facts.for_backward(i);
      // A view of less than its storage reads less.
      if (!inside && seen[base] != i) {
        call.read += std::min(nodes[base].bytes, nodes[input].bytes);
      }
      seen[base] = i;
    }
    if (facts.several[i]) {
      for (const int user : facts.users(i)) {
        if (facts.kernel[user] != Kernel::kItem) continue;
        if (output == i) output = user;
        call.written += nodes[user].bytes;
      }
    } else if (written[i]) {
      call.written += nodes[i].bytes;
    }
    call.output = &sizes[output];
    call.dtype = nodes[output].dtype;
    result[i] = nanoseconds(call, device, ranks);
  }
  return result;
}

}  // namespace autosp
