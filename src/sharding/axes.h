// Axis analysis: which dimension of which value is the token axis, by dataflow alone.
//
// Every dimension of every value gets an ordered product of factors (sharding/factors.h); each
// node's rule joins the factors of its operands and results through its letters. The *token axes*
// are the classes of the query and key lengths of attentions and those that the user names. Names,
// symbols and equal sizes decide nothing: S = hidden size, B = S, [S, B, D] and encoder/decoder
// lengths are told apart.
//
// Some integers are positions: of sort's indices, of arange. Where it is known of which axis, the
// value has a *value axis*; bags.cc has the rules for those and for axes in an order of their own.
//
// Linear in nodes, up to the inverse Ackermann function.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ops/op.h"
#include "sharding/factors.h"

namespace autosp {

// Where a factor stands in a value: dimension, and position among the leaves of that dimension.
struct Occurrence {
  int dim = -1;
  int position = 0;
  bool operator==(const Occurrence&) const = default;
};

// One leaf of a letter: what an operator can be sharded along.
struct LetterLeaf {
  LetterId letter = -1;
  int position = 0;
  bool operator==(const LetterLeaf&) const = default;
};

// Dimensions of one tensor as factor lists (one entry a dimension), and the sizes of the factors.
using TensorFactors = std::vector<FactorList>;
using TensorSizes = std::vector<std::vector<Expr>>;

// What one node's value is made of, for refusing and for deciding what needs gradients.
struct ValueFacts {
  bool differentiable = false;  // a gradient may flow into it
  bool from_user = false;       // depends on an input of the user's call
  bool from_weights = false;    // depends on a floating-point parameter or user input
  bool floating = false;
  // Worth 1/P of the work each: what the model computes from its tokens. Index tensors, masks and
  // tables made from sizes, integers and buffers are none: computing those on every rank is cheap
  // and silent.
  bool activation() const { return floating && from_user && from_weights; }
};

class Axes {
 public:
  // Applies every rule and joins factors. `seq_dims`: user input name -> dimension that carries
  // tokens. Throws Unsupported for a seq_dims entry that names no input or dimension.
  Axes(const Graph& graph, const std::map<std::string, int>& seq_dims,
       const RuleFn& rules = apply_rule);
  // Of a body whose inputs, in order, have dimensions made of factors of the given sizes; as they
  // are where none are given.
  static std::unique_ptr<Axes> of_body(const Graph& graph, const std::vector<TensorSizes>& inputs);

  const Graph& graph() const { return graph_; }
  const FactorTable& factors() const { return factors_; }
  const Application& application(NodeId node) const { return applications_[node]; }
  bool has_rule(NodeId node) const { return ops_[node] != nullptr; }
  const OpDef* op(NodeId node) const { return ops_[node]; }
  int elements(NodeId value) const { return static_cast<int>(value_factors_[value].size()); }
  const ValueFacts& facts(NodeId node) const { return facts_[node]; }

  // Leaves of each dimension of a value (element 0 for tensors), of a letter, of one dimension of
  // letters.
  std::vector<FactorList> value_leaves(NodeId value, int element) const;
  FactorList letter_leaves(NodeId node, LetterId letter) const {
    return factors_.leaves(letter_factors_[node][letter]);
  }
  // Where a leaf of a letter stands in tensor letters; nullopt when absent, or when it stands twice
  // (a diagonal has no single place to cut).
  std::optional<Occurrence> find(NodeId node, const TensorLetters& letters, LetterLeaf leaf) const;
  // The occurrence's letter leaf in tensor letters.
  std::optional<LetterLeaf> letter_at(NodeId node, const TensorLetters& letters,
                                      Occurrence where) const;
  FactorId leaf_factor(NodeId node, LetterLeaf leaf) const;
  // As `find`, and where a letter that follows the leaf's (kBag, kShift) stands.
  std::optional<Occurrence> find_cut(NodeId node, const TensorLetters& letters,
                                     LetterLeaf leaf) const;

  // Whether an operand's letters split its dimension `dim` the way the value itself does. They
  // don't where a rule's view has no common refinement with how the value was made.
  bool aligned(NodeId node, const Operand& operand, int dim) const;

  // Declares a letter (an attention's length) to be a token axis: its outermost leaf, where the
  // program works on groups of its rows too.
  void add_token_letter(NodeId node, LetterId letter);
  void add_token_axis(FactorId leaf);
  // Of a program without attention: the dimension of the user's inputs along which activations see
  // their neighbours or are scanned. False where there is none, or more than one.
  bool add_coupled_axis();
  // Call once all seeds are added: classes reached through prefixes and shifts become token axes
  // too, and shorter ones that are token axes already follow the longer one's parts.
  void close_token_axes();
  bool is_token(FactorId leaf) const;
  const std::vector<FactorId>& token_axes() const { return tokens_; }
  // The token axis whose shards a trimmed or extended copy follows, row by row: rank r holds the
  // rows of the same numbers. The leaf itself otherwise.
  FactorId shard_base(FactorId leaf) const;
  // How many rows of a copy there are for each row of that axis: more than one where the program
  // works on groups of tokens too, so that the axis is that of the groups. 1 for other axes.
  Expr rows_per_base(FactorId leaf) const;
  // The rows of a dimension or letter made of these leaves for each row of the outermost one.
  Expr rows_inside(const FactorList& leaves) const;
  // Whether each row of a token axis stands for a group of tokens.
  bool is_grouped(FactorId leaf) const;
  // Whether two letters made of these leaves have the same parts, up to rows at the ends.
  bool moves_with(const FactorList& left, const FactorList& right) const;
  // How many rows more than its base an extended copy has; each rank holds as many rows behind its
  // part, which are its neighbour's too. 0 for other axes.
  int64_t extension(FactorId leaf) const;
  // ---- Bags: axes whose rows are those of a token axis in an order of their own (sorted tokens).
  // Cut, each rank holds the rows that come from its own part, and numbers them from 0.
  bool is_bag(FactorId leaf) const { return bag_base(leaf) >= 0; }
  // The token axis whose parts a bag's parts come from; -1 for what is no bag.
  FactorId bag_base(FactorId leaf) const;
  // Where the rows of a bag come from: what sorts one dimension of numbers by a key, that
  // dimension's leaves, and which of them is the token axis. Nothing for bags that come about
  // otherwise.
  struct Order {
    NodeId sort = kNoNode;
    FactorList rows;
    size_t tokens = 0;
  };
  std::optional<Order> order_of(FactorId bag) const;
  // Whether the value is the positions that the sorting gives.
  bool is_order(NodeId value, const Order& order) const;
  // Whether an integer value's numbers are positions that every rank counts for itself when it is
  // cut.
  bool has_local_positions(NodeId value, int element) const;
  // Whether the node takes a number of the operand (by its index in the rule) for nothing but a
  // position.
  bool reads_positions(NodeId node, size_t operand) const;
  // Whether the value is the running total of how often each number 0, 1, … stands in the sorted
  // keys of the bag, so that a partial sum of it says where the groups of a rank's own rows end.
  // `through` receives the operators between the counting and the value, the counting last.
  bool ends_of_groups(NodeId value, FactorId bag, std::vector<NodeId>* through) const;

  // Token occurrences of a value, in order.
  std::vector<Occurrence> token_occurrences(NodeId value, int element) const;

 private:
  // Two axes one of which is a copy of the other with other rows at the ends.
  struct CopyLink {
    FactorId copy;
    FactorId of;
    bool both_ways;  // the one that is found to be tokens first leads
  };
  bool close(FactorId copy, FactorId of);

  Axes(const RuleFn& rules, const Graph& graph);
  void apply_rules(const std::vector<TensorSizes>& inputs);
  void apply(const Node& node);
  TensorFactors fresh(const Type& type);
  void bind(NodeId node, const Operand& operand, const FactorList& letter_factors);
  void name_input_dims(const std::map<std::string, int>& seq_dims);
  struct BagLink {
    NodeId node;
    FactorId result;
    FactorId rows;
  };
  // The links whose result the leaf is, still a bag.
  const BagLink* bag_link(FactorId leaf) const;
  // Before a rule's letters are bound: which of them an index tensor makes follow another.
  void link_picked(const Node& node);
  // Afterwards: bags and value axes of the results.
  void note_positions(const Node& node);
  bool inverts(const Node& node) const;
  FactorList value_axis(NodeId value, int element) const;
  NodeId without_casts(NodeId value) const;

  const Graph& graph_;
  RuleFn rules_;
  FactorTable factors_;
  std::vector<const OpDef*> ops_;
  std::vector<Application> applications_;
  std::vector<FactorList> letter_factors_;                 // node -> letter -> factor
  std::vector<std::vector<TensorFactors>> value_factors_;  // node -> element -> dimensions
  std::vector<ValueFacts> facts_;
  std::vector<FactorId> tokens_;  // representatives, in order of discovery
  std::vector<CopyLink> links_;
  struct Base {
    FactorId axis;
    Expr rows;  // of the copy, for each row of the axis
  };
  std::map<FactorId, Base> base_;  // copy -> token leaf it follows
  std::vector<BagLink> bags_;
  std::vector<std::vector<FactorList>> value_axes_;  // node -> element -> factors
  std::vector<std::vector<size_t>> positions_read_;  // node -> operands
};

}  // namespace autosp
