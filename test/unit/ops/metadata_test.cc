#include <gtest/gtest.h>

#include "rule_testing.h"

namespace autosp {
namespace {

TEST(Metadata, ItemReadsOneNumber) {
  EXPECT_EQ(rule_of("%x: f64[] = input constant \"x\"\n%y: scalar = Tensor.item(%x)"), "[] ->");
  EXPECT_FALSE(find_op("Tensor.item")->effect);
}

TEST(Metadata, ATensorWhoseSizesAreReadIsWhole) {
  EXPECT_EQ(rule_of("symbols s=16\n%x: f32[s, 8] = input user \"x\"\n%y: other = Tensor.size(%x)"),
            "(x0)(x1) ->  whole x0, whole x1");
}

TEST(Metadata, ModesAndChecksAreEffects) {
  for (const char* target :
       {"torch._C._set_grad_enabled", "torch.amp.autocast_mode._enter_autocast",
        "torch.amp.autocast_mode._exit_autocast", "torch._C._log_api_usage_once", "torch._check",
        "torch.ops.profiler._record_function_enter_new"}) {
    const OpDef* op = find_op(target);
    ASSERT_NE(op, nullptr) << target;
    EXPECT_TRUE(op->effect) << target;
  }
  EXPECT_EQ(rule_of("%y: none = torch._C._set_grad_enabled(False)"), "->");
  EXPECT_EQ(rule_of("%y: other = torch.amp.autocast_mode._enter_autocast(\"cpu\", @torch.bfloat16, "
                    "True, None)"),
            "->");
}

TEST(Metadata, NumbersOutOfNumbers) {
  EXPECT_EQ(rule_of("%x: f64[] = input constant \"x\"\n%a: scalar = Tensor.item(%x)\n%y: scalar = "
                    "torch.sym_max(%a, 2.0)"),
            "->");
}

}  // namespace
}  // namespace autosp
