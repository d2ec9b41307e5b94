// Operators that are given functions to call.
#include "ops/op.h"
#include "ops/rule_line.h"
#include "ops/score_bodies.h"
#include "support/error.h"

namespace autosp {
namespace {

// query [b, h, q, d], key [b, g, k, d], value [b, g, k, e] -> [b, h, q, e], and two statistics
// [b, h, q]. A query head is (g r): r queries share the keys and values of group g. Parts of the
// batch, of heads and of queries are as good as all where the functions on scores look their
// numbers up in tensors, of which a rank then has the same part.
Application flex_rule(const Call& call) {
  const std::vector<Expr>& query = tensor_type(call, "query").shape;
  const std::vector<Expr>& key = tensor_type(call, "key").shape;
  const std::vector<Expr>& value = tensor_type(call, "value").shape;
  if (query.size() != 4 || key.size() != 4 || value.size() != 4)
    throw Unsupported(call.where() + ": queries, keys and values have four dimensions");
  const std::vector<ScoreBody> bodies = score_bodies(call);
  bool parts[kNumbers] = {true, true, has_one_row(call)};
  std::vector<ScoreReads> reads;
  for (const ScoreBody& body : bodies) {
    reads.push_back(score_reads(call, body));
    for (int i = 0; i < kNumbers; ++i) parts[i] &= reads.back().looked_up[i];
  }
  const auto kind = [&](int number) {
    return parts[number] ? LetterKind::kPass : LetterKind::kWhole;
  };
  Application application;
  const DimLetters b = application.dim("b", query[0], kind(0));
  const DimLetters g = application.dim("g", key[1], kind(1));
  DimLetters h = g;
  if (query[1] != key[1]) {
    const std::optional<Expr> repeats = divide_exact(query[1], key[1]);
    if (!repeats)
      throw Unsupported(call.where() + ": the number of key heads must divide that of queries");
    for (const LetterId letter : application.dim("r", *repeats, kind(1))) h.push_back(letter);
  }
  const DimLetters q =
      application.dim("q", query[2], parts[kQueries] ? LetterKind::kQuery : LetterKind::kAttend);
  const DimLetters k = application.dim("k", key[2], LetterKind::kAttend);
  const DimLetters d = application.dim("d", query[3], LetterKind::kWhole);
  const DimLetters e = application.dim("e", value[3]);
  const auto batch = [&](const std::vector<Expr>& shape) {
    return shape[0] == Expr(1) ? DimLetters{} : b;
  };
  application.operands.push_back({call.value("query"), 0, {b, h, q, d}});
  application.operands.push_back({call.value("key"), 0, {batch(key), g, k, d}});
  application.operands.push_back({call.value("value"), 0, {batch(value), g, k, e}});
  const DimLetters numbered[kNumbers] = {b, h, q};
  for_each_value(*call.find("block_mask"), [&](NodeId operand) {
    const Type& type = call.graph().node(operand).type;
    TensorLetters letters = fresh_letters(application, type, "x", LetterKind::kWhole);
    for (int dim = 0; dim < 2; ++dim) {
      if (type.shape.at(dim) == query[dim]) letters[dim] = numbered[dim];
    }
    application.operands.push_back({operand, 0, std::move(letters)});
  });
  for (size_t body = 0; body < bodies.size(); ++body) {
    const std::vector<NodeId> tensors = score_tensors(call, bodies[body]);
    const std::vector<int>& index = reads[body].index;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const Type& type = call.graph().node(tensors[i]).type;
      TensorLetters letters = fresh_letters(application, type, "x", LetterKind::kWhole);
      if (index[i] >= 0) letters[0] = numbered[index[i]];
      application.operands.push_back({tensors[i], 0, std::move(letters)});
    }
  }
  for (const Type& result : call.result().elements) {
    TensorLetters letters = {b, h, q};
    if (result.shape.size() == 4) letters.push_back(e);
    application.results.push_back(std::move(letters));
  }
  return application;
}

}  // namespace

std::span<const OpDef> nested_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "autograd function",
       .targets = {"torch.ops.higher_order.autograd_function_apply"},
       .signature = "forward, backward, *args, non_differentiable_idx=None, "
                    "saved_for_backward_idx=None, dirty_idx=None",
       .rule = "the letters along which both bodies run on parts alone",
       .apply = [](const Call& call) { return opaque_application(call.graph(), call.node()); },
       .singular = singular_in_all,
       .function = true},
      {.name = "flex_attention",
       .targets = {"torch.ops.higher_order.flex_attention"},
       .signature = "query, key, value, score_mod, block_mask, scale, kernel_options, "
                    "score_mod_other_buffers, mask_mod_other_buffers",
       .rule = "b h q d, b h k d, b h k e -> b h q e  attend k, query q (blocks: attend), whole d",
       .apply = flex_rule,
       .scores = true},
  };
  return ops;
}

}  // namespace autosp
