// What the compiler did, as a table for people: exchanges, gathered and replicated values, outputs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"
#include "passes/elaborate.h"

namespace autosp {

struct ReportRow {
  std::string what;    // "all_to_all", "s_to_v", "replicated", "output", …
  std::string value;   // the value's name and local type
  int64_t bytes = 0;   // sent by one rank in the forward pass, or held by it
  int64_t count = 1;   // equal rows are merged (one a layer)
  std::string source;  // the model's line
};

struct Report {
  int ranks = 1;
  std::vector<ReportRow> exchanges;   // every collective of the forward pass
  std::vector<ReportRow> replicated;  // values held whole on every rank, above a size
  std::vector<ReportRow> outputs;     // what the program returns
  std::vector<std::pair<std::string, int64_t>> step_ns;  // time of every step

  std::string text() const;  // an aligned table
};

// Fills the rows from a per-rank graph.
void describe(const Graph& graph, const std::vector<OutputInfo>& outputs, int ranks, Report& report);

}  // namespace autosp
