// How slices and indices relate dimensions: torch's reading of `tensor[index]`, as letters.
//
//   x[:, None, :-1]  [b, s] -> [b, 1, s - 1]  operand (b)(s), result (b)()(p), p a prefix of s
//   x[..., 4:]       [b, 8] -> [b, 4]         operand (b)(d), result (b)(e), e a shifted copy of d
//   x[i, j]          [b, s, d] -> [m, d]      operand (b)(s)(d), result (m)(d), rows of b, s picked
#pragma once

#include <optional>
#include <vector>

#include "ops/op.h"

namespace autosp {

// The number of an integer argument that is known when the program is compiled.
std::optional<int64_t> constant_of(const Arg& arg);

// One dimension before and after a slice.
struct Cut {
  DimLetters operand;
  DimLetters result;
};

// The first element that a slice of step 1 takes of `size`; nothing where that depends on data.
std::optional<Expr> first_row(const Arg& slice, const Expr& size);

// Whether `length` elements are nearly all of `size`: a number less than a symbol, or more than
// half of a number.
bool is_trim(const Expr& size, const Expr& length);

// A dimension of `size` cut to `length` elements by a slice. All of it is the same axis; a trim at
// the end is a prefix of it, one at the start a shifted copy; a few elements are picked, and every
// other cut is a new axis that can be taken from the whole operand only. Trims are recognised by
// how they are written (`:-1`, `1:`, a symbolic length less a number), or, with lengths that are
// numbers, by leaving more than they take.
Cut cut_dimension(Application& application, const Expr& size, const Expr& length, const Arg& slice);

// One entry of an index and where it acts.
struct IndexItem {
  enum class Kind : uint8_t { kSelect, kSlice, kNew, kTensor, kList };
  Kind kind = Kind::kSlice;
  Arg arg;           // full slices that the index leaves out are written out
  int given = -1;    // position in the index tuple; -1 for those
  int operand = -1;  // the operand's dimension; -1 for a new one
  int result = -1;   // the result's dimension; -1 for none and for the tensors' common block
};

// A read index: entries in order, and the dimensions of the result that the index tensors make
// together.
struct Index {
  std::vector<IndexItem> items;
  int block_begin = 0;
  int block_rank = 0;
  int rank = 0;  // of the result
};

// Reads an index of a tensor of `rank` dimensions as torch does: numbers select first; tensors are
// broadcast together and their dimensions stand where the tensors stand, or in front when something
// stands between them. Nothing for indices that AutoSP does not read: masks, nested lists.
std::optional<Index> read_index(const Graph& graph, const Arg& index, size_t rank);

// The letters of operand, index tensors and selected elements.
struct Indexed {
  TensorLetters operand;
  TensorLetters selected;
  std::vector<Operand> tensors;
  std::optional<Picked> picked;  // its `index` counts from the first of `tensors`
};

// `shape` is that of the selected elements; `block_kind` what the dimensions of the index tensors
// are, `rows_kind` those of the operand that they and numbers point into.
Indexed index_letters(Application& application, const Graph& graph, const Index& index,
                      const Type& operand, const std::vector<Expr>& shape, LetterKind block_kind,
                      LetterKind rows_kind);

}  // namespace autosp
