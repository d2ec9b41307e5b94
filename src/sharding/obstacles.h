// Why an operator can't run on parts of the sequence, in words for the user.
#pragma once

#include <string>

#include "sharding/axes.h"

namespace autosp {

// Throws Unsupported for a node that no rank can run on a part of its operand, an activation with
// tokens at `tokens`: the operator and its line, the dimension, the reason, what to do instead.
[[noreturn]] void refuse_cut(const Axes& axes, int ranks, const Node& node, const Operand& operand,
                             const Occurrence& tokens);

// "OPERATOR at LINE: dimension DIM of %VALUE carries the sequence", how such a text begins; and
// what would have to be done without a way to cut it.
std::string carries_sequence(const Axes& axes, const Node& node, NodeId value, int dim);
std::string needs_whole(int ranks);

}  // namespace autosp
