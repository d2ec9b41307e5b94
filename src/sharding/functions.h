// torch.autograd.Function inside of a program: a call with two bodies, what it computes and what
// its gradient is. The backward is the user's own, so the call runs on parts of the sequence only
// where both bodies can, without a conversion or an exchange in them.
//
//   forward   %y = mul(%x, %w)                     x S, w V                    y S
//   backward  %dx = mul(%g, %w)                    g S as y is                 dx S as x is
//             %dw = sum(mul(%g, %x), tokens)       … S, summed                 dw P: w is V
//
// A result that a body sums over its tokens is P, and its gradient comes in whole. Nothing is
// assumed of a backward that runs on parts; one that runs on everything is given everything, since
// it need not be linear in its gradient.
#pragma once

#include <memory>
#include <vector>

#include "sharding/placement.h"

namespace autosp {

// The two bodies of a call, and how their values meet. Sizes are arguments of both, but no values.
struct Function {
  const Graph* forward = nullptr;
  const Graph* backward = nullptr;
  std::vector<NodeId> arguments;  // for every input of `forward`, kNoNode for what is no value
  std::vector<NodeId> results;    // values of `forward`, which the call gives
  std::vector<NodeId> saved;      // values of `forward` that `backward` gets
  std::vector<NodeId> gradients;  // for every argument its value of `backward`; kNoNode: none
};

// Throws Unsupported for forms that have no meaning here (inputs changed in place, results that are
// no tensors).
Function read_function(const Graph& graph, const Node& call);

// What a rank holds of one input of a body: its placement, and the sizes of the factors of each of
// its dimensions.
struct Given {
  Placement placement;
  TensorSizes factors;
};

// The placements of both bodies where `arguments` are given, in the order of Function::arguments.
struct FunctionPlacements {
  // Throws Unsupported, with the operator's name and line, where a body would need more than the
  // parts that it is given.
  FunctionPlacements(const Function& function, int ranks, std::vector<Given> arguments);

  std::unique_ptr<Axes> forward_axes, backward_axes;
  std::unique_ptr<Placements> forward, backward;
};

// The letters of a call: those of its forward. Along a letter that both bodies can run on parts of
// it is kPass, or kSum where a result is a sum over it; along others kWhole.
Application function_application(const Graph& graph, const Node& call);

// Why the call can't run on parts along a letter of its application that is kWhole.
std::string function_obstacle(const Graph& graph, NodeId call, LetterId letter);

std::vector<TensorSizes> factors_of(const std::vector<Given>& given);
// The factors of the dimensions of a value, as sizes.
TensorSizes factor_sizes(const Axes& axes, NodeId value, int element);

}  // namespace autosp
