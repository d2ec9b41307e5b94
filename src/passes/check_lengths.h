// Local lengths in a per-rank graph, for the checker: which symbols stand for a rank's part of an
// axis, and whether what the graph says of them fits together. Everything is read from the graph
// alone.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"
#include "sharding/placement.h"

namespace autosp {

class LocalLengths {
 public:
  explicit LocalLengths(const Graph& graph);
  // What others have found of lengths that the graph shares with theirs.
  void adopt(const LocalLengths& other) {
    ragged_ = other.ragged_;
    exact_ = other.exact_;
    extents_ = other.extents_;
    ranks_ = other.ranks_;
  }

 protected:
  // An InternalError that names the node under test.
  [[noreturn]] void fail(const std::string& what) const;

  bool is_local(const Expr& size) const;
  // The symbol in a local length, which must be the only one and a factor.
  std::string local_symbol(const Expr& length) const;
  // Whether the last parts have rows past the end: of a trimmed axis, and of one whose length the
  // ranks don't divide.
  bool is_ragged(const Expr& length) const;
  // With rows that a neighbour has too.
  bool is_extended(const Expr& length) const;
  // How many rows beyond its part a rank has.
  int64_t extra(const Expr& length) const;
  bool same_axis(const Expr& a, const Expr& b) const;
  // A trimmed length as that of the axis it was cut from.
  Expr untrimmed(const Expr& length) const;

  // What a conversion says of the last parts must be what all others say.
  void check_exact(const std::string& symbol, bool exact);
  // A local length against the global one that it is a part of, at the lengths of this compilation.
  void check_lengths(const Expr& local, const Expr& global, bool exact, const Arg& ranks);
  // A local length against the global one of its axis.
  void check_extent(const Expr& length, const Expr& global);
  // Whether the node under test, autosp.uniform of a value that is placed so, draws for the places
  // that the rank holds.
  void check_drawn(const Placement& like);
  void check_same(const std::vector<Expr>& in, const std::vector<Expr>& out,
                  const std::set<int64_t>& except) const;

  // Dimensions of operands are as long as the rule has them from the result: a part and a whole
  // don't go together.
  void check_operand_sizes(const Application& rule) const;

  const Graph& graph_;
  const Node* node_ = nullptr;

 private:
  int64_t ranks_ = 0;  // as the first conversion says
  std::set<std::string> shard_symbols_;
  std::map<std::string, Expr> trimmed_;  // length of a trimmed axis -> of the axis it was cut from
  std::set<std::string> ragged_;         // local lengths of axes that the ranks don't divide
  std::set<std::string> exact_;          // of axes that a conversion says they do
  std::map<std::string, int64_t>
      extents_;  // local length -> global length, as the first conversion says
};

}  // namespace autosp
