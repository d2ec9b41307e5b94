#include "sharding/obstacles.h"

#include <algorithm>
#include <string>

#include "sharding/functions.h"
#include "support/error.h"

namespace autosp {
namespace {

// Why a node can't be cut along the token axis: the kinds of its letters that say so.
std::string obstacles(const Axes& axes, NodeId node) {
  const Application& rule = axes.application(node);
  std::string out;
  for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
    const FactorList leaves = axes.letter_leaves(node, letter);
    const std::string kind(letter_kind_name(rule.letters[letter].kind));
    const bool tokens = std::any_of(leaves.begin(), leaves.end(),
                                    [&](FactorId leaf) { return axes.is_token(leaf); });
    if (tokens && rule.letters[letter].kind != LetterKind::kPass &&
        out.find(kind) == std::string::npos) {
      out += (out.empty() ? "" : ", ") + kind;
    }
  }
  return out.empty() ? "its parts would not be contiguous" : out;
}

// What keeps a function from running on parts along the letter of its tokens.
std::string of_function(const Axes& axes, NodeId node, const std::optional<LetterLeaf>& leaf) {
  const std::string inner = leaf ? function_obstacle(axes.graph(), node, leaf->letter) : "";
  return "this torch.autograd.Function can't run on a part of it" +
         (inner.empty() ? "" : ": " + inner) +
         ". Let its forward and backward work on each token alone, or sum over tokens";
}

std::string of_registered(const Axes& axes, int ranks, NodeId node,
                          const std::optional<LetterLeaf>& leaf) {
  const Letter letter = leaf ? axes.application(node).letters[leaf->letter] : Letter{};
  const std::string count = std::to_string(ranks);
  std::string reason;
  if (letter.kind == LetterKind::kScan) {
    reason =
        "the state of a scan would have to be passed from rank to rank, which AutoSP does not do "
        "for an operator of yours. If it works on each head (or channel) alone, register 'attend " +
        letter.name + "' instead: every rank then gets all tokens of some of the heads";
  } else if (letter.kind == LetterKind::kAttend || letter.kind == LetterKind::kQuery) {
    reason =
        "it sees all tokens, so that each rank would take some of its heads: it needs a letter "
        "that its first three operands and its results have, of a size that " +
        count + " ranks divide";
  } else if (letter.kind == LetterKind::kSum) {
    reason = "at a length that " + count +
             " ranks don't divide it would sum rows past the end. Use a length that they divide";
  } else {
    reason = "if it works on each token alone, or adds tokens up, the rule has to say so ('" +
             letter.name + "' in operands and results, or 'sum " + letter.name + "')";
  }
  return "the rule that was registered for it, \"" + std::string(axes.op(node)->rule) +
         "\", does not let it run on a part of it: " + reason;
}

}  // namespace

void refuse_cut(const Axes& axes, int ranks, const Node& node, const Operand& operand,
                const Occurrence& tokens) {
  const OpDef* op = axes.op(node.id);
  const auto leaf = axes.letter_at(node.id, operand.letters, tokens);
  const std::string start = node.target + (node.source.empty() ? "" : " at " + node.source) +
                            ": dimension " + std::to_string(tokens.dim) + " of %" +
                            axes.graph().node(operand.value).name + " carries the sequence, and ";
  if (op == nullptr) {
    throw Unsupported(
        start +
        "AutoSP has no rule for this operator. Running it whole on every rank would repeat its "
        "work and memory " +
        std::to_string(ranks) +
        " times. Express it with operators from the supported list, give it a rule if it is an "
        "operator of your own (autosp.register_rule), or move it out of the compiled function.");
  }
  if (op->function) throw Unsupported(start + of_function(axes, node.id, leaf));
  if (op->registered) throw Unsupported(start + of_registered(axes, ranks, node.id, leaf));
  throw Unsupported(
      start + "this operator can't be computed on a part of it (" + obstacles(axes, node.id) +
      "). It would need the whole sequence on every rank. Work on each token alone, reduce with "
      "sum or mean, or move the operator out of the compiled function.");
}

}  // namespace autosp
