// The bodies of torch.autograd.Functions that run on parts of the sequence.
#include <utility>

#include "passes/elaborator.h"
#include "sharding/functions.h"
#include "support/error.h"

namespace autosp {

Graph Elaborator::run_body(const std::vector<Cut>& cuts, bool masks_outputs) {
  in_body_ = true;
  for (const Cut& cut : cuts) {
    const Occurrence where = placements_.produced(cut.input, 0).where;
    values_.layout().give(axes_.value_leaves(cut.input, 0)[where.dim][where.position], cut.length,
                          cut.exact);
  }
  for (const Node& node : old_.nodes) emit(node);
  std::vector<Arg> outputs;
  for (const Arg& output : old_.outputs) outputs.push_back(emit_body_output(output, masks_outputs));
  builder_.graph().outputs = std::move(outputs);
  return std::move(builder_.graph());
}

// Gradients of rows past the end are nobody's.
Arg Elaborator::emit_body_output(const Arg& output, bool masks) {
  Arg out = output;
  if (output.is_value()) {
    out.value = values_.local(output.value);
    if (masks && old_.node(output.value).type.is_tensor()) {
      out.value = values_.mask_tail(out.value, output.value, 0, values_.placement(output.value),
                                    0.0, old_.node(output.value));
    }
  }
  for (Arg& item : out.items) item = emit_body_output(item, masks);
  return out;
}

// The call with both bodies in the form that they have on a rank.
NodeId Elaborator::emit_function(const Node& node) {
  const Function function = read_function(old_, node);
  const std::vector<Operand>& operands = axes_.application(node.id).operands;
  std::vector<Given> given;
  std::vector<std::pair<Expr, bool>> parts;  // of each argument that is cut
  const auto part_of = [&](const Axes& axes, const Layout& layout, NodeId value, int element,
                           const Placement& placement) -> std::pair<Expr, bool> {
    if (!placement.is_sharded()) return {Expr(0), true};
    const FactorId leaf =
        axes.value_leaves(value, element)[placement.where.dim][placement.where.position];
    return {layout.part_length(leaf), layout.is_exact(leaf)};
  };
  for (size_t i = 0, operand = 0; i < function.arguments.size(); ++i) {
    if (operand >= operands.size() || operands[operand].value != function.arguments[i]) {
      given.emplace_back();
      parts.emplace_back();
      continue;
    }
    const Operand& read = operands[operand++];
    const Placement want = placements_.needed(node.id, read);
    given.push_back({want, factor_sizes(axes_, read.value, read.element)});
    parts.push_back(part_of(axes_, layout(), read.value, read.element, want));
  }
  const FunctionPlacements placed(function, placements_.ranks(), given);

  const auto cuts_of = [](const Graph& body, const Placements& placements,
                          const std::vector<std::pair<Expr, bool>>& lengths) {
    std::vector<Cut> cuts;
    size_t next = 0;
    for (const Node& input : body.nodes) {
      if (input.kind != NodeKind::kInput) continue;
      const auto& [length, exact] = lengths[next++];
      if (placements.produced(input.id, 0).is_sharded()) cuts.push_back({input.id, length, exact});
    }
    return cuts;
  };
  const ElaborateOptions options;
  const std::vector<AttentionRegion> none;
  Elaborator forward(*placed.forward, none, options);
  Graph forward_body =
      forward.run_body(cuts_of(*function.forward, *placed.forward, parts), /*masks_outputs=*/false);
  std::vector<std::pair<Expr, bool>> given_back;
  for (const std::vector<NodeId>* values : {&function.results, &function.saved}) {
    for (const NodeId value : *values) {
      const bool known = value != kNoNode;
      given_back.push_back(known ? part_of(*placed.forward_axes, forward.layout(), value, 0,
                                           placed.forward->produced(value, 0))
                                 : std::pair(Expr(0), true));
    }
  }
  Elaborator backward(*placed.backward, none, options);
  Graph backward_body = backward.run_body(cuts_of(*function.backward, *placed.backward, given_back),
                                          /*masks_outputs=*/true);

  for (auto& [index, body] : {std::pair(node.args[0].integer, &forward_body),
                              std::pair(node.args[1].integer, &backward_body)}) {
    bodies_.push_back(static_cast<size_t>(index));
    builder_.graph().subgraphs[static_cast<size_t>(index)].second =
        std::make_shared<Graph>(std::move(*body));
  }
  Type type = node.type;
  for (size_t i = 0; i < type.elements.size(); ++i) {
    type.elements[i].shape =
        layout().shape(type.elements[i].shape, axes_.value_leaves(node.id, static_cast<int>(i)),
                       placements_.produced(node.id, static_cast<int>(i)));
  }
  std::map<NodeId, int> seen;
  Node copy = node;
  for (Arg& arg : copy.args) arg = localized(node, arg, seen);
  const NodeId id = builder_.call(copy.target, std::move(copy.args), std::move(copy.kwargs),
                                  std::move(type), &node);
  builder_.graph().node(id).origin = node.origin;
  return id;
}

}  // namespace autosp
