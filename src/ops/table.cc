#include "ops/table.h"

#include <map>
#include <vector>

#include "ops/op.h"

namespace autosp {
namespace {

constexpr std::string_view kIntroduction = R"(# Operators

What the compiler knows of each operator, printed from its registry by
`build/dev/autosp-opt --operators > docs/operators.md`.

The equivalence test of an operator is the one of its name, `test/python/test_operators.py -k "[NAME]"`:
a program with it over 2, 3 and 4 ranks, which divide the length and don't, gives the values and
gradients of one device in float64, or is refused by name; the checker accepts every plan, and all
ranks plan the same. Draws have theirs in `test_dropout.py`, grouped products and their counts in
`test_experts.py`, functions with a backward of their own in `test_functions.py`, flex_attention and
the torch.vmap that makes its masks in `test_flex.py`, and autosp.repeat_heads, which only the compiler
writes, in `test_copied_heads.py`.

A rule relates the dimensions of operands and results by letters, as an einsum does. `…` stands for any
number of leading dimensions, which broadcast; `(a b)` is one dimension made of two, the outer one first.
Behind two spaces stand the kinds of letters: what happens along one when its dimension is cut into
parts, one a rank. A letter that no kind names is *pass*.

| kind | |
|---|---|
| pass | each part of the result needs the same part of the operands |
| sum | the result is the sum of what the parts give |
| max | each part gives something, and all parts together make the result |
| pick | rows at given positions: each part gives those that it holds |
| index | made from the position in the whole (arange) |
| window | needs rows of neighbours (shifts, differences, convolutions) |
| shift | rows of another letter, moved, or some more or fewer |
| scan | needs other rows, near or far (running totals, softmax, flip) |
| bag | the rows of another letter in another order (sort) |
| gather | positions along it, in another operand, may be anywhere: whole |
| attend | keys and queries of an attention: heads are exchanged for tokens, or keys are gathered |
| whole | must be seen whole: refused along the sequence on activations, computed on every rank elsewhere |
)";

// A bar ends a cell.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

std::string code(std::string_view text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

std::string spellings(const OpDef& op, const std::vector<const OpDef*>& in_place) {
  std::string out;
  const auto add = [&](const OpDef& spelled) {
    for (const std::string_view target : spelled.targets)
      out += (out.empty() ? "" : ", ") + std::string(target);
  };
  add(op);
  for (const OpDef* other : in_place) add(*other);
  return out;
}

std::string notes(const OpDef& op) {
  std::string out;
  const auto note = [&](bool holds, std::string_view text) {
    if (holds) out += (out.empty() ? "" : "; ") + std::string(text);
  };
  note(op.aliases, "a view");
  note(op.creates, "made from sizes");
  note(op.effect, "acts by being called");
  note(!op.functional.empty(), "written as " + std::string(op.functional));
  note(op.assigns, "writes what it is given");
  note(!op.differentiable && !op.effect, "no gradient");
  note(op.refuse != nullptr, "some calls are refused");
  return out;
}

}  // namespace

std::string operator_table() {
  // In-place operators whose new value another one gives are spellings of that one.
  std::map<const OpDef*, std::vector<const OpDef*>> in_place;
  const auto base = [](const OpDef& op) -> const OpDef* {
    return op.functional.empty() || op.assigns ? nullptr : find_op(op.functional);
  };
  for (const OpDef* op : all_ops()) {
    if (const OpDef* other = base(*op)) in_place[other].push_back(op);
  }
  std::string out(kIntroduction);
  for (const OpFamily& family : op_families()) {
    out += "\n## " + std::string(family.name) +
           "\n\n| operator | rule | spelled | |\n|---|---|---|---|\n";
    for (const OpDef& op : family.ops) {
      if (base(op) != nullptr) continue;
      out += "| " + cell(op.name) + " | " + code(op.rule) + " | " +
             cell(spellings(op, in_place[&op])) + " | " + notes(op) + " |\n";
    }
  }
  return out;
}

}  // namespace autosp
