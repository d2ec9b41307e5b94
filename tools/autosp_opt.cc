// autosp-opt: runs named steps of the compiler on a graph in text form and prints the result.
//
//   autosp-opt [--steps=a,b] [--ranks=N] [--outputs=auto|full|local] [--grad-sync=on|off]
//   [--seq-dims=name:dim,…] [--attention=auto|gather_kv]
//   [--latency-bytes=N] [--print=step|all] file|-
//   autosp-opt --list        names of steps
//   autosp-opt --operators   docs/operators.md
//
// Without --steps the graph is read, verified and printed; --steps=all runs the whole pipeline in
// its order. Errors go to standard error as "error: …", with exit status 1.
#include <charconv>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text.h"
#include "ir/verify.h"
#include "ops/table.h"
#include "passes/pipeline.h"

namespace autosp {
namespace {

struct Arguments {
  std::vector<std::string> steps;
  Options options;
  std::string file;
  bool list = false;
  bool operators = false;
};

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error(what); }

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

int64_t integer(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail("not an integer: " + std::string(text));
  }
  return value;
}

void set_option(Arguments& arguments, std::string_view key, const std::string& value) {
  Options& options = arguments.options;
  if (key == "steps") {
    arguments.steps = split(value, ',');
  } else if (key == "ranks") {
    options.ranks = integer(value);
  } else if (key == "latency-bytes") {
    options.latency_bytes = integer(value);
  } else if (key == "attention") {
    options.attention = value;
  } else if (key == "outputs") {
    options.outputs = value;
  } else if (key == "grad-sync" && (value == "on" || value == "off")) {
    options.grad_sync = value == "on";
  } else if (key == "print") {
    options.print = value;
  } else if (key == "seq-dims") {
    for (const std::string& entry : split(value, ',')) {
      const size_t colon = entry.rfind(':');
      if (colon == std::string::npos) fail("--seq-dims takes name:dim, not " + entry);
      options.seq_dims[entry.substr(0, colon)] = integer(std::string_view(entry).substr(colon + 1));
    }
  } else {
    fail("unknown option --" + std::string(key) + "=" + value);
  }
}

Arguments read_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--list") {
      arguments.list = true;
    } else if (argument == "--operators") {
      arguments.operators = true;
    } else if (argument.starts_with("--")) {
      const size_t equals = argument.find('=');
      if (equals == std::string_view::npos) fail("unknown option " + std::string(argument));
      set_option(arguments, argument.substr(2, equals - 2),
                 std::string(argument.substr(equals + 1)));
    } else if (arguments.file.empty()) {
      arguments.file = argument;
    } else {
      fail("more than one file");
    }
  }
  if (arguments.file.empty() && !arguments.list && !arguments.operators)
    fail("no file given (- is standard input)");
  return arguments;
}

std::string read(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream stream(file, std::ios::binary);
  if (!stream) fail("cannot read " + file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void run_named(const std::string& name, PipelineState& state) {
  bool found = false;
  for (const Step& step : pipeline_steps()) {
    if (name != step.name && name != "all") continue;
    run_step(step, state);
    found = true;
  }
  if (!found) fail("no step is named " + name + " (--list prints the names)");
}

void run(const Arguments& arguments) {
  if (arguments.operators) {
    std::cout << operator_table();
    return;
  }
  if (arguments.list) {
    for (const Step& step : pipeline_steps()) std::cout << step.name << '\n';
    return;
  }
  PipelineState state{.graph = parse_graph(read(arguments.file)), .options = arguments.options};
  verify(state.graph);
  for (const std::string& name : arguments.steps) run_named(name, state);
  verify(state.graph);
  std::cout << print(state.graph);
}

}  // namespace
}  // namespace autosp

int main(int argc, char** argv) {
  try {
    autosp::run(autosp::read_arguments(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << '\n';
    return 1;
  }
}
