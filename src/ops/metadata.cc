// What speaks about tensors, modes and numbers instead of computing tensors.
#include "ops/op.h"

namespace autosp {
namespace {

// No letter relates anything here: a tensor that is read must be whole, because its sizes or values
// become a number that every rank must agree on.
Application apply_metadata(const Call& call) {
  return opaque_application(call.graph(), call.node());
}

OpDef reads(std::string_view name, std::vector<std::string_view> targets,
            std::string_view signature) {
  OpDef op{name, std::move(targets), signature, "no letters; tensors that are read are whole",
           apply_metadata};
  op.differentiable = false;
  return op;
}

OpDef acts(std::string_view name, std::vector<std::string_view> targets,
           std::string_view signature) {
  OpDef op = reads(name, std::move(targets), signature);
  op.effect = true;
  return op;
}

std::vector<OpDef> make_ops() {
  return {
      // Numbers out of tensors.
      reads(
          "item",
          {"Tensor.item", "Tensor.tolist", "Tensor.__bool__", "Tensor.__int__", "Tensor.__float__"},
          "self"),
      reads("size", {"Tensor.size", "Tensor.stride", "torch.ops.aten.sym_size.int"},
            "self, dim=None"),
      reads("numel",
            {"Tensor.numel", "torch.numel", "Tensor.nelement", "Tensor.dim", "Tensor.ndimension",
             "Tensor.element_size", "builtins.len", "Tensor.__len__"},
            "self"),
      reads("dtype_of",
            {"Tensor.is_floating_point", "torch.is_floating_point", "Tensor.is_complex",
             "torch.is_complex", "Tensor.get_device", "torch.is_tensor", "Tensor.is_contiguous"},
            "self, *, memory_format=None"),
      reads("torch_size", {"torch.Size"}, "sizes"),
      reads("finfo", {"torch.finfo", "torch.iinfo"}, "dtype"),
      // Numbers out of numbers.
      reads("sym_number",
            {"torch.sym_int", "torch.sym_float", "torch.sym_not", "torch._sym_sqrt",
             "torch.sym_sqrt", "builtins.int", "builtins.float", "builtins.bool", "builtins.abs",
             "math.sqrt", "math.ceil", "math.floor", "math.trunc", "math.exp", "math.sin",
             "math.cos", "math.tanh"},
            "value"),
      reads("sym_numbers",
            {"torch.sym_sum", "torch.sym_min", "torch.sym_max", "torch.sym_ite", "builtins.min",
             "builtins.max", "builtins.sum", "builtins.round", "builtins.pow", "builtins.slice",
             "math.log", "math.pow", "math.prod", "math.fmod"},
            "*values"),
      // Modes, and calls that are made for their effect.
      acts("set_grad_enabled", {"torch._C._set_grad_enabled"}, "mode"),
      acts("vmap_begin", {"torch._functorch.predispatch._vmap_increment_nesting"},
           "size, randomness"),
      acts("vmap_end", {"torch._functorch.predispatch._vmap_decrement_nesting"}, ""),
      acts("vmap_prepare", {"torch._functorch.predispatch.lazy_load_decompositions"}, ""),
      acts("autocast_enter", {"torch.amp.autocast_mode._enter_autocast"}, "*settings"),
      acts("autocast_exit", {"torch.amp.autocast_mode._exit_autocast"}, "mode"),
      acts("set_autocast",
           {"torch.set_autocast_enabled", "torch.set_autocast_dtype",
            "torch.set_autocast_cache_enabled"},
           "*settings"),
      acts("autocast_nesting",
           {"torch.autocast_increment_nesting", "torch.autocast_decrement_nesting",
            "torch.clear_autocast_cache"},
           ""),
      acts("log_api_usage", {"torch._C._log_api_usage_once"}, "*event"),
      acts("record_function",
           {"torch.ops.profiler._record_function_enter",
            "torch.ops.profiler._record_function_enter_new",
            "torch.ops.profiler._record_function_exit"},
           "*event"),
      acts("check",
           {"torch._check", "torch._check_value", "torch._check_index", "torch._check_type",
            "torch._check_not_implemented", "torch._assert", "torch._assert_async",
            "torch.ops.aten._assert_scalar.default", "torch.ops.aten._assert_async.msg",
            "torch._check_is_size", "torch._check_with", "torch._constrain_as_size"},
           "*conditions, message=None, msg=None"),
  };
}

}  // namespace

std::span<const OpDef> metadata_ops() {
  static const std::vector<OpDef> ops = make_ops();
  return ops;
}

}  // namespace autosp
