#include "passes/check.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "sharding/axes.h"
#include "support/error.h"

namespace autosp {
namespace {

using Kind = Placement::Kind;

std::string describe(const Placement& placement) {
  switch (placement.kind) {
    case Kind::kReplicated: return "R";
    case Kind::kVarying: return "V";
    case Kind::kPartial: return "P";
    case Kind::kSharded: return "S(dim " + std::to_string(placement.where.dim) + ")";
  }
  return "?";
}

// What a conversion reads and gives; a sharded side is cut along the dimension in its second argument.
struct Conversion {
  std::string_view target;
  Kind from;
  Kind to;
};
constexpr Conversion kConversions[] = {
    {"autosp.r_to_v", Kind::kReplicated, Kind::kVarying},  {"autosp.r_to_s", Kind::kReplicated, Kind::kSharded},
    {"autosp.v_to_s", Kind::kVarying, Kind::kSharded},     {"autosp.s_to_r", Kind::kSharded, Kind::kReplicated},
    {"autosp.s_to_v", Kind::kSharded, Kind::kVarying},     {"autosp.p_to_r", Kind::kPartial, Kind::kReplicated},
    {"autosp.p_to_v", Kind::kPartial, Kind::kVarying},     {"autosp.p_to_s", Kind::kPartial, Kind::kSharded},
    {"autosp.r_to_p", Kind::kReplicated, Kind::kPartial},  {"autosp.v_to_r", Kind::kVarying, Kind::kReplicated},
    {"autosp.mask_tail", Kind::kSharded, Kind::kSharded},
};

class Checker {
 public:
  explicit Checker(const Graph& graph)
      : graph_(graph), axes_(graph, {}), placements_(static_cast<size_t>(graph.size())) {
    for (const auto& [name, length] : graph.definitions) shard_symbols_.insert(name);
  }

  void run(const std::vector<Placement>& outputs) {
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      placements_[node.id] = derive(node);
      for (size_t element = 0; element < placements_[node.id].size(); ++element) {
        check_shape(placements_[node.id][element], static_cast<int>(element));
      }
    }
    ensure(outputs.size() == graph_.outputs.size(), "the plan lists another number of outputs than the program has");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Arg& output = graph_.outputs[i];
      if (!output.is_value() || !graph_.node(output.value).type.is_tensor()) continue;
      node_ = &graph_.node(output.value);
      const Placement have = placements_[output.value][0];
      // Callers know dimensions, not how a dimension came together.
      const bool same_dim = have.is_sharded() && outputs[i].is_sharded() && have.where.dim == outputs[i].where.dim;
      if (!same_dim && !same(have, outputs[i], output.value)) {
        fail("output " + std::to_string(i) + " is " + describe(have) + " but must be " + describe(outputs[i]));
      }
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw InternalError("placement check: %" + node_->name + " = " + node_->target +
                        (node_->source.empty() ? "" : " at " + node_->source) + ": " + what);
  }

  // V and R differ in their gradients alone.
  bool same(const Placement& have, const Placement& want, NodeId value) const {
    if (have == want) return true;
    const auto whole = [](const Placement& p) { return p.kind == Kind::kReplicated || p.kind == Kind::kVarying; };
    return whole(have) && whole(want) && !axes_.facts(value).differentiable;
  }

  bool is_local(const Expr& size) const {
    const std::vector<std::string> symbols = size.symbols();
    return std::any_of(symbols.begin(), symbols.end(), [this](const std::string& s) { return shard_symbols_.contains(s); });
  }

  void check_shape(const Placement& placement, int element) const {
    const std::vector<FactorList> dims = axes_.value_leaves(node_->id, element);
    for (int dim = 0; dim < static_cast<int>(dims.size()); ++dim) {
      for (int position = 0; position < static_cast<int>(dims[dim].size()); ++position) {
        const bool here = placement.is_sharded() && placement.where == Occurrence{dim, position};
        if (is_local(axes_.factors().size(dims[dim][position])) != here) {
          fail("is " + describe(placement) + " but dimension " + std::to_string(dim) +
               (here ? " has its global length" : " has a local length"));
        }
      }
    }
  }

  std::vector<Placement> derive(const Node& node) {
    if (node.kind == NodeKind::kInput) return {Placement::replicated()};
    for (const Conversion& conversion : kConversions) {
      if (node.target == conversion.target) return {convert(node, conversion)};
    }
    if (node.target == "autosp.all_to_all") return exchange(node);
    const Application& rule = axes_.application(node.id);
    if (rule.operands.size() == 1 && graph_.node(rule.operands[0].value).type.kind == Type::Kind::kTuple &&
        node.target == "_operator.getitem") {
      return {placements_[rule.operands[0].value].at(rule.operands[0].element)};
    }
    return apply(node, rule);
  }

  Placement convert(const Node& node, const Conversion& conversion) const {
    const NodeId operand = node.args.at(0).value;
    Placement want{conversion.from, {}};
    if (conversion.from == Kind::kSharded) want.where = {static_cast<int>(node.args.at(1).integer), 0};
    if (!same(placements_[operand].at(0), want, operand)) {
      fail("reads %" + graph_.node(operand).name + ", which is " + describe(placements_[operand][0]) + ", not " + describe(want));
    }
    Placement out{conversion.to, {}};
    if (conversion.to == Kind::kSharded) out.where = {static_cast<int>(node.args.at(1).integer), 0};
    return out;
  }

  std::vector<Placement> exchange(const Node& node) const {
    const std::vector<Arg>& values = node.args.at(0).items;
    const std::vector<Arg>& split = node.args.at(1).items;
    const std::vector<Arg>& concat = node.args.at(3).items;
    std::vector<Placement> out;
    for (size_t i = 0; i < values.size(); ++i) {
      const Placement want = Placement::sharded({static_cast<int>(concat.at(i).integer), 0});
      const Placement have = placements_[values[i].value].at(0);
      if (have != want) fail("exchanges %" + graph_.node(values[i].value).name + ", which is " + describe(have) + ", not " + describe(want));
      out.push_back(Placement::sharded({static_cast<int>(split.at(i).integer), 0}));
    }
    return out;
  }

  // The leaf along which the node runs sharded: that of its first sharded operand, or a local length that only its
  // result has (a value created or expanded to a part).
  std::optional<LetterLeaf> sharded_leaf(const Node& node, const Application& rule) const {
    for (const Operand& operand : rule.operands) {
      const Placement& have = placements_[operand.value].at(operand.element);
      if (have.is_sharded()) {
        auto leaf = axes_.letter_at(node.id, operand.letters, have.where);
        if (!leaf) fail("does not read dimension " + std::to_string(have.where.dim) + " of its sharded operand %" + graph_.node(operand.value).name);
        return leaf;
      }
    }
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      const FactorList leaves = axes_.letter_leaves(node.id, letter);
      for (int position = 0; position < static_cast<int>(leaves.size()); ++position) {
        if (is_local(axes_.factors().size(leaves[position]))) return LetterLeaf{letter, position};
      }
    }
    return std::nullopt;
  }

  std::vector<Placement> apply(const Node& node, const Application& rule) const {
    const std::optional<LetterLeaf> leaf = sharded_leaf(node, rule);
    const size_t count = std::max<size_t>(rule.results.size(), 1);
    if (!leaf) {
      bool varying = false;
      for (const Operand& operand : rule.operands) {
        const Placement& have = placements_[operand.value].at(operand.element);
        if (have.kind == Kind::kPartial) fail("reads the partial sum %" + graph_.node(operand.value).name);
        varying |= have.kind == Kind::kVarying && axes_.facts(operand.value).differentiable;
      }
      for (const Operand& operand : rule.operands) {
        const Placement& have = placements_[operand.value].at(operand.element);
        if (varying && have.kind == Kind::kReplicated && axes_.facts(operand.value).differentiable) {
          fail("mixes V operands with %" + graph_.node(operand.value).name + ", which is R");
        }
      }
      return std::vector<Placement>(count, varying ? Placement::varying() : Placement::replicated());
    }
    const Letter& letter = rule.letters[leaf->letter];
    if (letter.kind != LetterKind::kPass && letter.kind != LetterKind::kSum && letter.kind != LetterKind::kIndex) {
      fail("runs sharded along a letter that must be " + std::string(letter_kind_name(letter.kind)));
    }
    for (const Operand& operand : rule.operands) {
      const Placement& have = placements_[operand.value].at(operand.element);
      Placement want = Placement::varying();
      if (const auto where = axes_.find(node.id, operand.letters, *leaf)) want = Placement::sharded(*where);
      if (!same(have, want, operand.value)) {
        fail("reads %" + graph_.node(operand.value).name + ", which is " + describe(have) + ", not " + describe(want));
      }
    }
    std::vector<Placement> out;
    for (size_t element = 0; element < count; ++element) {
      std::optional<Occurrence> where;
      if (element < rule.results.size()) where = axes_.find(node.id, rule.results[element], *leaf);
      if (!where && letter.kind != LetterKind::kSum) fail("runs sharded but its result has no part of the letter");
      out.push_back(where ? Placement::sharded(*where) : Placement::partial());
    }
    if (letter.kind == LetterKind::kIndex && !mentions_rank(node)) fail("counts from 0 on every rank");
    return out;
  }

  static bool mentions_rank(const Node& node) {
    const auto in_arg = [](const Arg& arg) {
      if (arg.kind != Arg::Kind::kSize) return false;
      const std::vector<std::string> symbols = arg.size.symbols();
      return std::find(symbols.begin(), symbols.end(), kRankSymbol) != symbols.end();
    };
    return std::any_of(node.args.begin(), node.args.end(), in_arg) ||
           std::any_of(node.kwargs.begin(), node.kwargs.end(), [&](const auto& pair) { return in_arg(pair.second); });
  }

  const Graph& graph_;
  Axes axes_;
  std::vector<std::vector<Placement>> placements_;
  std::set<std::string> shard_symbols_;
  const Node* node_ = nullptr;
};

}  // namespace

void check_placements(const Graph& graph, const std::vector<Placement>& outputs) {
  Checker(graph).run(outputs);
}

}  // namespace autosp
