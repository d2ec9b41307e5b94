// Contractions: linear, the matrix products, einsum, and embedding as a product with one-hot rows.
//
// A contracted letter is kSum only where the result is linear in the contraction: with a bias or
// another added operand every rank would add it once, so there the letter is whole.
#include <algorithm>
#include <cctype>

#include "ops/op.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

size_t rank(const Call& call, std::string_view parameter) {
  return tensor_type(call, parameter).shape.size();
}

Application linear(const Call& call) {
  // A weight of one dimension gives one feature, which has no dimension of its own.
  if (rank(call, "weight") == 1) {
    return interpret_rule(call.has("bias") ? "… i, i, -> …  whole i" : "… i, i -> …  sum i", call);
  }
  return interpret_rule(call.has("bias") ? "… i, o i, o -> … o  whole i" : "… i, o i -> … o  sum i",
                        call);
}

Application matmul(const Call& call) {
  const size_t left = rank(call, "input");
  const size_t right = rank(call, "other");
  if (left == 1 && right == 1) return interpret_rule("k, k ->  sum k", call);
  if (left == 1) return interpret_rule("k, … k n -> … n  sum k", call);
  if (right == 1) return interpret_rule("… m k, k -> … m  sum k", call);
  return interpret_rule("… m k, … k n -> … m n  sum k", call);
}

// The product plus `input`, which is broadcast to it.
Application added(const Call& call, std::string_view left, std::string_view right, size_t batch) {
  rank(call, left);
  rank(call, right);
  const Type& result = call.result();
  Application application;
  TensorLetters letters = fresh_letters(application, result, "d");
  const auto& contracted = call.tensor(left)->shape.back();
  const DimLetters k = application.dim("k", contracted, LetterKind::kWhole);
  if (const Type* input = call.tensor("input")) {
    application.operands.push_back(
        {call.value("input"), 0, broadcast_letters(input->shape, letters)});
  }
  TensorLetters first(letters.begin(), letters.begin() + static_cast<std::ptrdiff_t>(batch));
  TensorLetters second = first;
  first.push_back(letters[batch]);
  first.push_back(k);
  second.push_back(k);
  if (letters.size() > batch + 1) second.push_back(letters[batch + 1]);
  application.operands.push_back({call.value(left), 0, std::move(first)});
  application.operands.push_back({call.value(right), 0, std::move(second)});
  application.results.push_back(std::move(letters));
  return application;
}

Application addmm(const Call& call) { return added(call, "mat1", "mat2", 0); }
Application baddbmm(const Call& call) { return added(call, "batch1", "batch2", 1); }
Application addmv(const Call& call) { return added(call, "mat", "vec", 0); }

// Groups of rows, each times the matrix of its group; `offs` says where the groups end. Only a rank
// that has sorted its own rows knows where its groups end.
Application grouped_mm(const Call& call) {
  const Type& input = tensor_type(call, "input");
  const Type& weight = tensor_type(call, "weight");
  const Type* ends = call.tensor("offs");
  if (input.shape.size() != 2 || weight.shape.size() != 3 || ends == nullptr || call.has("bias"))
    return opaque_application(call.graph(), call.node());
  Application application;
  const DimLetters t = application.dim("t", input.shape[0]);
  const DimLetters i = application.dim("i", input.shape[1], LetterKind::kSum);
  const DimLetters g = application.dim("g", weight.shape[0]);
  const DimLetters o = application.dim("o", weight.shape[2]);
  application.operands = {{call.value("input"), 0, {t, i}},
                          {call.value("weight"), 0, {g, i, o}},
                          {call.value("offs"), 0, {g}, true}};
  application.results = {{t, o}};
  return application;
}

// One operand of an einsum: the subscripts of its dimensions, `leading` where "..." stands.
struct Subscripts {
  std::string before;
  std::string after;
  bool leading = false;
};

Subscripts parse_subscripts(const Call& call, std::string_view text) {
  Subscripts subscripts;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "..." && !subscripts.leading) {
      subscripts.leading = true;
      i += 2;
    } else if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      (subscripts.leading ? subscripts.after : subscripts.before) += text[i];
    } else {
      throw Unsupported(call.where() + ": the equation has the unreadable operand '" +
                        std::string(text) + "'");
    }
  }
  return subscripts;
}

class Einsum {
 public:
  explicit Einsum(const Call& call) : call_(call) {}

  Application run() {
    const Arg* list = call_.find("operands");
    if (list == nullptr || call_.find("equation")->kind != Arg::Kind::kString) {
      throw Unsupported(
          call_.where() +
          ": only the form with an equation in a string is known, einsum(\"bi,oi->bo\", x, w)");
    }
    read(call_.string_or("equation", ""));
    std::vector<NodeId> values;
    for_each_value(*list, [&](NodeId value) { values.push_back(value); });
    if (values.size() != operands_.size()) {
      throw Unsupported(call_.where() + ": the equation names " + std::to_string(operands_.size()) +
                        " operands, the call has " + std::to_string(values.size()));
    }
    for (size_t i = 0; i < values.size(); ++i) measure(operands_[i], shape(values[i]));
    make_letters();
    for (size_t i = 0; i < values.size(); ++i) {
      application_.operands.push_back({values[i], 0, letters(operands_[i], shape(values[i]))});
    }
    application_.results.push_back(letters(result_, call_.result().shape));
    return std::move(application_);
  }

 private:
  struct Named {
    char name = 0;
    Expr size = Expr(1);
    bool diagonal = false;  // twice in one operand
    LetterId id = -1;
  };

  const std::vector<Expr>& shape(NodeId value) const {
    return call_.graph().node(value).type.shape;
  }

  void read(std::string_view equation) {
    const size_t arrow = equation.find("->");
    std::string_view left = equation.substr(0, arrow);
    while (true) {
      const size_t comma = left.find(',');
      operands_.push_back(parse_subscripts(call_, left.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      left.remove_prefix(comma + 1);
    }
    if (arrow != std::string_view::npos) {
      result_ = parse_subscripts(call_, equation.substr(arrow + 2));
      return;
    }
    // Without an arrow the result has the letters that stand once, in alphabetical order, after
    // "...".
    std::string all;
    for (const Subscripts& operand : operands_) {
      all += operand.before + operand.after;
      result_.leading |= operand.leading;
    }
    std::sort(all.begin(), all.end());
    for (const char letter : all) {
      if (std::count(all.begin(), all.end(), letter) == 1) result_.after += letter;
    }
  }

  Named& named(char name) {
    for (Named& entry : named_) {
      if (entry.name == name) return entry;
    }
    named_.push_back({name, Expr(1), false, -1});
    return named_.back();
  }

  size_t leading(const Subscripts& subscripts, const std::vector<Expr>& shape) const {
    const size_t fixed = subscripts.before.size() + subscripts.after.size();
    if (shape.size() < fixed || (!subscripts.leading && shape.size() != fixed)) {
      throw Unsupported(call_.where() +
                        ": an operand does not have the dimensions that the equation names");
    }
    return shape.size() - fixed;
  }

  // Calls visit(dimension, subscript), with 0 for a dimension of "..." and its place counted from
  // the end.
  template <class Visit>
  void each(const Subscripts& subscripts, const std::vector<Expr>& shape, Visit&& visit) {
    const size_t count = leading(subscripts, shape);
    size_t dim = 0;
    for (const char name : subscripts.before) visit(dim++, name, size_t{0});
    for (size_t i = 0; i < count; ++i) visit(dim++, char{0}, count - i);
    for (const char name : subscripts.after) visit(dim++, name, size_t{0});
  }

  void measure(const Subscripts& subscripts, const std::vector<Expr>& shape) {
    const std::string all = subscripts.before + subscripts.after;
    each(subscripts, shape, [&](size_t dim, char name, size_t from_end) {
      if (name == 0 && leading_.size() < from_end) leading_.resize(from_end);
      Named& entry = name == 0 ? leading_[from_end - 1] : named(name);
      if (entry.size == Expr(1)) entry.size = shape[dim];
      if (name != 0 && std::count(all.begin(), all.end(), name) > 1) entry.diagonal = true;
    });
  }

  void make_letters() {
    for (size_t i = leading_.size(); i-- > 0;) {
      const LetterKind kind = result_.leading ? LetterKind::kPass : LetterKind::kSum;
      leading_[i].id =
          application_.add("d" + std::to_string(leading_.size() - 1 - i), leading_[i].size, kind);
    }
    const std::string kept = result_.before + result_.after;
    for (Named& entry : named_) {
      LetterKind kind =
          kept.find(entry.name) == std::string::npos ? LetterKind::kSum : LetterKind::kPass;
      if (entry.diagonal) kind = LetterKind::kWhole;
      entry.id = application_.add(std::string(1, entry.name), entry.size, kind);
    }
  }

  TensorLetters letters(const Subscripts& subscripts, const std::vector<Expr>& shape) {
    TensorLetters dims(shape.size());
    each(subscripts, shape, [&](size_t dim, char name, size_t from_end) {
      if (shape[dim] == Expr(1)) return;
      dims[dim] = {name == 0 ? leading_[from_end - 1].id : named(name).id};
    });
    return dims;
  }

  const Call& call_;
  Application application_;
  std::vector<Subscripts> operands_;
  Subscripts result_;
  std::vector<Named> leading_;  // the dimensions of "...", the last one first
  std::vector<Named> named_;
};

Application einsum(const Call& call) { return Einsum(call).run(); }

std::optional<std::string> refuse_embedding(const Call& call) {
  if (call.has("max_norm")) {
    return "max_norm rescales rows of the table in place for the ids of the whole sequence, which "
           "is not supported: "
           "rescale the table outside of the compiled program";
  }
  if (call.boolean_or("scale_grad_by_freq", false)) {
    return "scale_grad_by_freq counts the ids of the whole sequence in the backward, which is not "
           "supported: set it "
           "to False";
  }
  if (call.boolean_or("sparse", false))
    return "sparse gradients are not supported: set sparse to False";
  return std::nullopt;
}

}  // namespace

std::span<const OpDef> einsum_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "linear",
       .targets = {"torch._C._nn.linear", "torch.nn.functional.linear"},
       .signature = "input, weight, bias=None",
       .rule = "… i, o i, o -> … o  sum i",
       .apply = linear,
       .einsum = true,
       .absorbs = true},
      {.name = "matmul",
       .targets = {"torch.matmul", "Tensor.matmul", "_operator.matmul", "Tensor.__matmul__"},
       .signature = "input, other",
       .rule = "… m k, … k n -> … m n  sum k",
       .apply = matmul,
       .einsum = true,
       .absorbs = true},
      {.name = "mm",
       .targets = {"torch.mm", "Tensor.mm"},
       .signature = "input, mat2",
       .rule = "m k, k n -> m n  sum k",
       .einsum = true,
       .absorbs = true},
      {.name = "bmm",
       .targets = {"torch.bmm", "Tensor.bmm"},
       .signature = "input, mat2",
       .rule = "b m k, b k n -> b m n  sum k",
       .einsum = true,
       .absorbs = true},
      {.name = "mv",
       .targets = {"torch.mv", "Tensor.mv"},
       .signature = "input, vec",
       .rule = "m k, k -> m  sum k",
       .einsum = true,
       .absorbs = true},
      {.name = "dot",
       .targets = {"torch.dot", "Tensor.dot"},
       .signature = "input, tensor",
       .rule = "k, k ->  sum k",
       .einsum = true,
       .absorbs = true},
      {.name = "vdot",
       .targets = {"torch.vdot", "Tensor.vdot"},
       .signature = "input, other",
       .rule = "k, k ->  sum k",
       .einsum = true,
       .absorbs = true},
      {.name = "outer",
       .targets = {"torch.outer", "Tensor.outer", "torch.ger", "Tensor.ger"},
       .signature = "input, vec2",
       .rule = "i, j -> i j"},
      {.name = "addmm",
       .targets = {"torch.addmm", "Tensor.addmm"},
       .signature = "input, mat1, mat2, *, beta=1, alpha=1",
       .rule = "m n, m k, k n -> m n  whole k",
       .apply = addmm,
       .einsum = true,
       .absorbs = true},
      {.name = "baddbmm",
       .targets = {"torch.baddbmm", "Tensor.baddbmm"},
       .signature = "input, batch1, batch2, *, beta=1, alpha=1",
       .rule = "b m n, b m k, b k n -> b m n  whole k",
       .apply = baddbmm,
       .einsum = true,
       .absorbs = true},
      {.name = "addmv",
       .targets = {"torch.addmv", "Tensor.addmv"},
       .signature = "input, mat, vec, *, beta=1, alpha=1",
       .rule = "m, m k, k -> m  whole k",
       .apply = addmv,
       .einsum = true,
       .absorbs = true},
      {.name = "einsum",
       .targets = {"torch.einsum", "torch.functional.einsum"},
       .signature = "equation, *operands",
       .rule = "the equation's own letters",
       .apply = einsum,
       .einsum = true,
       .absorbs = true},
      {.name = "grouped_mm",
       .targets = {"torch._grouped_mm", "torch.nn.functional.grouped_mm",
                   "torch.ops.aten._grouped_mm", "torch.ops.aten._grouped_mm.default",
                   "torch.ops.transformers.grouped_mm_fallback",
                   "torch.ops.transformers.grouped_mm_fallback.default"},
       .signature = "input, weight, offs=None, bias=None, out_dtype=None",
       .rule =
           "t i, g i o, g -> t o  sum i; sharded along sorted tokens t, offs is each rank's own",
       .apply = grouped_mm},
      {.name = "solve_triangular",
       .targets = {"torch.linalg.solve_triangular", "torch._C._linalg.linalg_solve_triangular"},
       .signature = "A, B, upper, left=True, unitriangular=False",
       .rule = "… m m, … m n -> … m n  whole m n"},
      {.name = "embedding",
       .targets = {"torch.nn.functional.embedding"},
       .signature = "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, "
                    "scale_grad_by_freq=False, sparse=False",
       .rule = "…, v d -> … d  gather v",
       .refuse = refuse_embedding},
      {.name = "embedding (table first)",
       .targets = {"torch.embedding"},
       .signature = "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False",
       .rule = "v d, … -> … d  gather v",
       .refuse = refuse_embedding},
  };
  return ops;
}

}  // namespace autosp
