#include "ir/expr.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>

namespace autosp {
namespace {

using Values = std::map<std::string, std::int64_t>;

const Expr s = Expr::symbol("s27");
const Expr t = Expr::symbol("s52");
const Expr u = Expr::symbol("u0");

// Divisions written independently of the library: by search around the rational quotient.
std::int64_t python_floor_div(std::int64_t a, std::int64_t b) {
  if (b < 0) return python_floor_div(-a, -b);
  std::int64_t q = a / b;
  while (q * b > a) --q;
  return q;
}

// A random expression together with its value at one point, computed without Expr.
struct Sample {
  Expr expr;
  std::int64_t value;
};

class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {
    for (const char* name : {"s0", "s1", "u2", "z"}) values_[name] = pick(-9, 9);
  }

  std::int64_t pick(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  Sample sample(int depth) {
    if (depth == 0 || pick(0, 5) == 0) {
      if (pick(0, 1) == 0) {
        const std::int64_t c = pick(-6, 6);
        return {c, c};
      }
      auto it = values_.begin();
      std::advance(it, pick(0, 3));
      return {Expr::symbol(it->first), it->second};
    }
    const Sample a = sample(depth - 1);
    const Sample b = pick(0, 2) == 0 ? constant_sample() : sample(depth - 1);
    switch (pick(0, 8)) {
      case 0:
      case 1:
        return {a.expr + b.expr, a.value + b.value};
      case 2:
        return {a.expr - b.expr, a.value - b.value};
      case 3:
        return {a.expr * b.expr, a.value * b.value};
      case 4:
        return {min(a.expr, b.expr), std::min(a.value, b.value)};
      case 5:
        return {max(a.expr, b.expr), std::max(a.value, b.value)};
      default:
        break;
    }
    if (b.value == 0 || b.expr == 0) return a;
    const std::int64_t q = python_floor_div(a.value, b.value);
    if (pick(0, 1) == 0) return {floor_div(a.expr, b.expr), q};
    return {mod(a.expr, b.expr), a.value - q * b.value};
  }

  const Values& values() const { return values_; }

 private:
  Sample constant_sample() {
    const std::int64_t c = pick(1, 12);
    return {c, c};
  }

  std::mt19937 random_;
  Values values_;
};

TEST(Expr, PolynomialsAreEqualWhateverTheirDerivation) {
  EXPECT_EQ((s + 2) * 2 - s, s + 4);
  EXPECT_EQ((s + t) * (s - t), s * s - t * t);
  EXPECT_EQ(s - s, 0);
  EXPECT_EQ(power(s + 1, 2), s * s + 2 * s + 1);
  EXPECT_EQ(power(s, 0), 1);
  EXPECT_NE(s, t);
  EXPECT_NE(s, s + 1);
  EXPECT_EQ((s * t).hash(), (t * s).hash());
  EXPECT_EQ((std::unordered_set<Expr>{s + t, t + s, s}).size(), 2u);
  EXPECT_EQ((std::set<Expr>{s + t, t + s, s, 3, t, Expr(3)}).size(), 4u);
}

TEST(Expr, ConstantsAreTold) {
  EXPECT_TRUE(Expr().is_constant());
  EXPECT_EQ((s - s + 7).constant_value(), 7);
  EXPECT_EQ(s.as_constant(), std::nullopt);
  EXPECT_THROW(s.constant_value(), std::logic_error);
}

TEST(Expr, FloorDivisionSimplifiesExactly) {
  EXPECT_EQ(floor_div(-7, 2), -4);
  EXPECT_EQ(floor_div(s, 1), s);
  EXPECT_EQ(floor_div(8 * u, 4), 2 * u);
  EXPECT_EQ(floor_div(4 * s + t, 4), s + floor_div(t, 4));
  EXPECT_EQ(floor_div(s * t, t), s);
  EXPECT_EQ(floor_div((s + 1) * (t + 2), t + 2), s + 1);
  EXPECT_EQ(floor_div(2 * s + 1, 4), floor_div(s, 2));
  EXPECT_EQ(floor_div(floor_div(s, 2), 3), floor_div(s, 6));
  EXPECT_EQ(floor_div(floor_div(s - 1, 2) + 1, 2), floor_div(s + 1, 4));
  EXPECT_EQ(floor_div(6 * s * t, 4 * t), s + floor_div(s, 2));
  EXPECT_EQ(floor_div(mod(s, 4) + 4 * t, 4), t);
  EXPECT_EQ(floor_div(s, -3), -ceil_div(s, 3));
  EXPECT_THROW(floor_div(s, t - t), std::domain_error);
  EXPECT_THROW(floor_div(1, 0), std::domain_error);
}

TEST(Expr, CeilingHasOneForm) {
  EXPECT_EQ(ceil_div(7, 2), 4);
  EXPECT_EQ(ceil_div(-7, -2), 4);
  EXPECT_EQ(ceil_div(4 * s, 4), s);
  EXPECT_EQ(-floor_div(-s, 4), ceil_div(s, 4));
  EXPECT_EQ(Expr::parse("((s27 + s52 - 1)//s52)"), ceil_div(s, t));
}

TEST(Expr, RemaindersSimplifyExactly) {
  EXPECT_EQ(mod(-7, 4), 1);
  EXPECT_EQ(mod(-7, -4), -3);
  EXPECT_EQ(mod(4 * s, 4), 0);
  EXPECT_EQ(mod(s * t, t), 0);
  EXPECT_EQ(mod(s + 4, 4), mod(s, 4));
  EXPECT_EQ(mod(3 * s, 4), mod(-s, 4));
  EXPECT_EQ(mod(mod(s, 8), 4), mod(s, 4));
  EXPECT_EQ(mod(mod(s, 4), 8), mod(s, 4));
  EXPECT_EQ(mod(2 * s, 4), 2 * mod(s, 2));
  EXPECT_THROW(mod(s, 0), std::domain_error);
}

TEST(Expr, ExtremaFlattenAndDropWhatIsCovered) {
  EXPECT_EQ(min(3, -2), -2);
  EXPECT_EQ(min(s, s + 1), s);
  EXPECT_EQ(max(s, s + 1), s + 1);
  EXPECT_EQ(min(min(s, t), min(u, s)), minimum({u, t, s}));
  EXPECT_EQ(min(mod(s, 4), 3), mod(s, 4));
  EXPECT_NE(min(s, t), max(s, t));
  EXPECT_THROW(minimum({}), std::invalid_argument);
}

TEST(Expr, ExactDivision) {
  EXPECT_EQ(divide_exact(6 * s * t, 2 * t), 3 * s);
  EXPECT_EQ(divide_exact(s * s - t * t, s + t), s - t);
  EXPECT_EQ(divide_exact(2 * s * t + 2 * t, s + 1), 2 * t);
  EXPECT_EQ(divide_exact(8 * floor_div(s, 2), floor_div(s, 2)), 8);
  EXPECT_EQ(divide_exact(0, s), 0);
  EXPECT_EQ(divide_exact(s, 2), std::nullopt);
  EXPECT_EQ(divide_exact(s * s + 1, s + 1), std::nullopt);
  EXPECT_EQ(divide_exact(s, 0), std::nullopt);
  EXPECT_EQ(divide_exact(s, s * t), std::nullopt);
}

TEST(Expr, SubstitutionIsSimultaneousAndSimplifies) {
  EXPECT_EQ(floor_div(s, 4).substitute({{"s27", 4 * u}}), u);
  EXPECT_EQ((s - t).substitute({{"s27", t}, {"s52", s}}), t - s);
  EXPECT_EQ(power(s, 3).substitute({{"s27", 2}}), 8);
  EXPECT_EQ(max(s, 4).substitute({{"s27", 5}}), 5);
  EXPECT_EQ((mod(t, s) + floor_div(u, 2)).symbols(),
            (std::vector<std::string>{"s27", "s52", "u0"}));
}

TEST(Expr, EvaluationNamesTheMissingSymbol) {
  EXPECT_EQ((s * t + floor_div(s, 2)).evaluate({{"s27", 7}, {"s52", 3}}), 24);
  try {
    (s + t).evaluate({{"s27", 1}});
    FAIL();
  } catch (const std::out_of_range& error) {
    EXPECT_NE(std::string(error.what()).find("s52"), std::string::npos);
  }
  EXPECT_THROW(floor_div(s, t).evaluate({{"s27", 1}, {"s52", 0}}), std::domain_error);
}

TEST(Expr, OverflowThrowsInsteadOfWrapping) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
  EXPECT_THROW(Expr(kMax) + 1, std::overflow_error);
  EXPECT_THROW(s * kMax * 2, std::overflow_error);
  EXPECT_THROW(-Expr(kMin), std::overflow_error);
  EXPECT_THROW(floor_div(kMin, -1), std::overflow_error);
  EXPECT_THROW(power(s, 3).evaluate({{"s27", std::int64_t{1} << 40}}), std::overflow_error);
  EXPECT_EQ(s * kMin - s * kMin, 0);
  for (const Expr& e : {Expr(kMin), s * kMin, t + s * kMin, t + kMin, floor_div(s * kMin, 3)}) {
    EXPECT_EQ(Expr::parse(e.to_string()), e) << e.to_string();
  }
}

TEST(Expr, GrowthIsBounded) {
  Expr sum;
  EXPECT_THROW(for (int i = 0; i < 1000; ++i) sum += Expr::symbol("x" + std::to_string(i)),
               std::overflow_error);
  Expr nested = s;
  EXPECT_THROW(for (int i = 0; i < 1000; ++i) nested = mod(nested * nested + 1, nested + 2),
               std::overflow_error);
  EXPECT_THROW(power(s, 1 << 20), std::overflow_error);
}

TEST(Expr, RandomExpressionsKeepTheirValue) {
  int compared = 0;
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    Generator generator(seed);
    try {
      const Sample sample = generator.sample(static_cast<int>(seed % 5));
      ASSERT_EQ(sample.expr.evaluate(generator.values()), sample.value)
          << seed << ": " << sample.expr.to_string();
      ++compared;
    } catch (const std::overflow_error&) {
    }
  }
  EXPECT_GT(compared, 19000);
}

TEST(Expr, RandomExpressionsRoundTripThroughText) {
  for (std::uint32_t seed = 0; seed < 20000; ++seed) {
    Generator generator(seed);
    const Expr e = generator.sample(static_cast<int>(seed % 5)).expr;
    ASSERT_EQ(Expr::parse(e.to_string()), e) << seed << ": " << e.to_string();
    ASSERT_EQ(e.substitute({}), e) << seed << ": " << e.to_string();
  }
}

TEST(Expr, RandomProductsDivideExactly) {
  int divided = 0;
  for (std::uint32_t seed = 0; seed < 5000; ++seed) {
    Generator generator(seed);
    const Expr a = generator.sample(2).expr;
    const Expr b = generator.sample(2).expr;
    if (b == 0) continue;
    ASSERT_EQ(divide_exact(a * b, b), a)
        << seed << ": " << a.to_string() << " by " << b.to_string();
    ASSERT_EQ(floor_div(a * b, b), a) << seed;
    ASSERT_EQ(mod(a * b, b), 0) << seed;
    const auto q = divide_exact(a, b);
    if (!q) continue;
    ASSERT_EQ(*q * b, a) << seed;
    divided += a == 0 ? 0 : 1;
  }
  EXPECT_GT(divided, 200);
}

}  // namespace
}  // namespace autosp
