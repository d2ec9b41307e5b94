#include "ops/registered.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>

#include "ir/text.h"
#include "ops/local_form.h"
#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

// What an OpDef points into; never moved or removed, since plans in other threads may read it.
struct Registered {
  Registration registration;
  OpDef op;
};

using Table = std::unordered_map<std::string_view, const OpDef*>;
std::atomic<const Table*> current{nullptr};

// "..." as "…", which stands alone.
std::string normalized(const std::string& rule) {
  std::string out;
  for (size_t at = 0; at < rule.size();) {
    const bool dots = rule.compare(at, 3, "...") == 0;
    if (dots || rule.compare(at, 3, "…") == 0) {
      out += "… ";
      at += 3;
      if (at < rule.size() && rule[at] == ' ' && rule.compare(at, 2, "  ") != 0) ++at;
    } else {
      out += rule[at++];
    }
  }
  return out;
}

// The dimension that is the letter, or -1.
int64_t dim_of(const TensorLetters& letters, LetterId letter) {
  const auto found = std::find(letters.begin(), letters.end(), DimLetters{letter});
  return found == letters.end() ? -1 : found - letters.begin();
}

// What is handed on must be what the next rank can begin with.
void check_state(const Call& call, const State& state, const Application& rule) {
  const Node& first = call.graph().node(rule.operands.at(state.from).value);
  const Type& result = call.result();
  const Type& last =
      result.is_tensor() ? result : result.elements.at(static_cast<size_t>(state.to));
  if (first.type != last || !is_floating(last.dtype)) {
    throw Unsupported(call.where() + ": it begins with the state %" + first.name + ": " +
                      print(first.type) + " and ends with " + print(last) +
                      ", where both must be of one floating-point dtype and shape");
  }
}

// Along the scanned letter ranks take turns; receiving a state, the operator and sending it on are
// one call, between whose parts no compiler puts an exchange that other ranks are not waiting in.
LocalResult scan_in_turns(LocalForm& form) {
  const Application& rule = form.application();
  const Type type = local_type(form);
  if (rule.letters[static_cast<size_t>(form.letter())].kind != LetterKind::kScan)
    return {form.emit_same(type)};
  std::vector<Arg> operand_dims, result_dims, first, last;
  std::optional<size_t> cut;
  for (size_t i = 0; i < rule.operands.size(); ++i) {
    if (form.is_cut(i)) cut = i;
    operand_dims.push_back(Arg::integer_of(form.is_cut(i) ? form.cut_dim(i) : -1));
  }
  for (const TensorLetters& result : rule.results)
    result_dims.push_back(Arg::integer_of(dim_of(result, form.letter())));
  for (const State& state : rule.states) {
    check_state(form.call(), state, rule);
    first.push_back(Arg::integer_of(static_cast<int64_t>(state.from)));
    last.push_back(Arg::integer_of(state.to));
  }
  ensure(cut.has_value(), "a scan along tokens reads none");
  std::vector<Arg> args = {
      Arg::list_of(std::move(operand_dims)), Arg::list_of(std::move(result_dims)),
      Arg::list_of(std::move(first)),        Arg::list_of(std::move(last)),
      Arg::size_of(form.extent(*cut)),       Arg::bool_of(form.is_exact(*cut))};
  form.append_ranks(args);
  const Call& call = form.call();
  for (size_t i = 0; i < call.node().args.size(); ++i)
    args.push_back(form.local(call.bound().at(i).first));
  Kwargs kwargs;
  for (const auto& [name, arg] : call.node().kwargs) kwargs.emplace_back(name, form.local(name));
  const std::string_view target =
      call.op().targets.at(0).substr(std::string_view("torch.ops.").size());
  return {form.emit(std::string(kPassingState) + std::string(target), std::move(args),
                    std::move(kwargs), type)};
}

}  // namespace

const OpDef* find_registered(std::string_view target) {
  const Table* table = current.load(std::memory_order_acquire);
  if (table == nullptr) return nullptr;
  const auto found = table->find(target);
  return found == table->end() ? nullptr : found->second;
}

void register_rule(Registration registration) {
  static std::mutex mutex;
  static std::deque<Registered> all;
  static std::deque<Table> tables;
  registration.rule = normalized(registration.rule);
  const std::string& rule = registration.rule;
  if (const auto wrong = rule_line_error(rule, registration.tensors, registration.results)) {
    throw Unsupported("the rule \"" + rule + "\" for " + registration.name + ": " + *wrong);
  }
  const std::lock_guard lock(mutex);
  for (const std::string& target : registration.targets) {
    if (find_op(target) != nullptr && find_registered(target) == nullptr)
      throw Unsupported(registration.name + " is an operator that AutoSP has a rule for");
  }
  Registered& entry = all.emplace_back();
  entry.registration = std::move(registration);
  entry.op.name = entry.registration.name;
  entry.op.signature = entry.registration.signature;
  entry.op.rule = entry.registration.rule;
  entry.op.registered = true;
  entry.op.singular = singular_in_all;
  if (rule_passes_state(entry.op.rule)) entry.op.localize = scan_in_turns;
  const Table* before = current.load(std::memory_order_relaxed);
  Table& table = tables.emplace_back(before == nullptr ? Table() : *before);
  for (const std::string& target : entry.registration.targets) {
    entry.op.targets.push_back(target);
    table.erase(target);
    table.emplace(target, &entry.op);
  }
  current.store(&table, std::memory_order_release);
}

std::vector<std::string> registered_rules(const Graph& graph) {
  std::set<std::string> out;
  for (const Node& node : graph.nodes) {
    const OpDef* op = node.kind == NodeKind::kCall ? find_registered(node.target) : nullptr;
    if (op != nullptr) out.insert(std::string(op->name) + ": " + std::string(op->rule));
  }
  for (const auto& [name, body] : graph.subgraphs) {
    for (const std::string& rule : registered_rules(*body)) out.insert(rule);
  }
  return {out.begin(), out.end()};
}

}  // namespace autosp
