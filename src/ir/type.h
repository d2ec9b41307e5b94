// Types of values: tensors with symbolic shapes, tuples, sizes, and the rest that a Torch-IR graph
// may carry.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace autosp {

enum class DType : uint8_t {
  kFloat64,
  kFloat32,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
  kComplex64,
  kComplex128,
  kOther,
};

// "f32", "bf16", "i64", "bool", …; `kOther` prints as "other".
std::string_view dtype_name(DType dtype);
// Accepts the short names above and torch's own ("torch.float32"); anything else is kOther.
DType parse_dtype(std::string_view text);
// Bytes of one element; kOther counts as 1.
int64_t dtype_bytes(DType dtype);
// torch's spelling, "torch.float32".
std::string torch_dtype(DType dtype);
bool is_floating(DType dtype);  // complex types included: they carry gradients
bool is_half(DType dtype);      // float16 or bfloat16

struct Type {
  enum class Kind : uint8_t {
    kNone,    // no value: statements such as _set_grad_enabled
    kTensor,  // dtype and shape
    kTuple,   // elements (split, chunk, max with dim, …)
    kSize,    // an exact integer, `size`
    kScalar,  // a Python number known only at run time (SymFloat, SymBool)
    kOther,   // anything else (a context object, a string)
  };

  Kind kind = Kind::kNone;
  DType dtype = DType::kOther;
  std::vector<Expr> shape;
  std::vector<Type> elements;
  Expr size = Expr(0);

  static Type tensor(DType dtype, std::vector<Expr> shape);
  static Type tuple(std::vector<Type> elements);
  static Type of_size(Expr size);
  static Type scalar();
  static Type other();

  bool is_tensor() const { return kind == Kind::kTensor; }
  bool operator==(const Type&) const = default;
};

// Number of elements of a tensor type.
Expr element_count(const Type& tensor);

}  // namespace autosp
