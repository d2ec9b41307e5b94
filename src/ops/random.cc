// Operators that draw random numbers. Where they really draw they are refused: ranks with the same
// seed would repeat one mask on every part of the sequence, ranks with different seeds would drift
// apart.
#include "ops/op.h"
#include "ops/rule_line.h"

namespace autosp {
namespace {

Application pointwise(const Call& call) { return pointwise_application(call); }

bool is_zero(const Arg* arg) {
  if (arg == nullptr || arg->is_value()) return false;
  return arg->kind == Arg::Kind::kFloat ? arg->number == 0
                                        : arg->is_integral() && arg->as_expr() == Expr(0);
}

// A flag that the call does not fix at compile time counts as set.
bool may_be_true(const Call& call, std::string_view parameter) {
  const Arg* arg = call.find(parameter);
  return arg == nullptr || !(arg->is_none() || is_zero(arg));
}

std::optional<std::string> refuse_dropout(const Call& call) {
  if (is_zero(call.find("p")) || !may_be_true(call, "training")) return std::nullopt;
  return "dropout with p > 0 is not supported yet, since every rank would need its own part of one "
         "mask: set it to "
         "0 or call model.eval()";
}

std::optional<std::string> refuse_rrelu(const Call& call) {
  if (!may_be_true(call, "training")) return std::nullopt;
  return "rrelu draws random slopes in training, which is not supported yet: call model.eval()";
}

std::optional<std::string> refuse_drawing(const Call&) {
  return "operators that draw random numbers are not supported yet: draw outside of the compiled "
         "program and pass "
         "the numbers in";
}

}  // namespace

std::span<const OpDef> random_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "dropout",
       .targets = {"torch.nn.functional.dropout", "torch.nn.functional.alpha_dropout",
                   "torch.nn.functional.feature_alpha_dropout", "torch.nn.functional.dropout1d",
                   "torch.nn.functional.dropout2d", "torch.nn.functional.dropout3d"},
       .signature = "input, p=0.5, training=True, inplace=False",
       .rule = "… -> …",
       .apply = pointwise,
       .refuse = refuse_dropout,
       .aliases = true},
      {.name = "dropout (torch)",
       .targets = {"torch.dropout", "torch.alpha_dropout", "torch.feature_dropout",
                   "torch.feature_alpha_dropout"},
       .signature = "input, p, training",
       .rule = "… -> …",
       .apply = pointwise,
       .refuse = refuse_dropout,
       .aliases = true},
      {.name = "dropout_",
       .targets = {"torch.dropout_", "torch.alpha_dropout_", "torch.feature_dropout_",
                   "torch.feature_alpha_dropout_"},
       .signature = "input, p, training",
       .rule = "… -> …",
       .apply = pointwise,
       .refuse = refuse_dropout,
       .functional = "torch.dropout"},
      {.name = "rrelu",
       .targets = {"torch.nn.functional.rrelu", "torch.rrelu"},
       .signature = "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
       .rule = "… -> …",
       .apply = pointwise,
       .refuse = refuse_rrelu},
      {.name = "bernoulli",
       .targets = {"torch.bernoulli",     "Tensor.bernoulli",
                   "torch.poisson",       "torch.normal",
                   "torch.multinomial",   "Tensor.multinomial",
                   "torch.rand",          "torch.randn",
                   "torch.randint",       "torch.randperm",
                   "torch.rand_like",     "torch.randn_like",
                   "torch.randint_like",  "torch.nn.functional.gumbel_softmax",
                   "Tensor.bernoulli_",   "Tensor.cauchy_",
                   "Tensor.exponential_", "Tensor.geometric_",
                   "Tensor.log_normal_",  "Tensor.normal_",
                   "Tensor.random_",      "Tensor.uniform_"},
       .signature = "*args, size=None, p=None, mean=None, std=None, input=None, num_samples=None, "
                    "replacement=False, "
                    "low=None, high=None, n=None, lambd=None, median=None, sigma=None, from=None, "
                    "to=None, tau=None, "
                    "hard=None, eps=None, dim=None, logits=None, generator=None, dtype=None, "
                    "layout=None, device=None, "
                    "pin_memory=None, requires_grad=None, memory_format=None, names=None",
       .rule = "unknown values, whole",
       .apply = [](const Call& call) { return opaque_application(call.graph(), call.node()); },
       .refuse = refuse_drawing,
       .differentiable = false},
  };
  return ops;
}

}  // namespace autosp
