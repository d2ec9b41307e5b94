#include "ops/registered.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <set>
#include <unordered_map>

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
