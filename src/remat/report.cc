#include "remat/report.h"

#include <map>
#include <tuple>
#include <utility>

#include "support/text_table.h"

namespace autosp {

namespace {

void add(RematRow& sum, const RematRow& row) {
  sum.kept_bytes += row.kept_bytes;
  sum.recomputed_bytes += row.recomputed_bytes;
  sum.offloaded_bytes += row.offloaded_bytes;
  sum.recompute_ns += row.recompute_ns;
  sum.count += row.count;
}

Cells figures(const std::string& count, const RematRow& row) {
  return {count, bytes_text(row.kept_bytes), bytes_text(row.offloaded_bytes),
          bytes_text(row.recomputed_bytes), time_text(row.recompute_ns)};
}

const Cells kColumns = {"", "kept", "offloaded", "recomputed", "again in"};

std::string segment_table(const std::vector<RematRow>& segments) {
  std::vector<Cells> cells = {kColumns};
  cells.back().emplace_back();
  for (size_t first = 0; first < segments.size();) {
    const Cells row = figures("", segments[first]);
    size_t last = first;
    while (last + 1 < segments.size() && figures("", segments[last + 1]) == row) ++last;
    const size_t count = last - first + 1;
    const int number = segments[first].segment;
    std::string name = "the backward";
    if (number >= 0) name = "segment " + std::to_string(number);
    if (count > 1) {
      name = "segments " + std::to_string(number) + " to " + std::to_string(segments[last].segment);
    }
    cells.push_back(figures(count > 1 ? std::to_string(count) + " x" : "", segments[first]));
    cells.back().push_back(std::move(name));
    first = last + 1;
  }
  return table(cells, "rrrrrl");
}

std::string operator_table(const std::vector<RematRow>& operators) {
  std::vector<Cells> cells = {kColumns};
  cells.back().resize(kColumns.size() + 2);
  for (const RematRow& row : operators) {
    cells.push_back(figures(std::to_string(row.count) + " x", row));
    cells.back().push_back(row.what);
    cells.back().push_back(shortened(row.source));
  }
  return table(cells, "rrrrrll");
}

}  // namespace

std::vector<RematRow> describe(const JointGraph& graph, const RematPlan& plan) {
  std::vector<int> storage(graph.nodes.size());  // the node that made it
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const JointNode& node = graph.nodes[i];
    storage[i] = node.view && !node.inputs.empty() ? storage[node.inputs[0]] : static_cast<int>(i);
  }
  std::vector<bool> saved(graph.nodes.size(), false);
  std::vector<bool> away(graph.nodes.size(), false);
  std::vector<bool> again(graph.nodes.size(), false);
  for (const int node : plan.peak.saved) saved[storage[node]] = true;
  for (const Absence& absence : plan.peak.offloaded) away[storage[absence.node]] = true;
  for (const int node : plan.peak.recomputed) again[node] = true;
  std::vector<RematRow> rows;
  std::map<std::tuple<int, std::string, std::string>, size_t> index;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const JointNode& node = graph.nodes[i];
    if (node.view || is_input(node) || (!saved[i] && !again[i])) continue;
    const JointNode& owner = node.target == "getitem" ? graph.nodes[node.inputs[0]] : node;
    if (owner.view) continue;
    const int segment = plan.segments.of[i];
    const auto [it, is_new] =
        index.emplace(std::tuple(segment, owner.target, owner.source), rows.size());
    if (is_new) {
      rows.push_back({.what = owner.target, .source = owner.source, .segment = segment});
    }
    RematRow& row = rows[it->second];
    (away[i]    ? row.offloaded_bytes
     : saved[i] ? row.kept_bytes
                : row.recomputed_bytes) += node.bytes;
    if (again[i] && i < plan.node_ns.size()) row.recompute_ns += plan.node_ns[i];
    ++row.count;
  }
  return rows;
}

std::vector<RematRow> merge_segments(const std::vector<RematRow>& rows) {
  std::vector<RematRow> merged;
  std::map<std::pair<std::string, std::string>, size_t> index;
  for (const RematRow& row : rows) {
    const auto [it, is_new] = index.emplace(std::pair(row.what, row.source), merged.size());
    if (is_new) merged.push_back({.what = row.what, .source = row.source, .segment = -1});
    add(merged[it->second], row);
  }
  return merged;
}

std::vector<RematRow> merge_operators(const std::vector<RematRow>& rows) {
  std::map<int, RematRow> segments;
  for (const RematRow& row : rows) {
    RematRow& sum = segments[row.segment];
    sum.segment = row.segment;
    add(sum, row);
  }
  std::vector<RematRow> merged;
  for (auto& [number, sum] : segments) merged.push_back(std::move(sum));
  return merged;
}

std::string summary(const JointGraph& graph, const RematPlan& plan) {
  const std::vector<RematRow> rows = describe(graph, plan);
  return "Kept for the backward and made again, by segment\n" +
         segment_table(merge_operators(rows)) + "\nAnd by operator, of all segments\n" +
         operator_table(merge_segments(rows));
}

}  // namespace autosp
