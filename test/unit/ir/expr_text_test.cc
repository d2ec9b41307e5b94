#include <gtest/gtest.h>

#include <random>
#include <stdexcept>
#include <string>

#include "ir/expr.h"

namespace autosp {
namespace {

const Expr s = Expr::symbol("s27");
const Expr t = Expr::symbol("s52");

TEST(ExprText, PrintsPythonSyntax) {
  EXPECT_EQ(Expr(0).to_string(), "0");
  EXPECT_EQ((1 + 2 * s).to_string(), "2*s27 + 1");
  EXPECT_EQ((t * s).to_string(), "s27*s52");
  EXPECT_EQ((-s - 1).to_string(), "-s27 - 1");
  EXPECT_EQ((s * s * t - 3).to_string(), "s27**2*s52 - 3");
  EXPECT_EQ(floor_div(s, 2).to_string(), "(s27//2)");
  EXPECT_EQ(ceil_div(s, 2).to_string(), "((s27 + 1)//2)");
  EXPECT_EQ(floor_div(s * t, 4).to_string(), "((s27*s52)//4)");
  EXPECT_EQ(power(floor_div(s, 2), 2).to_string(), "(s27//2)**2");
  EXPECT_EQ(mod(s, 2).to_string(), "Mod(s27, 2)");
  EXPECT_EQ(minimum({4, t, s}).to_string(), "Min(s27, s52, 4)");
  EXPECT_EQ(max(4, s).to_string(), "Max(s27, 4)");
}

// The left column is what Python's str() prints for size expressions of torch 2.13.
TEST(ExprText, ReadsWhatTorchPrints) {
  EXPECT_EQ(Expr::parse("s52 + 3*(((s27 + 1)//2))"), t + 3 * floor_div(s + 1, 2));
  EXPECT_EQ(Expr::parse("4*((s27//4)) + (Mod(s27, 4))"), 4 * floor_div(s, 4) + mod(s, 4));
  EXPECT_EQ(Expr::parse("2*(Mod(s27, s52 + 1))"), 2 * mod(s, t + 1));
  EXPECT_EQ(Expr::parse("-(((-s27)//4))"), ceil_div(s, 4));
  EXPECT_EQ(Expr::parse("(s27 - 1)*(s52 + 1)**2"), (s - 1) * (t + 1) * (t + 1));
  EXPECT_EQ(Expr::parse("((s27//2))**2"), power(floor_div(s, 2), 2));
  EXPECT_EQ(Expr::parse("ModularIndexing(s27, 2, 3)"), mod(floor_div(s, 2), 3));
  EXPECT_EQ(Expr::parse("PythonMod(s27, 3)"), mod(s, 3));
  EXPECT_EQ(Expr::parse("Max(4, s27, s52)"), maximum({4, s, t}));
  EXPECT_EQ(Expr::parse("FloorDiv(s27, 2) - CleanDiv(s27, 2)"), 0);
  EXPECT_EQ(Expr::parse("9223372036854775807").constant_value(), 9223372036854775807);
}

TEST(ExprText, FollowsPythonPrecedence) {
  EXPECT_EQ(Expr::parse("-7//2"), -4);
  EXPECT_EQ(Expr::parse("1 - 7//2"), -2);
  EXPECT_EQ(Expr::parse("-2**2"), -4);
  EXPECT_EQ(Expr::parse("2**3**2"), 512);
  EXPECT_EQ(Expr::parse("7 % 4 * 2"), 6);
  EXPECT_EQ(Expr::parse("12//5*2"), 4);
  EXPECT_EQ(Expr::parse("2 - 3 - 4"), -5);
  EXPECT_EQ(Expr::parse("--s27 - -s52"), s + t);
}

std::string parse_error(const std::string& text) {
  try {
    return "parsed as " + Expr::parse(text).to_string();
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
}

TEST(ExprText, ErrorsNameTheToken) {
  const std::pair<const char*, const char*> cases[] = {
      {"TruncToInt(ToFloat(s27))", "'TruncToInt' at position 0"},
      {"2*ToFloat(s27)", "'ToFloat' at position 2"},
      {"s27/2", "'/' at position 3"},
      {"1.5*s27", "'1.5' at position 0"},
      {"", "unexpected end at position 0"},
      {"(s27", "before end at position 4"},
      {"s27 s52", "'s52' at position 4"},
      {"s27**-1", "exponent at position 5"},
      {"2**s27", "exponent at position 3"},
      {"Mod(s27)", "'Mod' at position 0"},
      {"ModularIndexing(s27, 2)", "'ModularIndexing' at position 0"},
      {"Min()", "')' at position 4"},
      {"9223372036854775808", "'9223372036854775808' at position 0"},
      {"7up", "'7up' at position 0"},
      {"L.x", "'L.x' at position 0"},
      {"s27 $", "'$' at position 4"},
  };
  for (const auto& [text, expected] : cases) {
    EXPECT_NE(parse_error(text).find(expected), std::string::npos) << parse_error(text);
  }
  EXPECT_THROW(Expr::symbol("a b"), std::invalid_argument);
  EXPECT_THROW(Expr::symbol(""), std::invalid_argument);
  EXPECT_THROW(Expr::symbol("9"), std::invalid_argument);
}

TEST(ExprText, DeepNestingIsRefused) {
  const std::string open(100000, '(');
  EXPECT_NE(parse_error(open + "1" + std::string(100000, ')')).find("nested too deeply"),
            std::string::npos);
  std::string powers = "1";
  for (int i = 0; i < 10000; ++i) powers += "**1";
  EXPECT_NE(parse_error(powers).find("nested too deeply"), std::string::npos);
  EXPECT_EQ(Expr::parse(std::string(100000, '-') + "3"), 3);
  // As deep as expressions may be, and one deeper.
  const auto alternate = [](int levels) {
    Expr e = s;
    for (int i = 0; i < levels; ++i) e = i % 2 == 0 ? min(e, t) : max(e, Expr(3));
    return e;
  };
  const Expr deepest = alternate(Expr::kMaxDepth);
  EXPECT_EQ(Expr::parse(deepest.to_string()), deepest);
  EXPECT_THROW(alternate(Expr::kMaxDepth + 1), std::overflow_error);
}

TEST(ExprText, GarbageIsRefusedOrRoundTrips) {
  const char* const pieces[] = {"s27", "u",   "(", ")",   "+",   "-",        "*",   "**", "//",
                                "%",   "Mod", "(", "Min", "Max", "FloorDiv", ",",   "2",  "3",
                                "0",   "64",  "7", ")",   "$",   "1.5",      "abs", " ",  "s1"};
  std::mt19937 random(1);
  int parsed = 0;
  for (int round = 0; round < 200000; ++round) {
    std::string text;
    const std::size_t length = 1 + random() % 12;
    for (std::size_t i = 0; i < length; ++i) text += pieces[random() % std::size(pieces)];
    try {
      const Expr e = Expr::parse(text);
      ASSERT_EQ(Expr::parse(e.to_string()), e) << text;
      ++parsed;
    } catch (const std::invalid_argument&) {
    } catch (const std::overflow_error&) {
    } catch (const std::domain_error&) {
    }
  }
  EXPECT_GT(parsed, 5000);
}

}  // namespace
}  // namespace autosp
