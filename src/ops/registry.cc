#include <unordered_map>

#include "ops/op.h"
#include "ops/registered.h"
#include "support/error.h"

namespace autosp {
namespace {

struct Registry {
  std::vector<const OpDef*> ops;
  std::unordered_map<std::string_view, const OpDef*> by_target;

  Registry() {
    for (const std::span<const OpDef> family :
         {pointwise_ops(), einsum_ops(), reduction_ops(), norm_ops(), loss_ops(), view_ops(),
          index_ops(), creation_ops(), attention_ops(), random_ops(), sequence_ops(), window_ops(),
          metadata_ops(), nested_ops()}) {
      for (const OpDef& op : family) {
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

}  // namespace autosp
