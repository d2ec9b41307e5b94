// Why an operator can't run on parts of the sequence, in words for the user.
#pragma once

#include "sharding/axes.h"

namespace autosp {

// Throws Unsupported for a node that no rank can run on a part of its operand, an activation with
// tokens at `tokens`: the operator and its line, the dimension, the reason, what to do instead.
[[noreturn]] void refuse_cut(const Axes& axes, int ranks, const Node& node, const Operand& operand,
                             const Occurrence& tokens);

}  // namespace autosp
