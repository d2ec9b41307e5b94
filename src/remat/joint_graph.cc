#include "remat/joint_graph.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <stdexcept>
#include <utility>

#include "support/error.h"

namespace autosp {

namespace {

constexpr std::pair<const char*, bool JointNode::*> kFlags[] = {
    {"view", &JointNode::view},       {"random", &JointNode::random},
    {"mutates", &JointNode::mutates}, {"causal", &JointNode::causal},
    {"tagged", &JointNode::tagged},   {"parameter", &JointNode::parameter}};

std::string references(const JointGraph& graph, const JointNode& node, size_t split) {
  std::string text;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i > 0 || split == 0) text += i == split ? (i > 0 ? " | " : "| ") : ", ";
    const int input = node.inputs[i];
    text += input < 0 ? "-" : "%" + graph.nodes[input].name;
  }
  return text;
}

// One line of the text form, read from the left.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) { skip_spaces(); }

  bool at_end() const { return rest_.empty(); }

  bool take(std::string_view token) {
    if (rest_.substr(0, token.size()) != token) return false;
    rest_.remove_prefix(token.size());
    skip_spaces();
    return true;
  }

  void expect(std::string_view token) {
    if (!take(token)) fail("expected \"" + std::string(token) + "\"");
  }

  // Up to the first of `ends`, which stays.
  std::string word(std::string_view ends) {
    const size_t length = std::min(rest_.find_first_of(ends), rest_.size());
    if (length == 0) fail("expected a word");
    std::string result(rest_.substr(0, length));
    rest_.remove_prefix(length);
    skip_spaces();
    return result;
  }

  int64_t number() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) fail("expected a number");
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    skip_spaces();
    return value;
  }

  std::string remainder() { return std::string(std::exchange(rest_, {})); }

  [[noreturn]] void fail(const std::string& what) const {
    throw std::invalid_argument("joint graph, line " + std::to_string(number_) + ": " + what +
                                " at \"" + std::string(rest_) + "\"");
  }

 private:
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }

  std::string_view rest_;
  int number_;
};

class Parser {
 public:
  JointGraph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      Line line(text.substr(0, end), ++number);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (!line.at_end()) parse_line(line);
    }
    return std::move(graph_);
  }

 private:
  void parse_line(Line& line) {
    JointNode node;
    if (line.take("output(")) {
      node.name = node.target = "output";
      parse_inputs(line, node, true);
    } else {
      line.expect("%");
      node.name = line.word(": =");
      if (line.take(":")) parse_type(line, node);
      line.expect("=");
      node.target = line.word("(");
      line.expect("(");
      parse_inputs(line, node, false);
      while (!line.at_end() && !line.take("#")) parse_flag(line, node);
      node.source = line.remainder();
    }
    if (!ids_.emplace(node.name, static_cast<int>(graph_.nodes.size())).second) {
      line.fail("a second %" + node.name);
    }
    graph_.nodes.push_back(std::move(node));
  }

  void parse_type(Line& line, JointNode& node) {
    node.dtype = line.word("[ ");
    line.expect("[");
    while (!line.take("]")) {
      if (!node.shape.empty()) line.expect(",");
      node.shape.push_back(line.number());
    }
    node.bytes = line.number();
    line.expect("B");
  }

  void parse_inputs(Line& line, JointNode& node, bool is_output) {
    bool first = true;
    while (!line.take(")")) {
      if (is_output && line.take("|")) {
        graph_.forward_outputs = static_cast<int>(node.inputs.size());
        if (line.take(")")) return;
      } else if (!first) {
        line.expect(",");
      }
      first = false;
      if (line.take("-")) {
        node.inputs.push_back(-1);
        continue;
      }
      line.expect("%");
      const std::string name = line.word(",)| ");
      const auto it = ids_.find(name);
      if (it == ids_.end()) line.fail("no %" + name + " before this line");
      node.inputs.push_back(it->second);
    }
  }

  void parse_flag(Line& line, JointNode& node) {
    for (const auto& [name, member] : kFlags) {
      if (line.take(name)) {
        node.*member = true;
        return;
      }
    }
    line.fail("expected a flag");
  }

  JointGraph graph_;
  std::map<std::string, int> ids_;
};

}  // namespace

void verify(const JointGraph& graph) {
  const int count = static_cast<int>(graph.nodes.size());
  ensure(count > 0 && graph.nodes.back().target == "output", "a joint graph ends in its output");
  for (int i = 0; i < count; ++i) {
    const JointNode& node = graph.nodes[i];
    const bool is_output = i == count - 1;
    ensure((node.target == "output") == is_output, "a joint graph has one output");
    ensure(node.bytes >= 0, "bytes of a value of the joint graph");
    for (const int input : node.inputs) {
      ensure(input < i && input >= (is_output ? -1 : 0), "nodes read earlier ones");
    }
    ensure(!node.view || !node.inputs.empty(), "a view has an input");
  }
  ensure(graph.forward_outputs >= 0 &&
             graph.forward_outputs <= static_cast<int>(graph.nodes.back().inputs.size()),
         "the forward's outputs are among all outputs");
}

std::string source_near(const JointGraph& graph, int node) {
  constexpr size_t kBound = 256;
  std::vector<int> queue = {node};
  for (size_t i = 0; i < std::min(queue.size(), kBound); ++i) {
    const JointNode& current = graph.nodes[queue[i]];
    if (!current.source.empty()) return current.source;
    for (const int input : current.inputs) {
      if (std::find(queue.begin(), queue.end(), input) == queue.end()) queue.push_back(input);
    }
  }
  return "";
}

std::string print(const JointGraph& graph) {
  std::string text;
  for (const JointNode& node : graph.nodes) {
    if (node.target == "output") {
      const size_t split = static_cast<size_t>(graph.forward_outputs);
      text += "output(" + references(graph, node, split) +
              (split == node.inputs.size() ? " |)" : ")") + "\n";
      continue;
    }
    text += "%" + node.name;
    if (!node.dtype.empty()) {
      text += ": " + node.dtype + "[";
      for (size_t i = 0; i < node.shape.size(); ++i) {
        text += (i > 0 ? "," : "") + std::to_string(node.shape[i]);
      }
      text += "] " + std::to_string(node.bytes) + "B";
    }
    text += " = " + node.target + "(" + references(graph, node, node.inputs.size() + 1) + ")";
    for (const auto& [name, member] : kFlags) {
      if (node.*member) text += std::string(" ") + name;
    }
    if (!node.source.empty()) text += "  # " + node.source;
    text += "\n";
  }
  return text;
}

JointGraph parse_joint_graph(std::string_view text) { return Parser().parse(text); }

}  // namespace autosp
