#include "passes/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string_view>

#include "ops/op.h"
#include "passes/traffic.h"
#include "support/text_table.h"

namespace autosp {
namespace {

constexpr int64_t kListedBytes = int64_t{1} << 20;
constexpr double kListedShare = 0.001;

bool is_floating_value(const Type& type) {
  if (type.is_tensor()) return is_floating(type.dtype);
  return std::any_of(type.elements.begin(), type.elements.end(), is_floating_value);
}

bool is_view(const Node& node) {
  const OpDef* op = find_op(node.target);
  return op != nullptr && op->aliases;
}

std::string_view input_name(InputKind kind) {
  switch (kind) {
    case InputKind::kUser:
      return "input";
    case InputKind::kParameter:
      return "parameter";
    case InputKind::kBuffer:
      return "buffer";
    case InputKind::kConstant:
      return "constant";
    case InputKind::kSeed:
      return "seed";
  }
  return "input";
}

std::string_view cut_text(MaskCut cut) {
  switch (cut) {
    case MaskCut::kNone:
      return "heads exchanged: the kernel's flag";
    case MaskCut::kWhole:
      return "heads exchanged: whole";
    case MaskCut::kHeads:
      return "heads exchanged: own heads";
    case MaskCut::kSequences:
      return "heads exchanged: own sequences";
    case MaskCut::kQueries:
      return "keys gathered: own queries";
  }
  return "";
}

void add(std::vector<ReportRow>& rows, ReportRow row) {
  const auto same = std::find_if(rows.begin(), rows.end(), [&](const ReportRow& other) {
    return other.bytes == row.bytes && other.backward_bytes == row.backward_bytes &&
           other.what == row.what && other.value == row.value && other.source == row.source;
  });
  if (same != rows.end()) {
    ++same->count;
  } else {
    rows.push_back(std::move(row));
  }
}

class Describer {
 public:
  Describer(const Graph& graph, int ranks) : graph_(graph), ranks_(ranks) {
    for (const auto& [name, length] : graph.definitions) {
      parts_.emplace(name, length);
      wholes_.emplace(name, whole_length(length));
      report_.local_length = std::max(report_.local_length, graph.hint(length));
    }
    follow_gradients();
  }

  Report run(const std::vector<OutputInfo>& outputs, const std::vector<HeldMask>& masks) {
    report_.ranks = ranks_;
    for (const Node& node : graph_.nodes) {
      add_operator(node);
      if (const auto sent = sent_by(graph_, node, ranks_, gradient_)) add_exchange(node, *sent);
      if (ranks_ > 1) add_replicated(node);
    }
    if (summed_.count > 0) {
      summed_.value = std::to_string(summed_.count) + " parameters";
      summed_.count = 1;
      report_.exchanges.push_back(std::move(summed_));
    }
    if (parameters_.bytes >= kListedBytes) {
      parameters_.value = std::to_string(parameters_.count) + " tensors";
      parameters_.count = 1;
      report_.replicated.insert(report_.replicated.begin(), std::move(parameters_));
    }
    for (const HeldMask& mask : masks) add_mask(mask);
    for (size_t i = 0; i < graph_.outputs.size(); ++i) {
      if (graph_.outputs[i].is_value())
        add_output(graph_.node(graph_.outputs[i].value), outputs[i]);
    }
    return std::move(report_);
  }

 private:
  // The length that a rank's length is a part of.
  Expr whole_length(const Expr& part) const {
    const std::vector<Expr::Term> terms = part.terms();
    if (terms.size() == 1 && terms[0].coefficient == 1 && terms[0].factors.size() == 1) {
      const Expr::Atom& atom = *terms[0].factors[0].atom;
      if (atom.kind == Expr::AtomKind::kFloorDiv && atom.arguments[1] == Expr(ranks_)) {
        return atom.arguments[0];
      }
    }
    return part * Expr(ranks_);
  }

  bool is_cut(const Expr& size) const {
    const std::vector<std::string> symbols = size.symbols();
    return std::any_of(symbols.begin(), symbols.end(),
                       [this](const std::string& symbol) { return parts_.contains(symbol); });
  }

  bool is_cut(const Type& type) const {
    return std::any_of(type.shape.begin(), type.shape.end(),
                       [this](const Expr& size) { return is_cut(size); }) ||
           std::any_of(type.elements.begin(), type.elements.end(),
                       [this](const Type& element) { return is_cut(element); });
  }

  std::string text(const Type& type) const {
    std::string out;
    if (type.kind == Type::Kind::kTuple) {
      for (size_t i = 0; i < type.elements.size();) {
        const std::string element = text(type.elements[i]);
        const size_t first = i;
        while (i < type.elements.size() && text(type.elements[i]) == element) ++i;
        out += (first > 0 ? " + " : "") + (i - first > 1 ? std::to_string(i - first) + " x " : "") +
               element;
      }
      return out;
    }
    if (!type.is_tensor()) return out;
    out = std::string(dtype_name(type.dtype)) + '[';
    for (size_t i = 0; i < type.shape.size(); ++i) {
      const Expr& size = type.shape[i];
      out += i > 0 ? ", " : "";
      out += size.substitute(wholes_).to_string();
      if (is_cut(size)) out += '/' + std::to_string(ranks_);
    }
    return out + ']';
  }

  // Which values a gradient flows through when one comes back for every output.
  void follow_gradients() {
    gradient_.resize(graph_.nodes.size());
    bool enabled = true;
    for (const Node& node : graph_.nodes) {
      if (node.kind == NodeKind::kInput) {
        gradient_[node.id] = node.requires_grad;
        continue;
      }
      if (node.target == "torch._C._set_grad_enabled") enabled = node.args.at(0).integer != 0;
      const OpDef* op = find_op(node.target);
      const bool flows =
          enabled && (op == nullptr || op->differentiable) && is_floating_value(node.type);
      for_each_operand(node, [&](NodeId operand) {
        if (flows && gradient_[operand]) gradient_[node.id] = true;
      });
    }
    std::vector<bool> reached(graph_.nodes.size());
    for (const Arg& output : graph_.outputs) {
      for_each_value(output, [&](NodeId value) { reached[value] = true; });
    }
    for (NodeId id = graph_.size(); id-- > 0;) {
      gradient_[id] = gradient_[id] && reached[id];
      if (!gradient_[id]) continue;
      for_each_operand(graph_.node(id), [&](NodeId operand) { reached[operand] = true; });
    }
  }

  void add_operator(const Node& node) {
    ReportOperator row{node.name, node.target, {}, text(node.type), node.source};
    if (node.kind == NodeKind::kInput) {
      row.name = node.target;
      row.target = input_name(node.input);
    }
    for_each_operand(node, [&](NodeId operand) {
      const Node& value = graph_.node(operand);
      row.operands.push_back(value.kind == NodeKind::kInput ? value.target : value.name);
    });
    report_.operators.push_back(std::move(row));
  }

  void add_exchange(const Node& node, const Sent& sent) {
    if (sent.forward + sent.backward == 0) return;
    if (sent.forward == 0 && is_parameter(node.args[0].value)) {
      summed_.backward_bytes += sent.backward;
      ++summed_.count;
      return;
    }
    const bool exchanges = node.target == "autosp.all_to_all";
    add(report_.exchanges, {std::string(sent.collective), text(node.type), sent.forward,
                            sent.backward, 1, exchanges ? reader_source(node.id) : node.source});
  }

  bool is_parameter(NodeId value) const {
    const Node& node = graph_.node(value);
    return node.kind == NodeKind::kInput && node.input == InputKind::kParameter;
  }

  // The line that needs what an exchange brings: that of its first reader that computes.
  std::string reader_source(NodeId exchange) {
    std::vector<bool> carries(graph_.nodes.size() - static_cast<size_t>(exchange));
    carries[0] = true;
    for (NodeId id = exchange + 1; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      bool reads = false;
      for_each_operand(node, [&](NodeId operand) {
        reads |= operand >= exchange && carries[static_cast<size_t>(operand - exchange)];
      });
      if (!reads) continue;
      if (!is_view(node) && node.target != "_operator.getitem") return node.source;
      carries[static_cast<size_t>(id - exchange)] = true;
    }
    return graph_.node(exchange).source;
  }

  void add_replicated(const Node& node) {
    const int64_t bytes = graph_.bytes(node.type);
    if (is_parameter(node.id)) {
      parameters_.bytes += bytes;
      ++parameters_.count;
      return;
    }
    if (bytes < kListedBytes || is_cut(node.type)) return;
    ReportRow row{node.target, text(node.type), bytes, 0, 1, node.source};
    if (node.kind == NodeKind::kInput) {
      row.what = input_name(node.input);
      row.source = node.target;
    } else if (is_view(node) || node.target == "autosp.r_to_v" || node.target == "autosp.v_to_r") {
      return;  // no memory of its own
    } else if (node.target == "autosp.s_to_r" || node.target == "autosp.s_to_v") {
      row.what = "gathered";
    }
    add(report_.replicated, std::move(row));
  }

  // The memory behind a value: a view has none of its own.
  int64_t held_bytes(NodeId value) const {
    int64_t bytes = graph_.bytes(graph_.node(value).type);
    while (is_view(graph_.node(value)) && graph_.node(value).args[0].is_value()) {
      value = graph_.node(value).args[0].value;
      bytes = std::min(bytes, graph_.bytes(graph_.node(value).type));
    }
    return bytes;
  }

  void add_mask(const HeldMask& mask) {
    ReportMask row{mask.name, std::string(cut_text(mask.cut))};
    for (NodeId value : mask.values) {
      row.value += (row.value.empty() ? "" : " + ") + text(graph_.node(value).type);
      row.bytes += held_bytes(value);
    }
    const auto same =
        std::find_if(report_.masks.begin(), report_.masks.end(), [&](const ReportMask& other) {
          return other.name == row.name && other.cut == row.cut && other.value == row.value &&
                 other.bytes == row.bytes;
        });
    if (same != report_.masks.end()) {
      ++same->count;
    } else {
      report_.masks.push_back(std::move(row));
    }
  }

  void add_output(const Node& node, const OutputInfo& info) {
    const std::string what =
        info.sharded ? "cut along dim " + std::to_string(info.dim) : "the same on every rank";
    report_.outputs.push_back({what, text(node.type), graph_.bytes(node.type), 0, 1, node.source});
  }

  const Graph& graph_;
  const int ranks_;
  Report report_;
  std::map<std::string, Expr> parts_;   // symbol of a rank's length -> that length
  std::map<std::string, Expr> wholes_;  // and the length that it is a part of
  std::vector<bool> gradient_;
  ReportRow summed_{"all_reduce", "", 0, 0, 0, "gradients"};
  ReportRow parameters_{"parameters", "", 0, 0, 0, ""};
};

std::string percent(double share) {
  char out[16];
  std::snprintf(out, sizeof out, "%.1f %%", 100 * share);
  return out;
}

std::string section(const std::string& title, std::vector<Cells> rows, const Cells& header,
                    std::string_view sides) {
  if (rows.empty()) return title + "\n  none\n";
  if (!header.empty()) rows.insert(rows.begin(), header);
  return title + '\n' + table(rows, sides);
}

}  // namespace

Report describe(const Plan& plan, int ranks) {
  Report report = Describer(plan.graph, ranks).run(plan.outputs, plan.masks);
  report.repeated = plan.repeated;
  return report;
}

std::string Report::text() const {
  std::string out = "The program of one rank of " + std::to_string(ranks) +
                    "; 4096/2 is one of 2 equal parts of 4096\n\n";
  std::vector<Cells> cells;
  int64_t forward = 0;
  int64_t backward = 0;
  for (const ReportRow& row : exchanges) {
    forward += row.count * row.bytes;
    backward += row.count * row.backward_bytes;
    cells.push_back({std::to_string(row.count) + " x", bytes_text(row.bytes),
                     bytes_text(row.backward_bytes), row.what, row.value, shortened(row.source)});
  }
  if (!cells.empty())
    cells.push_back({"total", bytes_text(forward), bytes_text(backward), "", "", ""});
  out += section("Exchanges: bytes that one rank sends in a step", cells,
                 {"", "forward", "backward", "", "", ""}, "rrrlll");

  cells.clear();
  int64_t held = 0;
  for (const ReportRow& row : replicated) {
    held += row.count * row.bytes;
    cells.push_back({std::to_string(row.count) + " x", bytes_text(row.bytes), row.what, row.value,
                     shortened(row.source)});
  }
  if (!cells.empty()) cells.push_back({"total", bytes_text(held), "", "", ""});
  out += '\n' + section("Held whole on every rank, from 1 MiB on", cells, {}, "rrlll");

  cells.clear();
  double share = 0;
  for (const RepeatedWork& row : repeated) {
    share += row.share;
    if (row.share >= kListedShare)
      cells.push_back({percent(row.share), row.target, shortened(row.source)});
  }
  if (!cells.empty()) cells.push_back({percent(share), "total", ""});
  out += '\n' +
         section("Computed whole on every rank: share of a rank's arithmetic", cells, {}, "rll");

  cells.clear();
  for (const ReportMask& row : masks) {
    cells.push_back(
        {std::to_string(row.count) + " x", bytes_text(row.bytes), row.name, row.cut, row.value});
  }
  if (ranks > 1) out += '\n' + section("Masks: bytes that one rank holds", cells, {}, "rrlll");

  cells.clear();
  for (const ReportRow& row : outputs) {
    cells.push_back({bytes_text(row.bytes), row.what, row.value, shortened(row.source)});
  }
  return out + '\n' + section("Outputs: bytes that one rank holds", cells, {}, "rlll");
}

}  // namespace autosp
