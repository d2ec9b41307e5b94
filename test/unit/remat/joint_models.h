// Joint graphs of small models, as AOTAutograd writes them.
#pragma once

#include <string>

#include "remat/joint_graph.h"

namespace autosp {

struct ModelShape {
  int blocks = 4;
  bool exchanges = false;  // around attention
  bool dropout = false;    // on attention's output
  bool tagged = false;     // the second block is the user's checkpoint region
  bool post_norm = false;  // a block ends in a normalisation, with its statistic
};

// A transformer of x + attention(x) and x + mlp(x), then a product with a loss, of 1024 tokens of
// 64 elements in bfloat16; the hidden layer is four times as wide. Values of [1024,64] are 128 KiB.
inline JointGraph transformer(const ModelShape& shape) {
  const std::string row = "bfloat16[1024,64] 131072B";
  const std::string wide = "bfloat16[1024,256] 524288B";
  std::string text = "%ids = placeholder:primal()\n";
  const auto line = [&text](const std::string& name, const std::string& type,
                            const std::string& call) {
    text += "%" + name + ": " + type + " = " + call + "\n";
  };
  for (int b = 0; b < shape.blocks; ++b) {
    const std::string n = std::to_string(b);
    line("q_w" + n, "bfloat16[64,64] 8192B", "placeholder:primal() parameter");
    line("o_w" + n, "bfloat16[64,64] 8192B", "placeholder:primal() parameter");
    line("up_w" + n, "bfloat16[64,256] 32768B", "placeholder:primal() parameter");
    line("down_w" + n, "bfloat16[256,64] 32768B", "placeholder:primal() parameter");
  }
  line("table", "bfloat16[512,64] 65536B", "placeholder:primal() parameter");
  line("head_w", "bfloat16[64,4096] 524288B", "placeholder:primal() parameter");
  line("tangent", "float32[] 4B", "placeholder:tangent()");
  line("rotary", "bfloat16[1024,1] 2048B", "aten.cos.default(%ids)");
  line("x0", row, "aten.embedding.default(%table, %ids)");
  for (int b = 0; b < shape.blocks; ++b) {
    const std::string n = std::to_string(b);
    const std::string mark = shape.tagged && b == 1 ? " tagged" : "";
    line("norm" + n, row, "aten.rms_norm.default(%x" + n + ")" + mark);
    line("q" + n, row, "aten.mm.default(%norm" + n + ", %q_w" + n + ")" + mark);
    line("turned" + n, row, "aten.mul.Tensor(%q" + n + ", %rotary)" + mark);
    std::string query = "turned" + n;
    if (shape.exchanges) {
      line("sent" + n, row, "_c10d_functional.all_to_all_single.default(%turned" + n + ")" + mark);
      line("got" + n, row, "_c10d_functional.wait_tensor.default(%sent" + n + ")" + mark);
      query = "got" + n;
    }
    text += "%attention" + n + " = aten._scaled_dot_product_flash_attention.default(%" + query +
            ", %" + query + ", %" + query + ")" + mark + "\n";
    line("out" + n, row, "getitem(%attention" + n + ")" + mark);
    line("stat" + n, "float32[1024] 4096B", "getitem(%attention" + n + ")" + mark);
    std::string mixed = "out" + n;
    if (shape.exchanges) {
      line("back" + n, row, "_c10d_functional.all_to_all_single.default(%out" + n + ")" + mark);
      line("home" + n, row, "_c10d_functional.wait_tensor.default(%back" + n + ")" + mark);
      mixed = "home" + n;
    }
    if (shape.dropout) {
      text += "%draw" + n + " = aten.native_dropout.default(%" + mixed + ") random" + mark + "\n";
      line("dropped" + n, row, "getitem(%draw" + n + ")" + mark);
      line("mask" + n, "bool[1024,64] 65536B", "getitem(%draw" + n + ")" + mark);
      mixed = "dropped" + n;
    }
    line("o" + n, row, "aten.mm.default(%" + mixed + ", %o_w" + n + ")" + mark);
    line("mid" + n, row, "aten.add.Tensor(%x" + n + ", %o" + n + ")" + mark);
    line("up" + n, wide, "aten.mm.default(%mid" + n + ", %up_w" + n + ")" + mark);
    line("act" + n, wide, "aten.silu.default(%up" + n + ")" + mark);
    line("flat" + n, wide, "aten.view.default(%act" + n + ") view" + mark);
    line("down" + n, row, "aten.mm.default(%flat" + n + ", %down_w" + n + ")" + mark);
    const std::string next = "x" + std::to_string(b + 1);
    const std::string sum = "aten.add.Tensor(%mid" + n + ", %down" + n + ")" + mark;
    if (!shape.post_norm) {
      line(next, row, sum);
      continue;
    }
    line("sum" + n, row, sum);
    text += "%normal" + n + " = aten.native_layer_norm.default(%sum" + n + ")\n";
    line(next, row, "getitem(%normal" + n + ")");
    line("scale" + n, "float32[1024] 4096B", "getitem(%normal" + n + ")");
  }
  const std::string last = "x" + std::to_string(shape.blocks);
  line("logits", "bfloat16[1024,4096] 8388608B", "aten.mm.default(%" + last + ", %head_w)");
  line("soft", "float32[1024,4096] 16777216B", "aten._log_softmax.default(%logits)");
  text += "%nll = aten.nll_loss_forward.default(%soft, %ids)\n";
  line("loss", "float32[] 4B", "getitem(%nll)");
  line("count", "float32[] 4B", "getitem(%nll)");

  line("dlogits", "bfloat16[1024,4096] 8388608B", "aten.sub.Tensor(%soft, %tangent, %count)");
  line("dhead", "bfloat16[64,4096] 524288B", "aten.mm.default(%" + last + ", %dlogits)");
  line("dx" + std::to_string(shape.blocks), row, "aten.mm.default(%dlogits, %head_w)");
  std::string gradients = "-";
  for (int b = shape.blocks - 1; b >= 0; --b) {
    const std::string n = std::to_string(b);
    std::string grad = "dx" + std::to_string(b + 1);
    if (shape.post_norm) {
      line(
          "dsum" + n, row,
          "aten.native_layer_norm_backward.default(%" + grad + ", %sum" + n + ", %scale" + n + ")");
      grad = "dsum" + n;
    }
    line("ddown_w" + n, "bfloat16[256,64] 32768B",
         "aten.mm.default(%flat" + n + ", %" + grad + ")");
    line("dact" + n, wide, "aten.mm.default(%" + grad + ", %down_w" + n + ")");
    line("dup" + n, wide, "aten.silu_backward.default(%dact" + n + ", %up" + n + ")");
    line("dup_w" + n, "bfloat16[64,256] 32768B", "aten.mm.default(%mid" + n + ", %dup" + n + ")");
    line("dmid" + n, row, "aten.mm.default(%dup" + n + ", %up_w" + n + ")");
    const std::string mixed =
        shape.dropout ? "dropped" + n : (shape.exchanges ? "home" : "out") + n;
    line("do_w" + n, "bfloat16[64,64] 8192B", "aten.mm.default(%" + mixed + ", %dmid" + n + ")");
    line("dmixed" + n, row, "aten.mm.default(%dmid" + n + ", %o_w" + n + ")");
    std::string arriving = "dmixed" + n;
    if (shape.dropout) {
      line("dropback" + n, row,
           "aten.native_dropout_backward.default(%" + arriving + ", %mask" + n + ")");
      arriving = "dropback" + n;
    }
    const std::string query = (shape.exchanges ? "got" : "turned") + n;
    line("dq" + n, row,
         "aten._scaled_dot_product_flash_attention_backward.default(%" + arriving + ", %" + query +
             ", %" + query + ", %" + query + ", %out" + n + ", %stat" + n + ")");
    line("dturned" + n, row, "aten.mul.Tensor(%dq" + n + ", %rotary)");
    line("dq_w" + n, "bfloat16[64,64] 8192B", "aten.mm.default(%norm" + n + ", %dturned" + n + ")");
    line("dnorm" + n, row, "aten.rms_norm_backward.default(%dturned" + n + ", %x" + n + ")");
    line("dx" + n, row, "aten.add.Tensor(%dmid" + n + ", %dnorm" + n + ")");
    gradients += ", %dq_w" + n + ", %do_w" + n + ", %dup_w" + n + ", %ddown_w" + n;
  }
  line("dtable", "bfloat16[512,64] 65536B", "aten.embedding_dense_backward.default(%dx0, %ids)");
  text += "output(%loss | " + gradients + ", %dtable, %dhead)\n";
  return parse_joint_graph(text);
}

inline int find(const JointGraph& graph, const std::string& name) {
  for (int i = 0; i < static_cast<int>(graph.nodes.size()); ++i) {
    if (graph.nodes[i].name == name) return i;
  }
  return -1;
}

}  // namespace autosp
