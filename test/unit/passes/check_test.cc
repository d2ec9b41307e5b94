// The checker against complete programs that are broken in one place at a time.
#include "passes/check.h"

#include <gtest/gtest.h>

#include <functional>

#include "ir/text.h"
#include "passes/pipeline.h"
#include "support/error.h"
#include "unit/passes/programs.h"

namespace autosp {
namespace {

struct Checked {
  Graph graph;
  std::vector<Placement> outputs;
};

Checked sharded(const char* text, int64_t ranks = 2) {
  Options options;
  options.ranks = ranks;
  Plan made = plan(parse_graph(text), options);
  Checked out{std::move(made.graph), {}};
  for (const OutputInfo& info : made.outputs) {
    out.outputs.push_back(info.sharded ? Placement::sharded({static_cast<int>(info.dim), 0})
                                       : Placement::replicated());
  }
  return out;
}

bool accepts(const Checked& program) {
  try {
    check_placements(program.graph, program.outputs);
    return true;
  } catch (const InternalError&) {
    return false;
  }
}

bool is_conversion(const Node& node) { return node.target.starts_with("autosp."); }
bool is_exchange(const Node& node) { return node.target == "autosp.all_to_all"; }

void replace(Arg& arg, NodeId from, NodeId to) {
  if (arg.is_value() && arg.value == from) arg.value = to;
  for (Arg& item : arg.items) replace(item, from, to);
}

// Every reader of `from` reads `to` instead.
void redirect(Graph& graph, NodeId from, NodeId to) {
  for (Node& node : graph.nodes) {
    for (Arg& arg : node.args) replace(arg, from, to);
    for (auto& [name, arg] : node.kwargs) replace(arg, from, to);
  }
  for (Arg& output : graph.outputs) replace(output, from, to);
}

// The values that an operator before `node` hands to it.
NodeId element_of(const Graph& graph, NodeId exchange, int64_t index) {
  for (const Node& node : graph.nodes) {
    if (node.target == "_operator.getitem" && node.args[0].value == exchange &&
        node.args[1].integer == index)
      return node.id;
  }
  return kNoNode;
}

const char* const kPrograms[] = {programs::kLayer, programs::kGrouped, programs::kEager,
                                 programs::kTwoLengths};

// Calls visit(program, conversion's id) with a fresh copy for every conversion of every program.
void for_each_conversion(const std::function<void(Checked, NodeId)>& visit) {
  for (const char* text : kPrograms) {
    for (const int64_t ranks : {2, 4}) {
      const Checked program = sharded(text, ranks);
      for (const Node& node : program.graph.nodes) {
        if (is_conversion(node)) visit(program, node.id);
      }
    }
  }
}

std::string line(const Checked& program, NodeId node) {
  return print(program.graph, program.graph.node(node));
}

TEST(Check, AcceptsWhatTheCompilerMakes) {
  for (const char* text : kPrograms) {
    const Checked program = sharded(text);
    int conversions = 0;
    for (const Node& node : program.graph.nodes) conversions += is_conversion(node);
    EXPECT_GE(conversions, 4);
    EXPECT_TRUE(accepts(program)) << print(program.graph);
  }
}

TEST(Check, RejectsAnyRemovedConversion) {
  int removed = 0;
  for_each_conversion([&](Checked program, NodeId id) {
    const Node node = program.graph.node(id);
    const size_t count = is_exchange(node) ? node.args[0].items.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      Checked broken = program;
      if (is_exchange(node)) {
        const NodeId element = element_of(broken.graph, id, static_cast<int64_t>(i));
        redirect(broken.graph, element, node.args[0].items[i].value);
      } else {
        redirect(broken.graph, id, node.args[0].value);
      }
      EXPECT_FALSE(accepts(broken)) << "element " << i << " of " << line(program, id);
      ++removed;
    }
  });
  EXPECT_GT(removed, 60);
}

TEST(Check, RejectsAnotherDimension) {
  for_each_conversion([](Checked program, NodeId id) {
    Node& node = program.graph.node(id);
    if (is_exchange(node)) {
      for (size_t list : {1, 3}) {
        for (size_t i = 0; i < node.args[0].items.size(); ++i) {
          Checked broken = program;
          Arg& dim = broken.graph.node(id).args[list].items[i];
          const auto rank = static_cast<int64_t>(node.type.elements[i].shape.size());
          dim.integer = (dim.integer + 1) % rank;
          EXPECT_FALSE(accepts(broken))
              << "list " << list << ", element " << i << " of " << line(program, id);
        }
      }
      return;
    }
    if (node.target.find("_s") == std::string::npos && node.target.find("s_") == std::string::npos)
      return;
    const auto rank = static_cast<int64_t>(node.type.shape.size());
    for (int64_t step = 1; step < rank; ++step) {
      Checked broken = program;
      Arg& dim = broken.graph.node(id).args[1];
      dim.integer = (dim.integer + step) % rank;
      EXPECT_FALSE(accepts(broken)) << "by " << step << ": " << line(program, id);
    }
  });
}

// What the conversion would be if its value were used in the other way. Integer tensors have no
// gradient, so that R and V are one for them.
TEST(Check, RejectsAnotherKind) {
  const std::map<std::string, std::string> kinds = {
      {"autosp.s_to_v", "autosp.s_to_r"}, {"autosp.s_to_r", "autosp.s_to_v"},
      {"autosp.r_to_s", "autosp.v_to_s"}, {"autosp.v_to_s", "autosp.r_to_s"},
      {"autosp.p_to_r", "autosp.p_to_v"}, {"autosp.p_to_v", "autosp.p_to_r"},
      {"autosp.r_to_v", "autosp.v_to_r"}, {"autosp.v_to_r", "autosp.r_to_v"},
  };
  for_each_conversion([&](Checked program, NodeId id) {
    Node& node = program.graph.node(id);
    const auto found = kinds.find(node.target);
    if (found == kinds.end()) return;
    const std::string before = line(program, id);
    node.target = found->second;
    EXPECT_EQ(accepts(program), !is_floating(node.type.dtype)) << before;
  });
}

TEST(Check, RejectsTheOppositeConversion) {
  const std::map<std::string, std::string> opposite = {
      {"autosp.s_to_v", "autosp.v_to_s"}, {"autosp.s_to_r", "autosp.r_to_s"},
      {"autosp.r_to_s", "autosp.s_to_r"}, {"autosp.v_to_s", "autosp.s_to_v"},
      {"autosp.p_to_r", "autosp.r_to_p"},
  };
  for_each_conversion([&](Checked program, NodeId id) {
    Node& node = program.graph.node(id);
    const auto found = opposite.find(node.target);
    if (found == opposite.end()) return;
    node.target = found->second;
    EXPECT_FALSE(accepts(program)) << line(program, id);
  });
}

TEST(Check, RejectsAnotherLength) {
  for_each_conversion([](Checked program, NodeId id) {
    Node& node = program.graph.node(id);
    const bool resizes =
        is_exchange(node) || node.target.ends_with("_s") || node.target.starts_with("autosp.s_");
    if (!resizes) return;
    Arg& lengths = node.args[is_exchange(node) ? 4 : 2];
    Arg& length = is_exchange(node) ? lengths.items[0] : lengths;
    length = Arg::size_of(length.as_expr() + Expr(1));
    EXPECT_FALSE(accepts(program)) << line(program, id);
  });
}

// A view that is told a whole length instead of a rank's.
TEST(Check, RejectsGlobalSizesInViews) {
  int changed = 0;
  for (const char* text : kPrograms) {
    const Checked program = sharded(text);
    std::map<std::string, Expr> lengths;
    for (const auto& [name, length] : program.graph.definitions) lengths[name] = Expr(2) * length;
    for (const Node& node : program.graph.nodes) {
      if (node.target != "torch.reshape") continue;
      for (size_t i = 0; i < node.args[1].items.size(); ++i) {
        Checked broken = program;
        Arg& size = broken.graph.node(node.id).args[1].items[i];
        const Expr whole = size.as_expr().substitute(lengths);
        if (whole == size.as_expr()) continue;
        size = Arg::size_of(whole);
        EXPECT_FALSE(accepts(broken)) << print(program.graph, node);
        ++changed;
      }
    }
  }
  EXPECT_GE(changed, 10);
}

// An attention's exchange with two of its operands swapped: seen where they have different lengths.
TEST(Check, RejectsSwappedOperandsOfAnExchange) {
  Checked program = sharded(programs::kTwoLengths);
  int swapped = 0;
  for (Node& node : program.graph.nodes) {
    if (!is_exchange(node) || node.args[0].items.size() != 2) continue;
    std::swap(node.args[0].items[0], node.args[0].items[1]);
    ++swapped;
  }
  ASSERT_EQ(swapped, 1);
  EXPECT_FALSE(accepts(program));
}

// A sharded operand beside a whole one that has the letter too, in either order.
TEST(Check, RejectsPartsBesideWholeOperands) {
  for (const char* arguments : {"%part, %x", "%x, %part"}) {
    const Graph graph = parse_graph(std::string(R"(symbols rank=0, s=16, u=8
let u = size((s//2))
%x: f32[s, 4] = input user "x"
%part: f32[u, 4] = autosp.r_to_s(%x, 0, u, True, 0.0, rank, 2, @group)
%y: f32[u, 4] = _operator.add()") + arguments +
                                    ")\nreturn (%y,)\n");
    EXPECT_FALSE(accepts({graph, {Placement::sharded({0, 0})}}));
  }
}

TEST(Check, RejectsPositionsCountedFromZero) {
  const auto program = [](const char* bounds) {
    return Checked{parse_graph(std::string(R"(symbols rank=0, s=16, u=8
let u = size((s//2))
%x: f32[s] = input user "x"
%part: f32[u] = autosp.r_to_s(%x, 0, u, True, 0.0, rank, 2, @group)
%i: i64[u] = torch.arange()") + bounds +
                               R"()
%y: f32[u] = _operator.add(%part, %i)
return (%y,)
)"),
                   {Placement::sharded({0, 0})}};
  };
  EXPECT_TRUE(accepts(program("rank*u, rank*u + u")));
  EXPECT_FALSE(accepts(program("u")));
}

TEST(Check, RejectsWrongOutputs) {
  Checked program = sharded(programs::kLayer);
  ASSERT_EQ(program.outputs.size(), 3U);
  program.outputs[1] = Placement::replicated();
  EXPECT_FALSE(accepts(program));
  program.outputs[1] = Placement::sharded({2, 0});
  EXPECT_FALSE(accepts(program));
  program = sharded(programs::kLayer);
  program.outputs[0] = Placement::sharded({0, 0});
  EXPECT_FALSE(accepts(program));
}

TEST(Check, NamesOperatorSourceAndPlacements) {
  const Graph graph = parse_graph(R"--(symbols rank=0, s=16, u=8
let u = size((s//2))
%x: f32[s, 4] = input user "x" grad
%w: f32[4, 4] = input parameter "w" grad
%part: f32[u, 4] = autosp.r_to_s(%x, 0, u, True, 0.0, rank, 2, @group)
%y: f32[u, 4] = torch._C._nn.linear(%part, %w) loc "model.py:3 in forward: y = self.up(x)"
return (%y,)
)--");
  try {
    check_placements(graph, {Placement::sharded({0, 0})});
    FAIL() << "a parameter without its reduction passes";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(),
                 "internal error in AutoSP, please report it: placement check: %y = "
                 "torch._C._nn.linear at model.py:3 in "
                 "forward: y = self.up(x): reads %w, which is R, not V");
  }
}

}  // namespace
}  // namespace autosp
