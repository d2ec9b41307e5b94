// Axis analysis: which dimension of which value is the token axis, by dataflow alone.
//
// Every dimension of every value gets an ordered product of factors (sharding/factors.h); each
// node's rule joins the factors of its operands and results through its letters. The *token axes*
// are the classes of the query and key lengths of attentions and those that the user names. Names,
// symbols and equal sizes decide nothing: S = hidden size, B = S, [S, B, D] and encoder/decoder
// lengths are told apart.
//
// Linear in nodes, up to the inverse Ackermann function.
#pragma once

#include <map>
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

// Dimensions of one tensor as factor lists (one entry a dimension).
using TensorFactors = std::vector<FactorList>;

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
  Axes(const Graph& graph, const std::map<std::string, int>& seq_dims);

  const Graph& graph() const { return graph_; }
  const FactorTable& factors() const { return factors_; }
  const Application& application(NodeId node) const { return applications_[node]; }
  bool has_rule(NodeId node) const { return ops_[node] != nullptr; }
  const OpDef* op(NodeId node) const { return ops_[node]; }
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

  // Whether an operand's letters split its dimension `dim` the way the value itself does. They
  // don't where a rule's view has no common refinement with how the value was made.
  bool aligned(NodeId node, const Operand& operand, int dim) const;

  // Declares the leaves of a letter to be token axes (attention lengths); closes over prefix links.
  void add_token_letter(NodeId node, LetterId letter);
  // Call once all seeds are added: classes reached through prefix links become token axes too.
  void close_token_axes();
  bool is_token(FactorId leaf) const;
  const std::vector<FactorId>& token_axes() const { return tokens_; }
  // The token axis whose shards a prefix (a trimmed copy) follows; the leaf itself otherwise.
  FactorId shard_base(FactorId leaf) const;
  // Token occurrences of a value, in order.
  std::vector<Occurrence> token_occurrences(NodeId value, int element) const;

 private:
  struct PrefixLink {
    FactorId result;
    FactorId operand;
  };

  void apply_rules();
  void apply(const Node& node);
  TensorFactors fresh(const Type& type);
  void bind(NodeId node, const Operand& operand, const FactorList& letter_factors);
  void name_input_dims(const std::map<std::string, int>& seq_dims);

  const Graph& graph_;
  FactorTable factors_;
  std::vector<const OpDef*> ops_;
  std::vector<Application> applications_;
  std::vector<FactorList> letter_factors_;                 // node -> letter -> factor
  std::vector<std::vector<TensorFactors>> value_factors_;  // node -> element -> dimensions
  std::vector<ValueFacts> facts_;
  std::vector<FactorId> tokens_;  // representatives, in order of discovery
  std::vector<PrefixLink> links_;
  std::map<FactorId, FactorId> base_;  // prefix leaf -> token leaf it follows
};

}  // namespace autosp
