#include "ir/type.h"

#include <gtest/gtest.h>

namespace autosp {
namespace {

TEST(DType, NamesAndTorchNamesReadBack) {
  for (int i = 0; i <= static_cast<int>(DType::kOther); ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype) << dtype_name(dtype);
    EXPECT_EQ(parse_dtype(torch_dtype(dtype)), dtype) << torch_dtype(dtype);
  }
  EXPECT_EQ(parse_dtype("torch.bfloat16"), DType::kBFloat16);
  EXPECT_EQ(parse_dtype("torch.long"), DType::kInt64);
  EXPECT_EQ(parse_dtype("torch.float8_e4m3fn"), DType::kOther);
  EXPECT_EQ(parse_dtype(""), DType::kOther);
}

TEST(DType, Facts) {
  EXPECT_EQ(dtype_name(DType::kBFloat16), "bf16");
  EXPECT_EQ(torch_dtype(DType::kBool), "torch.bool");
  EXPECT_EQ(dtype_bytes(DType::kComplex128), 16);
  EXPECT_EQ(dtype_bytes(DType::kFloat16), 2);
  EXPECT_EQ(dtype_bytes(DType::kBool), 1);
  EXPECT_TRUE(is_floating(DType::kComplex64));
  EXPECT_FALSE(is_floating(DType::kInt64));
  EXPECT_FALSE(is_floating(DType::kOther));
  EXPECT_TRUE(is_half(DType::kBFloat16));
  EXPECT_FALSE(is_half(DType::kFloat32));
}

TEST(Type, EqualityLooksAtEverything) {
  const Expr s = Expr::symbol("s");
  EXPECT_EQ(Type::tensor(DType::kFloat32, {s, 2}), Type::tensor(DType::kFloat32, {s, 2}));
  EXPECT_NE(Type::tensor(DType::kFloat32, {s, 2}), Type::tensor(DType::kFloat32, {2, s}));
  EXPECT_NE(Type::tensor(DType::kFloat32, {s}), Type::tensor(DType::kFloat64, {s}));
  EXPECT_NE(Type::tuple({Type::scalar()}), Type::tuple({Type::scalar(), Type::scalar()}));
  EXPECT_NE(Type::of_size(s), Type::of_size(s + 1));
  EXPECT_NE(Type::scalar(), Type::other());
}

TEST(Type, ElementCount) {
  const Expr s = Expr::symbol("s");
  EXPECT_EQ(element_count(Type::tensor(DType::kInt8, {2, s, s + 1})), 2 * s * s + 2 * s);
  EXPECT_EQ(element_count(Type::tensor(DType::kInt8, {})), Expr(1));
  EXPECT_EQ(element_count(Type::tensor(DType::kInt8, {s, 0})), Expr(0));
}

}  // namespace
}  // namespace autosp
