// The work that every rank repeats because an operator runs whole.
//
// Of an operator on activations (ValueFacts::activation) the arithmetic is counted: two for every
// product of a contraction, one for every element of what else is computed, none for views.
// Operators without activations, on ids, positions and masks, are cheap and not counted.
#pragma once

#include <string>
#include <vector>

#include "sharding/placement.h"

namespace autosp {

struct RepeatedWork {
  std::string target;
  std::string source;  // the model's line
  double share = 0;    // of the work of one rank; the backward repeats the same share of its own
};

// The operators that run whole on every rank, those of one target and line together, the largest
// share first. Linear in nodes.
std::vector<RepeatedWork> repeated_work(const Placements& placements);

}  // namespace autosp
