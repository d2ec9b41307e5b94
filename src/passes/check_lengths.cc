#include "passes/check_lengths.h"

#include <algorithm>
#include <optional>

#include "support/error.h"

namespace autosp {

LocalLengths::LocalLengths(const Graph& graph) : graph_(graph) {
  for (const auto& [name, length] : graph.definitions) {
    for (const std::string& symbol : length.symbols()) {
      if (shard_symbols_.contains(symbol) && divide_exact(length, Expr::symbol(symbol)))
        trimmed_.emplace(name, length);
    }
    shard_symbols_.insert(name);
  }
  // Sums may stand before the first conversion of their axis.
  for (const Node& node : graph.nodes) {
    const bool to_part = node.target.starts_with("autosp.") && node.target.ends_with("_to_s");
    const bool to_whole = node.target == "autosp.s_to_r" || node.target == "autosp.s_to_v";
    if ((!to_part && !to_whole) || node.args.at(3).integer != 0) continue;
    const std::vector<Expr>& operand = graph.node(node.args[0].value).type.shape;
    const auto dim = static_cast<size_t>(node.args[1].integer);
    const Expr length = to_part ? node.args[2].as_expr() : operand.at(dim);
    for (const std::string& symbol : length.symbols()) {
      if (shard_symbols_.contains(symbol)) ragged_.insert(symbol);
    }
  }
}

void LocalLengths::fail(const std::string& what) const {
  throw InternalError("placement check: %" + node_->name + " = " + node_->target +
                      (node_->source.empty() ? "" : " at " + node_->source) + ": " + what);
}

bool LocalLengths::is_local(const Expr& size) const {
  const std::vector<std::string> symbols = size.symbols();
  return std::any_of(symbols.begin(), symbols.end(),
                     [this](const std::string& s) { return shard_symbols_.contains(s); });
}

std::string LocalLengths::local_symbol(const Expr& length) const {
  std::string found;
  for (const std::string& symbol : length.symbols()) {
    if (!shard_symbols_.contains(symbol)) continue;
    if (!found.empty()) fail("has a length of two parts, " + length.to_string());
    found = symbol;
  }
  if (found.empty())
    fail("has the global length " + length.to_string() + " where a part's is expected");
  return found;
}

bool LocalLengths::is_ragged(const Expr& length) const {
  const std::string symbol = local_symbol(length);
  return trimmed_.contains(symbol) || ragged_.contains(symbol);
}

bool LocalLengths::is_extended(const Expr& length) const {
  return !divide_exact(length, Expr::symbol(local_symbol(length)));
}

void LocalLengths::check_exact(const std::string& symbol, bool exact) {
  const bool ragged = trimmed_.contains(symbol) || ragged_.contains(symbol);
  if (exact && ragged) fail("has padding that it says it has not");
  if (!exact && exact_.contains(symbol)) fail("says that it has padding");
  (exact ? exact_ : ragged_).insert(symbol);
}

void LocalLengths::check_lengths(const Expr& local, const Expr& global, bool exact,
                                 const Arg& ranks) {
  const std::string symbol = local_symbol(local);
  if (is_local(global))
    fail("has the local length " + global.to_string() + " where a global one is expected");
  check_exact(symbol, exact);
  const std::optional<Expr> rest = divide_exact(local, Expr::symbol(symbol));
  if (!rest) fail("has a length that is no multiple of its part, " + local.to_string());
  if (ranks_ == 0) ranks_ = ranks.integer;
  if (ranks.integer != ranks_) fail("speaks of another number of ranks");
  const int64_t extent = graph_.hint(global);
  const int64_t held = graph_.hint(local) * ranks_;
  const auto known =
      extents_.emplace(symbol, extent / std::max<int64_t>(graph_.hint(*rest), 1)).first;
  if (known->second * graph_.hint(*rest) != extent || (exact ? held != extent : held < extent)) {
    fail("has " + local.to_string() + " of " + global.to_string() + ", which do not fit together");
  }
}

void LocalLengths::check_same(const std::vector<Expr>& in, const std::vector<Expr>& out,
                              const std::set<int64_t>& except) const {
  if (in.size() != out.size()) fail("has another number of dimensions than its operand");
  for (size_t dim = 0; dim < in.size(); ++dim) {
    if (!except.contains(static_cast<int64_t>(dim)) && in[dim] != out[dim])
      fail("changes dimension " + std::to_string(dim));
  }
}

int64_t LocalLengths::extra(const Expr& length) const {
  const Expr symbol = Expr::symbol(local_symbol(untrimmed(length)));
  const Expr rows = untrimmed(length).substitute({{symbol.to_string(), Expr(0)}});
  if (!rows.is_constant() || !divide_exact(untrimmed(length) - rows, symbol))
    fail("has " + length.to_string() + " rows, which are not a part's");
  return rows.constant_value();
}

bool LocalLengths::same_axis(const Expr& a, const Expr& b) const {
  return untrimmed(a) - Expr(extra(a)) == untrimmed(b) - Expr(extra(b));
}

Expr LocalLengths::untrimmed(const Expr& length) const { return length.substitute(trimmed_); }

void LocalLengths::check_drawn(const Placement& like) {
  const std::vector<Arg>& args = node_->args;
  if (!like.is_sharded()) {
    if (args.size() > 5) fail("draws for a part of what is whole");
    return;
  }
  if (args.size() != 8 || like.where != Occurrence{static_cast<int>(args[5].integer), 0})
    fail("draws for other places than those of the dimension that is cut");
  const Expr& length = graph_.node(args[0].value).type.shape[static_cast<size_t>(like.where.dim)];
  const Expr more(is_extended(length) ? extra(length) : 0);
  if (args[7].as_expr() != Expr::symbol(kRankSymbol) * (length - more))
    fail("takes another number for the beginning of a rank's part");
  check_extent(length - more, args[6].as_expr() - more);
}

void LocalLengths::check_extent(const Expr& length, const Expr& global) {
  const std::string symbol = local_symbol(length);
  const std::optional<Expr> rest = divide_exact(length, Expr::symbol(symbol));
  const int64_t extent = graph_.hint(global);
  const auto known =
      extents_.emplace(symbol, extent / std::max<int64_t>(rest ? graph_.hint(*rest) : 1, 1)).first;
  if (!rest || known->second * graph_.hint(*rest) != extent)
    fail("takes " + global.to_string() + " for the length of its axis");
}

void LocalLengths::check_operand_sizes(const Application& rule) const {
  for (const Operand& operand : rule.operands) {
    const Type& value = graph_.node(operand.value).type;
    const std::vector<Expr>& shape =
        value.is_tensor() ? value.shape : value.elements.at(operand.element).shape;
    for (size_t dim = 0; dim < operand.letters.size(); ++dim) {
      Expr size = 1;
      for (const LetterId letter : operand.letters[dim]) size *= rule.letters[letter].size;
      const Expr& has = shape.at(dim);
      // The program's guards may make two expressions one number, but never a part a whole.
      const bool same =
          size == has || (graph_.hint(size) == graph_.hint(has) && is_local(size) == is_local(has));
      if (!operand.letters[dim].empty() && !same) {
        fail("reads %" + graph_.node(operand.value).name + ", which has " + has.to_string() +
             " in dimension " + std::to_string(dim) + ", not " + size.to_string());
      }
    }
  }
}

}  // namespace autosp
