// What the compiler did, as a table for people: exchanges, values held whole, outputs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/pipeline.h"

namespace autosp {

// Types in a report are a rank's, with cut dimensions as "4096/2": one of two equal parts.
struct ReportRow {
  std::string what;            // "all_to_all", "all_gather", "parameters", …
  std::string value;           // "2 x f32[1, 4096/2, 64]"
  int64_t bytes = 0;           // held by one rank; of an exchange: sent by one rank in the forward
  int64_t backward_bytes = 0;  // of an exchange: sent by one rank in the backward
  int64_t count = 1;           // equal rows are merged (one a layer); bytes are those of one
  std::string source;          // the model's line
};

// What attentions mask and add to their scores, of those that do the same in the same way.
struct ReportMask {
  std::string name;        // sharding/mask_names.h
  std::string cut;         // which part of it a rank holds
  std::string value = {};  // "bool[1, 1, 4096/2, 4096]"; several joined by " + "
  int64_t bytes = 0;       // held by one rank for one attention
  int64_t count = 1;       // attentions; those that share a mask hold it once
};

struct ReportOperator {
  std::string name;    // of the value; of an input what the user calls it
  std::string target;  // "input", "parameter", "buffer", "constant", "seed" for inputs
  std::vector<std::string> operands;  // names of values
  std::string value;                  // its type
  std::string source;
};

struct Report {
  int ranks = 1;
  int64_t local_length = 0;          // a rank's part of the longest axis that is cut; 0: nothing is
  std::vector<ReportRow> exchanges;  // what ranks send each other
  std::vector<ReportRow> replicated;   // held whole on every rank, from 1 MiB on; views aside
  std::vector<RepeatedWork> repeated;  // what every rank computes whole
  std::vector<ReportMask> masks;
  std::vector<ReportRow> outputs;         // what the program returns
  std::vector<ReportOperator> operators;  // the program of one rank, in order

  std::string text() const;  // aligned tables of all but the operators
};

// The report on a plan for `ranks`. Bytes are exact for the hinted lengths, where collectives send
// each byte once to each rank that needs it (a ring); those of the backward for a gradient that
// comes back for every floating-point output. Linear in nodes times different rows.
Report describe(const Plan& plan, int ranks);

}  // namespace autosp
