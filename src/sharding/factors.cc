#include "sharding/factors.h"

#include <algorithm>
#include <optional>

namespace autosp {

FactorId FactorTable::add(Expr size) {
  const auto id = static_cast<FactorId>(entries_.size());
  entries_.push_back({id, std::move(size), {}});
  return id;
}

FactorId FactorTable::find(FactorId factor) const {
  auto& entries = entries_;
  while (entries[factor].parent != factor) {
    entries[factor].parent = entries[entries[factor].parent].parent;
    factor = entries[factor].parent;
  }
  return factor;
}

const Expr& FactorTable::size(FactorId factor) const { return entries_[find(factor)].size; }

void FactorTable::append_leaves(FactorId factor, FactorList& out) const {
  const FactorId root = find(factor);
  if (entries_[root].parts.empty()) {
    out.push_back(root);
    return;
  }
  for (FactorId part : entries_[root].parts) append_leaves(part, out);
}

FactorList FactorTable::leaves(const FactorList& factors) const {
  FactorList out;
  for (FactorId factor : factors) append_leaves(factor, out);
  return out;
}

void FactorTable::unite(FactorId left, FactorId right) {
  // The lower id represents the class, so that results do not depend on the order of joins.
  const FactorId a = find(left);
  const FactorId b = find(right);
  if (a != b) entries_[std::max(a, b)].parent = std::min(a, b);
}

bool FactorTable::join(const FactorList& left, const FactorList& right) {
  // What is still to match, innermost first, so that a split can push its remainder back.
  FactorList todo_left(left.rbegin(), left.rend());
  FactorList todo_right(right.rbegin(), right.rend());
  const auto open = [this](FactorList& todo) {
    FactorId top = find(todo.back());
    while (!entries_[top].parts.empty()) {
      todo.pop_back();
      const FactorList& parts = entries_[top].parts;
      todo.insert(todo.end(), parts.rbegin(), parts.rend());
      top = find(todo.back());
    }
    return top;
  };
  // Splits `whole` into (part, rest); returns the rest.
  const auto split = [this](FactorId whole, FactorId part, Expr rest_size) {
    const FactorId rest = add(std::move(rest_size));
    entries_[whole].parts = {part, rest};
    return rest;
  };
  while (!todo_left.empty() && !todo_right.empty()) {
    const FactorId a = open(todo_left);
    const FactorId b = open(todo_right);
    // Two symbolic sizes that must be one by the rule (a guard made them equal) are joined even if
    // they look different; two different numbers never are.
    const bool last = todo_left.size() == 1 && todo_right.size() == 1 &&
                      !(entries_[a].size.is_constant() && entries_[b].size.is_constant());
    if (a == b || entries_[a].size == entries_[b].size || last) {
      unite(a, b);
      todo_left.pop_back();
      todo_right.pop_back();
    } else if (std::optional<Expr> rest = divide_exact(entries_[a].size, entries_[b].size)) {
      todo_left.back() = split(a, b, *rest);
      todo_right.pop_back();
    } else if (std::optional<Expr> rest = divide_exact(entries_[b].size, entries_[a].size)) {
      todo_right.back() = split(b, a, *rest);
      todo_left.pop_back();
    } else {
      return false;
    }
  }
  return todo_left.empty() && todo_right.empty();
}

}  // namespace autosp
