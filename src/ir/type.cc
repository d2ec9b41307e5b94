#include "ir/type.h"

#include <array>

namespace autosp {
namespace {

struct DTypeFacts {
  std::string_view name;
  std::string_view torch;
  int64_t bytes;
};

// In the order of DType.
constexpr std::array<DTypeFacts, 13> kFacts = {{
    {"f64", "torch.float64", 8},
    {"f32", "torch.float32", 4},
    {"f16", "torch.float16", 2},
    {"bf16", "torch.bfloat16", 2},
    {"i64", "torch.int64", 8},
    {"i32", "torch.int32", 4},
    {"i16", "torch.int16", 2},
    {"i8", "torch.int8", 1},
    {"u8", "torch.uint8", 1},
    {"bool", "torch.bool", 1},
    {"c64", "torch.complex64", 8},
    {"c128", "torch.complex128", 16},
    {"other", "torch.other", 1},
}};

const DTypeFacts& facts(DType dtype) { return kFacts[static_cast<size_t>(dtype)]; }

}  // namespace

std::string_view dtype_name(DType dtype) { return facts(dtype).name; }

DType parse_dtype(std::string_view text) {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (text == kFacts[i].name || text == kFacts[i].torch) return static_cast<DType>(i);
  }
  // torch's second names for the same dtypes.
  if (text == "torch.float") return DType::kFloat32;
  if (text == "torch.double") return DType::kFloat64;
  if (text == "torch.half") return DType::kFloat16;
  if (text == "torch.long") return DType::kInt64;
  if (text == "torch.int") return DType::kInt32;
  if (text == "torch.short") return DType::kInt16;
  if (text == "torch.cfloat") return DType::kComplex64;
  if (text == "torch.cdouble") return DType::kComplex128;
  return DType::kOther;
}

int64_t dtype_bytes(DType dtype) { return facts(dtype).bytes; }

std::string torch_dtype(DType dtype) { return std::string(facts(dtype).torch); }

bool is_floating(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kFloat32:
    case DType::kFloat16:
    case DType::kBFloat16:
    case DType::kComplex64:
    case DType::kComplex128:
      return true;
    default:
      return false;
  }
}

bool is_half(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

Type Type::tensor(DType dtype, std::vector<Expr> shape) {
  Type type;
  type.kind = Kind::kTensor;
  type.dtype = dtype;
  type.shape = std::move(shape);
  return type;
}

Type Type::tuple(std::vector<Type> elements) {
  Type type;
  type.kind = Kind::kTuple;
  type.elements = std::move(elements);
  return type;
}

Type Type::of_size(Expr size) {
  Type type;
  type.kind = Kind::kSize;
  type.size = std::move(size);
  return type;
}

Type Type::scalar() {
  Type type;
  type.kind = Kind::kScalar;
  return type;
}

Type Type::other() {
  Type type;
  type.kind = Kind::kOther;
  return type;
}

Expr element_count(const Type& tensor) {
  Expr count(1);
  for (const Expr& size : tensor.shape) count = count * size;
  return count;
}

}  // namespace autosp
