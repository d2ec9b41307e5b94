// Rules that users register for operators of their own (torch.library), in the notation of
// ops/rule_line.h:
//
//   "… d, d -> … d  whole d"                        a norm over features
//   "b t h d, b t h d, b t h e -> b t h e  attend t"   an attention or a scan, cut along its heads
//   "b t d, d, state b d -> b t d, state b d  scan t"   a scan that ranks run one after the other,
//                                                      each from the state that the last one left
//
// A rule is data that the engine has before it plans. It says of the forward what parts of the
// result need, and its gradient is taken to be of the same kind: of a part's, that of the operands'
// parts, and a summand for operands without the letter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"

namespace autosp {

struct Registration {
  std::string name;                  // "ns::op", for messages
  std::vector<std::string> targets;  // what captured programs call it
  std::string signature;             // as in OpDef
  int tensors = 0;                   // parameters that take tensors
  int results = 0;                   // tensors that it gives
  std::string rule;                  // "..." is another spelling of "…"
};

// From now on every plan goes by it; a second rule for one name replaces the first. Throws
// Unsupported for a rule that is not of the notation or does not fit the operator, and for
// operators that AutoSP has a rule for. Safe to call from several threads.
void register_rule(Registration registration);

// The operator behind a target that was registered, or nullptr; `find_op` asks it last.
const OpDef* find_registered(std::string_view target);

// A call of a registered scan on a rank's rows is one of "autosp.passing_state.ns.op.overload",
// with these arguments in front of its own: the dimension that is cut of each tensor that it is
// given and of each that it gives (-1: none), which of them are states, the global length, whether
// the ranks divide it, the rank, their number, the group.
inline constexpr std::string_view kPassingState = "autosp.passing_state.";
inline constexpr size_t kPassingArguments = 9;

// "ns::op: rule" for every operator of a user's that a graph calls, each once, in order of names.
std::vector<std::string> registered_rules(const Graph& graph);

}  // namespace autosp
