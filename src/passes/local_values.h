// The values of the program as one rank holds them, and the conversions that lead from one
// placement to another.
//
//   as(%x, S(1))     the first time  %x_1 = autosp.r_to_s(%x, 1, …), then %x_1 again
//
// A conversion is written in front of the first reader that needs it, each once per value. Where a
// sharded factor stands inside of a dimension, reshapes around the conversion bring it to the front
// of one of its own.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "passes/layout.h"
#include "sharding/placement.h"

namespace autosp {

// The type of one tensor of a value (an element of a tuple, or the value itself).
Type element_type(const Type& type, int element);

class LocalValues {
 public:
  // `grad_sync`: the gradients of parameters are reduced inside the program.
  LocalValues(const Placements& placements, bool grad_sync, GraphBuilder& builder);

  const Layout& layout() const { return layout_; }
  Layout& layout() { return layout_; }

  // What a value of the program is on a rank once it has been computed. A partial sum stays one
  // only where a reader wants it; `as` sums it for others.
  void set(NodeId value, NodeId local, const Placement& placement);
  bool is_made(NodeId value) const { return locals_[value] != kNoNode; }
  NodeId local(NodeId value) const { return locals_[value]; }
  const Placement& placement(NodeId value) const { return placed_[value]; }

  // The value in another placement. `near` gives the conversion its name and source.
  NodeId as(NodeId value, const Placement& want, const Node& near);
  bool is_converted(NodeId value, const Placement& want) const {
    return variants_.contains(variant(value, want));
  }
  // One element of a value, `local` in placement `from`, in placement `to`; not remembered.
  NodeId convert(NodeId local, NodeId value, int element, const Placement& from,
                 const Placement& to, const Node& near);
  // Converts several values of one dtype from one sharded dimension to another in one exchange.
  struct Exchanged {
    NodeId value;
    Placement to;
  };
  void exchange(const std::vector<Exchanged>& inputs, const Node& near);
  // The element with the rows past the end of a trimmed axis replaced; itself where there are none.
  NodeId mask_tail(NodeId local, NodeId value, int element, const Placement& placement, double fill,
                   const Node& near);
  // A value in parts whose rows past the end are copies of the last one, so that nothing that is
  // computed from them is singular where the rows in front of the end are not.
  NodeId repeat_last(NodeId local, NodeId value, const Placement& placement, const Node& near);
  // The element reshaped so that what is sharded stands first in a dimension of its own, with that
  // dimension, its global length, and where this rank's part of it begins.
  struct Isolated {
    NodeId local = kNoNode;
    int dim = 0;
    Expr size = Expr(0);
    Expr start = Expr(0);
  };
  Isolated isolated(NodeId local, NodeId value, int element, const Placement& placement,
                    const Node& near);
  // A partial sum as R or V.
  NodeId reduce(NodeId partial, bool varying, const Node& near);

  // What ends a call of most of the engine's operators: the rank, the number of ranks, the group.
  void append_ranks(std::vector<Arg>& args) const;

  // To be told of every change of grad mode.
  void follow_grad_mode(const Node& node);

 private:
  using Variant = std::tuple<NodeId, int, int, int>;  // (value, kind, dim, position)
  static Variant variant(NodeId value, const Placement& placement) {
    return {value, static_cast<int>(placement.kind), placement.where.dim, placement.where.position};
  }
  NodeId mask_bag(NodeId local, NodeId value, int element, const Placement& placement, double fill,
                  const Node& near);
  void remember(NodeId value, const Placement& placement, NodeId local);
  NodeId reshape(NodeId local, const std::vector<Expr>& shape, const Node& near);
  NodeId rows_with_neighbours(NodeId local, NodeId value, int element, const Placement& from,
                              const Placement& to, const Node& near);
  NodeId exchange_between(NodeId local, NodeId value, int element, const Placement& from,
                          const Placement& to, const Node& near);
  std::vector<Arg> exchange_arguments(const std::vector<Arg>& values, const std::vector<int>& split,
                                      const std::vector<Expr>& lengths,
                                      const std::vector<int>& concat,
                                      const std::vector<Expr>& sizes, bool exact) const;
  Arg ranks() const { return Arg::integer_of(placements_.ranks()); }

  const Placements& placements_;
  const Axes& axes_;
  const Graph& old_;
  bool grad_sync_;
  GraphBuilder& builder_;
  Layout layout_;
  std::vector<NodeId> locals_;
  std::vector<Placement> placed_;
  std::map<Variant, NodeId> variants_;
  std::vector<Variant> detached_;  // those that were made while gradients were disabled
  bool grad_enabled_ = true;
};

}  // namespace autosp
