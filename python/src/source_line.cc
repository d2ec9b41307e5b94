#include "source_line.h"

namespace autosp::python {

namespace {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

std::string_view line_at(std::string_view text, size_t start) {
  return text.substr(start, text.find('\n', start) - start);
}

}  // namespace

std::string source_line(std::string_view trace, std::string_view torch_root) {
  constexpr std::string_view kFile = "File \"";
  constexpr std::string_view kLine = "\", line ";
  constexpr std::string_view kIn = ", in ";
  size_t end = trace.size();
  while (end > 0) {
    const size_t frame = trace.rfind(kFile, end - 1);
    if (frame == std::string_view::npos) break;
    end = frame;
    const std::string_view head = line_at(trace, frame);
    const size_t line = head.rfind(kLine);
    const size_t in = head.rfind(kIn);
    if (line == std::string_view::npos || in == std::string_view::npos || in < line) continue;
    std::string_view path = head.substr(kFile.size(), line - kFile.size());
    if (path.starts_with(torch_root)) continue;
    path = path.substr(path.find_last_of("/\\") + 1);
    std::string result(path);
    result += ':';
    result += head.substr(line + kLine.size(), in - line - kLine.size());
    result += " in ";
    result += trimmed(head.substr(in + kIn.size()));
    const size_t code = frame + head.size() + 1;
    if (code < trace.size()) {
      const std::string_view text = trimmed(line_at(trace, code));
      if (!text.empty() && !text.starts_with(kFile)) {
        result += ": ";
        result += text;
      }
    }
    return result;
  }
  return "";
}

}  // namespace autosp::python
