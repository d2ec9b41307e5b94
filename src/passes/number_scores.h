// The functions that flex_attention calls on every score count batch, heads and queries from 0. A
// rank that computes a part of them hands its numbers among all to the functions, as a tensor:
//
//   before  %s = _operator.getitem(%slopes, %h)
//   after   %n = _operator.getitem(%numbers, %h);  %s = _operator.getitem(%slopes, %n)
//
// where %numbers is 0, 1, … for the whole program, and is cut like the heads are. Queries are
// numbered where the mask has no blocks, which stand for the queries of all. Linear.
#pragma once

#include "ir/graph.h"

namespace autosp {

// Returns true when the graph was changed.
bool number_scores(Graph& graph);

}  // namespace autosp
