#include "support/text_table.h"

#include <gtest/gtest.h>

namespace autosp {
namespace {

TEST(TextTable, FiguresHaveUnits) {
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text(int64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(bytes_text(int64_t{3} << 50), "3072.0 TiB");
  EXPECT_EQ(time_text(340'000), "0.3 ms");
  EXPECT_EQ(time_text(12'340'000'000), "12.34 s");
}

TEST(TextTable, ColumnsAreAligned) {
  EXPECT_EQ(table({{"a", "1", ""}, {"long", "20", "x"}, {"", "", ""}}, "lrl"),
            "  a      1\n"
            "  long  20  x\n"
            "\n");
  EXPECT_EQ(table({}, "lr"), "");
}

TEST(TextTable, LinesAreCutBetweenCharacters) {
  EXPECT_EQ(shortened(std::string(80, 'a')), std::string(80, 'a'));
  EXPECT_EQ(shortened(std::string(81, 'a')), std::string(80, 'a') + " ...");
  EXPECT_EQ(shortened(std::string(79, 'a') + "éé"), std::string(79, 'a') + " ...");
}

}  // namespace
}  // namespace autosp
