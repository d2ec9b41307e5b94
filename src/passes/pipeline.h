// The whole compiler as one readable function: from the program that Dynamo captured to the program
// of one rank.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"
#include "passes/elaborate.h"
#include "passes/name_masks.h"
#include "sharding/work.h"

namespace autosp {

struct Options {
  int64_t ranks = 1;
  // "auto": heads are exchanged for tokens where they fit the ranks and where that moves and holds
  // less (sharding/strategy.h), else as "gather_kv": every rank attends from its own queries to all
  // keys and values, which are gathered.
  std::string attention = "auto";
  std::string outputs = "auto";             // "auto", "full" or "local"
  bool grad_sync = true;                    // reduce parameter gradients inside the program
  std::map<std::string, int64_t> seq_dims;  // user input -> dimension that carries tokens
  int64_t latency_bytes = kLatencyBytes;    // a collective costs at least the time of so many bytes
  bool name_masks = false;                  // for a report: find out what masks compute
  std::string print;  // "": nothing; "all" or a step's name: the graph after it, to stderr
};

struct Plan {
  Graph graph;  // per rank; the rank is the size symbol kRankSymbol, the process group the literal
                // `group`
  std::vector<OutputInfo> outputs;  // one entry for each of Graph::outputs
  std::vector<Expr> divisible;      // each must be 0 modulo `ranks`
  std::vector<std::string> rules;   // "ns::op: rule" of the user's operators in it
  std::string hash;  // of the plan's text, the same on every rank; 16 hexadecimal digits
  std::vector<RepeatedWork> repeated;                    // what every rank computes whole
  std::vector<HeldMask> masks;                           // of attentions, if they are asked for
  std::vector<std::pair<std::string, int64_t>> step_ns;  // time of every step, in order
};

// Throws Unsupported for programs and options that are not supported, InternalError where the
// engine is wrong. Linear in nodes but for the minimum cut.
Plan plan(const Graph& imported, const Options& options);

// What a step reads and writes. Steps before `shard` rewrite the global program; `shard` makes it
// per-rank.
struct PipelineState {
  Graph graph;
  Options options;
  std::vector<OutputInfo> outputs = {};
  std::vector<Expr> divisible = {};
  std::vector<RepeatedWork> repeated = {};
  std::vector<HeldMask> masks = {};
  RuleFn rules = apply_rule;  // that `shard` plans with; `check` has its own
};

struct Step {
  std::string_view name;
  bool (*run)(PipelineState& state);  // whether it changed anything
};

// All steps in the order in which `plan` runs them.
std::span<const Step> pipeline_steps();

// Runs one step: verifies before and after, and prints when the options ask for it.
bool run_step(const Step& step, PipelineState& state);

}  // namespace autosp
