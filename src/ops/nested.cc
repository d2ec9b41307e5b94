// Operators that are given functions to call.
#include "ops/op.h"

namespace autosp {

std::span<const OpDef> nested_ops() {
  static const std::vector<OpDef> ops = {
      {.name = "autograd function",
       .targets = {"torch.ops.higher_order.autograd_function_apply"},
       .signature = "forward, backward, *args, non_differentiable_idx=None, "
                    "saved_for_backward_idx=None, dirty_idx=None",
       .rule = "the letters along which both bodies run on parts alone",
       .apply = [](const Call& call) { return opaque_application(call.graph(), call.node()); },
       .function = true},
  };
  return ops;
}

}  // namespace autosp
