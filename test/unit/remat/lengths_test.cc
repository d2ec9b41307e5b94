#include "remat/lengths.h"

#include <gtest/gtest.h>

#include "remat/held.h"
#include "support/error.h"

namespace autosp {
namespace {

JointGraph graph(const std::string& x, const std::string& scores, const char* op = "aten.mm") {
  return parse_joint_graph("%x: bfloat16[" + x +
                           "B = placeholder:primal()\n"
                           "%w: bfloat16[4,4] 32B = placeholder:primal() parameter\n"
                           "%scores: float32[" +
                           scores + "B = " + op + "(%x, %w)\noutput(%scores |)\n");
}

TEST(Lengths, SizesLieOnTheLineThroughTheTwo) {
  const JointGraph at8 = graph("8,4] 64", "8,9] 288");
  const JointGraph at16 = graph("16,4] 128", "16,17] 1088");
  for (const int64_t length : {4, 12, 1024}) {
    const JointGraph made = at_length(at8, 8, at16, 16, length);
    EXPECT_EQ(made.nodes[0].shape, (std::vector<int64_t>{length, 4}));
    EXPECT_EQ(made.nodes[0].bytes, length * 8);
    EXPECT_EQ(made.nodes[1].bytes, 32);
    EXPECT_EQ(made.nodes[2].bytes, length * (length + 1) * 4);
  }
  EXPECT_EQ(print(at_length(at8, 8, at16, 16, 16)), print(at16));
}

TEST(Lengths, SizesBetweenAreRoundedUp) {
  const JointGraph at8 = graph("8,2] 32", "8,8] 256");
  const JointGraph at16 = graph("16,4] 128", "16,16] 1024");
  EXPECT_EQ(at_length(at8, 8, at16, 16, 9).nodes[0].shape, (std::vector<int64_t>{9, 3}));
}

TEST(Lengths, OtherOperatorsAreRefused) {
  const JointGraph at8 = graph("8,4] 64", "8,9] 288");
  EXPECT_THROW(at_length(at8, 8, graph("16,4] 128", "16,17] 1088", "aten.bmm"), 16, 4),
               Unsupported);
  EXPECT_THROW(at_length(at8, 8, at8, 8, 4), Unsupported);
}

TEST(Held, InputsAndParametersBySegment) {
  const JointGraph program = graph("8,4] 64", "8,9] 288");
  EXPECT_EQ(input_bytes(program), 64);
  const JointFacts facts(program);
  EXPECT_EQ(parameter_bytes(program, find_segments(facts)), std::vector<int64_t>{32});
}

}  // namespace
}  // namespace autosp
