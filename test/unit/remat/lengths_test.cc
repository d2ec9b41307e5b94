#include "remat/lengths.h"

#include <gtest/gtest.h>

#include "remat/held.h"
#include "support/error.h"

namespace autosp {
namespace {

JointGraph graph(const std::string& x, const std::string& scores) {
  return parse_joint_graph("%x: bfloat16[" + x +
                           "B = placeholder:primal()\n"
                           "%w: bfloat16[4,4] 32B = placeholder:primal() parameter\n"
                           "%scores: float32[" +
                           scores + "B = aten.mm(%x, %w)\noutput(%scores |)\n");
}

TEST(Lengths, SizesArePolynomials) {
  const JointGraph captured = graph("1009,4] 8072", "3027,1008] 12204864");
  for (const int64_t length : {1, 8, 1009, 1 << 20}) {
    const JointGraph made = with_length(captured, 1009, length);
    EXPECT_EQ(made.nodes[0].shape, (std::vector<int64_t>{length, 4}));
    EXPECT_EQ(made.nodes[0].bytes, length * 8);
    EXPECT_EQ(made.nodes[1].bytes, 32);
    EXPECT_EQ(made.nodes[2].shape, (std::vector<int64_t>{3 * length, length - 1}));
    EXPECT_EQ(made.nodes[2].bytes, 3 * length * (length - 1) * 4);
  }
  EXPECT_EQ(print(with_length(captured, 1009, 1009)), print(captured));
  const JointGraph square = graph("1018081,4] 8144648", "1009,1018079] 4108965844");
  EXPECT_EQ(with_length(square, 1009, 10).nodes[0].shape[0], 100);
  EXPECT_EQ(with_length(square, 1009, 10).nodes[2].shape[1], 98);
}

TEST(Lengths, SizesThatAreNotKnownAreRefused) {
  const JointGraph captured = graph("1009,4] 8072", "1009,1006] 4060216");
  EXPECT_EQ(with_length(captured, 1009, 3).nodes[2].bytes, 0);
  EXPECT_THROW(with_length(captured, 1009, 2), Unsupported);  // negative
  EXPECT_THROW(with_length(graph("1009,4] 8072", "8,126] 4032"), 1009, 64), Unsupported);
}

TEST(Held, InputsAndParametersBySegment) {
  const JointGraph program = graph("8,4] 64", "8,9] 288");
  EXPECT_EQ(input_bytes(program), 64);
  const JointFacts facts(program);
  EXPECT_EQ(parameter_bytes(program, find_segments(facts)), std::vector<int64_t>{32});
}

}  // namespace
}  // namespace autosp
