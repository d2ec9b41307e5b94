#include "passes/check_scan.h"

#include <algorithm>

#include "ops/op.h"
#include "ops/registered.h"

namespace autosp {

ScanInTurns read_scan(const Graph& graph, const Node& node,
                      const std::function<void(const std::string&)>& fail) {
  Node inner = node;
  inner.target = "torch.ops." + node.target.substr(kPassingState.size());
  inner.args.erase(inner.args.begin(), inner.args.begin() + kPassingArguments);
  const OpDef* op = find_registered(inner.target);
  if (op == nullptr) fail("calls an operator without a rule");
  const Application rule = apply_rule(Call(graph, inner, *op));
  const auto scanned =
      std::find_if(rule.letters.begin(), rule.letters.end(),
                   [](const Letter& letter) { return letter.kind == LetterKind::kScan; });
  if (scanned == rule.letters.end() || rule.states.empty()) fail("passes no state on");
  const DimLetters dim{static_cast<LetterId>(scanned - rule.letters.begin())};

  const auto cut_dims = [&](size_t argument, const std::vector<TensorLetters>& tensors) {
    const std::vector<Arg>& given = node.args.at(argument).items;
    std::vector<int> dims;
    for (const TensorLetters& letters : tensors) {
      const auto found = std::find(letters.begin(), letters.end(), dim);
      dims.push_back(found == letters.end() ? -1 : static_cast<int>(found - letters.begin()));
    }
    if (!std::equal(dims.begin(), dims.end(), given.begin(), given.end(),
                    [](int derived, const Arg& arg) { return arg.integer == derived; }))
      fail("cuts other dimensions than the rule's");
    return dims;
  };
  std::vector<TensorLetters> read;
  for (const Operand& operand : rule.operands) read.push_back(operand.letters);
  ScanInTurns out;
  for (const int cut : cut_dims(0, read))
    out.operands.emplace_back(rule.operands[out.operands.size()].value, cut);
  out.results = cut_dims(1, rule.results);
  for (size_t i = 0; i < rule.states.size(); ++i) {
    if (node.args.at(2).items.at(i).integer != static_cast<int64_t>(rule.states[i].from) ||
        node.args.at(3).items.at(i).integer != rule.states[i].to)
      fail("passes other states on than the rule's");
  }
  out.size = node.args.at(4).as_expr();
  out.exact = node.args.at(5).integer != 0;
  return out;
}

}  // namespace autosp
