// autosp-break: breaks the compiler in one place at a time, and asks the checker.
//
//   autosp-break [--ranks=N] [--each=N] --out=DIR file…
//
// Each file is a program in text form. It is planned with one letter of one operator's rule being
// of a kind that allows more, missing from an operand, or swapped with another in the result. And
// its right plan is changed in one operator of the engine: left out, of the other use, or with
// another number. Of every such change, at most `each` (4) plans that are not the right one go to
// DIR as N.plan, whatever the checker, which has the rules as they are, says of them:
//
//   // program: 17.ir
//   // change: rule: softmax, whole as pass
//   // verdict: rejected            (or accepted)
//   // outputs: - 1                 (the dimension that each is sharded along, - for none)
//   symbols rank=0, …
//
// What the checker accepts is either another right plan, or wrong in a way that only its values
// show. One line is printed for each change, with the number of plans that were rejected, accepted,
// could not be made (refused), or came out as the right one (same).
#include <algorithm>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ir/text.h"
#include "ir/verify.h"
#include "passes/pipeline.h"
#include "support/error.h"

namespace autosp {
namespace {

struct Arguments {
  Options options;
  int each = 4;
  std::string out;
  std::vector<std::string> files;
};

struct Count {
  int rejected = 0, accepted = 0, refused = 0, same = 0;
};

const Step& step_named(std::string_view name) {
  for (const Step& step : pipeline_steps()) {
    if (step.name == name) return step;
  }
  throw InternalError("no step has this name");
}

class Breaker {
 public:
  explicit Breaker(Arguments arguments) : arguments_(std::move(arguments)) {}

  void run(const std::string& file) {
    std::ifstream stream(file, std::ios::binary);
    if (!stream) throw std::runtime_error("cannot read " + file);
    file_ = file;
    PipelineState before{
        .graph = parse_graph(std::string(std::istreambuf_iterator<char>(stream), {})),
        .options = arguments_.options};
    verify(before.graph);
    for (const Step& step : pipeline_steps()) {
      if (step.name == "shard") break;
      run_step(step, before);
    }
    PipelineState right = before;
    run_step(step_named("shard"), right);
    right_ = print(right.graph);
    break_rules(before);
    break_plan(right);
  }

  void print_counts() const {
    for (const auto& [change, count] : counts_) {
      std::cout << change << ": " << count.rejected << " rejected, " << count.accepted
                << " accepted, " << count.refused << " refused, " << count.same << " same\n";
    }
  }

 private:
  // ---- Rules ----

  void break_rules(const PipelineState& before) {
    for (const Node& node : before.graph.nodes) {
      const OpDef* op = node.kind == NodeKind::kInput ? nullptr : find_op(node.target);
      if (op == nullptr) continue;
      const std::string rule_of = "rule: " + std::string(op->name) + ", ";
      const Application rule = apply_rule(Call(before.graph, node, *op));
      for (size_t letter = 0; letter < rule.letters.size(); ++letter) {
        change_kind(before, node, rule, letter, rule_of);
        for (size_t i = 0; i < rule.operands.size(); ++i) {
          const auto lacks = [i, letter](Application& broken) {
            for (DimLetters& dim : broken.operands[i].letters)
              std::erase(dim, static_cast<LetterId>(letter));
          };
          plan_with(before, node, lacks, rule_of + "an operand lacks a letter");
        }
      }
      swap_results(before, node, rule, rule_of);
    }
  }

  // Kinds that allow more than the right one.
  void change_kind(const PipelineState& before, const Node& node, const Application& rule,
                   size_t letter, const std::string& rule_of) {
    const LetterKind kind = rule.letters[letter].kind;
    if (kind == LetterKind::kPass || kind == LetterKind::kQuery) return;
    const bool stays =
        std::any_of(rule.results.begin(), rule.results.end(), [&](const TensorLetters& result) {
          return std::any_of(result.begin(), result.end(), [&](const DimLetters& dim) {
            return std::find(dim.begin(), dim.end(), static_cast<LetterId>(letter)) != dim.end();
          });
        });
    const LetterKind other = stays ? LetterKind::kPass : LetterKind::kSum;
    if (other == kind) return;
    const auto change = [letter, other](Application& broken) {
      broken.letters[letter].kind = other;
      broken.letters[letter].link = -1;
    };
    plan_with(before, node, change,
              rule_of + std::string(letter_kind_name(kind)) + " as " +
                  std::string(letter_kind_name(other)));
  }

  void swap_results(const PipelineState& before, const Node& node, const Application& rule,
                    const std::string& rule_of) {
    const auto size = [&](const DimLetters& dim) {
      Expr product = 1;
      for (const LetterId letter : dim) product *= rule.letters[static_cast<size_t>(letter)].size;
      return product;
    };
    for (size_t i = 0; i < rule.results.size(); ++i) {
      for (size_t dim = 1; dim < rule.results[i].size(); ++dim) {
        const auto swap = [i, dim](Application& broken) {
          std::swap(broken.results[i][dim - 1], broken.results[i][dim]);
        };
        if (size(rule.results[i][dim - 1]) == size(rule.results[i][dim]))
          plan_with(before, node, swap, rule_of + "letters swapped in the result");
      }
    }
  }

  void plan_with(PipelineState state, const Node& node,
                 const std::function<void(Application&)>& break_rule, const std::string& change) {
    state.rules = [&](const Call& call) {
      Application rule = apply_rule(call);
      if (call.node().name == node.name) break_rule(rule);
      return rule;
    };
    try {
      run_step(step_named("shard"), state);
    } catch (const std::exception&) {
      ++counts_[change].refused;
      return;
    }
    judge(std::move(state), change);
  }

  // ---- Plans ----

  void break_plan(const PipelineState& right) {
    static const std::map<std::string, std::string> other_uses = {
        {"autosp.s_to_v", "autosp.s_to_r"}, {"autosp.s_to_r", "autosp.s_to_v"},
        {"autosp.r_to_s", "autosp.v_to_s"}, {"autosp.v_to_s", "autosp.r_to_s"},
        {"autosp.p_to_r", "autosp.p_to_v"}, {"autosp.p_to_v", "autosp.p_to_r"},
        {"autosp.r_to_v", "autosp.v_to_r"}, {"autosp.v_to_r", "autosp.r_to_v"},
    };
    for (const Node& node : right.graph.nodes) {
      if (!node.target.starts_with("autosp.")) continue;
      const std::string plan_of = "plan: " + node.target + ", ";
      if (node.type.is_tensor()) leave_out(right, node, plan_of);
      for (size_t at = 1; at < node.args.size(); ++at) {
        for (size_t item = 0; item < std::max<size_t>(node.args[at].items.size(), 1); ++item)
          change_argument(right, node, at, item, plan_of);
      }
      if (const auto other = other_uses.find(node.target); other != other_uses.end()) {
        PipelineState state = right;
        state.graph.node(node.id).target = other->second;
        judge(std::move(state), plan_of + "as " + other->second);
      }
    }
  }

  // Its readers read what it reads.
  void leave_out(const PipelineState& right, const Node& node, const std::string& plan_of) {
    PipelineState state = right;
    const NodeId operand = node.args.at(0).value;
    for (Node& reader : state.graph.nodes) {
      for (Arg& arg : reader.args) redirect(arg, node.id, operand);
      for (auto& [name, arg] : reader.kwargs) redirect(arg, node.id, operand);
    }
    for (Arg& output : state.graph.outputs) redirect(output, node.id, operand);
    judge(std::move(state), plan_of + "left out");
  }

  static void redirect(Arg& arg, NodeId from, NodeId to) {
    if (arg.is_value() && arg.value == from) arg.value = to;
    for (Arg& item : arg.items) redirect(item, from, to);
  }

  void change_argument(const PipelineState& right, const Node& node, size_t at, size_t item,
                       const std::string& plan_of) {
    PipelineState state = right;
    Arg& list = state.graph.node(node.id).args[at];
    Arg& arg = list.items.empty() ? list : list.items[item];
    if (arg.kind == Arg::Kind::kInt) {
      arg.integer = arg.integer == 0 ? 1 : arg.integer - 1;
    } else if (arg.kind == Arg::Kind::kSize && arg.as_expr() != Expr::symbol(kRankSymbol)) {
      arg = Arg::size_of(arg.as_expr() + Expr(1));
    } else if (arg.kind == Arg::Kind::kBool) {
      arg.integer = 1 - arg.integer;
    } else {
      return;
    }
    judge(std::move(state), plan_of + "argument " + std::to_string(at));
  }

  void judge(PipelineState state, const std::string& change) {
    Count& count = counts_[change];
    const std::string text = print(state.graph);
    if (text == right_) {
      ++count.same;
      return;
    }
    bool accepted = true;
    try {
      run_step(step_named("check"), state);
    } catch (const std::exception&) {
      accepted = false;
    }
    int& found = accepted ? count.accepted : count.rejected;
    if (++found > arguments_.each) return;
    std::ofstream out(arguments_.out + "/" + std::to_string(++plans_) + ".plan");
    out << "// program: " << file_ << "\n// change: " << change
        << "\n// verdict: " << (accepted ? "accepted" : "rejected") << "\n// outputs:";
    for (const OutputInfo& output : state.outputs)
      out << ' ' << (output.sharded ? std::to_string(output.dim) : "-");
    out << '\n' << text;
  }

  Arguments arguments_;
  std::string file_;
  std::string right_;
  std::map<std::string, Count> counts_;
  int plans_ = 0;
};

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  arguments.options.ranks = 2;
  arguments.options.latency_bytes = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--ranks=")) {
      arguments.options.ranks = std::stoi(argument.substr(8));
    } else if (argument.starts_with("--each=")) {
      arguments.each = std::stoi(argument.substr(7));
    } else if (argument.starts_with("--out=")) {
      arguments.out = argument.substr(6);
    } else if (argument.starts_with("--")) {
      throw std::runtime_error("unknown option " + argument);
    } else {
      arguments.files.push_back(argument);
    }
  }
  if (arguments.out.empty() || arguments.files.empty())
    throw std::runtime_error("autosp-break [--ranks=N] [--each=N] --out=DIR file…");
  return arguments;
}

}  // namespace
}  // namespace autosp

int main(int argc, char** argv) {
  try {
    const autosp::Arguments arguments = autosp::read_arguments(argc, argv);
    autosp::Breaker breaker(arguments);
    for (const std::string& file : arguments.files) breaker.run(file);
    breaker.print_counts();
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
