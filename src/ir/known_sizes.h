// What the guards of a program say of its sizes, as replacements that make sizes comparable.
//
//   Mod(-s27, 4) == 0             s27 becomes 4*s27_4, where s27_4 stands for s27//4
//   s27*(s52//2) == s18*s27       s18 becomes s52//2
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/expr.h"

namespace autosp {

// left == right, or left <= right.
struct SizeGuard {
  Expr left;
  Expr right;
  bool equal = true;
};

struct KnownSizes {
  // A symbol that stands for another one divided by a number.
  struct Quotient {
    std::string symbol;
    std::string of;
    int64_t divisor = 1;
  };
  std::map<std::string, Expr> replacements;
  std::vector<Quotient> quotients;
};

// Sizes are positive, and guards hold. Guards of other forms say nothing here. Linear in guards.
KnownSizes known_sizes(const std::vector<SizeGuard>& guards);

}  // namespace autosp
