#include "source_line.h"

#include <algorithm>

namespace autosp::python {

namespace {

constexpr std::string_view kFile = "File \"";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string_view line_at(std::string_view text, size_t start) {
  return text.substr(start, text.find('\n', start) - start);
}

// One frame at `start`, or "" when the text there is no frame. `path` receives its file.
std::string frame_at(std::string_view trace, size_t start, std::string_view* path) {
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  const std::string_view head = line_at(trace, start);
  const size_t line = head.rfind(kLine);
  const size_t in = head.rfind(kIn);
  if (line == std::string_view::npos || in == std::string_view::npos || in < line) return "";
  *path = head.substr(kFile.size(), line - kFile.size());
  std::string result(path->substr(path->find_last_of("/\\") + 1));
  result += ':';
  result += head.substr(line + kLine.size(), in - line - kLine.size());
  result += " in ";
  result += trimmed(head.substr(in + kIn.size()));
  const size_t code = start + head.size() + 1;
  if (code >= trace.size()) return result;
  const std::string_view text = trimmed(line_at(trace, code));
  if (text.empty() || text.starts_with(kFile)) return result;
  return result.append(": ").append(text);
}

}  // namespace

std::string source_line(std::string_view trace, const std::vector<std::string>& packages) {
  std::string innermost;
  for (size_t end = trace.size(); end > 0;) {
    end = trace.rfind(kFile, end - 1);
    if (end == std::string_view::npos) break;
    std::string_view path;
    std::string frame = frame_at(trace, end, &path);
    if (frame.empty()) continue;
    const bool is_model =
        std::none_of(packages.begin(), packages.end(),
                     [&](const std::string& root) { return path.starts_with(root); });
    if (is_model) return frame;
    const bool is_own = path.starts_with(packages.back());
    if (innermost.empty() && !is_own) innermost = std::move(frame);
  }
  return innermost;
}

}  // namespace autosp::python
