#include "passes/inline_checkpoints.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "support/error.h"

namespace autosp {
namespace {

constexpr std::string_view kTarget = "torch.ops.higher_order.tag_activation_checkpoint";

bool is_region(const Node& node) {
  return node.kind == NodeKind::kCall && node.target == kTarget && !node.args.empty() &&
         node.args[0].kind == Arg::Kind::kGraph;
}

void refuse_policy(const Node& node) {
  for (const auto& [key, arg] : node.kwargs) {
    if (key != "context_fn" || arg.is_none()) continue;
    throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) +
                      ": the region has a policy of its own for what is kept in it (context_fn), "
                      "which AutoSP does not follow. Leave out context_fn, or the whole region: "
                      "autosp.compile(checkpointing=…) chooses what is kept.");
  }
}

// Writes a graph and the bodies that it calls, one after the other, into one.
class Inliner {
 public:
  explicit Inliner(const Graph& graph) : graph_(graph), builder_(graph) {
    builder_.graph().subgraphs.clear();
  }

  Graph run() {
    std::vector<Arg> outputs = write(graph_, {}, "", -1);
    Graph out = builder_.finish({});
    out.outputs = std::move(outputs);
    return out;
  }

 private:
  // Returns the outputs of `graph`, whose inputs are `arguments`. A call that gives several values
  // is a tuple of them.
  std::vector<Arg> write(const Graph& graph, const std::vector<Arg>& arguments,
                         const std::string& path, int32_t region) {
    for (const auto& [symbol, length] : graph.hints) builder_.graph().hints[symbol] = length;
    std::vector<Arg> values(graph.nodes.size());
    std::vector<int64_t> bodies(graph.subgraphs.size(), -1);
    size_t next = 0;
    for (const Node& node : graph.nodes) {
      const bool is_root = &graph == &graph_;
      Arg& value = values[static_cast<size_t>(node.id)];
      if (node.kind == NodeKind::kInput && !is_root) {
        ensure(node.input == InputKind::kUser && next < arguments.size(),
               "a region reads what it is not given");
        value = arguments[next++];
        continue;
      }
      Node copy = node;
      if (is_region(node)) {
        value = inlined(graph, node, values, path, region);
        continue;
      }
      for (Arg& arg : copy.args) arg = written(graph, arg, values, path, bodies);
      for (auto& [key, arg] : copy.kwargs) arg = written(graph, arg, values, path, bodies);
      if (const Arg* item = element(copy)) {
        value = *item;
        continue;
      }
      if (is_root) {
        value = Arg::of(builder_.add(std::move(copy)));
        continue;
      }
      const NodeId id = builder_.call(copy.target, copy.args, copy.kwargs, copy.type, &node);
      builder_.graph().node(id).origin = node.origin;
      builder_.graph().node(id).checkpoint = region;
      value = Arg::of(id);
    }
    std::vector<Arg> outputs;
    for (const Arg& output : graph.outputs)
      outputs.push_back(written(graph, output, values, path, bodies));
    return outputs;
  }

  Arg inlined(const Graph& graph, const Node& node, const std::vector<Arg>& values,
              const std::string& path, int32_t region) {
    refuse_policy(node);
    std::vector<Arg> arguments;
    std::vector<int64_t> no_bodies(graph.subgraphs.size(), -1);
    for (size_t i = 1; i < node.args.size(); ++i) {
      // A body's sizes have the names that they have around it, and are no inputs.
      if (!node.args[i].is_integral())
        arguments.push_back(written(graph, node.args[i], values, path, no_bodies));
    }
    const auto& [name, body] = graph.subgraphs[static_cast<size_t>(node.args[0].integer)];
    std::vector<Arg> outputs =
        write(*body, arguments, path + name + ".", region < 0 ? regions_++ : region);
    const bool is_one = node.type.kind != Type::Kind::kTuple && outputs.size() == 1;
    return is_one ? outputs[0] : Arg::tuple_of(std::move(outputs));
  }

  // An argument of the old graph in the new one.
  Arg written(const Graph& graph, const Arg& arg, const std::vector<Arg>& values,
              const std::string& path, std::vector<int64_t>& bodies) {
    if (arg.is_value()) return values[static_cast<size_t>(arg.value)];
    Arg out = arg;
    if (arg.kind == Arg::Kind::kGraph) {
      int64_t& body = bodies[static_cast<size_t>(arg.integer)];
      if (body < 0) {
        auto& subgraphs = builder_.graph().subgraphs;
        body = static_cast<int64_t>(subgraphs.size());
        const auto& [name, inner] = graph.subgraphs[static_cast<size_t>(arg.integer)];
        subgraphs.emplace_back(path + name, inner);
      }
      out.integer = body;
    }
    for (Arg& item : out.items) item = written(graph, item, values, path, bodies);
    return out;
  }

  // What a call picks from the values of a region; nullptr where it does something else.
  static const Arg* element(const Node& node) {
    if (node.target != "_operator.getitem" || node.args.size() != 2) return nullptr;
    const Arg& tuple = node.args[0];
    const Arg& index = node.args[1];
    if (tuple.kind != Arg::Kind::kTuple || index.kind != Arg::Kind::kInt) return nullptr;
    const auto count = static_cast<int64_t>(tuple.items.size());
    const int64_t place = index.integer < 0 ? index.integer + count : index.integer;
    return place >= 0 && place < count ? &tuple.items[static_cast<size_t>(place)] : nullptr;
  }

  const Graph& graph_;
  GraphBuilder builder_;
  int32_t regions_ = 0;
};

}  // namespace

bool inline_checkpoints(Graph& graph) {
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_region)) return false;
  graph = Inliner(graph).run();
  return true;
}

}  // namespace autosp
