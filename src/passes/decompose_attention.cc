#include "passes/decompose_attention.h"

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"
#include "support/error.h"

namespace autosp {
namespace {

constexpr OpDef kModuleForward = {
    .name = "multi_head_attention_forward",
    .targets = {},
    .signature =
        "query, key, value, embed_dim_to_check, num_heads, in_proj_weight, in_proj_bias, bias_k, "
        "bias_v, "
        "add_zero_attn, dropout_p, out_proj_weight, out_proj_bias, training=True, "
        "key_padding_mask=None, "
        "need_weights=True, attn_mask=None, use_separate_proj_weight=False, q_proj_weight=None, "
        "k_proj_weight=None, v_proj_weight=None, static_k=None, static_v=None, "
        "average_attn_weights=True, "
        "is_causal=False",
    .rule = {},
};
constexpr std::string_view kModuleTarget = "torch.nn.functional.multi_head_attention_forward";

class Opener {
 public:
  Opener(const Call& call, const std::vector<NodeId>& readers, GraphBuilder& builder)
      : call_(call), readers_(readers), builder_(builder), near_(&call.node()) {}

  // The attended and projected values, [T, B, E].
  NodeId open() {
    refuse_forms();
    const Type& query = *call_.tensor("query");
    const Type& key = *call_.tensor("key");
    const Expr target = query.shape[0];
    const Expr source = key.shape[0];
    const Expr batch = query.shape[1];
    const Expr width = query.shape[2];
    const Expr heads(call_.integer("num_heads"));
    const std::optional<Expr> head_width = divide_exact(width, heads);
    ensure(head_width.has_value(), "heads divide the width of an attention module");
    dtype_ = query.dtype;

    auto [q, k, v] = project(width);
    const auto per_head = [&](NodeId x, const Expr& length) {
      const NodeId split =
          emit("torch.reshape", {Arg::of(x), Arg::sizes_of({length, batch, heads, *head_width})},
               {length, batch, heads, *head_width});
      return emit("torch.permute", {Arg::of(split), dims({1, 2, 0, 3})},
                  {batch, heads, length, *head_width});
    };
    q = per_head(q, target);
    k = per_head(k, source);
    v = per_head(v, source);

    const bool padded = call_.has("key_padding_mask");
    const bool causal =
        call_.boolean_or("is_causal", false) && !padded && !call_.boolean_or("need_weights", true);
    const Arg mask = causal ? Arg::none() : merged_mask(batch, heads, target, source);
    const NodeId attended =
        emit("torch._C._nn.scaled_dot_product_attention",
             {Arg::of(q), Arg::of(k), Arg::of(v), mask, Arg::float_of(0.0), Arg::bool_of(causal)},
             {batch, heads, target, *head_width});
    const NodeId back = emit("torch.permute", {Arg::of(attended), dims({2, 0, 1, 3})},
                             {target, batch, heads, *head_width});
    const NodeId merged =
        emit("torch.reshape", {Arg::of(back), Arg::sizes_of({target, batch, width})},
             {target, batch, width});
    return linear(merged, mapped("out_proj_weight"), mapped("out_proj_bias"),
                  {target, batch, width});
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw Unsupported(call_.where() + ": " + why);
  }

  void refuse_forms() const {
    if (call_.tensor("query")->shape.size() != 3)
      refuse("an attention module without a batch dimension is not supported; add one");
    if (call_.has("bias_k") || call_.has("bias_v") || call_.boolean_or("add_zero_attn", false)) {
      refuse("add_bias_kv and add_zero_attn lengthen the keys, which is not supported");
    }
    if (call_.has("static_k") || call_.has("static_v"))
      refuse("static keys and values are not supported");
    const Arg* dropout = call_.find("dropout_p");
    const bool drops = !(dropout->kind == Arg::Kind::kFloat && dropout->number == 0.0) &&
                       !(dropout->kind == Arg::Kind::kInt && dropout->integer == 0);
    if (drops && call_.boolean_or("training", true)) {
      refuse("dropout with p > 0 is not supported; set it to 0 or call model.eval()");
    }
    const Graph& graph = call_.graph();
    for (NodeId user : readers_) {
      const bool reads_values = user < graph.size() &&
                                graph.node(user).target == "_operator.getitem" &&
                                graph.node(user).args.at(1).integer == 0;
      if (!reads_values && call_.boolean_or("need_weights", true)) {
        refuse(
            "the attention weights are returned, a tensor of tokens times tokens; pass "
            "need_weights=False");
      }
    }
  }

  struct Projected {
    NodeId q, k, v;
  };

  Projected project(const Expr& width) {
    const Arg query = mapped("query");
    const Arg key = mapped("key");
    const Arg value = mapped("value");
    const std::vector<Expr> query_shape = with_width(*call_.tensor("query"), width);
    const std::vector<Expr> key_shape = with_width(*call_.tensor("key"), width);
    const std::vector<Expr> value_shape = with_width(*call_.tensor("value"), width);
    if (call_.boolean_or("use_separate_proj_weight", false)) {
      const auto bias = [&](int64_t index) { return part("in_proj_bias", index, width); };
      return {linear(query.value, mapped("q_proj_weight"), bias(0), query_shape),
              linear(key.value, mapped("k_proj_weight"), bias(1), key_shape),
              linear(value.value, mapped("v_proj_weight"), bias(2), value_shape)};
    }
    if (query == key && key == value) {
      std::vector<Expr> wide = query_shape;
      wide.back() = Expr(3) * width;
      const NodeId all =
          linear(query.value, mapped("in_proj_weight"), mapped("in_proj_bias"), wide);
      const Type third = Type::tensor(dtype_, query_shape);
      const NodeId list =
          builder_.call("torch.chunk", {Arg::of(all), Arg::integer_of(3), Arg::integer_of(-1)},
                        Type::tuple({third, third, third}), near_);
      const auto item = [&](int64_t index) {
        return builder_.call("_operator.getitem", {Arg::of(list), Arg::integer_of(index)}, third,
                             near_);
      };
      return {item(0), item(1), item(2)};
    }
    const auto one = [&](const Arg& x, int64_t index, const std::vector<Expr>& shape) {
      const Arg weight = part("in_proj_weight", index, width);
      return linear(x.value, weight, part("in_proj_bias", index, width), shape);
    };
    return {one(query, 0, query_shape), one(key, 1, key_shape), one(value, 2, value_shape)};
  }

  static std::vector<Expr> with_width(const Type& type, const Expr& width) {
    return {type.shape[0], type.shape[1], width};
  }

  // Rows [index*width, (index+1)*width) of a packed parameter; None when there is none.
  Arg part(std::string_view parameter, int64_t index, const Expr& width) {
    if (!call_.has(parameter)) return Arg::none();
    std::vector<Expr> shape = call_.tensor(parameter)->shape;
    shape[0] = width;
    const Arg rows = Arg::slice_of(Arg::size_of(Expr(index) * width),
                                   Arg::size_of(Expr(index + 1) * width), Arg::none());
    return Arg::of(emit("_operator.getitem", {mapped(parameter), rows}, std::move(shape)));
  }

  // The module's masks are true where a key is hidden, sdpa's where it is seen.
  Arg merged_mask(const Expr& batch, const Expr& heads, const Expr& target, const Expr& source) {
    std::vector<NodeId> masks;
    if (call_.has("attn_mask")) {
      Arg mask = mapped("attn_mask");
      if (call_.tensor("attn_mask")->shape.size() == 3) {
        const std::vector<Expr> shape{batch, heads, target, source};
        mask = Arg::of(emit_as(call_.tensor("attn_mask")->dtype, "torch.reshape",
                               {mask, Arg::sizes_of(shape)}, shape));
      }
      masks.push_back(mask.value);
    }
    if (call_.has("key_padding_mask")) {
      const std::vector<Expr> shape{batch, Expr(1), Expr(1), source};
      masks.push_back(emit_as(call_.tensor("key_padding_mask")->dtype, "torch.reshape",
                              {mapped("key_padding_mask"), Arg::sizes_of(shape)}, shape));
    }
    if (masks.empty()) return Arg::none();
    const auto type_of = [this](NodeId mask) { return builder_.graph().node(mask).type; };
    const bool all_bool =
        type_of(masks[0]).dtype == DType::kBool && type_of(masks.back()).dtype == DType::kBool;
    for (NodeId& mask : masks) {
      const Type type = type_of(mask);
      if (all_bool) {
        mask = builder_.call("torch.logical_not", {Arg::of(mask)}, type, near_);
      } else if (type.dtype == DType::kBool) {
        const Type number = Type::tensor(dtype_, type.shape);
        const NodeId zeros =
            builder_.call("torch.zeros_like", {Arg::of(mask)},
                          {{"dtype", Arg::literal_of(torch_dtype(dtype_))}}, number, near_);
        mask = builder_.call("Tensor.masked_fill",
                             {Arg::of(zeros), Arg::of(mask),
                              Arg::float_of(-std::numeric_limits<double>::infinity())},
                             number, near_);
      }
    }
    if (masks.size() == 1) return Arg::of(masks[0]);
    std::vector<Expr> shape = type_of(masks[0]).shape;
    if (shape.size() == 2) shape = {Expr(1), Expr(1), target, source};
    shape[0] = batch;
    return Arg::of(emit_as(all_bool ? DType::kBool : dtype_,
                           all_bool ? "_operator.and_" : "_operator.add",
                           {Arg::of(masks[0]), Arg::of(masks[1])}, shape));
  }

  NodeId linear(NodeId x, const Arg& weight, const Arg& bias, std::vector<Expr> shape) {
    return emit("torch._C._nn.linear", {Arg::of(x), weight, bias}, std::move(shape));
  }
  NodeId emit(std::string target, std::vector<Arg> args, std::vector<Expr> shape) {
    return emit_as(dtype_, std::move(target), std::move(args), std::move(shape));
  }
  NodeId emit_as(DType dtype, std::string target, std::vector<Arg> args, std::vector<Expr> shape) {
    return builder_.call(std::move(target), std::move(args), Type::tensor(dtype, std::move(shape)),
                         near_);
  }
  Arg mapped(std::string_view parameter) const { return builder_.mapped(*call_.find(parameter)); }
  static Arg dims(std::initializer_list<int64_t> list) {
    std::vector<Arg> items;
    for (int64_t dim : list) items.push_back(Arg::integer_of(dim));
    return Arg::tuple_of(std::move(items));
  }

  const Call& call_;
  const std::vector<NodeId>& readers_;
  GraphBuilder& builder_;
  const Node* near_;
  DType dtype_ = DType::kOther;
};

NodeId open_module(const Graph& graph, const Node& node, const std::vector<NodeId>& readers,
                   GraphBuilder& builder) {
  const Call call(graph, node, kModuleForward);
  return Opener(call, readers, builder).open();
}

}  // namespace

bool decompose_attention(Graph& graph) {
  const std::vector<std::vector<NodeId>> readers = users(graph);
  GraphBuilder builder(graph);
  std::vector<NodeId> opened(graph.nodes.size(), kNoNode);
  bool changed = false;
  for (const Node& node : graph.nodes) {
    if (node.target == kModuleTarget) {
      opened[node.id] = open_module(graph, node, readers[node.id], builder);
      changed = true;
      continue;
    }
    const bool reads_opened = node.target == "_operator.getitem" && node.args.at(0).is_value() &&
                              opened[node.args[0].value] != kNoNode;
    if (!reads_opened) {
      builder.copy(node);
    } else if (node.args.at(1).integer == 0) {
      builder.map(node.id, opened[node.args[0].value]);
    } else {
      // The weights' element; torch gives None where they are not asked for.
      ensure(node.type.kind != Type::Kind::kTensor,
             "returned attention weights are refused when opened");
    }
  }
  if (changed) graph = builder.finish(graph.outputs);
  return changed;
}

}  // namespace autosp
