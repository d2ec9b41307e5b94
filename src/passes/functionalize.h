// functionalize: in-place calls become values.
//
//   before  %m2: … = Tensor.masked_fill_(%m, %c, 0)    (later readers of %m see the change)
//   after   %m2: … = Tensor.masked_fill(%m, %c, 0)     (later readers of %m read %m2)
//
//   before  %v: … = _operator.getitem(%x, 0);  Tensor.add_(%v, 1)     %w: … = Tensor.t(%x) read
//   later after   %v2 = torch.add(%v, 1);  %x2 = torch.select_scatter(%x, %v2, 0, 0);  %w2 =
//   Tensor.t(%x2)
//
// A write is followed through the views between the tensor that it is made to and the one that owns
// the memory (ops/write_back.h has their inverses), and every other view that is read afterwards is
// taken anew. The new value has the dtype of the old one. Calls with inplace=True, copy_ and
// assignments are writes too. A buffer has its new value written to it once, at the program's end:
//
//   before  Tensor.add_(%count, 1)     (%count a buffer)
//   after   %new = torch.add(%count, 1);  …;  Tensor.copy_(%count, %new)
//
// What can't be expressed as a value is refused by name: a write
// through or beside something that may be a copy or a view, a write to another input, a
// write under no_grad to a value that may need gradients, an in-place operator or an out= that
// nobody knows. Linear in nodes, times writes to one memory.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Returns whether anything changed. Throws Unsupported as above.
bool functionalize(Graph& graph);

}  // namespace autosp
