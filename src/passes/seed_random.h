// Calls that draw random numbers become arithmetic on one seed, which is an input that the engine
// adds (ops/draw.h). Calls that draw nothing (dropout in evaluation) and those without such a form
// stay.
//
//   before   %y = torch.nn.functional.dropout(%x, 0.1, True)
//   after    %seed: i64[] = input seed "seed"
//            %y = autosp.uniform(%x, %seed, 0, 2, 3)
//            %y_1 = torch.ge(%y, 0.1)
//            %y_2 = torch.mul(%x, 1.1111111111111112)
//            %y_3 = torch.where(%y_1, %y_2, 0.0)
//
// Linear. Bodies of nested graphs are not looked into.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Returns whether the program draws.
bool seed_random(Graph& graph);

}  // namespace autosp
