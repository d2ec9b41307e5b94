#include "remat/report.h"

#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

namespace autosp {

namespace {

std::string format(const char* pattern, double value) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, pattern, value);
  return buffer;
}

std::string mib(int64_t bytes) {
  return format("%.1f MiB", static_cast<double>(bytes) / (1024.0 * 1024.0));
}

std::string ms(int64_t ns) { return format("%.3f ms", static_cast<double>(ns) / 1e6); }

std::string padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
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
    RematRow& sum = merged[it->second];
    sum.kept_bytes += row.kept_bytes;
    sum.recomputed_bytes += row.recomputed_bytes;
    sum.offloaded_bytes += row.offloaded_bytes;
    sum.recompute_ns += row.recompute_ns;
    sum.count += row.count;
  }
  return merged;
}

std::string summary(const JointGraph& graph, const RematPlan& plan) {
  std::string text;
  const bool any_away = plan.peak.offloaded_bytes > 0;
  for (const RematRow& row : merge_segments(describe(graph, plan))) {
    text += padded(row.what, 48) + " ×" + padded(std::to_string(row.count), 4) + " kept " +
            padded(mib(row.kept_bytes), 12);
    if (any_away) text += " offloaded " + padded(mib(row.offloaded_bytes), 12);
    text += " recomputed " + padded(mib(row.recomputed_bytes), 13);
    text += padded(ms(row.recompute_ns), 11) + (row.source.empty() ? "" : "  " + row.source);
    text += "\n";
  }
  text += std::to_string(plan.segments.count()) + " segments, kept " + mib(plan.peak.kept_bytes);
  if (any_away) text += ", offloaded " + mib(plan.peak.offloaded_bytes);
  text += ", peak " + mib(plan.peak.peak_bytes);
  if (plan.peak.at >= 0) {
    text += " in the " + std::string(plan.peak.in_backward ? "backward" : "forward") + " at " +
            graph.nodes[plan.peak.at].target + " (";
    const char* separator = "";
    for (size_t k = 0; k < kPartNames.size(); ++k) {
      if (plan.peak.parts[k] == 0) continue;
      text += separator + std::string(kPartNames[k]) + " " + mib(plan.peak.parts[k]);
      separator = ", ";
    }
    text += ")";
  }
  text += ", " + ms(plan.recompute_ns) + " of " + ms(plan.step_ns) + " recomputed";
  if (any_away) text += ", " + ms(plan.wait_ns) + " waiting for copies";
  return text + "\n";
}

}  // namespace autosp
