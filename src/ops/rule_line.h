// Rules as lines of data, and the shapes of rule that many operators share.
//
//   "… i, o i, o -> … o  sum i"   linear
//   "…, v d -> … d  gather v"  embedding
//   "…, … -> …"   pointwise with broadcasting
//
// Operands, `->`, results, two spaces, kinds ("sum i", "whole u v", separated by commas). Each
// operand is the letters of its dimensions; `…` stands for any number of leading dimensions,
// aligned at their end and broadcast as torch does. A letter that no kind names is pass, "gather"
// is another word for whole. A dimension of size 1 has no letters, so one that is stretched joins
// nothing. "state" in front of an operand and a result of the same letters marks what a scan begins
// and ends with.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "ops/op.h"

namespace autosp {

// Why a line that a user wrote is none, or does not fit an operator that takes `operands` tensors
// and gives `results`. Of the kinds, users have sum, whole (gather), attend, query and scan.
std::optional<std::string> rule_line_error(std::string_view line, int operands, int results);

// Whether a line marks operands and results as states of a scan ("state b d").
bool rule_passes_state(std::string_view line);

// Patterns go to the tensors among the arguments in the signature's order, arguments that are None
// or no tensors skipped; the last pattern serves all further tensors. Throws Unsupported when the
// shapes do not fit the line.
Application interpret_rule(std::string_view line, const Call& call);

// The type of an argument that must be a tensor; Unsupported when it is none.
const Type& tensor_type(const Call& call, std::string_view parameter);
inline int64_t rank_of(const Type& tensor) { return static_cast<int64_t>(tensor.shape.size()); }

// The tensors that a call reads, in the signature's order, lists opened. `element` is 0.
std::vector<NodeId> tensor_arguments(const Call& call);

// One letter per dimension of `type` named stem0, stem1, … (a dimension of size 1 has none).
TensorLetters fresh_letters(Application& application, const Type& type, std::string_view stem,
                            LetterKind kind = LetterKind::kPass);

// The letters of an operand that is broadcast to `result` (of the given shape): aligned at the end,
// without letters where it is stretched.
TensorLetters broadcast_letters(const std::vector<Expr>& shape, const TensorLetters& result);

// Elementwise over all tensor arguments with broadcasting; a result that is no tensor has no
// letters.
Application pointwise_application(const Call& call);
// The same, where only the named arguments are data and the other tensors are templates (dtype,
// device).
Application pointwise_application(const Call& call,
                                  std::initializer_list<std::string_view> parameters);

// Result of the operand's shape, every dimension pass except `dims`, which are of the given kind.
Application along(const Call& call, std::string_view parameter, const std::vector<int64_t>& dims,
                  LetterKind kind);

// The dimensions named by `parameter`: an integer or a list, all of them when it is None or empty.
// Sorted.
std::vector<int64_t> dims_or_all(const Call& call, std::string_view parameter, int64_t rank);

}  // namespace autosp
