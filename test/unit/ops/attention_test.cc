#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

std::string heads(std::string_view keys, std::string_view more) {
  return "symbols b=2, s=16, t=12\n%q: f32[b, 4, s, 8] = input user \"q\"\n%k: f32[b, " +
         std::string(keys) + ", t, 8] = input user \"k\"\n%v: f32[b, " + std::string(keys) +
         ", t, 6] = input user \"v\"\n%m: f32[1, 1, s, t] = input user \"m\"\n%y: f32[b, 4, s, 6] "
         "= torch._C._nn.scaled_dot_product_attention(" +
         std::string(more) + ")";
}

TEST(Attention, QueriesAndKeysAreSeedsFeaturesAreWhole) {
  EXPECT_EQ(rule_of(heads("4", "%q, %k, %v, is_causal=False, scale=0.5")),
            "(b)(h)(q)(d), (b)(h)(k)(d), (b)(h)(k)(e) -> (b)(h)(q)(e)  query q, attend k, whole d");
}

TEST(Attention, AMaskIsBroadcastInEveryCallStyle) {
  const std::string expected =
      "(b)(h)(q)(d), (b)(h)(k)(d), (b)(h)(k)(e), ()()(q)(k) -> (b)(h)(q)(e)  query q, attend k, "
      "whole d";
  EXPECT_EQ(rule_of(heads("4", "%q, %k, %v, %m")), expected);
  EXPECT_EQ(rule_of(heads("4", "query=%q, key=%k, value=%v, attn_mask=%m, dropout_p=0.0")),
            expected);
  EXPECT_EQ(rule_of(R"(symbols s=16
    %q: f32[2, 4, s, 8] = input user "q"
    %m: bool[s, s] = input user "m"
    %y: f32[2, 4, s, 8] = torch.nn.functional.scaled_dot_product_attention(%q, %q, %q, %m))"),
            "(b)(h)(q)(d), (b)(h)(k)(d), (b)(h)(k)(e), (q)(k) -> (b)(h)(q)(e)  query q, attend k, "
            "whole d");
}

TEST(Attention, GroupedHeads) {
  EXPECT_EQ(
      rule_of(heads("2", "%q, %k, %v, enable_gqa=True")),
      "(b)(g r)(q)(d), (b)(g)(k)(d), (b)(g)(k)(e) -> (b)(g r)(q)(e)  query q, attend k, whole d");
  EXPECT_EQ(rule_of(heads("1", "%q, %k, %v, enable_gqa=True")),
            "(b)(r)(q)(d), (b)()(k)(d), (b)()(k)(e) -> (b)(r)(q)(e)  query q, attend k, whole d");
  EXPECT_THROW(rule_of(heads("3", "%q, %k, %v, enable_gqa=True")), Unsupported);
}

TEST(Attention, WithoutHeadsThereIsOnlyTheBatch) {
  EXPECT_EQ(rule_of(R"(symbols s=16
    %x: f32[3, s, 8] = input user "x"
    %y: f32[3, s, 8] = torch._C._nn.scaled_dot_product_attention(%x, %x, %x, is_causal=True))"),
            "(b)(q)(d), (b)(k)(d), (b)(k)(e) -> (b)(q)(e)  attend q, attend k, whole d");
}

TEST(Attention, DropoutMustBeTheConstantZero) {
  EXPECT_EQ(refusal_of(heads("4", "%q, %k, %v")), "");
  EXPECT_EQ(refusal_of(heads("4", "%q, %k, %v, dropout_p=0")), "");
  EXPECT_NE(refusal_of(heads("4", "%q, %k, %v, %m, 0.1")).find("dropout_p is 0.1"),
            std::string::npos);
  const std::string dynamic = R"(%p: f64[] = input constant "p"
    %q: f32[2, 4, 8, 8] = input user "q"
    %z: scalar = Tensor.item(%p)
    %y: f32[2, 4, 8, 8] = torch._C._nn.scaled_dot_product_attention(%q, %q, %q, dropout_p=%z))";
  EXPECT_NE(refusal_of(dynamic).find("a value known at run time"), std::string::npos);
}

}  // namespace
}  // namespace autosp
