// How elaboration writes the program of a rank, and the bodies of functions that it calls; included
// by the sources that implement passes/elaborate.h alone.
#pragma once

#include <map>
#include <tuple>
#include <vector>

#include "ir/builder.h"
#include "passes/elaborate.h"
#include "passes/local_values.h"

namespace autosp {

class Elaborator {
 public:
  Elaborator(const Placements& placements, const std::vector<AttentionRegion>& regions,
             const ElaborateOptions& options)
      : placements_(placements),
        axes_(placements.axes()),
        old_(axes_.graph()),
        regions_(regions),
        options_(options),
        builder_(old_),
        values_(placements, options.grad_sync, builder_),
        deferred_(regions.size()),
        exchanged_(regions.size(), false) {
    builder_.graph().hints[std::string(kRankSymbol)] = 0;
  }

  Elaborated run();
  // Of a body that runs on parts alone, with what is known of the lengths of its cut inputs.
  struct Cut {
    NodeId input;
    Expr length;
    bool exact;
  };
  Graph run_body(const std::vector<Cut>& cuts, bool masks_outputs);

 private:
  friend class Local;

  void note_lengths();
  void plan_deferred();
  void emit(const Node& node);
  void emit_sharded(const Node& node);
  void repeat_last(const Call& call);
  NodeId emit_function(const Node& node);
  Arg emit_body_output(const Arg& output, bool masks);
  bool is_read_partial(NodeId value) const;
  void emit_tuple_element(const Node& node, const Operand& tuple);
  void exchange_region_inputs(int region, const Node& near);
  Arg emit_output(const Arg& output, OutputInfo& info);

  Arg tuple_elements(const Node& node, NodeId value);
  bool borrows_sharded_shape(const Node& node) const;
  bool is_extended(NodeId node, const Operand& operand) const;
  Arg localized(const Node& node, const Arg& arg, std::map<NodeId, int>& seen);
  const Layout& layout() const { return values_.layout(); }

  const Placements& placements_;
  const Axes& axes_;
  const Graph& old_;
  const std::vector<AttentionRegion>& regions_;
  const ElaborateOptions& options_;
  GraphBuilder builder_;
  LocalValues values_;
  std::vector<std::vector<NodeId>> deferred_;  // spread views that wait for their region's core
  std::vector<bool> exchanged_;
  // Operands of the node being written whose padding was replaced; by value, dimension and
  // position.
  std::map<std::tuple<NodeId, int, int>, NodeId> tails_;
  std::vector<Expr> divisible_;
  bool in_body_ = false;
  std::vector<size_t> bodies_;  // subgraphs that are those of a rank
};

}  // namespace autosp
