#include "passes/check_function.h"

#include <algorithm>

namespace autosp {

std::vector<Placement> check_function(const Function& function, const std::vector<Given>& arguments,
                                      const CheckBody& check_body,
                                      const std::function<void(const std::string&)>& fail) {
  const bool cut = std::any_of(arguments.begin(), arguments.end(), [](const Given& argument) {
    return argument.placement.is_sharded();
  });
  std::vector<NodeId> values = function.results;
  values.insert(values.end(), function.saved.begin(), function.saved.end());
  std::vector<Placement> results;
  std::vector<Given> given;
  for (CheckedValue& checked : check_body(*function.forward, arguments, values)) {
    Placement& placement = checked.value.placement;
    if (results.size() < function.results.size()) {
      results.push_back(placement);
      const bool partial = placement.kind == Placement::Kind::kPartial;
      if (cut && !partial && !placement.is_sharded())
        fail("gives a result that is whole, from parts");
      if (partial) placement = Placement::varying();
    }
    given.push_back(std::move(checked.value));
  }
  const std::vector<CheckedValue> gradients =
      check_body(*function.backward, given, function.gradients);
  for (size_t i = 0; i < gradients.size() && cut; ++i) {
    if (function.gradients[i] == kNoNode) continue;
    const Placement& argument = arguments[i].placement;
    const Placement want = argument.is_sharded() ? argument : Placement::partial();
    if (!(gradients[i].value.placement == want))
      fail("gives another gradient than that of its argument " + std::to_string(i));
    if (gradients[i].pads) fail("gives a gradient of rows past the end of the axis");
  }
  return results;
}

}  // namespace autosp
