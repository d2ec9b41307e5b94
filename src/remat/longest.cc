#include "remat/longest.h"

#include <algorithm>
#include <optional>
#include <string>

#include "support/error.h"
#include "support/text_table.h"

namespace autosp {
namespace {

struct Tried {
  int64_t length;
  int64_t bytes;
};

}  // namespace

int64_t longest_length(const std::function<int64_t(int64_t)>& needed, int64_t available,
                       int64_t start, int64_t step) {
  std::optional<Tried> enough, few;  // the result lies from the first to before the second
  for (int64_t length = start;;) {
    const Tried tried{length, needed(length)};
    (tried.bytes <= available ? enough : few) = tried;
    if (!few) {
      length *= std::max<int64_t>(2, available / std::max<int64_t>(enough->bytes, 1));
    } else if (!enough) {
      if (length == step) {
        throw Unsupported("not even " + std::to_string(step) + " tokens fit: they take " +
                          bytes_text(tried.bytes) + " a rank of " + bytes_text(available));
      }
      length = std::max<int64_t>(length / 4 / step, 1) * step;
    } else {
      const int64_t gap = std::max<int64_t>(enough->length / 1000 / step, 1) * step;
      if (few->length - enough->length <= gap) return enough->length;
      const double slope = static_cast<double>(few->bytes - enough->bytes) /
                           static_cast<double>(few->length - enough->length);
      const double more = static_cast<double>(available - enough->bytes) / slope;
      const int64_t guess = enough->length + static_cast<int64_t>(more) / step * step;
      length = std::min(std::max(guess, enough->length + gap), few->length - gap);
    }
  }
}

}  // namespace autosp
