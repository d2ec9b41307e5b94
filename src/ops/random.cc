// Operators that draw random numbers. torch's own generators know nothing of parts: ranks with the
// same seed would repeat one mask on every part of the sequence, ranks with different seeds would
// drift apart. So what can be made from uniform numbers is (ops/draw.h), and the rest is refused.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ops/draw.h"
#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

Application pointwise(const Call& call) { return pointwise_application(call); }
Application opaque(const Call& call) { return opaque_application(call.graph(), call.node()); }

std::optional<double> number(const Arg* arg) {
  if (arg == nullptr) return std::nullopt;
  if (arg->kind == Arg::Kind::kFloat) return arg->number;
  if (arg->kind == Arg::Kind::kInt) return static_cast<double>(arg->integer);
  return std::nullopt;
}

// A flag that the call does not fix at compile time counts as set.
bool may_be_true(const Call& call, std::string_view parameter) {
  const Arg* arg = call.find(parameter);
  return arg == nullptr || !(arg->is_none() || (arg->is_integral() && arg->as_expr() == Expr(0)));
}

// ------------------------------------------------------------------------------------------------
// Dropout

bool drops(const Call& call) {
  return number(call.find("p")) != 0.0 && may_be_true(call, "training");
}

bool drops_by_numbers(const Call& call) {
  return drops(call) && number(call.find("p")) && call.find("training") != nullptr &&
         call.find("training")->is_integral();
}

// Left after the others have been written out.
std::optional<std::string> refuse_dropout(const Call& call) {
  if (!drops(call) || drops_by_numbers(call)) return std::nullopt;
  return "dropout whose p or training is a value of the program is not supported: make both plain "
         "Python numbers, or set p to 0 or call model.eval()";
}

// How many leading dimensions a mask has that drops whole channels: batch and channels, or channels
// alone where an operator for n dimensions gets a tensor without a batch.
int64_t mask_dims(const Call& call, int64_t rank) {
  const std::string_view name = call.node().target;
  if (name.find("feature") == std::string_view::npos && !name.ends_with('d')) return rank;
  const bool no_batch = (name.ends_with("1d") && rank == 2) || (name.ends_with("3d") && rank == 4);
  return no_batch ? 1 : 2;
}

// Alpha dropout (Klambauer et al., arXiv 1706.02515) keeps mean and variance of what a SELU gives.
NodeId draw_dropout(const Call& call, const Draw& draw) {
  constexpr double kAlpha = 1.7580993408473766;
  const double p = *number(call.find("p"));
  const bool alpha = call.node().target.find("alpha") != std::string::npos;
  const NodeId x = draw.builder.mapped(call.value("input"));
  const Type type = draw.type(x);
  const double a = alpha ? 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p)) : 1 / (1 - p);
  const double scale = p < 1 ? a : 0;
  const double shift = alpha ? kAlpha * scale * p : 0;
  const NodeId u = draw.uniform(x, mask_dims(call, rank_of(type)));
  const NodeId keep =
      draw.call("torch.ge", {Arg::of(u), Arg::float_of(p)}, Type::tensor(DType::kBool, type.shape));
  NodeId kept = draw.map("torch.mul", x, {Arg::float_of(scale)});
  if (shift != 0) kept = draw.map("torch.add", kept, {Arg::float_of(shift)});
  return draw.call(
      "torch.where",
      {Arg::of(keep), Arg::of(kept), Arg::float_of(shift - (alpha ? kAlpha * scale : 0))},
      draw.type(x));
}

// ------------------------------------------------------------------------------------------------
// Numbers of a distribution

// A generator of the user's own is another source of numbers.
bool has_no_generator(const Call& call) { return !call.has("generator") && !call.has("out"); }

std::optional<std::string> refuse_generator(const Call& call) {
  if (has_no_generator(call)) return std::nullopt;
  return "drawing with a generator of its own, or into a tensor given as out=, is not supported: "
         "draw without, from the seed that torch.manual_seed sets";
}

std::optional<std::string> refuse_drawing(const Call&) {
  return "AutoSP has no form of this operator that draws the same numbers on any number of ranks: "
         "draw outside of the compiled program and pass the numbers in, or make them from "
         "torch.rand, torch.randn or torch.bernoulli";
}

// What has the shape of the result, made where the call says.
NodeId template_of(const Call& call, const Draw& draw) {
  Kwargs kwargs;
  if (call.has("device")) kwargs.emplace_back("device", *call.find("device"));
  const bool like = call.value("input") != kNoNode;
  if (like && kwargs.empty()) return draw.builder.mapped(call.value("input"));
  const Arg first =
      like ? Arg::of(draw.builder.mapped(call.value("input"))) : Arg::sizes_of(call.sizes("size"));
  return draw.builder.call(
      like ? "torch.empty_like" : "torch.empty", {first}, std::move(kwargs),
      Type::tensor(like ? call.tensor("input")->dtype : DType::kFloat32, call.result().shape),
      &draw.near);
}

double given(const Call& call, std::string_view parameter) {
  const std::optional<double> value = number(call.find(parameter));
  if (!value)
    throw Unsupported(call.where() + ": '" + std::string(parameter) + "' must be a plain number");
  return *value;
}

// Between two numbers: u * (to - from) + from.
NodeId stretched(const Draw& draw, NodeId u, double from, double to) {
  NodeId value = u;
  if (to - from != 1) value = draw.map("torch.mul", value, {Arg::float_of(to - from)});
  if (from != 0) value = draw.map("torch.add", value, {Arg::float_of(from)});
  return value;
}

// -log(u), of the exponential distribution; u = 0 stands for the middle of what it covers.
NodeId minus_log(const Draw& draw, NodeId u, double factor) {
  const NodeId positive =
      draw.map("torch.clamp", u, {Arg::float_of(std::ldexp(1.0, -25)), Arg::none()});
  return draw.map("torch.mul", draw.map("torch.log", positive), {Arg::float_of(-factor)});
}

// Box and Muller: sqrt(-2 log u) cos(2 pi v).
NodeId normal(const Draw& draw, NodeId like, double mean, double deviation) {
  const NodeId radius = draw.map("torch.sqrt", minus_log(draw, draw.uniform(like), 2));
  const NodeId angle =
      draw.map("torch.mul", draw.uniform(like), {Arg::float_of(2 * std::numbers::pi)});
  const NodeId value = draw.map("torch.mul", radius, {Arg::of(draw.map("torch.cos", angle))});
  return stretched(draw, value, mean, mean + deviation);
}

NodeId draw_rand(const Call& call, const Draw& draw) {
  return draw.cast(draw.uniform(template_of(call, draw)), call.result().dtype);
}

NodeId draw_randn(const Call& call, const Draw& draw) {
  return draw.cast(normal(draw, template_of(call, draw), 0, 1), call.result().dtype);
}

NodeId draw_uniform(const Call& call, const Draw& draw) {
  const NodeId u = draw.uniform(template_of(call, draw));
  return draw.cast(stretched(draw, u, given(call, "from"), given(call, "to")), call.result().dtype);
}

NodeId draw_normal(const Call& call, const Draw& draw) {
  return draw.cast(normal(draw, template_of(call, draw), given(call, "mean"), given(call, "std")),
                   call.result().dtype);
}

NodeId draw_exponential(const Call& call, const Draw& draw) {
  const NodeId u = draw.uniform(template_of(call, draw));
  return draw.cast(minus_log(draw, u, 1 / given(call, "lambd")), call.result().dtype);
}

// The operand says the probabilities, unless the call does.
NodeId draw_bernoulli(const Call& call, const Draw& draw) {
  const NodeId like = draw.builder.mapped(call.value("input"));
  const Arg p = call.has("p") ? draw.builder.mapped(*call.find("p")) : Arg::of(like);
  const Type drawn = Type::tensor(DType::kBool, call.result().shape);
  return draw.cast(draw.call("torch.lt", {Arg::of(draw.uniform(like)), p}, drawn),
                   call.result().dtype);
}

NodeId draw_rrelu(const Call& call, const Draw& draw) {
  const NodeId x = draw.builder.mapped(call.value("input"));
  const Type type = draw.type(x);
  const NodeId slope = draw.cast(
      stretched(draw, draw.uniform(x), given(call, "lower"), given(call, "upper")), type.dtype);
  const NodeId positive =
      draw.call("torch.ge", {Arg::of(x), Arg::float_of(0)}, Type::tensor(DType::kBool, type.shape));
  const NodeId other = draw.map("torch.mul", x, {Arg::of(slope)});
  return draw.call("torch.where", {Arg::of(positive), Arg::of(x), Arg::of(other)}, draw.type(x));
}

// ------------------------------------------------------------------------------------------------
// autosp.uniform

LocalResult uniform_local(LocalForm& form) {
  const Call& call = form.call();
  if (form.in_bag()) {
    throw Unsupported(call.where() +
                      ": it draws for tokens that the program has sorted, and which place one has "
                      "among them no rank knows. Draw before the tokens are sorted or after they "
                      "are back in order, or set dropout to 0 there.");
  }
  const auto [part, shape, dim, size, start] = form.isolated("like");
  const std::vector<Expr> local = form.local_shape();
  // A dimension that was split in front of what is sharded is two.
  const auto counted = [&](std::string_view parameter) {
    const int64_t dims = call.integer(parameter);
    return Arg::integer_of(shape.size() > local.size() && dim <= dims ? dims + 1 : dims);
  };
  const NodeId numbers =
      form.emit(call.node().target,
                {Arg::of(part), form.local("seed"), *call.find("stream"), counted("rows"),
                 counted("dims"), Arg::integer_of(dim), Arg::size_of(size), Arg::size_of(start)},
                {}, Type::tensor(call.result().dtype, shape));
  if (shape == local) return {numbers};
  return {form.emit("torch.reshape", {Arg::of(numbers), Arg::sizes_of(local)}, {},
                    Type::tensor(call.result().dtype, local))};
}

OpDef dropout(std::string_view name, std::vector<std::string_view> targets,
              std::string_view signature, std::string_view functional = {}) {
  OpDef op{.name = name,
           .targets = std::move(targets),
           .signature = signature,
           .rule = "… -> …",
           .apply = pointwise,
           .refuse = refuse_dropout,
           .functional = functional,
           .draws = drops_by_numbers,
           .draw = draw_dropout};
  op.aliases = functional.empty();
  return op;
}

OpDef drawing(std::string_view name, std::vector<std::string_view> targets,
              std::string_view signature, DrawFn draw, std::string_view functional = {}) {
  return {.name = name,
          .targets = std::move(targets),
          .signature = signature,
          .rule = "drawn from a seed and each element's place",
          .apply = opaque,
          .refuse = refuse_generator,
          .functional = functional,
          .draws = has_no_generator,
          .draw = draw,
          .differentiable = false};
}

std::vector<OpDef> make_ops() {
  constexpr std::string_view kDropout = "input, p, training";
  constexpr std::string_view kSized =
      "*size, generator=None, out=None, dtype=None, layout=None, device=None, pin_memory=None, "
      "requires_grad=None, names=None";
  constexpr std::string_view kLike =
      "input, *, generator=None, dtype=None, layout=None, device=None, pin_memory=None, "
      "requires_grad=None, memory_format=None";
  constexpr std::string_view kBernoulli = "input, p=None, *, generator=None, out=None";
  constexpr std::string_view kUniform = "input, from=0.0, to=1.0, *, generator=None";
  constexpr std::string_view kNormal = "input, mean=0.0, std=1.0, *, generator=None";
  constexpr std::string_view kExponential = "input, lambd=1.0, *, generator=None";
  return {
      dropout("dropout",
              {"torch.nn.functional.dropout", "torch.nn.functional.alpha_dropout",
               "torch.nn.functional.feature_alpha_dropout", "torch.nn.functional.dropout1d",
               "torch.nn.functional.dropout2d", "torch.nn.functional.dropout3d"},
              "input, p=0.5, training=True, inplace=False"),
      dropout("dropout (torch)",
              {"torch.dropout", "torch.alpha_dropout", "torch.feature_dropout",
               "torch.feature_alpha_dropout"},
              kDropout),
      dropout("dropout_", {"torch.dropout_"}, kDropout, "torch.dropout"),
      dropout("alpha_dropout_", {"torch.alpha_dropout_"}, kDropout, "torch.alpha_dropout"),
      dropout("feature_dropout_", {"torch.feature_dropout_"}, kDropout, "torch.feature_dropout"),
      dropout("feature_alpha_dropout_", {"torch.feature_alpha_dropout_"}, kDropout,
              "torch.feature_alpha_dropout"),
      {.name = "rrelu",
       .targets = {"torch.nn.functional.rrelu", "torch.rrelu"},
       .signature = "input, lower=0.125, upper=0.3333333333333333, training=False, inplace=False",
       .rule = "… -> …",
       .apply = pointwise,
       .draws = [](const Call& call) { return may_be_true(call, "training"); },
       .draw = draw_rrelu},
      drawing("rand", {"torch.rand"}, kSized, draw_rand),
      drawing("randn", {"torch.randn"}, kSized, draw_randn),
      drawing("rand_like", {"torch.rand_like"}, kLike, draw_rand),
      drawing("randn_like", {"torch.randn_like"}, kLike, draw_randn),
      drawing("bernoulli", {"torch.bernoulli", "Tensor.bernoulli", "torch.ops.aten.bernoulli.p"},
              kBernoulli, draw_bernoulli),
      drawing("bernoulli_", {"Tensor.bernoulli_"}, "input, p=0.5, *, generator=None",
              draw_bernoulli, "torch.ops.aten.bernoulli.p"),
      drawing("uniform", {"torch.ops.aten.uniform.default"}, kUniform, draw_uniform),
      drawing("uniform_", {"Tensor.uniform_"}, kUniform, draw_uniform,
              "torch.ops.aten.uniform.default"),
      drawing("normal", {"torch.ops.aten.normal_functional.default"}, kNormal, draw_normal),
      drawing("normal_", {"Tensor.normal_"}, kNormal, draw_normal,
              "torch.ops.aten.normal_functional.default"),
      drawing("exponential", {"torch.ops.aten.exponential.default"}, kExponential,
              draw_exponential),
      drawing("exponential_", {"Tensor.exponential_"}, kExponential, draw_exponential,
              "torch.ops.aten.exponential.default"),
      {.name = "draws of other kinds",
       .targets = {"torch.poisson", "torch.normal", "torch.multinomial", "Tensor.multinomial",
                   "torch.randint", "torch.randperm", "torch.randint_like",
                   "torch.nn.functional.gumbel_softmax", "Tensor.cauchy_", "Tensor.geometric_",
                   "Tensor.log_normal_", "Tensor.random_"},
       .signature = "*args, size=None, p=None, mean=None, std=None, input=None, num_samples=None, "
                    "replacement=False, low=None, high=None, n=None, median=None, sigma=None, "
                    "from=None, to=None, tau=None, hard=None, eps=None, dim=None, logits=None, "
                    "generator=None, dtype=None, layout=None, device=None, pin_memory=None, "
                    "requires_grad=None, memory_format=None, names=None, out=None",
       .rule = "unknown values, whole",
       .apply = opaque,
       .refuse = refuse_drawing,
       .differentiable = false},
      {.name = "uniform (autosp)",
       .targets = {"autosp.uniform"},
       .signature = "like, seed, stream, rows, dims, dim=0, size=None, start=0",
       .rule = "…, [] -> …",
       .apply = pointwise,
       .localize = uniform_local,
       .differentiable = false},
  };
}

}  // namespace

NodeId Draw::uniform(NodeId like, int64_t dims) const {
  return call("autosp.uniform",
              {Arg::of(like), Arg::of(seed), Arg::integer_of(stream++),
               Arg::integer_of(std::max<int64_t>(dims - 1, 0)), Arg::integer_of(dims)},
              Type::tensor(DType::kFloat32, type(like).shape));
}

NodeId Draw::uniform(NodeId like) const { return uniform(like, rank_of(type(like))); }

NodeId Draw::map(std::string target, NodeId value, std::vector<Arg> more) const {
  more.insert(more.begin(), Arg::of(value));
  return call(std::move(target), std::move(more), type(value));
}

NodeId Draw::cast(NodeId value, DType dtype) const {
  if (type(value).dtype == dtype) return value;
  return call("Tensor.to", {Arg::of(value), Arg::literal_of(torch_dtype(dtype))},
              Type::tensor(dtype, type(value).shape));
}

std::span<const OpDef> random_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
