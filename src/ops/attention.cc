// Fused attention.
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

const std::vector<Expr>& shape_of(const Call& call, std::string_view parameter) {
  const Type* type = call.tensor(parameter);
  if (type == nullptr || type->shape.size() < 2) {
    throw Unsupported(call.where() + ": '" + std::string(parameter) +
                      "' must be a tensor of at least two dimensions");
  }
  return type->shape;
}

// [b…, h, q, d], [b…, h, k, d], [b…, h, k, e], mask [b…, h, q, k] -> [b…, h, q, e]. With grouped
// heads a query head is (g r): r queries share the keys and values of group g. The softmax stands
// between the products, so the summed features d are whole: a part of them gives no part of the
// result.
Application sdpa_rule(const Call& call) {
  const std::vector<Expr>& query = shape_of(call, "query");
  const std::vector<Expr>& key = shape_of(call, "key");
  const std::vector<Expr>& value = shape_of(call, "value");
  const std::vector<Expr>& result = call.result().shape;
  const size_t lead = result.size() - 2;
  Application application;
  TensorLetters queries;  // the leading dimensions
  TensorLetters groups;
  for (size_t dim = 0; dim < lead; ++dim) {
    const bool head = dim + 1 == lead && lead >= 2;
    const std::string name = head ? "h" : "b" + (lead > 2 ? std::to_string(dim) : std::string());
    const bool grouped = head && call.boolean_or("enable_gqa", false) &&
                         key.size() == result.size() && key[dim] != result[dim];
    if (!grouped) {
      queries.push_back(application.dim(name, result[dim]));
      groups.push_back(queries.back());
      continue;
    }
    const std::optional<Expr> repeats = divide_exact(result[dim], key[dim]);
    if (!repeats || value[dim] != key[dim]) {
      throw Unsupported(
          call.where() +
          ": with enable_gqa keys and values must have one number of heads, and it must "
          "divide that of the queries");
    }
    groups.push_back(application.dim("g", key[dim]));
    queries.push_back(groups.back());
    for (LetterId letter : application.dim("r", *repeats)) queries.back().push_back(letter);
  }
  const bool causal = call.boolean_or("is_causal", false);
  const DimLetters q =
      application.dim("q", result[lead], causal ? LetterKind::kAttend : LetterKind::kQuery);
  const DimLetters k = application.dim("k", key[key.size() - 2], LetterKind::kAttend);
  const DimLetters d = application.dim("d", query.back(), LetterKind::kWhole);
  const DimLetters e = application.dim("e", value.back());
  const auto with = [](TensorLetters letters, const DimLetters& rows, const DimLetters& columns) {
    letters.push_back(rows);
    letters.push_back(columns);
    return letters;
  };
  application.operands.push_back(
      {call.value("query"), 0, broadcast_letters(query, with(queries, q, d))});
  application.operands.push_back(
      {call.value("key"), 0, broadcast_letters(key, with(groups, k, d))});
  application.operands.push_back(
      {call.value("value"), 0, broadcast_letters(value, with(groups, k, e))});
  if (const Type* mask = call.tensor("attn_mask")) {
    application.operands.push_back(
        {call.value("attn_mask"), 0, broadcast_letters(mask->shape, with(queries, q, k))});
  }
  application.results.push_back(with(queries, q, e));
  return application;
}

std::optional<std::string> refuse_dropout(const Call& call) {
  const Arg* p = call.find("dropout_p");
  if (p == nullptr || (p->kind == Arg::Kind::kFloat && p->number == 0) ||
      (p->is_integral() && p->as_expr() == Expr(0))) {
    return std::nullopt;
  }
  const std::string given =
      p->kind == Arg::Kind::kFloat ? std::to_string(p->number) : "a value known at run time";
  return "attention dropout (dropout_p is " + given +
         ") would draw other numbers on every rank. Set the model's attention dropout to 0, or "
         "call model.eval().";
}

std::vector<OpDef> make_ops() {
  OpDef sdpa{"sdpa",
             {"torch._C._nn.scaled_dot_product_attention",
              "torch.nn.functional.scaled_dot_product_attention"},
             "query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, "
             "enable_gqa=False",
             "… q d, … k d, … k e, … q k -> … q e  attend k, query q (causal: attend), whole d",
             sdpa_rule};
  sdpa.refuse = refuse_dropout;
  return {std::move(sdpa)};
}

}  // namespace

std::span<const OpDef> attention_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
