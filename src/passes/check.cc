#include "passes/check.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "ops/index_rule.h"
#include "ops/registered.h"
#include "passes/check_calls.h"
#include "passes/check_function.h"
#include "passes/check_lengths.h"
#include "passes/check_operators.h"
#include "passes/check_scan.h"
#include "sharding/axes.h"
#include "support/error.h"

namespace autosp {
namespace {

using Kind = Placement::Kind;

const std::map<std::string, int> kNoNames;

std::string describe(const Placement& placement) {
  switch (placement.kind) {
    case Kind::kReplicated:
      return "R";
    case Kind::kVarying:
      return "V";
    case Kind::kPartial:
      return "P";
    case Kind::kSharded:
      return "S(dim " + std::to_string(placement.where.dim) + ")";
  }
  return "?";
}

class Checker : private LocalLengths {
 public:
  Checker(const Graph& graph, bool grad_sync)
      : Checker(graph, std::make_unique<Axes>(graph, kNoNames), grad_sync) {}
  // Of a body that gets `given`, where lengths are as `outer` has found them.
  Checker(const Graph& graph, const Checker& outer, const std::vector<Given>& given)
      : Checker(graph, Axes::of_body(graph, factors_of(given)), outer.grad_sync_) {
    adopt(outer);
    for (const Given& input : given) given_.push_back(input.placement);
  }

  void run(const std::vector<Placement>& outputs) {
    derive_all();
    ensure(outputs.size() == graph_.outputs.size(),
           "the plan lists another number of outputs than the program has");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Arg& output = graph_.outputs[i];
      if (!output.is_value() || !graph_.node(output.value).type.is_tensor()) continue;
      node_ = &graph_.node(output.value);
      const Placement have = placements_[output.value][0];
      if (have.is_sharded()) {
        const FactorId leaf =
            axes_.value_leaves(output.value, 0)[have.where.dim][have.where.position];
        if (is_extended(axes_.factors().size(leaf)))
          fail("output " + std::to_string(i) + " has rows that two ranks have");
      }
      // Callers know dimensions, not how a dimension came together.
      const bool same_dim =
          have.is_sharded() && outputs[i].is_sharded() && have.where.dim == outputs[i].where.dim;
      if (!same_dim && !same(have, outputs[i], output.value)) {
        fail("output " + std::to_string(i) + " is " + describe(have) + " but must be " +
             describe(outputs[i]));
      }
    }
  }

 private:
  void derive_all() {
    for (const Node& node : graph_.nodes) {
      node_ = &node;
      placements_[node.id] = derive(node);
      for (size_t element = 0; element < placements_[node.id].size(); ++element) {
        check_shape(placements_[node.id][element], static_cast<int>(element));
      }
    }
  }

  Checker(const Graph& graph, std::unique_ptr<Axes> axes, bool grad_sync)
      : LocalLengths(graph),
        owned_axes_(std::move(axes)),
        axes_(*owned_axes_),
        grad_sync_(grad_sync),
        placements_(static_cast<size_t>(graph.size())),
        masked_(static_cast<size_t>(graph.size()), false),
        held_(static_cast<size_t>(graph.size()), false) {
    for (const Node& node : graph.nodes) {
      for (int element = 0; element < axes_.elements(node.id); ++element) {
        for (const FactorList& dim : axes_.value_leaves(node.id, element)) {
          for (FactorId leaf : dim) {
            if (is_local(axes_.factors().size(leaf))) axes_.add_token_axis(leaf);
          }
        }
      }
    }
    axes_.close_token_axes();
  }

  // V and R differ in their gradients alone.
  bool same(const Placement& have, const Placement& want, NodeId value) const {
    if (have == want) return true;
    const auto whole = [](const Placement& p) {
      return p.kind == Kind::kReplicated || p.kind == Kind::kVarying;
    };
    return whole(have) && whole(want) && !axes_.facts(value).differentiable;
  }

  // The node under test reads the value as `want`.
  void expect(NodeId value, int element, const Placement& want) const {
    const Placement& have = placements_[value].at(static_cast<size_t>(element));
    if (same(have, want, value)) return;
    fail("reads %" + graph_.node(value).name + ", which is " + describe(have) + ", not " +
         describe(want));
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
    if (node.kind == NodeKind::kInput)
      return {given_.empty() ? Placement::replicated() : given_.at(next_given_++)};
    if (axes_.op(node.id) != nullptr && axes_.op(node.id)->function) return function(node);
    for (const Conversion& conversion : kConversions) {
      if (node.target == conversion.target) return {convert(node, conversion)};
    }
    if (node.target == "autosp.all_to_all") return exchange(node);
    if (auto rows = rows_of_others(node); !rows.empty()) return rows;
    if (node.target.starts_with(kPassingState)) return scan_in_turns(node);
    const Application& rule = axes_.application(node.id);
    if (node.target == "_operator.getitem" && rule.operands.size() == 1) {
      const Operand& operand = rule.operands[0];
      const Type& type = graph_.node(operand.value).type;
      if (type.kind == Type::Kind::kTuple) {
        if (node.type != type.elements.at(operand.element))
          fail("is not of the type of the tuple's element");
        return {placements_[operand.value].at(operand.element)};
      }
      if (const auto placement = trim(node, operand)) return {*placement};
    }
    if (node.target == "autosp.mask_sorted") return {mask_sorted(node)};
    if (node.target == "autosp.uniform") check_drawn(placements_[node.args.at(0).value].at(0));
    return apply(node, rule);
  }

  // A call with a backward of its own, on all of its arguments or on parts.
  std::vector<Placement> function(const Node& node) {
    const Function bodies = read_function(graph_, node);
    std::vector<Given> given;
    bool cut = false;
    for (const NodeId value : bodies.arguments) {
      given.push_back(value == kNoNode ? Given{} : Given{placements_[value].at(0), sizes(value)});
      cut |= given.back().placement.is_sharded();
    }
    for (size_t i = 0; i < given.size(); ++i) {
      const NodeId value = bodies.arguments[i];
      if (value == kNoNode || given[i].placement.is_sharded()) continue;
      expect(value, 0, cut ? Placement::varying() : Placement::replicated());
    }
    const auto body = [&](const Graph& graph, const std::vector<Given>& inputs,
                          const std::vector<NodeId>& values) {
      Checker checker(graph, *this, inputs);
      checker.derive_all();
      std::vector<CheckedValue> out;
      for (const NodeId value : values)
        out.push_back(value == kNoNode ? CheckedValue{} : checker.checked(value));
      return out;
    };
    return check_function(bodies, given, body, [this](const std::string& what) { fail(what); });
  }

  CheckedValue checked(NodeId value) const {
    const Placement& have = placements_[value].at(0);
    const bool pads = have.is_sharded() && !masked_[value] &&
                      is_ragged(graph_.node(value).type.shape.at(have.where.dim));
    return {{have, sizes(value)}, pads};
  }

  TensorSizes sizes(NodeId value) const { return factor_sizes(axes_, value, 0); }

  // A slice that took the first rows of a sharded dimension: it takes a rank's whole part, and the
  // result's length is that of the trimmed axis.
  std::optional<Placement> trim(const Node& node, const Operand& operand) const {
    const Placement& have = placements_[operand.value].at(operand.element);
    const Type& type = graph_.node(operand.value).type;
    const std::optional<Index> index =
        have.is_sharded() ? read_index(graph_, node.args.at(1), type.shape.size()) : std::nullopt;
    if (!index) return std::nullopt;
    for (const IndexItem& item : index->items) {
      if (item.kind != IndexItem::Kind::kSlice || item.operand != have.where.dim) continue;
      const Expr& length = node.type.shape.at(static_cast<size_t>(item.result));
      const Expr& rows = type.shape[static_cast<size_t>(item.operand)];
      if (length == rows) return std::nullopt;
      if (have.where.position == 0 && is_extended(rows)) {
        const int64_t first = constant_of(item.arg.items[0]).value_or(-1);
        if (first < 0 || !same_axis(rows, length) || extra(length) < 0 ||
            first + extra(length) > extra(rows) || !item.arg.items[2].is_none() ||
            item.arg.items[1].as_expr() != Expr(first) + untrimmed(length))
          fail("cuts a sharded dimension");
        return Placement::sharded({item.result, 0});
      }
      const bool all = std::all_of(item.arg.items.begin(), item.arg.items.end(),
                                   [](const Arg& bound) { return bound.is_none(); });
      if (!all || untrimmed(length) == length || untrimmed(length) != untrimmed(rows))
        fail("cuts a sharded dimension");
      return Placement::sharded({item.result, have.where.position});
    }
    return std::nullopt;
  }

  // The engine's operators on rows of a sharded dimension, the node's argument `dim`.
  std::vector<Placement> rows_of_others(const Node& node) {
    const std::string& name = node.target;
    const bool at = name == "autosp.rows_at";
    const bool merges = name == "autosp.merge_rows";
    const bool picks =
        name == "autosp.take_rows" || name == "autosp.index_rows" || name == "autosp.gather_rows";
    const RowOperator* other = find_row_operator(name);
    if (name != "autosp.halo" && !at && !merges && !picks && other == nullptr) return {};
    const size_t where = other != nullptr ? other->dim : merges ? 2 : 1;
    const int64_t dim = node.args.at(where).integer;
    const Placement rows = Placement::sharded({static_cast<int>(dim), 0});
    for_each_operand(node, [&](NodeId operand) {
      const bool leads = operand == node.args[0].value || merges;
      expect(operand, 0, leads && !at ? rows : Placement::varying());
    });
    const auto place = static_cast<size_t>(dim);
    const std::vector<Expr>& in = graph_.node(node.args[0].value).type.shape;
    const std::vector<Expr>& result = node.type.shape;
    if (at) {
      check_same(in, result, {dim});
      if (result.at(place) != node.args[2].as_expr() + node.args[3].as_expr() ||
          extra(result[place]) != node.args[3].integer)
        fail("has another length than it is told");
      if (node.args.size() > 6 && !(node.args[4].as_expr() == Expr(0)))
        fail("takes the last of some rows for that of the sequence");
      return {rows};
    }
    if (extra(in.at(place)) != 0) fail("reads rows that a neighbour has too");
    if (picks) return {Placement::partial()};
    if (other != nullptr) return everyones_rows(node, *other, rows, in[place]);
    check_same(in, result, {dim});
    if (merges) {
      if (graph_.node(node.args[1].value).type.shape != in || result != in)
        fail("merges rows of different numbers");
      return {rows};
    }
    const int64_t more = node.args[2].integer + node.args[3].integer;
    if (!same_axis(in[place], result.at(place)) || extra(result[place]) != more || more < 0)
      fail("has other rows than it is told");
    const bool exact = node.args[5].integer != 0;
    check_lengths(in[place], node.args[4].as_expr(), exact, ranks_of(node));
    const bool far = node.args[7].integer != 0;
    if (node.args[6].integer != 0 && ((!exact && !far) || more != 0))
      fail("wraps around a sequence that has padding");
    return {rows};
  }

  // Operators on all rows, of one or two results.
  std::vector<Placement> everyones_rows(const Node& node, const RowOperator& op,
                                        const Placement& rows, const Expr& length) {
    const Type& operand = graph_.node(node.args[0].value).type;
    std::vector<Type> results = node.type.elements;
    if (node.type.is_tensor()) results.push_back(node.type);
    for (const Type& result : results) {
      if (op.keeps_rows && result.shape != operand.shape) fail("changes its operand's shape");
    }
    if (op.size > 0) {
      check_lengths(length, node.args.at(op.size).as_expr(), node.args.at(op.size + 1).integer != 0,
                    ranks_of(node));
    }
    return std::vector<Placement>(results.size(), op.keeps_rows ? rows : Placement::replicated());
  }

  // The states that it ends with are the same on every rank.
  std::vector<Placement> scan_in_turns(const Node& node) {
    const ScanInTurns scan =
        read_scan(graph_, node, [this](const std::string& what) { fail(what); });
    const auto cut_at = [](int dim, const Placement& whole) {
      return dim < 0 ? whole : Placement::sharded({dim, 0});
    };
    std::optional<Expr> part;
    for (const auto& [operand, dim] : scan.operands) {
      expect(operand, 0, cut_at(dim, Placement::varying()));
      if (dim < 0) continue;
      const Expr& rows = graph_.node(operand).type.shape[static_cast<size_t>(dim)];
      if (extra(rows) != 0) fail("reads rows that a neighbour has too");
      if (part && *part != rows) fail("scans rows of different numbers");
      check_lengths(rows, scan.size, scan.exact, node.args.at(kPassingArguments - 2));
      part = rows;
    }
    std::vector<Type> results = node.type.elements;
    if (node.type.is_tensor()) results.push_back(node.type);
    std::vector<Placement> out;
    for (size_t i = 0; i < results.size(); ++i) {
      const int dim = scan.results.at(i);
      if (dim >= 0 && (!part || results[i].shape.at(static_cast<size_t>(dim)) != *part))
        fail("gives other rows than it reads");
      out.push_back(cut_at(dim, Placement::replicated()));
    }
    return out;
  }

  // A kernel over rows that the rank has already: it makes up none, and leaves at least its part.
  std::optional<Occurrence> windowed(const Node& node, const Application& rule,
                                     const LetterLeaf& leaf) const {
    if (rule.letters[leaf.letter].pads) fail("makes rows up in the middle of the sequence");
    for (LetterId letter = 0; letter < static_cast<LetterId>(rule.letters.size()); ++letter) {
      if (rule.letters[letter].kind != LetterKind::kShift ||
          rule.letters[letter].link != leaf.letter)
        continue;
      const Expr& from = rule.letters[leaf.letter].size;
      const Expr& to = rule.letters[letter].size;
      if (!same_axis(from, to) || extra(to) < 0 || extra(to) > extra(from))
        fail("leaves fewer rows than a part has");
      if (rule.results.size() == 1) return axes_.find(node.id, rule.results[0], {letter, 0});
    }
    return std::nullopt;
  }

  // What ends most calls of the engine's operators is the rank, the number of ranks, the group.
  static const Arg& ranks_of(const Node& node) { return node.args.at(node.args.size() - 2); }

  Placement convert(const Node& node, const Conversion& conversion) {
    const NodeId operand = node.args.at(0).value;
    Placement want{conversion.from, {}};
    if (conversion.from == Kind::kSharded)
      want.where = {static_cast<int>(node.args.at(1).integer), 0};
    expect(operand, 0, want);
    if (held_[operand]) fail("adds up counts of rows past the end of the axis");
    if (node.target == "autosp.r_to_v" && node.args.size() > 3 && node.args[3].integer == 0 &&
        (grad_sync_ || graph_.node(operand).input != InputKind::kParameter))
      fail("leaves a gradient to others, who don't add it up");
    const std::vector<Expr>& in = graph_.node(operand).type.shape;
    const std::vector<Expr>& result = node.type.shape;
    if (conversion.from != Kind::kSharded && conversion.to != Kind::kSharded) {
      check_same(in, result, {});
    } else {
      const int64_t dim = node.args.at(1).integer;
      if (dim < 0 || dim >= static_cast<int64_t>(in.size()))
        fail("converts a dimension that its operand does not have");
      const auto at = static_cast<size_t>(dim);
      const bool to_part = conversion.to == Kind::kSharded;
      if (conversion.from == conversion.to) {
        check_same(in, result, {});
        mask(node, result[at], node.args.at(2));
      } else {
        check_same(in, result, {dim});
        if (result[at] != node.args.at(2).as_expr()) fail("has another length than it is told");
        check_lengths(to_part ? result[at] : in[at], to_part ? in[at] : result[at],
                      node.args.at(3).integer != 0, ranks_of(node));
      }
    }
    Placement out{conversion.to, {}};
    if (conversion.to == Kind::kSharded) out.where = {static_cast<int>(node.args.at(1).integer), 0};
    return out;
  }

  // The same of sorted rows.
  Placement mask_sorted(const Node& node) {
    const Placement rows = Placement::sharded({static_cast<int>(node.args.at(2).integer), 0});
    if (placements_[node.args[0].value].at(0) != rows ||
        placements_[node.args[1].value].at(0) != Placement::sharded({0, 0}))
      fail("masks what is not cut");
    const Expr length = node.args[4].as_expr();
    if (auto wrong = wrong_sorted_mask(axes_, node, local_symbol(length)); !wrong.empty())
      fail(wrong);
    mask(node, length, node.args[5]);
    return rows;
  }

  // Rows from `size` on are replaced: a sum over them is one over the rows that are there.
  void mask(const Node& node, const Expr& length, const Arg& size) {
    check_extent(length, size.as_expr());
    masked_[node.id] = true;
  }

  std::vector<Placement> exchange(const Node& node) {
    const std::vector<Arg>& values = node.args.at(0).items;
    const std::vector<Arg>& split = node.args.at(1).items;
    const std::vector<Arg>& concat = node.args.at(3).items;
    const bool exact = node.args.at(5).integer != 0;
    std::vector<Placement> out;
    for (size_t i = 0; i < values.size(); ++i) {
      const Placement want = Placement::sharded({static_cast<int>(concat.at(i).integer), 0});
      const Placement have = placements_[values[i].value].at(0);
      if (have != want)
        fail("exchanges %" + graph_.node(values[i].value).name + ", which is " + describe(have) +
             ", not " + describe(want));
      const std::vector<Expr>& in = graph_.node(values[i].value).type.shape;
      const std::vector<Expr>& result = node.type.elements.at(i).shape;
      const auto from = static_cast<size_t>(concat.at(i).integer);
      const auto to = static_cast<size_t>(split.at(i).integer);
      if (to >= in.size()) fail("splits a dimension that its operand does not have");
      check_same(in, result, {concat.at(i).integer, split.at(i).integer});
      if (result[to] != node.args.at(2).items.at(i).as_expr() ||
          result[from] != node.args.at(4).items.at(i).as_expr()) {
        fail("gives other lengths than it is told");
      }
      // One flag speaks for all of an exchange, so it is that of the axis with padding where there
      // is one.
      const auto filled = [&](const Expr& local, const Expr& global) {
        const int64_t held = graph_.hint(local) * node.args.at(6).integer;
        return exact || (!is_ragged(local) && held == graph_.hint(global));
      };
      check_lengths(in[from], result[from], filled(in[from], result[from]), node.args.at(6));
      check_lengths(result[to], in[to], filled(result[to], in[to]), node.args.at(6));
      out.push_back(Placement::sharded({static_cast<int>(to), 0}));
    }
    return out;
  }

  // The leaf along which the node runs sharded: that of its first sharded operand, or a local
  // length that only its result has (a value created or expanded to a part).
  std::optional<LetterLeaf> sharded_leaf(const Node& node, const Application& rule) const {
    for (const Operand& operand : rule.operands) {
      const Placement& have = placements_[operand.value].at(operand.element);
      if (have.is_sharded()) {
        auto leaf = axes_.letter_at(node.id, operand.letters, have.where);
        if (!leaf)
          fail("does not read dimension " + std::to_string(have.where.dim) +
               " of its sharded operand %" + graph_.node(operand.value).name);
        if (rule.letters[leaf->letter].kind == LetterKind::kBag) continue;  // another one leads
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

  // Whether the node adds up or copies what each rank counted: whole numbers, whose partial sums
  // give partial sums.
  bool adds_counts(const Node& node, const Application& rule) const {
    if (rule.operands.size() != 1) return false;
    if (placements_[rule.operands[0].value].at(0).kind != Kind::kPartial) return false;
    const auto copies = [this](NodeId value) {
      return axes_.op(value) != nullptr && axes_.op(value)->aliases;
    };
    NodeId at = node.id;
    while (copies(at) || graph_.node(at).target.ends_with("cumsum"))
      at = axes_.application(at).operands.at(0).value;
    return at != node.id && axes_.op(at) != nullptr && axes_.op(at)->name == "histc";
  }

  // Whether the node is linear in its partial sums; the gradient of what it takes beside them is a
  // partial sum as well.
  bool adds_up(const Node& node, const Application& rule) const {
    std::vector<bool> partial;
    bool exact = true;
    for (const Operand& operand : rule.operands) {
      const Placement& have = placements_[operand.value].at(operand.element);
      partial.push_back(have.kind == Kind::kPartial);
      exact &= partial.back() || same(have, Placement::varying(), operand.value);
    }
    const OpDef* op = axes_.op(node.id);
    return exact && op != nullptr &&
           std::find(partial.begin(), partial.end(), true) != partial.end() &&
           is_linear(Call(graph_, node, *op), partial);
  }

  bool is_trimmed(const Node& node, const Placement& placement) const {
    if (!node.type.is_tensor()) return false;
    const Expr& length = node.type.shape[static_cast<size_t>(placement.where.dim)];
    return untrimmed(length) != length;
  }

  std::vector<Placement> apply(const Node& node, const Application& rule) {
    if (auto wrong = wrong_spelled_sizes(axes_, node); !wrong.empty()) fail(wrong);
    check_operand_sizes(rule);
    const std::optional<LetterLeaf> leaf = sharded_leaf(node, rule);
    const size_t count = std::max<size_t>(rule.results.size(), 1);
    if (!leaf) {
      held_[node.id] = std::any_of(rule.operands.begin(), rule.operands.end(),
                                   [this](const Operand& operand) { return held_[operand.value]; });
      if (adds_counts(node, rule) || (!held_[node.id] && adds_up(node, rule)))
        return std::vector<Placement>(count, Placement::partial());
      bool varying = false;
      for (const Operand& operand : rule.operands) {
        const Placement& have = placements_[operand.value].at(operand.element);
        if (have.kind == Kind::kPartial)
          fail("reads the partial sum %" + graph_.node(operand.value).name);
        varying |= have.kind == Kind::kVarying && axes_.facts(operand.value).differentiable;
      }
      for (const Operand& operand : rule.operands) {
        const Placement& have = placements_[operand.value].at(operand.element);
        if (varying && have.kind == Kind::kReplicated &&
            axes_.facts(operand.value).differentiable) {
          fail("mixes V operands with %" + graph_.node(operand.value).name + ", which is R");
        }
      }
      return std::vector<Placement>(count,
                                    varying ? Placement::varying() : Placement::replicated());
    }
    const Letter& letter = rule.letters[leaf->letter];
    const bool moves = letter.kind == LetterKind::kWindow;
    if (letter.kind != LetterKind::kPass && letter.kind != LetterKind::kSum &&
        letter.kind != LetterKind::kIndex && letter.kind != LetterKind::kQuery && !moves) {
      fail("runs sharded along a letter that must be " +
           std::string(letter_kind_name(letter.kind)));
    }
    int cut = 0, masked = 0;
    for (const Operand& operand : rule.operands) {
      const Placement& have = placements_[operand.value].at(operand.element);
      Placement want = Placement::varying();
      const size_t index = static_cast<size_t>(&operand - rule.operands.data());
      if (const auto where = axes_.find_cut(node.id, operand.letters, *leaf))
        want = Placement::sharded(*where);
      if (have.is_sharded() && axes_.has_local_positions(operand.value, operand.element) &&
          !axes_.reads_positions(node.id, index)) {
        fail("takes %" + graph_.node(operand.value).name +
             " for numbers, which are positions that every rank counts for itself");
      }
      if (operand.partial) {
        want = Placement::partial();
        const FactorId bag = axes_.leaf_factor(node.id, *leaf);
        if (!axes_.is_bag(bag) || !axes_.ends_of_groups(operand.value, bag, nullptr))
          fail("reads %" + graph_.node(operand.value).name +
               ", which does not say where the groups of its rows end");
        if (is_ragged(axes_.factors().size(bag)) && !held_[operand.value])
          fail("works on rows that %" + graph_.node(operand.value).name + " does not count");
      }
      expect(operand.value, operand.element, want);
      const bool trims = have.is_sharded() && is_trimmed(graph_.node(operand.value), have);
      if (trims && axes_.facts(node.id).differentiable && may_be_singular(axes_, node, operand))
        fail("may be singular in rows past the end of %" + graph_.node(operand.value).name);
      cut += have.is_sharded() ? 1 : 0;
      masked += have.is_sharded() && masked_[operand.value] ? 1 : 0;
    }
    masked_[node.id] = cut > 0 && masked == cut;
    const Expr& length = axes_.factors().size(axes_.leaf_factor(node.id, *leaf));
    if (is_local(length) && is_extended(length) && letter.kind != LetterKind::kPass && !moves)
      fail("takes rows that a neighbour has too for its own");
    const bool enough = axes_.op(node.id)->absorbs ? masked > 0 : masked == cut;
    if (letter.kind == LetterKind::kSum && is_ragged(length) && !enough) {
      // Counts of groups, which a product of groups may read and nothing else.
      held_[node.id] =
          axes_.op(node.id)->name == "histc" && axes_.is_bag(axes_.leaf_factor(node.id, *leaf));
      if (!held_[node.id]) fail("sums rows past the end of the axis");
    }
    std::vector<Placement> out;
    for (size_t element = 0; element < count; ++element) {
      std::optional<Occurrence> where;
      if (element < rule.results.size())
        where = moves ? windowed(node, rule, *leaf)
                      : axes_.find_cut(node.id, rule.results[element], *leaf);
      if (!where && letter.kind != LetterKind::kSum)
        fail("runs sharded but its result has no part of the letter");
      out.push_back(where ? Placement::sharded(*where) : Placement::partial());
    }
    const bool sorted = axes_.is_bag(axes_.leaf_factor(node.id, *leaf));
    const bool places = letter.kind == LetterKind::kIndex || node.target == "autosp.uniform";
    if (places && mentions_rank(node) == sorted)
      fail(sorted ? "does not count from 0 on every rank" : "counts from 0 on every rank");
    return out;
  }

  std::unique_ptr<Axes> owned_axes_;
  Axes& axes_;
  bool grad_sync_;
  std::vector<Placement> given_;  // of a body: its inputs
  size_t next_given_ = 0;
  std::vector<std::vector<Placement>> placements_;
  std::vector<bool> masked_;  // values whose rows past the end of a trimmed axis cost nothing
  std::vector<bool> held_;    // partial sums that count rows past the end
};

}  // namespace

void check_placements(const Graph& graph, const std::vector<Placement>& outputs, bool grad_sync) {
  Checker(graph, grad_sync).run(outputs);
}

}  // namespace autosp
