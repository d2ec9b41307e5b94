#include "ops/op.h"

#include <gtest/gtest.h>

#include <set>

#include "rule_testing.h"

namespace autosp {
namespace {

OpDef with_signature(std::string_view signature) { return {.name = "op", .signature = signature}; }

// The arguments of the last line bound to a signature, "name=value" in order.
std::string bind(std::string_view program, std::string_view signature) {
  const Program parsed(program);
  const OpDef op = with_signature(signature);
  const Call call(parsed.graph(), parsed.node(), op);
  std::string out;
  for (const auto& [name, arg] : call.bound()) {
    out += (out.empty() ? "" : " ") + std::string(name) + "=" + print(parsed.graph(), arg);
  }
  return out;
}

std::string bind_error(std::string_view program, std::string_view signature) {
  try {
    return bind(program, signature);
  } catch (const Unsupported& error) {
    return error.what();
  }
}

TEST(Call, BindsPositionsKeywordsAndDefaults) {
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = Tensor.f(%x, 2, dtype=@torch.float32)",
                 "self, dim=None, keepdim=False, dtype=None, scale=-1.5, mode='mean', n=-100"),
            "self=%x dim=2 keepdim=False dtype=@torch.float32 scale=-1.5 mode=\"mean\" n=-100");
}

TEST(Call, LeavesOutWhatHasNoDefault) {
  const Program program("%x: f32[4]; %y: f32[4] = torch.f(%x)");
  const OpDef op = with_signature("input, other, more=None");
  const Call call(program.graph(), program.node(), op);
  EXPECT_EQ(call.find("other"), nullptr);
  ASSERT_NE(call.find("more"), nullptr);
  EXPECT_FALSE(call.has("more"));
  EXPECT_TRUE(call.has("input"));
}

TEST(Call, TakesSizesAsVarargsOrAsOneList) {
  const std::string expected = "self=%x size=[1, 2]";
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = Tensor.f(%x, 1, 2)", "self, *size"), expected);
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = Tensor.f(%x, [1, 2])", "self, *size"), expected);
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = Tensor.f(%x, size=[1, 2])", "self, *size"), expected);
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = Tensor.f(%x, 3, dtype=None)", "self, *size, dtype=1"),
            "self=%x size=[3] dtype=None");
}

TEST(Call, AcceptsNumpyNames) {
  EXPECT_EQ(bind("%x: f32[4]; %y: f32[4] = torch.f(input=%x, axis=1, keepdims=True)",
                 "self, dim=None, keepdim=False"),
            "self=%x dim=1 keepdim=True");
}

TEST(Call, NamesWhatItDoesNotKnow) {
  EXPECT_EQ(
      bind_error("%x: f32[4]; %y: f32[4] = torch.f(%x, out=%x) loc \"m.py:3 in forward: f(x)\"",
                 "input, dim=None"),
      "torch.f at m.py:3 in forward: f(x): AutoSP does not know the argument 'out' of this "
      "operator (input, "
      "dim=None)");
  EXPECT_EQ(bind_error("%x: f32[4]; %y: f32[4] = torch.f(%x, 1, 2)", "input, dim=None"),
            "torch.f: AutoSP knows 2 positional arguments of this operator (input, dim=None), the "
            "call has 3");
  // An argument that is given twice is not taken silently.
  EXPECT_EQ(bind_error("%x: f32[4]; %y: f32[4] = torch.f(%x, 1, dim=2)", "input, dim=None"),
            "torch.f: AutoSP does not know the argument 'dim' of this operator (input, dim=None)");
}

TEST(Call, ReadsStaticValuesOnly) {
  const Program program("%x: f32[s]; %y: f32[s] = torch.f(%x, s, 2, True)");
  const OpDef op = with_signature("input, a, b, c");
  const Call call(program.graph(), program.node(), op);
  EXPECT_EQ(call.integer("b"), 2);
  EXPECT_TRUE(call.boolean_or("c", false));
  EXPECT_EQ(call.integer_or("d", 7), 7);
  EXPECT_THROW(call.integer("a"), Unsupported);
  EXPECT_EQ(call.sizes("a"), std::vector<Expr>{Expr::symbol("s")});
  EXPECT_THROW(call.sizes("input"), Unsupported);
}

TEST(Call, CountsDimensionsFromBothEnds) {
  const Program program("%x: f32[2, 3]; %y: f32[2, 3] = torch.f(%x, -1)");
  const OpDef op = with_signature("input, dim, other=None");
  const Call call(program.graph(), program.node(), op);
  EXPECT_EQ(call.dim_or("dim", 2, 0), 1);
  EXPECT_EQ(call.dim_or("dim", 0, 0), 0);
  EXPECT_EQ(call.dim_or("other", 2, -2), 0);
  EXPECT_THROW(call.dim_or("other", 2, 2), Unsupported);
}

TEST(Registry, FindsEverySpellingOnce) {
  std::set<std::string_view> targets;
  for (const OpDef* op : all_ops()) {
    EXPECT_FALSE(op->name.empty());
    for (const std::string_view target : op->targets) {
      EXPECT_TRUE(targets.insert(target).second) << target;
      EXPECT_EQ(find_op(target), op) << target;
    }
  }
  EXPECT_EQ(find_op("torch.no_such_operator"), nullptr);
  EXPECT_EQ(find_op("torch._C._nn.linear"), find_op("torch.nn.functional.linear"));
}

TEST(Registry, InPlaceOperatorsLeadToAnOperator) {
  for (const OpDef* op : all_ops()) {
    if (op->functional.empty()) continue;
    const OpDef* functional = find_op(op->functional);
    ASSERT_NE(functional, nullptr) << op->name << " -> " << op->functional;
    EXPECT_TRUE(functional->functional.empty()) << op->name;
  }
}

TEST(Application, PrintsLettersAndKinds) {
  Application application;
  const LetterId b = application.add("b", Expr(2));
  const LetterId s = application.add("s", Expr(4), LetterKind::kSum);
  const LetterId twin = application.add("s", Expr(4), LetterKind::kPrefix);
  application.letters[static_cast<size_t>(twin)].link = s;
  application.operands.push_back({0, 0, {{b, s}, {}}});
  application.operands.push_back({1, 0, {}});
  application.results.push_back({{twin}});
  EXPECT_EQ(to_string(application), "(b s)(), [] -> (s')  sum s, prefix s' of s");
  EXPECT_EQ(application.dim("one", Expr(1)), DimLetters{});
}

TEST(Application, OpaqueCallsAreWholeEverywhere) {
  const Program program("%x: f32[2, s]; %p: (f32[s], f32[1]) = torch.nobody_knows(%x, [%x])");
  EXPECT_EQ(to_string(opaque_application(program.graph(), program.node())),
            "(x0)(x1), (x2)(x3) -> (y4), ()  whole x0, whole x1, whole x2, whole x3, whole y4");
  const Program reader(
      "%x: f32[2]; %p: (f32[3], none, f32[4]) = torch.f(%x); %y: f32[4] = torch.nobody_knows(%p)");
  const Application application = opaque_application(reader.graph(), reader.node());
  ASSERT_EQ(application.operands.size(), 2u);
  EXPECT_EQ(application.operands[1].element, 2);
}

TEST(Application, RulesMustFitTheShapes) {
  // A graph whose types contradict the operator is the engine's fault.
  const Program program("%x: f32[2, 3]; %y: f32[3] = torch.cumsum(%x, 0)");
  EXPECT_THROW(apply_rule(program.call()), InternalError);
}

}  // namespace
}  // namespace autosp
