// check: derives every placement of a per-rank graph again, from the rewritten graph alone, and
// rejects it where a conversion is missing or wrong. It shares the operators' rules with the steps
// before it, and nothing else: no axis classes, no plan. It runs on every compile.
//
//   accepts   %y = autosp.s_to_v(%x, 1, …); torch.matmul(%q, %y)       q sharded along its rows, y
//   whole rejects   torch.matmul(%q, %x)                                      two operands sharded
//   along different letters
//
// Inputs are R. A conversion changes the placement it is defined for and no other. An operator with
// a sharded operand runs sharded along that operand's letter: every other operand that has the
// letter must be sharded there too, all others must be V (or R where no gradient flows), the
// letter's kind must allow it, and local sizes in its arguments must fit. A summed letter gives P,
// which nothing but a P conversion may read. Lengths of conversions must fit their values and each
// other; rows past the end of a trimmed axis must be masked before they are summed. Linear in
// nodes.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "sharding/placement.h"

namespace autosp {

// `outputs`: what each output must be. `grad_sync`: gradients of parameters are added up inside the
// program. Throws InternalError naming the operator, its source line,
// the operand and the two placements that clash.
void check_placements(const Graph& graph, const std::vector<Placement>& outputs,
                      bool grad_sync = true);

}  // namespace autosp
