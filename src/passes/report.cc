#include "passes/report.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "ir/text.h"

namespace autosp {
namespace {

// Values held whole on every rank are listed from this size on.
constexpr int64_t kListedBytes = int64_t{1} << 20;

std::string type_text(const Type& type) {
  if (type.kind == Type::Kind::kTuple) {
    std::string out;
    for (const Type& element : type.elements) out += (out.empty() ? "" : " + ") + type_text(element);
    return out;
  }
  std::string out(dtype_name(type.dtype));
  out += '[';
  for (size_t i = 0; i < type.shape.size(); ++i) out += (i > 0 ? ", " : "") + type.shape[i].to_string();
  return out + ']';
}

void add(std::vector<ReportRow>& rows, ReportRow row) {
  // One row for what every layer does alike.
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const ReportRow& other) {
    return other.what == row.what && other.value == row.value && other.source == row.source && other.bytes == row.bytes;
  });
  if (same != rows.end()) {
    ++same->count;
  } else {
    rows.push_back(std::move(row));
  }
}

bool is_local(const Graph& graph, const Type& type) {
  for (const Type& element : type.elements) {
    if (is_local(graph, element)) return true;
  }
  for (const Expr& size : type.shape) {
    for (const std::string& symbol : size.symbols()) {
      for (const auto& [name, length] : graph.definitions) {
        if (name == symbol) return true;
      }
    }
  }
  return false;
}

// Bytes one rank sends in a collective whose result (or operand) has `bytes` bytes.
int64_t sent_bytes(std::string_view name, int64_t in, int64_t out, int ranks) {
  if (name == "all_to_all") return in - in / ranks;
  if (name == "s_to_r" || name == "s_to_v") return (out / ranks) * (ranks - 1);
  if (name == "p_to_s") return in - in / ranks;
  if (name == "p_to_r" || name == "p_to_v") return 2 * (in - in / ranks);
  return 0;
}

std::string bytes_text(int64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1024 && unit + 1 < kUnits.size()) {
    amount /= 1024;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", amount, kUnits[unit]);
  return text;
}

void append_table(std::string& out, const std::string& title, const std::vector<ReportRow>& rows) {
  out += title + '\n';
  if (rows.empty()) {
    out += "  none\n";
    return;
  }
  size_t what = 0;
  size_t value = 0;
  for (const ReportRow& row : rows) {
    what = std::max(what, row.what.size());
    value = std::max(value, row.value.size());
  }
  int64_t total = 0;
  for (const ReportRow& row : rows) {
    total += row.bytes * row.count;
    std::string line = "  " + row.what + std::string(what - row.what.size() + 2, ' ') + row.value +
                       std::string(value - row.value.size() + 2, ' ');
    const std::string bytes = bytes_text(row.bytes);
    line += std::string(bytes.size() < 10 ? 10 - bytes.size() : 0, ' ') + bytes;
    const std::string times = "x" + std::to_string(row.count);
    line += "  " + times + std::string(times.size() < 5 ? 5 - times.size() : 0, ' ') + row.source;
    out += line + '\n';
  }
  out += "  total " + bytes_text(total) + '\n';
}

}  // namespace

void describe(const Graph& graph, const std::vector<OutputInfo>& outputs, int ranks, Report& report) {
  report.ranks = ranks;
  for (const Node& node : graph.nodes) {
    if (node.kind == NodeKind::kInput) continue;
    constexpr std::string_view kPrefix = "autosp.";
    if (node.target.starts_with(kPrefix)) {
      const std::string name = node.target.substr(kPrefix.size());
      int64_t in = 0;
      for_each_value(node.args.at(0), [&](NodeId operand) { in += graph.bytes(graph.node(operand).type); });
      const int64_t sent = sent_bytes(name, in, graph.bytes(node.type), ranks);
      if (sent > 0) add(report.exchanges, {name, type_text(node.type), sent, 1, node.source});
    }
    const int64_t bytes = graph.bytes(node.type);
    if (ranks > 1 && node.type.is_tensor() && bytes >= kListedBytes && !is_local(graph, node.type)) {
      add(report.replicated, {node.target, type_text(node.type), bytes, 1, node.source});
    }
  }
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    if (!graph.outputs[i].is_value()) continue;
    const Node& node = graph.node(graph.outputs[i].value);
    const bool sharded = i < outputs.size() && outputs[i].sharded;
    const std::string placement = sharded ? "sharded along dim " + std::to_string(outputs[i].dim) : "the same on every rank";
    report.outputs.push_back({placement, type_text(node.type), graph.bytes(node.type), 1, node.source});
  }
}

std::string Report::text() const {
  std::string out = "Program of one rank of " + std::to_string(ranks) + "\n";
  append_table(out, "Exchanges of the forward pass (bytes one rank sends)", exchanges);
  append_table(out, "Values of 1 MiB and more held whole on every rank", replicated);
  append_table(out, "Outputs (bytes one rank holds)", outputs);
  return out;
}

}  // namespace autosp
