// What a local form is offered for rows along its sharded letter (ops/local_form.h): the operand's
// own, neighbours', and those of whole operands at given positions.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/local_form.h"
#include "passes/local_values.h"
#include "sharding/placement.h"

namespace autosp {

class LocalRows : public LocalForm {
 public:
  LocalRows(const Placements& placements, LocalValues& values, GraphBuilder& builder,
            const Call& call, LetterLeaf leaf)
      : placements_(placements),
        axes_(placements.axes()),
        values_(values),
        builder_(builder),
        call_(call),
        node_(call.node()),
        leaf_(leaf) {}

  const Call& call() const override { return call_; }
  LetterId letter() const override { return leaf_.letter; }
  const Application& application() const override { return axes_.application(node_.id); }
  std::vector<Expr> local_shape(int result) const override;
  NodeId emit(std::string target, std::vector<Arg> args, Kwargs kwargs, Type type) override;
  void append_ranks(std::vector<Arg>& args) const override { values_.append_ranks(args); }

  NodeId operand(size_t operand) const override;
  bool is_cut(size_t operand) const override;
  int64_t cut_dim(size_t operand) const override;
  Expr extent(size_t operand) const override;
  bool is_exact(size_t operand) const override;
  int64_t extra() const override;
  int64_t extra_of(size_t operand) const override;
  Expr part() const override;
  NodeId window(size_t operand, int64_t before, int64_t after, double fill, bool wrap) override;
  NodeId rows_at(size_t operand, const Expr& start) override;
  NodeId as_result(NodeId rows) override;

 private:
  FactorId base() const;
  Expr rows_per_base() const;  // of the sharded letter, for each row of its axis
  FactorId leaf_of(size_t operand) const;

  const Placements& placements_;
  const Axes& axes_;
  LocalValues& values_;
  GraphBuilder& builder_;
  const Call& call_;
  const Node& node_;
  LetterLeaf leaf_;
};

}  // namespace autosp
