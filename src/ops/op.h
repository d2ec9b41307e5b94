// What the engine knows of an operator: one `OpDef`, written in the file of its family.
//
// The centre is `apply`: it relates the dimensions of operands and results by *letters*, the way an
// einsum does, from the argument values and the global shapes alone. A dimension is an ordered
// product of letters, outermost first, and a dimension of size 1 has none. Every other part of the
// engine works on letters and does not know operators; the rules know operators and do not know
// placements.
//
//   linear      [B, S, D], [O, D], [O]  ->  [B, S, O]        letters b s i o
//               operands (b)(s)(i), (o)(i), (o); result (b)(s)(o); i is kSum, the others kPass
//   view        [B*S, D] -> [B, S, D]                        operand (b s)(d); result (b)(s)(d)
//   transpose   a permutation of the operand's letters
//
// A letter belongs to one application: `kv <= q` has the letters i and j although both index
// tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace autosp {

using LetterId = int32_t;

// What happens along a letter when its dimension is cut into P contiguous parts.
enum class LetterKind : uint8_t {
  kPass,    // each part of the result needs the same part of the operands
  kSum,     // in operands only: the result is the sum of what the parts give (a partial sum, P)
  kMax,     // in operands only: each part gives something that all parts together make a result of
  kPick,    // in operands only: rows at given positions; each part gives those that it holds (P)
  kWhole,   // must be seen whole (softmax, sort, a static cut, anything unknown)
  kAttend,  // query or key length inside an attention: whole there, and a seed of the token axes
  kQuery,   // the same, of queries whose rows don't depend on their position: pass, and a seed
  kPrefix,  // in the result: the first rows of the operand's letter `link` (a trim at the end)
  kBag,     // the rows of the letter `link` in another order (sort; what an index tensor picks)
  kIndex,   // in the result: made from the global position (arange)
  kScan,    // each row needs others, near or far (cumsum, softmax, flip)
  kWindow,  // needs neighbours (diff, a trim at the start, causal convolution)
  kShift,   // rows of the letter `link`, moved, or more or fewer of them by a constant
};
std::string_view letter_kind_name(LetterKind kind);

struct Letter {
  std::string name;  // for messages and the operator table
  Expr size = Expr(1);
  LetterKind kind = LetterKind::kPass;
  LetterId link = -1;  // kPrefix, kBag, kShift: the letter that it follows
  bool pads = false;   // kWindow: the operator makes up rows beyond the ends
};

using DimLetters = std::vector<LetterId>;
using TensorLetters = std::vector<DimLetters>;  // one entry a dimension

// A tensor whose data an operator reads: a value, or one element of a tuple value. An argument that
// only lends its dtype, device or shape (`type_as`, `zeros_like`) is no operand: any placement of
// it will do.
struct Operand {
  NodeId value = kNoNode;
  int element = 0;  // index into a tuple-typed value; 0 for tensors
  TensorLetters letters;
  // Sharded, the operator needs what each rank counted of its own part: a partial sum.
  bool partial = false;
};

// An index tensor of one dimension (operand `index`) picks rows of the letter `rows`, one for each
// element of its letter `picks`. Where its numbers are positions of a sharded axis in the order
// that a rank holds it, both letters are cut together (sharding/bags.h).
struct Picked {
  size_t index = 0;
  LetterId rows = -1;
  LetterId picks = -1;
};

// A state that a scan begins with (operand `from`) and the one that it ends with (result `to`): the
// one that its next rows begin with. Neither has the scanned letter.
struct State {
  size_t from = 0;
  int to = 0;
};

// One rule applied to one node. `results` has one entry for a tensor result and one per element for
// a tuple (empty TensorLetters for elements that are not tensors).
struct Application {
  std::vector<Letter> letters;
  std::vector<Operand> operands;
  std::vector<TensorLetters> results;
  std::optional<Picked> picked;
  std::vector<State> states;
  bool counts = false;  // the result is 0, 1, 2, … along its only letter (arange)

  LetterId add(std::string name, Expr size, LetterKind kind = LetterKind::kPass);
  // The dimension that holds a new or given letter, or none when its size is 1.
  DimLetters dim(std::string name, Expr size, LetterKind kind = LetterKind::kPass);
};

struct OpDef;

// A node with its arguments bound to the operator's signature, whatever call style it was written
// in.
class Call {
 public:
  Call(const Graph& graph, const Node& node, const OpDef& op);

  const Graph& graph() const { return *graph_; }
  const Node& node() const { return *node_; }
  const OpDef& op() const { return *op_; }
  // nullptr when the argument was not given and the signature has no default.
  const Arg* find(std::string_view parameter) const;
  bool has(std::string_view parameter) const;         // given or defaulted, and not None
  int64_t integer(std::string_view parameter) const;  // throws Unsupported when it is not static
  int64_t integer_or(std::string_view parameter, int64_t fallback) const;
  bool boolean_or(std::string_view parameter, bool fallback) const;
  std::string string_or(std::string_view parameter, std::string_view fallback) const;
  // Several sizes: a list or tuple argument, or the varargs of a method call.
  std::vector<Expr> sizes(std::string_view parameter) const;
  std::vector<int64_t> integers(std::string_view parameter) const;
  // The tensor type of a value argument; nullptr when the argument is no tensor value.
  const Type* tensor(std::string_view parameter) const;
  NodeId value(std::string_view parameter) const;  // kNoNode when it is no value
  const Type& result() const { return node_->type; }
  // -1 based dimensions made non-negative for a tensor of `rank` dimensions.
  int64_t dim_or(std::string_view parameter, int64_t rank, int64_t fallback) const;

  // All (parameter, argument) pairs in the signature's order; varargs and lists come as one list
  // argument.
  const std::vector<std::pair<std::string_view, Arg>>& bound() const { return bound_; }
  // "torch.cumsum at modeling_x.py:12 in forward: …", the start of every refusal.
  std::string where() const;

 private:
  const Graph* graph_;
  const Node* node_;
  const OpDef* op_;
  std::vector<std::pair<std::string_view, Arg>> bound_;
};

class LocalForm;  // what elaboration offers to an operator's local form (ops/local_form.h)
struct LocalResult;

using ApplyFn = Application (*)(const Call&);
// Whether the result is linear in the marked operands of the rule together, all others fixed.
using LinearFn = bool (*)(const Call&, const std::vector<bool>& marked);
using LocalFn = LocalResult (*)(LocalForm&);
// A reason to refuse the call whatever its placement, or nullopt.
using RefuseFn = std::optional<std::string> (*)(const Call&);
// Whether a result shares its memory with the first operand.
enum class Sharing : uint8_t { kNo, kMaybe, kYes };
using SharingFn = Sharing (*)(const Call&);
// Whether the result, or its gradient, may be no number at some numbers of an operand: log, 1 / x.
using SingularFn = bool (*)(const Call&, NodeId operand);
inline bool singular_in_all(const Call&, NodeId) { return true; }
// The first operand of a view once the view has a new value (ops/write_back.h).
struct WriteBack;
using WriteBackFn = NodeId (*)(const Call&, const WriteBack&);

// Whether the call draws random numbers, and the value of one that does as arithmetic on a seed
// (ops/draw.h).
struct Draw;
using DrawsFn = bool (*)(const Call&);
using DrawFn = NodeId (*)(const Call&, const Draw&);

struct OpDef {
  std::string_view name;                       // canonical: "linear"
  std::vector<std::string_view> targets = {};  // torch's spellings: "torch._C._nn.linear", …
  // Parameters in order with defaults, "*" marks varargs: "input, weight, bias=None", "self,
  // *size".
  std::string_view signature;
  // The rule as one line for people and, where `apply` is null, for the rule interpreter
  // (ops/rule_line.h).
  std::string_view rule = {};
  ApplyFn apply = nullptr;
  LocalFn localize = nullptr;  // null: the same call on local operands
  RefuseFn refuse = nullptr;
  // For operators that write their first operand in place: the out-of-place target that gives the
  // new value.
  std::string_view functional = {};
  bool aliases = false;        // the result may share memory with the first operand (views)
  bool copies = false;         // the result has the operand's elements, some of them several times
  SharingFn shares = nullptr;  // says more of one call that `aliases`; null: it may
  WriteBackFn write_back = nullptr;  // null: writes through it can't be followed
  bool assigns = false;  // writes a value it is given into its first operand (copy_, setitem)
  SingularFn singular = nullptr;  // null: it never is
  LinearFn linear = nullptr;      // null: is_linear goes by `aliases` and `einsum`
  bool registered = false;        // a user's (ops/registered.h)
  bool function = false;          // calls bodies that say what it computes and what its gradient is
  bool scores = false;            // calls bodies on the scores of an attention, by their indices
  DrawsFn draws = nullptr;        // not null where `draw` is not
  DrawFn draw = nullptr;
  bool effect = false;   // acts by being called: never removed, never moved
  bool creates = false;  // makes a value from sizes alone (its result is the same on every rank)
  bool differentiable = true;  // false: no gradient flows (comparisons, argmax, …)
  bool einsum = false;         // contracts letters (the score and value products of an attention)
  bool absorbs = false;        // a row that is masked in one operand adds nothing to a sum
  bool softmax = false;        // normalises along its kWhole letter
};

// Families, one file each; the registry is their concatenation.
std::span<const OpDef> pointwise_ops();
std::span<const OpDef> einsum_ops();
std::span<const OpDef> reduction_ops();
std::span<const OpDef> norm_ops();
std::span<const OpDef> loss_ops();
std::span<const OpDef> view_ops();
std::span<const OpDef> index_ops();
std::span<const OpDef> creation_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> random_ops();
std::span<const OpDef> sequence_ops();
std::span<const OpDef> window_ops();
std::span<const OpDef> metadata_ops();
std::span<const OpDef> nested_ops();

// The operator behind a target, or nullptr. In-place spellings are operators of their own
// (`functional` set) until functionalization has replaced them. O(1).
const OpDef* find_op(std::string_view target);
// Every operator, in family order; and the families (ops/table.h).
std::span<const OpDef* const> all_ops();
struct OpFamily {
  std::string_view name;
  std::span<const OpDef> ops;
};
std::span<const OpFamily> op_families();

// "(b)(s)(i), (o)(i), (o) -> (b)(s)(o)  sum i", for tests and messages.
std::string to_string(const Application& application);

// Whether a value is created as zeros.
bool makes_zeros(const Node& node);

// Whether a call gives partial sums of its result when the marked operands of its rule are partial
// sums and the others are whole.
bool is_linear(const Call& call, const std::vector<bool>& marked);
// For `OpDef::linear`: in all operands together, in any one of them, in the first.
bool linear_together(const Call& call, const std::vector<bool>& marked);
bool linear_in_one(const Call& call, const std::vector<bool>& marked);
bool linear_in_first(const Call& call, const std::vector<bool>& marked);

// Applies the operator's rule (its `apply` or its line). Throws Unsupported for arguments the rule
// can't read.
Application apply_rule(const Call& call);
// Where rules come from: `apply_rule`, or in tests that with one rule broken.
using RuleFn = std::function<Application(const Call&)>;
// For calls without a rule: every operand and result dimension is a kWhole letter of its own.
Application opaque_application(const Graph& graph, const Node& node);

}  // namespace autosp
