// functionalize: in-place calls become values.
//
//   before  %m2: … = Tensor.masked_fill_(%m, %c, 0)    (later readers of %m see the change)
//   after   %m2: … = Tensor.masked_fill(%m, %c, 0)     (later readers of %m read %m2)
//
// A write is followed through the value it is made to and to the views that value shares memory
// with; the new value has the dtype of the old one. Calls with inplace=True are writes too. What
// can't be expressed as a value is refused by name: a write through a view of a value that is read
// afterwards, a write to an input or a parameter, a write under no_grad to a value that may need
// gradients, an in-place operator or an out= that nobody knows. Linear in nodes, times writes to
// one tensor.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Returns whether anything changed. Throws Unsupported as above.
bool functionalize(Graph& graph);

}  // namespace autosp
