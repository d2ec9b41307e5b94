// Tensors made from sizes: filled, counted, copied in shape from a template. Their dimensions are
// axes of their own, never those of a template, whose data nobody reads.
#include <algorithm>

#include "ops/local_form.h"
#include "ops/op.h"
#include "ops/rule_line.h"

namespace autosp {
namespace {

Application created(const Call& call, LetterKind kind) {
  Application application;
  application.results.push_back(fresh_letters(application, call.result(), "x", kind));
  return application;
}

// Numbers that the elements take from values of the program; they have no dimensions.
void add_values(Application& application, const Call& call, std::string_view parameter) {
  const Arg* arg = call.find(parameter);
  if (arg == nullptr) return;
  for_each_value(*arg, [&](NodeId value) {
    const Type& type = call.graph().node(value).type;
    if (!type.is_tensor()) return;
    application.operands.push_back(
        {value, 0, fresh_letters(application, type, "v", LetterKind::kWhole)});
  });
}

// Every element alike, so each part can be made in its place.
Application filled_rule(const Call& call) {
  if (!call.result().is_tensor()) return opaque_application(call.graph(), call.node());
  Application application = created(call, LetterKind::kPass);
  add_values(application, call, "fill_value");
  return application;
}

// Elements that depend on their position or come as data.
Application whole_rule(const Call& call) {
  if (!call.result().is_tensor()) return opaque_application(call.graph(), call.node());
  Application application = created(call, LetterKind::kWhole);
  for (std::string_view parameter : {"data", "start", "end"})
    add_values(application, call, parameter);
  return application;
}

// What the call says beside its sizes, in keywords that all creating operators share.
Kwargs settings(const Call& call) {
  Kwargs kwargs;
  for (std::string_view name : {"dtype", "layout", "device", "requires_grad", "pin_memory"}) {
    if (call.has(name)) kwargs.emplace_back(std::string(name), *call.find(name));
  }
  return kwargs;
}

Arg local_sizes(const LocalForm& form) { return Arg::sizes_of(form.local_shape()); }

// torch.zeros, Tensor.new_zeros, …: the same call with local sizes.
LocalResult sized_local(LocalForm& form) {
  const Call& call = form.call();
  std::vector<Arg> args;
  if (call.find("self") != nullptr) args.push_back(form.local("self"));
  args.push_back(local_sizes(form));
  if (call.find("fill_value") != nullptr) args.push_back(form.local("fill_value"));
  return {form.emit(call.node().target, std::move(args), settings(call), local_type(form))};
}

// torch.zeros_like(x) as x.new_zeros(sizes), which takes dtype and device from x and no length.
LocalResult like_local(LocalForm& form) {
  const Call& call = form.call();
  const std::string kind(call.op().name.substr(0, call.op().name.find('_')));
  std::vector<Arg> args = {form.local("self"), local_sizes(form)};
  if (call.find("fill_value") != nullptr) args.push_back(form.local("fill_value"));
  return {form.emit("Tensor.new_" + kind, std::move(args), settings(call), local_type(form))};
}

// -----------------------------------------------------------------------------------------------------------
// arange

struct Range {
  Expr start = Expr(0);
  Expr step = Expr(1);
};

// arange(end), arange(start, end), arange(start, end, step), as positions or keywords. Nothing when
// a bound is no integer.
std::optional<Range> range_of(const Call& call) {
  std::vector<Arg> bounds;
  if (const Arg* given = call.find("bounds")) bounds = given->items;
  const auto integral = [](const Arg& arg) { return arg.is_integral(); };
  if (!std::all_of(bounds.begin(), bounds.end(), integral)) return std::nullopt;
  Range range;
  if (bounds.size() >= 2) range.start = bounds[0].as_expr();
  if (bounds.size() >= 3) range.step = bounds[2].as_expr();
  for (auto [name, target] : {std::pair{"start", &range.start}, std::pair{"step", &range.step}}) {
    const Arg* arg = call.has(name) ? call.find(name) : nullptr;
    if (arg == nullptr) continue;
    if (!arg->is_integral()) return std::nullopt;
    *target = arg->as_expr();
  }
  const Arg* end = call.has("end") ? call.find("end") : nullptr;
  if (end != nullptr && !end->is_integral()) return std::nullopt;
  // `arange(2, end=8)` starts at its only position.
  if (end != nullptr && bounds.size() == 1) range.start = bounds[0].as_expr();
  return range;
}

Application arange_rule(const Call& call) {
  if (!call.result().is_tensor()) return opaque_application(call.graph(), call.node());
  const std::optional<Range> range = range_of(call);
  Application application = created(call, range ? LetterKind::kIndex : LetterKind::kWhole);
  application.counts = range && range->start == Expr(0) && range->step == Expr(1);
  return application;
}

LocalResult arange_local(LocalForm& form) {
  const Call& call = form.call();
  const Range range = range_of(call).value_or(Range{});
  const Expr length = form.local_shape()[0];
  const Expr before = form.in_bag() ? Expr(0) : Expr::symbol(kRankSymbol) * length;
  const Expr start = range.start + before * range.step;
  std::vector<Arg> args = {Arg::size_of(start), Arg::size_of(start + length * range.step)};
  if (range.step != Expr(1)) args.push_back(Arg::size_of(range.step));
  const NodeId numbers =
      form.emit("torch.arange", std::move(args), settings(call), local_type(form));
  if (!form.is_ragged() || form.in_bag()) return {numbers};
  // Rows past the end are copies of the last one.
  const Expr last = range.start + (call.result().shape[0] - Expr(1)) * range.step;
  const bool falls = range.step.as_constant().value_or(1) < 0;
  return {form.emit("torch.clamp", {Arg::of(numbers)},
                    {{falls ? "min" : "max", Arg::size_of(last)}}, local_type(form))};
}

// ----------------------------------------------------------------------------------------------------------
// triangles

Application triangle_rule(const Call& call) {
  const Type* type = call.tensor("self");
  if (type == nullptr || type->shape.size() < 2)
    return opaque_application(call.graph(), call.node());
  const auto rank = static_cast<int64_t>(type->shape.size());
  return along(call, "self", {rank - 2, rank - 1}, LetterKind::kWhole);
}

OpDef creating(std::string_view name, std::vector<std::string_view> targets,
               std::string_view signature, std::string_view rule, ApplyFn apply,
               LocalFn localize = nullptr) {
  OpDef op{name, std::move(targets), signature, rule, apply, localize};
  op.creates = true;
  op.differentiable = false;
  return op;
}

OpDef filled(std::string_view name, std::vector<std::string_view> targets,
             std::string_view signature, LocalFn localize) {
  return creating(name, std::move(targets), signature, "-> …  (a new axis in every dimension)",
                  filled_rule, localize);
}

OpDef positioned(std::string_view name, std::vector<std::string_view> targets,
                 std::string_view signature) {
  return creating(name, std::move(targets), signature, "-> …  every dimension whole", whole_rule);
}

OpDef triangle(std::string_view name, std::vector<std::string_view> targets,
               std::string_view functional = {}) {
  OpDef op{name, std::move(targets), "self, diagonal=0, *, out=None", "… i j -> … i j  whole i j",
           triangle_rule};
  op.functional = functional;
  return op;
}

constexpr std::string_view kSized =
    "*size, out=None, dtype=None, layout=None, device=None, pin_memory=None, requires_grad=None, "
    "names=None, "
    "memory_format=None";
constexpr std::string_view kFull =
    "size, fill_value, *, out=None, dtype=None, layout=None, device=None, pin_memory=None, "
    "requires_grad=None, names=None";
constexpr std::string_view kLike =
    "self, *, dtype=None, layout=None, device=None, pin_memory=None, requires_grad=None, "
    "memory_format=None";
constexpr std::string_view kFullLike =
    "self, fill_value, *, dtype=None, layout=None, device=None, pin_memory=None, "
    "requires_grad=None, memory_format=None";
constexpr std::string_view kNew =
    "self, *size, dtype=None, layout=None, device=None, pin_memory=None, requires_grad=None";
constexpr std::string_view kNewFull =
    "self, size, fill_value, *, dtype=None, layout=None, device=None, pin_memory=None, "
    "requires_grad=None";

std::vector<OpDef> make_ops() {
  return {
      filled("zeros", {"torch.zeros"}, kSized, sized_local),
      filled("ones", {"torch.ones"}, kSized, sized_local),
      filled("empty", {"torch.empty"}, kSized, sized_local),
      filled("full", {"torch.full"}, kFull, sized_local),
      filled("zeros_like", {"torch.zeros_like"}, kLike, like_local),
      filled("ones_like", {"torch.ones_like"}, kLike, like_local),
      filled("empty_like", {"torch.empty_like"}, kLike, like_local),
      filled("full_like", {"torch.full_like"}, kFullLike, like_local),
      filled("new_zeros", {"Tensor.new_zeros"}, kNew, sized_local),
      filled("new_ones", {"Tensor.new_ones"}, kNew, sized_local),
      filled("new_empty", {"Tensor.new_empty"}, kNew, sized_local),
      filled("new_full", {"Tensor.new_full"}, kNewFull, sized_local),
      creating("arange", {"torch.arange"},
               "*bounds, start=None, end=None, step=None, out=None, dtype=None, layout=None, "
               "device=None, "
               "pin_memory=None, requires_grad=None",
               "-> x  index x", arange_rule, arange_local),
      positioned("linspace", {"torch.linspace", "torch.logspace"},
                 "start, end, steps, *, base=None, out=None, dtype=None, layout=None, device=None, "
                 "pin_memory=None, "
                 "requires_grad=None"),
      positioned("eye", {"torch.eye"},
                 "n, m=None, *, out=None, dtype=None, layout=None, device=None, pin_memory=None, "
                 "requires_grad=None"),
      positioned("tensor", {"torch.tensor"},
                 "data, *, dtype=None, device=None, requires_grad=None, pin_memory=None"),
      positioned(
          "scalar_tensor", {"torch.scalar_tensor"},
          "data, *, dtype=None, layout=None, device=None, pin_memory=None, requires_grad=None"),
      positioned("new_tensor", {"Tensor.new_tensor"},
                 "self, data, *, dtype=None, device=None, requires_grad=None"),
      positioned("tril_indices", {"torch.tril_indices", "torch.triu_indices"},
                 "row, col, offset=0, *, dtype=None, device=None, layout=None"),
      triangle("tril", {"torch.tril", "Tensor.tril"}),
      triangle("triu", {"torch.triu", "Tensor.triu"}),
      triangle("tril_", {"Tensor.tril_"}, "torch.tril"),
      triangle("triu_", {"Tensor.triu_"}, "torch.triu"),
  };
}

}  // namespace

std::span<const OpDef> creation_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
