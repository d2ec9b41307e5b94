// What the checker can say of a call by itself, whatever its operands' placements.
#pragma once

#include <string>

#include "sharding/axes.h"

namespace autosp {

// Whether an argument hangs on the rank's number.
bool mentions_rank(const Node& node);

// Sizes that a call spells out are those of its result: a view to global sizes would fail, or
// worse, fit. What is wrong with them; "" if nothing is.
std::string wrong_spelled_sizes(const Axes& axes, const Node& node);

// What is wrong with autosp.mask_sorted as the mask of the rows that lay past the end of a part
// before they were sorted; "" if nothing is. `part` is the symbol of the length of a rank's part.
std::string wrong_sorted_mask(const Axes& axes, const Node& node, const std::string& part);

// Whether a call is no number, or has no gradient, at some numbers of an operand whose rows past
// the end were not made copies of the last one.
bool may_be_singular(const Axes& axes, const Node& node, const Operand& operand);

}  // namespace autosp
