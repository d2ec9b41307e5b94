#include "sharding/factors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

namespace autosp {
namespace {

std::vector<Expr> sizes(const FactorTable& table, const FactorList& factors) {
  std::vector<Expr> out;
  for (FactorId factor : table.leaves(factors)) out.push_back(table.size(factor));
  return out;
}

TEST(Factors, EqualSizesAreNotJoined) {
  FactorTable table;
  const FactorId a = table.add(16);
  const FactorId b = table.add(16);
  EXPECT_NE(table.find(a), table.find(b));
  EXPECT_TRUE(table.join({a}, {b}));
  EXPECT_EQ(table.find(a), table.find(b));
  EXPECT_EQ(table.find(a), std::min(a, b)) << "the lower id represents the class";
}

TEST(Factors, ASplitShowsInTheWholeClass) {
  FactorTable table;
  const FactorId width = table.add(32);
  const FactorId other = table.add(32);
  ASSERT_TRUE(table.join({width}, {other}));
  const FactorId heads = table.add(4);
  const FactorId size = table.add(8);
  ASSERT_TRUE(table.join({other}, {heads, size}));
  EXPECT_EQ(sizes(table, {width}), (std::vector<Expr>{4, 8}));
  EXPECT_EQ(table.leaves(width), table.leaves(other));
  EXPECT_EQ(table.leaves(width), table.leaves({heads, size}));
  // And in a class that is joined later.
  const FactorId late = table.add(32);
  ASSERT_TRUE(table.join({late}, {width}));
  EXPECT_EQ(table.leaves(late), table.leaves({heads, size}));
}

TEST(Factors, SplitsOfBothSidesAreRefined) {
  // 2*s*4 as (2s)(4) and (2)(4s): the common refinement is (2)(s)(4).
  const Expr s = Expr::symbol("s");
  FactorTable table;
  const FactorId left = table.add(2 * s);
  const FactorId four = table.add(4);
  const FactorId two = table.add(2);
  const FactorId right = table.add(4 * s);
  ASSERT_TRUE(table.join({left, four}, {two, right}));
  EXPECT_EQ(sizes(table, {left, four}), (std::vector<Expr>{2, s, 4}));
  EXPECT_EQ(table.leaves({left, four}), table.leaves({two, right}));
}

TEST(Factors, WithoutACommonRefinementThePrefixIsJoined) {
  FactorTable table;
  const FactorId batch = table.add(5);
  const FactorId six = table.add(6);
  const FactorId four = table.add(4);
  const FactorId other_batch = table.add(5);
  const FactorId eight = table.add(8);
  const FactorId three = table.add(3);
  EXPECT_FALSE(table.join({batch, six, four}, {other_batch, eight, three}));
  EXPECT_EQ(table.find(batch), table.find(other_batch));
  EXPECT_NE(table.find(six), table.find(eight));
}

TEST(Factors, DifferentNumbersAreNeverJoined) {
  FactorTable table;
  const FactorId a = table.add(6);
  const FactorId b = table.add(4);
  EXPECT_FALSE(table.join({a}, {b}));
  EXPECT_NE(table.find(a), table.find(b));
  EXPECT_EQ(sizes(table, {a}), std::vector<Expr>{6});
}

TEST(Factors, SymbolsThatAGuardMadeEqualAreJoined) {
  FactorTable table;
  const FactorId a = table.add(Expr::symbol("s27"));
  const FactorId b = table.add(Expr::symbol("s52"));
  EXPECT_TRUE(table.join({a}, {b}));
  EXPECT_EQ(table.find(a), table.find(b));
}

// The classes after any order of the same joins are the same.
TEST(Factors, TheOrderOfJoinsDoesNotMatter) {
  const Expr s = Expr::symbol("s");
  using Join = std::pair<FactorList, FactorList>;
  const auto build = [&](const std::vector<int>& order) {
    FactorTable table;
    const FactorId rows = table.add(3 * s);         // 0: merged batch and tokens
    const FactorId batch = table.add(3);            // 1
    const FactorId tokens = table.add(s);           // 2
    const FactorId width = table.add(32);           // 3
    const FactorId heads = table.add(8);            // 4
    const FactorId size = table.add(4);             // 5
    const FactorId groups = table.add(2);           // 6: key heads
    const FactorId repeats = table.add(4);          // 7: queries of each
    const FactorId keys = table.add(s);             // 8
    const FactorId merged = table.add(3 * s * 32);  // 9
    const std::vector<Join> joins = {{{rows}, {batch, tokens}},
                                     {{width}, {heads, size}},
                                     {{heads}, {groups, repeats}},
                                     {{tokens}, {keys}},
                                     {{merged}, {rows, width}}};
    for (int index : order) EXPECT_TRUE(table.join(joins[index].first, joins[index].second));
    std::vector<FactorList> out;
    for (FactorId factor = 0; factor < 10; ++factor) out.push_back(table.leaves(factor));
    // Names of classes may depend on the order; which factors are one must not.
    std::vector<std::vector<int>> classes;
    std::vector<FactorId> seen;
    for (const FactorList& leaves : out) {
      std::vector<int> numbers;
      for (FactorId leaf : leaves) {
        auto found = std::find(seen.begin(), seen.end(), leaf);
        if (found == seen.end()) found = seen.insert(seen.end(), leaf);
        numbers.push_back(static_cast<int>(found - seen.begin()));
      }
      classes.push_back(numbers);
    }
    return classes;
  };
  std::vector<int> order(5);
  std::iota(order.begin(), order.end(), 0);
  const auto expected = build(order);
  EXPECT_EQ(expected[9].size(), 5U) << "batch, tokens, groups, repeats, head size";
  while (std::next_permutation(order.begin(), order.end())) EXPECT_EQ(build(order), expected);
}

}  // namespace
}  // namespace autosp
