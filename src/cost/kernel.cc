#include "cost/kernel.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace autosp {

namespace {

// Scans of the user's own that ranks run in turns (python/autosp/scans.py). What they compute is
// not known; like an attention, one is dear to run again.
constexpr std::string_view kScans = "autosp_scan.";

// "mm" of "aten.mm.default"; a name without dots is itself.
std::string_view base_name(std::string_view target) {
  const size_t first = target.find('.');
  if (first == std::string_view::npos) return target;
  const size_t second = target.find('.', first + 1);
  return target.substr(
      first + 1, second == std::string_view::npos ? std::string_view::npos : second - first - 1);
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

template <size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& sorted) {
  return std::binary_search(sorted.begin(), sorted.end(), name);
}

constexpr std::array<std::string_view, 11> kMatmuls = {
    "_grouped_mm", "_int_mm", "_scaled_grouped_mm", "_scaled_mm",           "addbmm", "addmm",
    "baddbmm",     "bmm",     "convolution",        "convolution_backward", "mm"};

constexpr std::array<std::string_view, 22> kAlone = {"_embedding_bag",
                                                     "bincount",
                                                     "cat",
                                                     "cummax",
                                                     "cumprod",
                                                     "cumsum",
                                                     "embedding_dense_backward",
                                                     "histc",
                                                     "index_add",
                                                     "index_put",
                                                     "index_put_",
                                                     "kthvalue",
                                                     "logcumsumexp",
                                                     "median",
                                                     "mode",
                                                     "nonzero",
                                                     "scatter",
                                                     "scatter_add",
                                                     "scatter_reduce",
                                                     "sort",
                                                     "topk",
                                                     "unique"};

constexpr std::array<std::string_view, 5> kGathers = {"embedding", "gather", "index",
                                                      "index_select", "take"};

// Views that do not say so in their schema.
constexpr std::array<std::string_view, 2> kUndeclaredViews = {"_reshape_alias", "_unsafe_view"};

static_assert(std::is_sorted(kMatmuls.begin(), kMatmuls.end()));
static_assert(std::is_sorted(kGathers.begin(), kGathers.end()));
static_assert(std::is_sorted(kAlone.begin(), kAlone.end()));

double product(const std::vector<int64_t>& shape, size_t begin, size_t end) {
  double result = 1;
  for (size_t i = begin; i < end; ++i) result *= static_cast<double>(shape[i]);
  return result;
}

double attention_flops(const KernelCall& call) {
  if (call.target.starts_with(kScans)) return 0;
  // The first three inputs with four dimensions are query, key and value; of a backward the
  // cotangent stands before them in most kernels, and has the value's head size.
  std::vector<const std::vector<int64_t>*> operands;
  for (const TensorSize* input : call.inputs) {
    if (input->shape.size() >= 3) operands.push_back(&input->shape);
  }
  const bool backward = contains(call.target, "backward");
  const size_t first = backward && !contains(call.target, "flex") ? 1 : 0;
  if (operands.size() < first + 3) return 0;
  const auto& query = *operands[first];
  const auto& key = *operands[first + 1];
  const auto& value = *operands[first + 2];
  const size_t rank = query.size();
  if (key.size() != rank || value.size() != rank) return 0;
  // [batch, heads, tokens, size], or [tokens, heads, size] with the batch merged in.
  const size_t tokens = rank >= 4 ? rank - 2 : 0;
  const double rows = product(query, 0, rank - 1);
  const double scores = rows * static_cast<double>(key[tokens]);
  const double head_sizes = static_cast<double>(query.back() + value.back());
  return 2 * scores * head_sizes * (call.causal ? 0.5 : 1.0) * (backward ? 2.5 : 1.0);
}

double matmul_flops(const KernelCall& call) {
  const std::string_view name = base_name(call.target);
  const auto& output = call.output->shape;
  if (name == "convolution" || name == "convolution_backward") {
    // Every output element sums over a filter: the weight's elements but for its first dimension.
    const bool backward = name == "convolution_backward";
    const size_t weight = backward ? 2 : 1;
    if (call.inputs.size() <= weight) return 0;
    const auto& filter = call.inputs[weight]->shape;
    const auto& positions = backward ? call.inputs[0]->shape : output;
    return 2 * product(positions, 0, positions.size()) * product(filter, 1, filter.size()) *
           (backward ? 2 : 1);
  }
  // addmm and its like have the summand first.
  const size_t left = name.substr(0, 3) == "add" || name == "baddbmm" ? 1 : 0;
  if (call.inputs.size() <= left || call.inputs[left]->shape.empty()) return 0;
  return 2 * product(output, 0, output.size()) *
         static_cast<double>(call.inputs[left]->shape.back());
}

double flops_per_second(const Device& device, std::string_view dtype) {
  if (dtype == "float32") return device.flops_32bit;
  if (dtype == "float64" || dtype.substr(0, 7) == "complex") return device.flops_64bit;
  return device.flops_16bit;
}

double exchange_ns(const KernelCall& call, const Device& device, int64_t ranks) {
  if (ranks <= 1) return 0;
  int64_t bytes = call.output->bytes;
  for (const TensorSize* input : call.inputs) bytes = std::max(bytes, input->bytes);
  const double rounds = contains(call.target, "all_reduce") ? 2 : 1;
  const double sent = rounds * static_cast<double>(bytes) * static_cast<double>(ranks - 1) /
                      static_cast<double>(ranks);
  return sent / (device.link_bytes_per_second * kLinkShare) * 1e9 +
         static_cast<double>(device.launch_ns);
}

}  // namespace

Kernel kernel_of(std::string_view target) {
  if (target == "getitem") return Kernel::kItem;
  const std::string_view name = base_name(target);
  if (contains(target.substr(0, target.find('.')), "c10d_functional")) {
    return name == "wait_tensor" ? Kernel::kWait : Kernel::kCollective;
  }
  if (contains(name, "attention") || target.starts_with(kScans)) return Kernel::kAttention;
  if (is_one_of(name, kMatmuls)) return Kernel::kMatmul;
  if (is_one_of(name, kGathers)) return Kernel::kGather;
  if (is_one_of(name, kAlone)) return Kernel::kAlone;
  if (is_one_of(name, kUndeclaredViews)) return Kernel::kView;
  return Kernel::kFused;
}

double flops(const KernelCall& call) {
  switch (kernel_of(call.target)) {
    case Kernel::kMatmul:
      return matmul_flops(call);
    case Kernel::kAttention:
      return attention_flops(call);
    default:
      return 0;
  }
}

int64_t nanoseconds(const KernelCall& call, const Device& device, int64_t ranks) {
  const Kernel kernel = kernel_of(call.target);
  if (kernel == Kernel::kWait || kernel == Kernel::kView || kernel == Kernel::kItem) return 0;
  if (kernel == Kernel::kCollective) return std::llround(exchange_ns(call, device, ranks));
  const int64_t read = kernel == Kernel::kGather ? std::min(call.read, call.written) : call.read;
  const double memory_ns = static_cast<double>(read + call.written) /
                           (device.memory_bytes_per_second * kMemoryShare) * 1e9;
  if (kernel == Kernel::kFused || kernel == Kernel::kGather) return std::llround(memory_ns);
  const double share = kernel == Kernel::kAttention ? kAttentionShare : kMatmulShare;
  const double arithmetic_ns = flops(call) / (flops_per_second(device, call.dtype) * share) * 1e9;
  return std::llround(std::max(memory_ns, arithmetic_ns)) + device.launch_ns;
}

}  // namespace autosp
