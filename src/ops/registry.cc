#include <unordered_map>

#include "ops/op.h"
#include "ops/registered.h"
#include "support/error.h"

namespace autosp {
namespace {

struct Registry {
  std::vector<const OpDef*> ops;
  std::unordered_map<std::string_view, const OpDef*> by_target;

  const std::vector<OpFamily> families = {
      {"Elementwise", pointwise_ops()},
      {"Products and tables", einsum_ops()},
      {"Attention", attention_ops()},
      {"Reductions", reduction_ops()},
      {"Norms and softmax", norm_ops()},
      {"Losses", loss_ops()},
      {"Shapes", view_ops()},
      {"Rows by position", index_ops()},
      {"Neighbours", window_ops()},
      {"Order", sequence_ops()},
      {"Made from sizes", creation_ops()},
      {"Random", random_ops()},
      {"Facts and effects", metadata_ops()},
      {"Nested programs", nested_ops()},
  };

  Registry() {
    for (const OpFamily& family : families) {
      for (const OpDef& op : family.ops) {
        ops.push_back(&op);
        for (const std::string_view target : op.targets) {
          if (!by_target.emplace(target, &op).second) {
            throw InternalError("two operators have the target " + std::string(target));
          }
        }
      }
    }
  }
};

const Registry& registry() {
  static const Registry instance;
  return instance;
}

}  // namespace

const OpDef* find_op(std::string_view target) {
  const auto& by_target = registry().by_target;
  const auto found = by_target.find(target);
  return found == by_target.end() ? find_registered(target) : found->second;
}

std::span<const OpDef* const> all_ops() { return registry().ops; }
std::span<const OpFamily> op_families() { return registry().families; }

}  // namespace autosp
