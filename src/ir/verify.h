// The invariants that every graph between two passes has.
//
// Ids are positions; names are well formed and unique; values are used after their definition;
// arguments are well formed (slices have three parts, sizes that are constants are integers,
// subgraphs exist, keywords are given once); no dimension of a shape is a negative constant; an
// element of a tuple has that element's type; a view or reshape keeps the number of elements, and
// the sizes that it writes out are those of its type. Sizes are held against each other by form,
// and where that decides nothing at the hinted lengths. Subgraphs are verified too.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Throws InternalError that names the node and the broken invariant. Linear in the graph.
void verify(const Graph& graph);

}  // namespace autosp
