#include "sharding/obstacles.h"

#include <algorithm>
#include <string>

#include "sharding/functions.h"
#include "sharding/placement.h"
#include "support/error.h"

namespace autosp {
namespace {

// Why a node can't be cut along the token axis, and what to do instead.
struct Reason {
  std::string why;
  std::string instead;
};

Reason reason(const Axes& axes, NodeId node, const Operand& operand, const Occurrence& tokens,
              const std::optional<LetterLeaf>& leaf) {
  const FactorId factor =
      axes.value_leaves(operand.value, operand.element)[tokens.dim][tokens.position];
  if (axes.extension(factor) > 0) {
    return {
        " with rows made up at its ends, which two ranks hold and which this operator would "
        "count twice",
        "Cut those rows off first, or work on each row alone"};
  }
  const std::vector<Letter>& letters = axes.application(node).letters;
  const LetterKind kind = leaf ? letters[leaf->letter].kind : LetterKind::kWhole;
  const bool shared = leaf && axes.letter_leaves(node, leaf->letter).size() > 1;
  const auto is = [&](LetterKind wanted) {
    return kind == wanted || (leaf && std::any_of(letters.begin(), letters.end(), [&](auto& other) {
                                return other.kind == wanted && other.link == leaf->letter;
                              }));
  };
  if (axes.is_bag(factor)) {
    return {
        ", in the order in which the program has sorted it, and this operator depends on that "
        "order, which no rank knows alone",
        "Pick the rows back into their own order first, or work on each row alone"};
  }
  if (is(LetterKind::kBag)) {
    return {
        ", and this operator puts the tokens in another order, which no rank knows alone",
        "Sort a small key that has no gradient (an expert's number), or sort within each token"};
  }
  if (needs_other_rows(kind) || is(LetterKind::kShift) || is(LetterKind::kPrefix)) {
    if (shared) {
      return {
          ", and this operator needs rows of other ranks, which it can't ask for where the "
          "sequence shares its dimension with another axis",
          "Give the sequence a dimension of its own first (unflatten)"};
    }
    return {", and the rows of this operator's result are divided among the ranks at other places",
            "Keep the sequence's length: mask the rows that are not wanted, and pad or cut the "
            "program's "
            "inputs instead"};
  }
  if (kind == LetterKind::kAttend) {
    return {
        ", and its queries see all of it, so that each rank would take some of its heads: it needs "
        "a number of heads that the ranks divide",
        "Use as many ranks as divide it, or more heads"};
  }
  if (kind == LetterKind::kPass || kind == LetterKind::kQuery) {
    return {", and a rank's part would not be contiguous in the result",
            "Keep the sequence in a dimension of its own, or the outer one of those that it shares "
            "a dimension with"};
  }
  if (axes.op(node)->aliases) {
    return {
        ", and the rows that this operator takes out of it lie on some of the ranks only",
        "Keep all rows and give those that are not wanted a weight of zero (torch.where), or pick "
        "a few of them by their numbers (torch.index_select)"};
  }
  return {", and this operator must see all of it at once",
          "Work on each token alone, reduce over the tokens (sum, mean, max, logsumexp), or move "
          "the operator out of the compiled function"};
}

// What keeps a function from running on parts along the letter of its tokens.
std::string of_function(const Axes& axes, NodeId node, const std::optional<LetterLeaf>& leaf) {
  const std::string inner = leaf ? function_obstacle(axes.graph(), node, leaf->letter) : "";
  return "this torch.autograd.Function can't run on a part of it" +
         (inner.empty() ? "" : ": " + inner) +
         ". Let its forward and backward work on each token alone, or sum over tokens.";
}

// What keeps functions on scores from running on parts of the queries.
std::string of_scores(int ranks) {
  return "the blocks of its mask stand for all queries, so that each rank would take some of its "
         "heads: it needs a number of heads that " +
         std::to_string(ranks) +
         " ranks divide. Use as many ranks as divide it, or leave the mask to score_mod.";
}

std::string of_registered(const Axes& axes, int ranks, NodeId node,
                          const std::optional<LetterLeaf>& leaf) {
  const Letter letter = leaf ? axes.application(node).letters[leaf->letter] : Letter{};
  const std::string count = std::to_string(ranks);
  std::string reason;
  if (letter.kind == LetterKind::kScan) {
    reason = axes.application(node).states.empty()
                 ? "its state has to be passed from rank to rank, and the rule names none. Let it "
                   "take the state that it begins with and give the one that it ends with, and "
                   "mark both in the rule (\"b t d, state b d -> b t d, state b d  scan t\"). Or, "
                   "if it works on each head (or channel) alone, register 'attend " +
                       letter.name + "': every rank then gets all tokens of some of the heads"
                 : "ranks can run it in turns where the scanned dimension is one of tokens alone, "
                   "in the order of the program";
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

std::string carries_sequence(const Axes& axes, const Node& node, NodeId value, int dim) {
  return node.target + (node.source.empty() ? "" : " at " + node.source) + ": dimension " +
         std::to_string(dim) + " of %" + axes.graph().node(value).name + " carries the sequence";
}

std::string needs_whole(int ranks) {
  return "It would need the whole sequence on every rank, " + std::to_string(ranks) +
         " times the work and memory. ";
}

void refuse_cut(const Axes& axes, int ranks, const Node& node, const Operand& operand,
                const Occurrence& tokens) {
  const OpDef* op = axes.op(node.id);
  const auto leaf = axes.letter_at(node.id, operand.letters, tokens);
  const std::string start = carries_sequence(axes, node, operand.value, tokens.dim);
  if (op == nullptr) {
    throw Unsupported(start + ", and AutoSP has no rule for this operator. " + needs_whole(ranks) +
                      "Express it with operators from the supported list, give it a rule if it is "
                      "an operator of your own (autosp.register_rule), or move it out of the "
                      "compiled function.");
  }
  if (op->function) throw Unsupported(start + ", and " + of_function(axes, node.id, leaf));
  if (op->scores) throw Unsupported(start + ", and " + of_scores(ranks));
  if (op->registered)
    throw Unsupported(start + ", and " + of_registered(axes, ranks, node.id, leaf));
  const Reason found = reason(axes, node.id, operand, tokens, leaf);
  throw Unsupported(start + found.why + ". " + needs_whole(ranks) + found.instead + ".");
}

}  // namespace autosp
