// What an operator says about how it runs on a part of its sharded letter (`OpDef::localize`), and
// what it is offered for that. Implemented in passes/elaborate.cc and passes/local_rows.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ops/op.h"

namespace autosp {

// What elaboration offers to an operator's local form (implemented in passes/elaborate.cc). All
// values are nodes of the per-rank graph under construction; sizes are local unless they say
// global.
class LocalForm {
 public:
  virtual ~LocalForm() = default;
  virtual const Call& call() const = 0;  // the global node
  // The sharded letter (as it stands in the application; a merged letter may be sharded in one of
  // its factors).
  virtual LetterId letter() const = 0;
  // Whether that is an axis in an order of its own, whose positions every rank numbers from 0.
  virtual bool in_bag() const = 0;
  // Whether the last parts have rows past the end.
  virtual bool is_ragged() const = 0;
  virtual const Application& application() const = 0;
  // The argument of the global call with every value replaced by its local counterpart.
  virtual Arg local(std::string_view parameter) const = 0;
  virtual std::vector<Expr> local_shape(int result = 0) const = 0;  // of the result
  virtual std::vector<Expr> local_operand_shape(std::string_view parameter) const = 0;
  virtual NodeId emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) = 0;
  // The node as it is, with local operands and the given type.
  virtual NodeId emit_same(Type type) = 0;
  // Whether it is in a body that runs on parts alone: nothing is exchanged, sums stay partial.
  virtual bool in_body() const = 0;
  // P -> R: sums a partial sum over the ranks.
  virtual NodeId all_reduce(NodeId partial) = 0;
  // What ends most calls of the engine's own operators: the rank, the number of ranks, the group.
  virtual void append_ranks(std::vector<Arg>& args) const = 0;
  // The operand reshaped so that what is sharded stands first in a dimension of its own, `dim`,
  // which has `size` places globally; this rank's begin at `start`.
  struct Isolated {
    NodeId value = kNoNode;
    std::vector<Expr> shape;
    int dim = 0;
    Expr size = Expr(0);
    Expr start = Expr(0);
  };
  virtual Isolated isolated(std::string_view parameter) = 0;
  // Rows past the end of a ragged sharded dimension of the operand `parameter` replaced by `fill`;
  // returns the operand unchanged where no rank has such rows.
  virtual Arg without_padding(std::string_view parameter, double fill) = 0;

  // ---- Rows along the sharded letter, which is one factor and alone in its dimensions. Operands
  // by their place in the rule; those that have neither the letter nor one that follows it are
  // whole.
  virtual NodeId operand(size_t operand) const = 0;
  virtual bool is_cut(size_t operand) const = 0;
  // The dimension of the operand's or the result's that is cut.
  virtual int64_t cut_dim(size_t operand) const = 0;
  // The global length of the cut dimension, and whether all ranks hold equally many rows of it.
  virtual Expr extent(size_t operand) const = 0;
  virtual bool is_exact(size_t operand) const = 0;
  // Rows that every rank holds of the result: those of its part and `extra` behind them, which its
  // neighbour has too; the length of both as its type says it.
  virtual int64_t extra() const = 0;
  virtual int64_t extra_of(size_t operand) const = 0;
  virtual Expr part() const = 0;
  // A cut operand's rows from `before` in front of the rank's part to `after` behind it, with
  // `fill` outside of the sequence, or with `wrap` the rows of its other end.
  virtual NodeId window(size_t operand, int64_t before, int64_t after, double fill, bool wrap) = 0;
  // The rows of a whole operand at `start` of the result, zeros elsewhere, `part` + `extra` of
  // them.
  virtual NodeId rows_at(size_t operand, const Expr& start) = 0;
  // `part` + `extra` rows as the result, whose length may have a name of its own.
  virtual NodeId as_result(NodeId rows) = 0;
};

// The type of the call's result on a rank: a tensor, or a tuple of them.
inline Type local_type(const LocalForm& form) {
  Type type = form.call().result();
  if (type.is_tensor()) type.shape = form.local_shape();
  for (size_t i = 0; i < type.elements.size(); ++i) {
    if (type.elements[i].is_tensor())
      type.elements[i].shape = form.local_shape(static_cast<int>(i));
  }
  return type;
}

// The result of a local form. Unless `replicated`, the placement follows from the letters (S, or P
// for a summed letter).
struct LocalResult {
  NodeId node = kNoNode;
  bool replicated = false;
};

}  // namespace autosp
