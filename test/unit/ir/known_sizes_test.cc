#include "ir/known_sizes.h"

#include <gtest/gtest.h>

namespace autosp {
namespace {

KnownSizes known(std::vector<std::pair<std::string, std::string>> equations) {
  std::vector<SizeGuard> guards;
  for (const auto& [left, right] : equations)
    guards.push_back({Expr::parse(left), Expr::parse(right), true});
  return known_sizes(guards);
}

Expr replaced(const KnownSizes& sizes, const std::string& size) {
  return Expr::parse(size).substitute(sizes.replacements);
}

TEST(KnownSizes, ALengthThatIsPaddedToNothingIsAMultiple) {
  const KnownSizes sizes =
      known_sizes({{Expr::parse("Mod(4 - Mod(s, 4), 4)"), Expr(0), /*equal=*/false}});
  ASSERT_EQ(sizes.quotients.size(), 1U);
  EXPECT_EQ(sizes.quotients[0].symbol, "s_4");
  EXPECT_EQ(sizes.quotients[0].of, "s");
  EXPECT_EQ(sizes.quotients[0].divisor, 4);
  const std::string padded = "(s + Mod(4 - Mod(s, 4), 4))";
  EXPECT_EQ(replaced(sizes, padded + "//4"), Expr::symbol("s_4"));
  EXPECT_EQ(replaced(sizes, padded + "//(" + padded + "//4)"), Expr(4));
}

TEST(KnownSizes, MultiplesOfSeveralNumbersAndOfParts) {
  EXPECT_EQ(replaced(known({{"Mod(s, 4)", "0"}, {"Mod(-s, 6)", "0"}}), "s"),
            Expr::parse("12*s_12"));
  EXPECT_EQ(replaced(known({{"Mod(2*s, 8)", "0"}}), "s"), Expr::parse("4*s_4"));
  EXPECT_EQ(replaced(known({{"24*s*b", "96*b*(s//4)"}}), "s"), Expr::parse("4*s_4"));
  EXPECT_TRUE(known({{"s*b", "2*b*(s//4)"}, {"s + 1", "4*((s + 1)//4)"}}).replacements.empty());
  EXPECT_TRUE(known({{"Mod(2*s, 2)", "0"}, {"Mod(s + 1, 4)", "0"}, {"Mod(s, t)", "0"}})
                  .replacements.empty());
}

TEST(KnownSizes, FactorsOfBothSidesSayNothing) {
  const KnownSizes sizes = known({{"s*(b//2)", "c*s"}, {"4*t", "2*b*t"}});
  EXPECT_EQ(replaced(sizes, "c + 1"), Expr::parse("b//2 + 1"));
  EXPECT_EQ(sizes.replacements.size(), 1U);  // b is 2 in the other one, and is in use
  EXPECT_EQ(replaced(known({{"4*s*b", "4*s*c*2"}}), "b"), Expr::parse("2*c"));
}

TEST(KnownSizes, OtherGuardsSayNothing) {
  EXPECT_TRUE(known({{"s*t", "b*c"}, {"s", "s//2 + 4"}, {"2*s", "b"}}).quotients.empty());
  EXPECT_TRUE(known({{"s*t", "b*c"}, {"s", "s//2 + 4"}, {"4", "4"}}).replacements.empty());
  EXPECT_TRUE(known_sizes({{Expr::parse("s"), Expr::parse("t"), false}}).replacements.empty());
}

TEST(KnownSizes, WhatIsSolvedIsWrittenWithWhatElseIsKnown) {
  const KnownSizes sizes = known({{"t", "s + 4"}, {"Mod(s, 4)", "0"}});
  EXPECT_EQ(replaced(sizes, "t//4"), Expr::parse("s_4 + 1"));
}

}  // namespace
}  // namespace autosp
