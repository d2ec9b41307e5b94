// inline-checkpoints: regions of torch.utils.checkpoint become part of the program around them.
//
//   before  subgraph "body" { %x: … = input user "x";  %y: … = torch.exp(%x);  return (%y,) }
//           %c: (…,) = torch.ops.higher_order.tag_activation_checkpoint(graph(0), %h)
//           %z: … = _operator.getitem(%c, 0)
//   after   %y: … = torch.exp(%h) checkpoint 0        (readers of %z read %y)
//
// The later steps see one program. That the user wants the region's operators, and the exchanges
// that they come to need, to run again in the backward stays with them as its number
// (`Node::checkpoint`); numbers grow in the order of the program. A region inside of a region is a
// part of it. Linear in nodes.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Returns whether anything changed. Throws Unsupported for regions with a policy of their own for
// what is kept in them.
bool inline_checkpoints(Graph& graph);

}  // namespace autosp
