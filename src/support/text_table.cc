#include "support/text_table.h"

#include <algorithm>
#include <array>
#include <cstdio>

namespace autosp {

namespace {

constexpr size_t kSourceWidth = 80;

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  return format(unit == 0 ? "%.0f " : "%.1f ", amount) + kUnits[unit];
}

std::string time_text(int64_t ns) {
  return ns < 1'000'000'000 ? format("%.1f ms", static_cast<double>(ns) / 1e6)
                            : format("%.2f s", static_cast<double>(ns) / 1e9);
}

std::string shortened(const std::string& source) {
  if (source.size() <= kSourceWidth) return source;
  size_t end = kSourceWidth;
  while (end > 0 && (static_cast<unsigned char>(source[end]) & 0xC0U) == 0x80U) --end;
  return source.substr(0, end) + " ...";
}

std::string table(const std::vector<Cells>& rows, std::string_view sides) {
  std::vector<size_t> width(sides.size(), 0);
  for (const Cells& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string out;
  for (const Cells& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(width[i] - row[i].size(), ' ');
      line += "  " + (sides[i] == 'r' ? padding + row[i] : row[i] + padding);
    }
    out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
  }
  return out;
}

}  // namespace autosp
