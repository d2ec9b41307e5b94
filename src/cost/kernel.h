// What running one ATen operator costs.
//
// The joint graphs of AOTAutograd are written in ATen: this is the one table of its operators that
// the engine has. It knows only what changes cost; what it does not name is taken for a pointwise
// operator or a reduction that is fused with its neighbours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cost/device.h"

namespace autosp {

enum class Kernel : uint8_t {
  kFused,       // pointwise, reductions, creation: memory-bound, fused with its neighbours
  kGather,      // fused; reads no more of a table than it writes
  kAlone,       // memory-bound, a kernel of its own: sort, scatter, scan, …
  kMatmul,      // products of matrices, convolutions
  kAttention,   // a whole attention or scan, forward or backward, whatever implements it
  kCollective,  // starts an exchange between the ranks
  kWait,        // ends one: the same storage
  kView,        // no kernel: the input's storage
  kItem,        // takes one output of an operator with several
};

// `target` as "aten.mm.default", "_c10d_functional.wait_tensor.default", "getitem", or the name of
// a higher-order operator ("flex_attention").
Kernel kernel_of(std::string_view target);

struct TensorSize {
  std::vector<int64_t> shape;
  int64_t bytes = 0;
};

struct KernelCall {
  std::string_view target;
  std::vector<const TensorSize*> inputs;  // its tensors in order
  const TensorSize* output = nullptr;     // its first tensor
  std::string_view dtype;                 // of the output
  bool causal = false;                    // of an attention: half of the scores
  int64_t read = 0;                       // bytes from memory
  int64_t written = 0;                    // and to it
};

// Floating-point operations of a product or an attention, 0 for others. An attention of Sq queries
// and Sk keys with heads of D and Dv elements does 2·Sq·Sk·(D + Dv) a head, half if causal; its
// backward 2.5 times that (five products where the forward has two).
double flops(const KernelCall& call);

// Nanoseconds on `device`: the larger of arithmetic and memory traffic for what has a kernel of its
// own, traffic for the fused, bytes over the link for exchanges between `ranks`.
int64_t nanoseconds(const KernelCall& call, const Device& device, int64_t ranks);

}  // namespace autosp
