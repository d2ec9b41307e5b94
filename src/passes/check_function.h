// The two bodies of a torch.autograd.Function in a per-rank graph, for the checker. Whatever the
// placements of the arguments, the forward is derived from them; the backward from the cotangents
// of what the forward gives (S of S, V of P) and from what it has saved. On parts, its gradients
// must be those of the arguments: S of S, without rows past the end, and P of V.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sharding/functions.h"

namespace autosp {

struct CheckedValue {
  Given value;
  bool pads = false;  // has rows past the end of its axis that were not replaced
};
// What values of a body are where its inputs are given; nothing of kNoNode.
using CheckBody = std::function<std::vector<CheckedValue>(
    const Graph& body, const std::vector<Given>& inputs, const std::vector<NodeId>& values)>;

// The placements of the results. `fail` throws.
std::vector<Placement> check_function(const Function& function, const std::vector<Given>& arguments,
                                      const CheckBody& check_body,
                                      const std::function<void(const std::string&)>& fail);

}  // namespace autosp
