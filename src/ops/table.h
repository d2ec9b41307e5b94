// The operator table of the documentation (docs/operators.md), made from the registry:
//
//   | operator | spelled | rule | |
//   | linear | torch._C._nn.linear, torch.nn.functional.linear | … i, o i, o -> … o  sum i | |
//
// One section a family, one row an operator, in the registry's order; in-place spellings stand
// beside the operator that gives the new value.
#pragma once

#include <string>

namespace autosp {

std::string operator_table();

}  // namespace autosp
