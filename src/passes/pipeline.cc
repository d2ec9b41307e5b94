#include "passes/pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <set>

#include "ir/builder.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "ops/op.h"
#include "ops/registered.h"
#include "passes/check.h"
#include "passes/decompose_attention.h"
#include "passes/functionalize.h"
#include "passes/inline_checkpoints.h"
#include "passes/number_scores.h"
#include "passes/prove_causal.h"
#include "passes/seed_random.h"
#include "passes/separate_counts.h"
#include "passes/spell_causal.h"
#include "passes/spread_heads.h"
#include "sharding/attention.h"
#include "sharding/placement.h"
#include "sharding/strategy.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_effect(const Node& node) {
  const OpDef* op = find_op(node.target);
  return op != nullptr && op->effect;
}

bool drop_dead_code(PipelineState& state) { return remove_dead_code(state.graph, is_effect); }

// Calls `visit(index)` for each body that an argument holds.
template <class Visit>
void for_each_body(const Arg& arg, const Visit& visit) {
  if (arg.kind == Arg::Kind::kGraph) visit(static_cast<size_t>(arg.integer));
  for (const Arg& item : arg.items) for_each_body(item, visit);
}

bool opens_bodies(const OpDef* op) { return op != nullptr && (op->function || op->scores); }

void refuse_unsupported_calls(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    if (op == nullptr) continue;
    if (opens_bodies(op)) {
      for (const Arg& arg : node.args) {
        for_each_body(
            arg, [&](size_t index) { refuse_unsupported_calls(*graph.subgraphs[index].second); });
      }
    }
    const Call call(graph, node, *op);
    if (op->draws != nullptr && op->draws(call))
      throw Unsupported(call.where() +
                        ": random numbers inside of a function that an operator calls are not "
                        "supported: draw them outside and pass them in");
    if (op->refuse == nullptr) continue;
    if (auto reason = op->refuse(call)) throw Unsupported(call.where() + ": " + *reason);
  }
}

// Of the program and of the bodies of its functions, which it may call as they are.
bool functionalize_all(Graph& graph) {
  bool changed = functionalize(graph);
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
    if (!opens_bodies(op)) continue;
    for (const Arg& arg : node.args) {
      for_each_body(arg, [&](size_t index) {
        std::shared_ptr<Graph>& body = graph.subgraphs[index].second;
        Graph values = *body;
        if (!functionalize(values)) return;
        body = std::make_shared<Graph>(std::move(values));
        changed = true;
      });
    }
  }
  return changed;
}

// A program whose attentions are inside of bodies that a call is given shows none.
[[noreturn]] void refuse_without_tokens(const Graph& graph) {
  for (const Node& node : graph.nodes) {
    const bool nested = std::any_of(node.args.begin(), node.args.end(),
                                    [](const Arg& arg) { return arg.kind == Arg::Kind::kGraph; });
    if (nested) {
      throw Unsupported(node.target + (node.source.empty() ? "" : " at " + node.source) +
                        ": AutoSP doesn't look into the function that this call is given, so it "
                        "finds no sequence axis. Call the function itself.");
    }
  }
  throw Unsupported(
      "no sequence axis found: the program has no attention over more than one token, no scan or "
      "convolution along just one dimension of its inputs, and seq_dims is not given. Name the "
      "dimension that carries tokens, for example seq_dims={\"x\": 1} for "
      "an input x of shape [batch, tokens, features]; a single token can't be divided.");
}

// In a step on one device a buffer never has a gradient.
void refuse_buffers_with_gradients(const Axes& axes) {
  for (const Node& node : axes.graph().nodes) {
    if (node.target != "Tensor.copy_" || !axes.facts(node.args.at(1).value).differentiable)
      continue;
    const Node& buffer = axes.graph().node(node.args[0].value);
    throw Unsupported(
        (node.source.empty() ? "" : node.source + ": ") + "the buffer " + buffer.target +
        " gets a value that has a gradient, which the next step would go back through; "
        "use .detach() or no_grad");
  }
}

// Of attentions that allow both: what moves and holds less, heads for tokens, or gathered keys.
enum class Strategy : uint8_t { kWeighed, kHeads, kKeys };

// The attentions of a program, and which of them gather keys.
class Attentions {
 public:
  explicit Attentions(PipelineState& state) : state_(state) { analyse(); }

  const Axes& axes() const { return *axes_; }
  const std::vector<AttentionRegion>& regions() const { return regions_; }

  // Once more, of the program as it is now.
  void analyse() {
    std::map<std::string, int> seq_dims;
    for (const auto& [name, dim] : state_.options.seq_dims) seq_dims[name] = static_cast<int>(dim);
    axes_ = std::make_unique<Axes>(state_.graph, seq_dims, state_.rules);
    regions_ = find_attention(*axes_);
    choose_heads(*axes_, ranks(), regions_);
    for (size_t region : gathering_) {
      regions_[region].head = -1;
      regions_[region].spread.clear();
    }
  }

  void choose(Strategy strategy) {
    if (strategy == Strategy::kKeys) {
      for (size_t region = 0; region < regions_.size(); ++region) {
        if (!needs_heads(*axes_, regions_[region])) gathering_.insert(region);
      }
      analyse();
      return;
    }
    const Graph given = state_.graph;
    const std::set<size_t> copied = copy_heads({});
    if (strategy == Strategy::kWeighed) gathering_ = weigh_strategies(*axes_, ranks(), regions_);
    // Keys that are gathered after all are gathered as they were.
    std::set<size_t> keep = gathering_;
    bool undo = false;
    for (size_t region : copied) {
      if (regions_[region].head < 0) keep.insert(region);
      undo |= keep.contains(region);
    }
    if (undo) state_.graph = given;
    if (!keep.empty()) analyse();
    if (undo) copy_heads(keep);
  }

  // The operators that attend to gathered keys.
  std::set<NodeId> gathered() const {
    std::set<NodeId> out;
    for (const AttentionRegion& region : regions_) {
      if (region.head < 0) out.insert(region.core.back());
    }
    return out;
  }

 private:
  int ranks() const { return static_cast<int>(state_.options.ranks); }

  std::set<size_t> copy_heads(const std::set<size_t>& keep) {
    const std::set<size_t> copied = spread_heads(state_.graph, *axes_, ranks(), regions_, keep);
    if (!copied.empty()) {
      drop_dead_code(state_);
      analyse();
    }
    return copied;
  }

  PipelineState& state_;
  std::unique_ptr<Axes> axes_;
  std::vector<AttentionRegion> regions_;
  std::set<size_t> gathering_;  // regions, in an order that no step here changes
};

void shard_by(PipelineState& state, Strategy strategy) {
  const Options& options = state.options;
  const auto ranks = static_cast<int>(options.ranks);
  Attentions attentions(state);
  if (attentions.axes().token_axes().empty()) refuse_without_tokens(state.graph);
  refuse_buffers_with_gradients(attentions.axes());
  attentions.choose(strategy);
  if (spell_causal(state.graph, attentions.gathered())) attentions.analyse();
  if (separate_counts(state.graph, attentions.axes())) {
    drop_dead_code(state);
    attentions.analyse();
  }
  const Axes& axes = attentions.axes();
  std::vector<AttentionRegion> regions = attentions.regions();
  std::vector<MaskUse> masks;
  if (options.name_masks) masks = name_masks(axes, regions);
  std::erase_if(regions, [](const AttentionRegion& region) { return region.head < 0; });
  const Placements placements(axes, ranks, regions, options.latency_bytes);
  Elaborated elaborated = elaborate(placements, regions, {options.grad_sync, options.outputs});
  state.repeated = repeated_work(placements);
  state.masks = held_masks(masks, state.graph, elaborated.graph, elaborated.locals);
  state.graph = std::move(elaborated.graph);
  state.outputs = std::move(elaborated.outputs);
  state.divisible = std::move(elaborated.divisible);
}

// What stands around the scores of an attention (shifts of relative positions) may go with heads
// alone, whatever they cost.
bool shard(PipelineState& state) {
  state.outputs.assign(state.graph.outputs.size(), {});
  if (state.options.ranks == 1) return false;
  number_scores(state.graph);
  if (state.options.attention != "auto") {
    shard_by(state, Strategy::kKeys);
    return true;
  }
  const Graph given = state.graph;
  try {
    shard_by(state, Strategy::kWeighed);
  } catch (const Unsupported&) {
    const std::exception_ptr refused = std::current_exception();
    state.graph = given;
    try {
      shard_by(state, Strategy::kHeads);
    } catch (const Unsupported&) {
      std::rethrow_exception(refused);
    }
  }
  return true;
}

bool check(PipelineState& state) {
  if (state.options.ranks > 1) {
    std::vector<Placement> outputs;
    for (const OutputInfo& info : state.outputs) {
      outputs.push_back(info.sharded ? Placement::sharded({static_cast<int>(info.dim), 0})
                                     : Placement::replicated());
    }
    check_placements(state.graph, outputs, state.options.grad_sync);
  }
  return false;
}

// Regions that the user recomputes are opened first, so that all others see one program. Writes
// through tensors become values: every later step reads dataflow. Dead code goes before anything is
// refused, because unused second masks are common. What draws is written out ahead of that: what is
// left of it has no such form. Attention modules are opened
// before masks are proved, since they hold the attentions; a proved mask leaves its S x S
// comparisons dead. After sharding, the checker derives every placement again from the rewritten
// graph alone.
constexpr Step kSteps[] = {
    {"inline-checkpoints", [](PipelineState& state) { return inline_checkpoints(state.graph); }},
    {"functionalize", [](PipelineState& state) { return functionalize_all(state.graph); }},
    {"drop-dead-code", drop_dead_code},
    {"seed-random", [](PipelineState& state) { return seed_random(state.graph); }},
    {"refuse-unsupported",
     [](PipelineState& state) { return refuse_unsupported_calls(state.graph), false; }},
    {"decompose-attention", [](PipelineState& state) { return decompose_attention(state.graph); }},
    {"prove-causal",
     [](PipelineState& state) {
       return prove_causal(state.graph) && (drop_dead_code(state), true);
     }},
    {"shard", shard},
    {"check", check},
};

// FNV-1a: the plans are compared for equality by cooperating ranks, not against an adversary.
std::string hash_text(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char byte : text) hash = (hash ^ byte) * 1099511628211ULL;
  char out[17];
  std::snprintf(out, sizeof out, "%016llx", static_cast<unsigned long long>(hash));
  return out;
}

void check_options(const Options& options) {
  if (options.ranks < 1)
    throw Unsupported("the number of ranks must be at least 1, not " +
                      std::to_string(options.ranks));
  if (options.latency_bytes < 0) throw Unsupported("latency_bytes must not be negative");
  if (options.attention != "auto" && options.attention != "gather_kv") {
    throw Unsupported(
        "attention=\"" + options.attention +
        "\" is not supported; the choices are \"auto\" (heads are exchanged for tokens where "
        "they fit) and \"gather_kv\" (keys and values are gathered)");
  }
  if (options.outputs != "auto" && options.outputs != "full" && options.outputs != "local") {
    throw Unsupported("outputs=\"" + options.outputs +
                      "\" is not one of \"auto\", \"full\", \"local\"");
  }
  if (options.print.empty() || options.print == "all") return;
  std::string known;
  for (const Step& step : kSteps) {
    if (step.name == options.print) return;
    known += std::string(known.empty() ? "" : ", ") + std::string(step.name);
  }
  throw Unsupported("AUTOSP_PRINT=" + options.print + " names no step; the steps are all, " +
                    known);
}

}  // namespace

std::span<const Step> pipeline_steps() { return kSteps; }

bool run_step(const Step& step, PipelineState& state) {
  const bool changed = step.run(state);
  if (changed) verify(state.graph);
  if (state.options.print == "all" || state.options.print == step.name) {
    std::fprintf(stderr, "// after %s\n%s", std::string(step.name).c_str(),
                 print(state.graph).c_str());
  }
  return changed;
}

Plan plan(const Graph& imported, const Options& options) {
  check_options(options);
  verify(imported);
  PipelineState state{.graph = imported, .options = options};
  Plan out;
  for (const Step& step : kSteps) {
    const auto start = std::chrono::steady_clock::now();
    run_step(step, state);
    const auto took = std::chrono::steady_clock::now() - start;
    out.step_ns.emplace_back(step.name,
                             std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }
  out.graph = std::move(state.graph);
  out.outputs = std::move(state.outputs);
  out.divisible = std::move(state.divisible);
  out.repeated = std::move(state.repeated);
  out.masks = std::move(state.masks);
  out.rules = registered_rules(out.graph);
  std::string text = print(out.graph);
  for (const std::string& rule : out.rules) text += rule + "\n";
  for (const OutputInfo& info : out.outputs)
    text += info.sharded ? " S" + std::to_string(info.dim) : " R";
  out.hash = hash_text(text);
  return out;
}

}  // namespace autosp
