#include "cost/kernel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

namespace autosp {
namespace {

TensorSize bf16(std::vector<int64_t> shape) {
  int64_t bytes = 2;
  for (const int64_t size : shape) bytes *= size;
  return {std::move(shape), bytes};
}

KernelCall call(std::string_view target, std::vector<const TensorSize*> inputs,
                const TensorSize& output) {
  KernelCall result;
  result.target = target;
  result.inputs = std::move(inputs);
  result.output = &output;
  result.dtype = "bfloat16";
  return result;
}

TEST(Kernel, OperatorsAreToldApartByWhatTheyCost) {
  EXPECT_EQ(kernel_of("aten.mm.default"), Kernel::kMatmul);
  EXPECT_EQ(kernel_of("aten.mul.Tensor"), Kernel::kFused);
  EXPECT_EQ(kernel_of("aten.embedding.default"), Kernel::kGather);
  EXPECT_EQ(kernel_of("aten.sort.default"), Kernel::kAlone);
  EXPECT_EQ(kernel_of("aten._unsafe_view.default"), Kernel::kView);
  EXPECT_EQ(kernel_of("getitem"), Kernel::kItem);
  EXPECT_EQ(kernel_of("_c10d_functional.all_to_all_single.default"), Kernel::kCollective);
  EXPECT_EQ(kernel_of("_c10d_functional.wait_tensor.default"), Kernel::kWait);
  EXPECT_EQ(kernel_of("autosp_scan.mine__scan__run.default"), Kernel::kAttention);
}

TEST(Kernel, AttentionIsAttentionWhateverImplementsIt) {
  for (const char* target :
       {"aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_flash_attention_for_cpu.default", "flex_attention",
        "flex_attention_backward", "aten._scaled_dot_product_flash_attention_backward.default"}) {
    EXPECT_EQ(kernel_of(target), Kernel::kAttention) << target;
  }
}

TEST(Kernel, FlopsOfProducts) {
  const TensorSize left = bf16({8, 5});
  const TensorSize right = bf16({5, 3});
  const TensorSize bias = bf16({3});
  const TensorSize output = bf16({8, 3});
  EXPECT_EQ(flops(call("aten.mm.default", {&left, &right}, output)), 2 * 8 * 5 * 3);
  EXPECT_EQ(flops(call("aten.addmm.default", {&bias, &left, &right}, output)), 2 * 8 * 5 * 3);
  const TensorSize image = bf16({2, 3, 10, 10});
  const TensorSize filter = bf16({7, 3, 4, 4});
  const TensorSize features = bf16({2, 7, 7, 7});
  EXPECT_EQ(flops(call("aten.convolution.default", {&image, &filter}, features)),
            2 * (2 * 7 * 7 * 7) * (3 * 4 * 4));
  EXPECT_EQ(flops(call("aten.add.Tensor", {&left, &left}, left)), 0);
}

TEST(Kernel, AttentionGrowsWithTheSquareOfTheSequence) {
  const TensorSize query = bf16({1, 4, 1024, 64});
  const TensorSize key = bf16({1, 4, 2048, 64});
  const TensorSize value = bf16({1, 4, 2048, 32});
  const TensorSize output = bf16({1, 4, 1024, 32});
  const char* target = "aten._scaled_dot_product_flash_attention.default";
  KernelCall forward = call(target, {&query, &key, &value}, output);
  const double whole = 2.0 * 4 * 1024 * 2048 * (64 + 32);
  EXPECT_EQ(flops(forward), whole);
  forward.causal = true;
  EXPECT_EQ(flops(forward), whole / 2);
  // The cotangent comes first.
  const KernelCall backward = call("aten._scaled_dot_product_flash_attention_backward.default",
                                   {&output, &query, &key, &value, &output}, query);
  EXPECT_EQ(flops(backward), 2.5 * whole);
}

TEST(Kernel, TimeIsTheLargerOfArithmeticAndMemory) {
  const Device device{"test", 1e12, 1e11, 1e10, 1e9, 1e8, 1e7, 7, 0};
  const TensorSize square = bf16({1000, 1000});
  KernelCall product = call("aten.mm.default", {&square, &square}, square);
  EXPECT_EQ(nanoseconds(product, device, 1), std::llround(2e9 / (1e12 * kMatmulShare) * 1e9) + 7);
  product.dtype = "float32";
  EXPECT_EQ(nanoseconds(product, device, 1), std::llround(2e9 / (1e11 * kMatmulShare) * 1e9) + 7);
  product.read = 1'000'000'000'000;
  EXPECT_EQ(nanoseconds(product, device, 1), std::llround(1e12 / (1e9 * kMemoryShare) * 1e9) + 7);
}

TEST(Kernel, GathersReadNoMoreThanTheyWrite) {
  const Device device{"test", 1e12, 1e11, 1e10, 1e9, 1e8, 1e7, 7, 0};
  const TensorSize rows = bf16({1000});
  KernelCall lookup = call("aten.embedding.default", {}, rows);
  lookup.read = 1 << 30;
  lookup.written = 2000;
  EXPECT_EQ(nanoseconds(lookup, device, 1), std::llround(4000 / (1e9 * kMemoryShare) * 1e9));
}

TEST(Kernel, ExchangesMoveWhatIsNotOnesOwn) {
  const Device device{"test", 1e12, 1e11, 1e10, 1e9, 1e8, 1e7, 7, 0};
  const TensorSize part = bf16({500});
  const TensorSize whole = bf16({2000});
  const auto gather = call("_c10d_functional.all_gather_into_tensor.default", {&part}, whole);
  EXPECT_EQ(nanoseconds(gather, device, 1), 0);
  EXPECT_EQ(nanoseconds(gather, device, 4), std::llround(3000 / (1e8 * kLinkShare) * 1e9) + 7);
  const auto reduce = call("_c10d_functional.all_reduce.default", {&whole}, whole);
  EXPECT_EQ(nanoseconds(reduce, device, 4), std::llround(6000 / (1e8 * kLinkShare) * 1e9) + 7);
}

}  // namespace
}  // namespace autosp
