// The functions that flex_attention calls on every score: score_mod(score, b, h, q, k, …) and
// mask_mod(b, h, q, k, …), where … are tensors of their own. b, h and q are the numbers of a part
// of the batch, a head and a query among those that the call has; k is that of a key.
#pragma once

#include <vector>

#include "ops/op.h"

namespace autosp {

inline constexpr int kNumbers = 3;  // b, h, q
inline constexpr int kQueries = 2;

struct ScoreBody {
  size_t index;             // into Graph::subgraphs
  int numbers;              // which of its inputs is b; h, q and k are the next
  int tensors;              // which of its inputs is the first of its own
  size_t tensors_argument;  // which argument of the call holds those
};

// Both functions of a call.
std::vector<ScoreBody> score_bodies(const Call& call);

// The tensors of one of the functions; sizes that it is given too are no inputs of its graph.
std::vector<NodeId> score_tensors(const Call& call, const ScoreBody& body);

// What a function makes of its numbers and tensors.
struct ScoreReads {
  // For each number: whether it is read at most as an index of one of the function's tensors, t[b],
  // so that whoever has a part of the tensors may count from 0.
  bool looked_up[kNumbers] = {true, true, true};
  // For each of those tensors: the number that alone is its index wherever it is read, or -1. It
  // has as many rows as there are numbers.
  std::vector<int> index;
};
ScoreReads score_reads(const Call& call, const ScoreBody& body);

// Whether the mask of a call is one row of blocks, which says the same of all queries. Its tensors
// are [b, h, rows] and [b, h, rows, columns].
bool has_one_row(const Call& call);

// The input of a function at a place.
NodeId input_at(const Graph& function, int place);

}  // namespace autosp
