// Figures and tables for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace autosp {

std::string bytes_text(int64_t bytes);  // "512 B", "12.3 GiB"
std::string time_text(int64_t ns);      // "0.3 ms", "12.34 s"

// A line of a model, cut off after 80 bytes (and not within a character).
std::string shortened(const std::string& source);

using Cells = std::vector<std::string>;

// Lines of equally many cells, in columns as wide as their widest one. `sides` has a letter for
// each column: cells stand on its left, l, or right, r.
std::string table(const std::vector<Cells>& rows, std::string_view sides);

}  // namespace autosp
