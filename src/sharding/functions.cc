#include "sharding/functions.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "support/error.h"

namespace autosp {
namespace {

[[noreturn]] void refuse(const Node& node, const std::string& why) {
  throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) + ": " + why);
}

std::vector<NodeId> input_nodes(const Graph& graph) {
  std::vector<NodeId> out;
  for (const Node& node : graph.nodes) {
    if (node.kind == NodeKind::kInput) out.push_back(node.id);
  }
  return out;
}

std::vector<Placement> placements_of(const std::vector<Given>& given) {
  std::vector<Placement> out;
  for (const Given& input : given) out.push_back(input.placement);
  return out;
}

// Whether values of a graph are what the inputs of a body are.
bool fit(const Graph& graph, const std::vector<NodeId>& values, const Graph& body) {
  const std::vector<NodeId> inputs = input_nodes(body);
  if (inputs.size() != values.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Type& type = body.node(inputs[i]).type;
    if (values[i] == kNoNode ? type.is_tensor() : !(graph.node(values[i]).type == type))
      return false;
  }
  return true;
}

// Where a leaf factor stands in a value; nothing where it does not, or more than once.
std::optional<Occurrence> only_place(const Axes& axes, NodeId value, FactorId leaf) {
  std::optional<Occurrence> found;
  const std::vector<FactorList> dims = axes.value_leaves(value, 0);
  for (int dim = 0; dim < static_cast<int>(dims.size()); ++dim) {
    for (int position = 0; position < static_cast<int>(dims[dim].size()); ++position) {
      if (dims[dim][position] != leaf) continue;
      if (found) return std::nullopt;
      found = Occurrence{dim, position};
    }
  }
  return found;
}

// The placements of the bodies with one leaf of the forward's inputs cut.
FunctionPlacements cut_along(const Function& function, const Axes& axes, FactorId leaf, int ranks) {
  const std::vector<NodeId> inputs = input_nodes(*function.forward);
  std::vector<Given> given;
  for (const NodeId input : inputs) {
    const std::optional<Occurrence> where = only_place(axes, input, leaf);
    given.push_back(
        {where ? Placement::sharded(*where) : Placement::varying(), factor_sizes(axes, input, 0)});
  }
  return FunctionPlacements(function, ranks, std::move(given));
}

}  // namespace

std::vector<TensorSizes> factors_of(const std::vector<Given>& given) {
  std::vector<TensorSizes> out;
  for (const Given& input : given) out.push_back(input.factors);
  return out;
}

TensorSizes factor_sizes(const Axes& axes, NodeId value, int element) {
  TensorSizes out;
  for (const FactorList& dim : axes.value_leaves(value, element)) {
    std::vector<Expr>& sizes = out.emplace_back();
    for (const FactorId leaf : dim) sizes.push_back(axes.factors().size(leaf));
  }
  return out;
}

Function read_function(const Graph& graph, const Node& node) {
  const Call call(graph, node, *find_op(node.target));
  const auto body = [&](std::string_view name) {
    const Arg* arg = call.find(name);
    if (arg == nullptr || arg->kind != Arg::Kind::kGraph)
      refuse(node, "it is not given its bodies as graphs, which is not supported");
    return graph.subgraphs[static_cast<size_t>(arg->integer)].second.get();
  };
  Function out;
  out.forward = body("forward");
  out.backward = body("backward");
  const Arg* dirty = call.find("dirty_idx");
  if (dirty != nullptr && !dirty->items.empty())
    refuse(node, "the function changes its inputs (ctx.mark_dirty), which is not supported");
  const std::vector<Arg>& given = call.find("args")->items;
  const std::vector<Arg>& outputs = out.forward->outputs;
  const std::vector<Arg>& gradients = out.backward->outputs;
  if (outputs.size() != 2 || outputs[1].kind != Arg::Kind::kTuple ||
      gradients.size() != given.size())
    refuse(node, "its bodies have a form that is not known");
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].is_integral()) continue;
    out.arguments.push_back(given[i].is_value() ? given[i].value : kNoNode);
    out.gradients.push_back(gradients[i].is_value() ? gradients[i].value : kNoNode);
  }
  const std::vector<Arg> results =
      outputs[0].kind == Arg::Kind::kTuple ? outputs[0].items : std::vector<Arg>{outputs[0]};
  for (const Arg& result : results) {
    if (!result.is_value() || !out.forward->node(result.value).type.is_tensor())
      refuse(node, "the function gives something else than tensors, which is not supported");
    out.results.push_back(result.value);
  }
  for (const Arg& saved : outputs[1].items) {
    if (!saved.is_integral()) out.saved.push_back(saved.is_value() ? saved.value : kNoNode);
  }
  std::vector<NodeId> handed = out.results;
  handed.insert(handed.end(), out.saved.begin(), out.saved.end());
  if (!fit(graph, out.arguments, *out.forward) || !fit(*out.forward, handed, *out.backward))
    refuse(node, "its bodies read something else than they are given, which is not supported");
  return out;
}

FunctionPlacements::FunctionPlacements(const Function& function, int ranks,
                                       std::vector<Given> arguments) {
  const auto meaning = [](const Placement& placement) {
    return placement.is_sharded()                        ? "a part of its tokens"
           : placement.kind == Placement::Kind::kPartial ? "a summand of it"
                                                         : "all of it";
  };
  forward_axes = Axes::of_body(*function.forward, factors_of(arguments));
  forward = std::make_unique<Placements>(*forward_axes, ranks, placements_of(arguments));
  const bool cut = std::any_of(arguments.begin(), arguments.end(), [](const Given& argument) {
    return argument.placement.is_sharded();
  });

  std::vector<Given> given;
  for (const NodeId result : function.results) {
    const Placement have = forward->produced(result, 0);
    const bool whole = !have.is_sharded() && have.kind != Placement::Kind::kPartial;
    if (whole && cut)
      refuse(
          function.forward->node(result),
          "a torch.autograd.Function on parts of the sequence gives a result that all ranks have "
          "whole, so its backward would see a part of the gradient. Compute it outside of the "
          "function");
    given.push_back(
        {have.is_sharded() ? have : Placement::varying(), factor_sizes(*forward_axes, result, 0)});
  }
  for (const NodeId saved : function.saved) {
    if (saved == kNoNode) {
      given.emplace_back();
      continue;
    }
    given.push_back({forward->produced(saved, 0), factor_sizes(*forward_axes, saved, 0)});
  }
  backward_axes = Axes::of_body(*function.backward, factors_of(given));
  backward = std::make_unique<Placements>(*backward_axes, ranks, placements_of(given));
  for (size_t i = 0; i < function.gradients.size() && cut; ++i) {
    const NodeId gradient = function.gradients[i];
    if (gradient == kNoNode) continue;
    const Placement& argument = arguments[i].placement;
    const Placement want = argument.is_sharded() ? argument : Placement::partial();
    const Placement have = backward->produced(gradient, 0);
    if (have == want) continue;
    refuse(function.backward->node(gradient),
           "a torch.autograd.Function on parts of the sequence gives, for an input of which every "
           "rank has " +
               std::string(meaning(argument)) + ", a gradient of which it has " + meaning(have) +
               "; a rank's gradient is that of its part, and for what all ranks have whole a "
               "summand");
  }
}

namespace {

// The letters of a call, all whole, and the factor of the forward that each one is.
Application whole_application(const Function& function, const Axes& axes,
                              std::vector<FactorId>& factors) {
  Application out;
  const auto dims = [&](NodeId value) {
    TensorLetters result;
    for (const FactorList& dim : axes.value_leaves(value, 0)) {
      DimLetters& list = result.emplace_back();
      for (const FactorId leaf : dim) {
        const auto found = std::find(factors.begin(), factors.end(), leaf);
        if (found != factors.end()) {
          list.push_back(static_cast<LetterId>(found - factors.begin()));
          continue;
        }
        list.push_back(out.add("x" + std::to_string(factors.size()), axes.factors().size(leaf),
                               LetterKind::kWhole));
        factors.push_back(leaf);
      }
    }
    return result;
  };
  const std::vector<NodeId> inputs = input_nodes(*function.forward);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (function.arguments[i] != kNoNode && function.forward->node(inputs[i]).type.is_tensor())
      out.operands.push_back({function.arguments[i], 0, dims(inputs[i])});
  }
  for (const NodeId result : function.results) out.results.push_back(dims(result));
  return out;
}

}  // namespace

Application function_application(const Graph& graph, const Node& call) {
  const Function function = read_function(graph, call);
  const Axes axes(*function.forward, {});
  std::vector<FactorId> factors;
  Application out = whole_application(function, axes, factors);
  const auto kind = [&](FactorId factor) {
    try {
      const FunctionPlacements placed = cut_along(function, axes, factor, 1);
      const bool sums =
          std::any_of(function.results.begin(), function.results.end(), [&](NodeId result) {
            return placed.forward->produced(result, 0).kind == Placement::Kind::kPartial;
          });
      return sums ? LetterKind::kSum : LetterKind::kPass;
    } catch (const Unsupported&) {  // function_obstacle says why to whom it may concern
      return LetterKind::kWhole;
    }
  };
  for (size_t letter = 0; letter < factors.size(); ++letter)
    out.letters[letter].kind = kind(factors[letter]);
  return out;
}

std::string function_obstacle(const Graph& graph, NodeId call, LetterId letter) {
  const Function function = read_function(graph, graph.node(call));
  const Axes axes(*function.forward, {});
  std::vector<FactorId> factors;
  whole_application(function, axes, factors);
  try {
    cut_along(function, axes, factors.at(static_cast<size_t>(letter)), 1);
  } catch (const Unsupported& error) {
    return error.what();
  }
  return {};
}

}  // namespace autosp
