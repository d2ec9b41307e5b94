#include <charconv>
#include <cmath>

#include "ir/text.h"
#include "support/error.h"

namespace autosp {
namespace {

bool is_dotted_name(std::string_view text) {
  if (text.empty()) return false;
  bool start = true;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool digit = c >= '0' && c <= '9';
    if (start ? !letter : !(letter || digit || c == '.')) return false;
    start = c == '.';
  }
  return !start;
}

void print_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

void print_name_or_string(std::string& out, std::string_view text) {
  if (is_dotted_name(text)) {
    out += text;
  } else {
    print_string(out, text);
  }
}

// The shortest text that reads back as the same number, told apart from an integer.
void print_float(std::string& out, double number) {
  if (std::isnan(number)) {
    out += "nan";
    return;
  }
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), number);
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out += text;
  if (text.find_first_not_of("-0123456789") == std::string_view::npos) out += ".0";
}

void print_shape(std::string& out, const std::vector<Expr>& shape) {
  out += '[';
  bool first = true;
  for (const Expr& size : shape) {
    if (!first) out += ", ";
    first = false;
    out += size.to_string();
  }
  out += ']';
}

void print_type(std::string& out, const Type& type) {
  switch (type.kind) {
    case Type::Kind::kNone:
      out += "none";
      return;
    case Type::Kind::kScalar:
      out += "scalar";
      return;
    case Type::Kind::kOther:
      out += "other";
      return;
    case Type::Kind::kSize:
      out += "size(" + type.size.to_string() + ")";
      return;
    case Type::Kind::kTensor:
      out += dtype_name(type.dtype);
      print_shape(out, type.shape);
      return;
    case Type::Kind::kTuple: {
      out += '(';
      bool first = true;
      for (const Type& element : type.elements) {
        if (!first) out += ", ";
        first = false;
        print_type(out, element);
      }
      out += type.elements.size() == 1 ? ",)" : ")";
      return;
    }
  }
}

class Printer {
 public:
  Printer(const Graph& graph, std::string& out) : graph_(graph), out_(out) {}

  void graph(int depth) {
    const std::string indent(static_cast<size_t>(2 * depth), ' ');
    if (!graph_.hints.empty()) {
      out_ += indent + "symbols ";
      bool first = true;
      for (const auto& [symbol, hint] : graph_.hints) {
        if (!first) out_ += ", ";
        first = false;
        out_ += symbol;
        out_ += '=';
        out_ += std::to_string(hint);
      }
      out_ += '\n';
    }
    for (const auto& [name, length] : graph_.definitions) {
      out_ += indent;
      out_ += "let ";
      out_ += name;
      out_ += " = size(";
      out_ += length.to_string();
      out_ += ")\n";
    }
    for (const auto& [name, body] : graph_.subgraphs) {
      out_ += indent;
      out_ += "subgraph ";
      print_string(out_, name);
      out_ += " {\n";
      Printer(*body, out_).graph(depth + 1);
      out_ += indent;
      out_ += "}\n";
    }
    for (const Node& node : graph_.nodes) {
      out_ += indent;
      this->node(node);
      out_ += '\n';
    }
    out_ += indent + "return ";
    parenthesized(graph_.outputs);
    out_ += '\n';
  }

  void node(const Node& node) {
    out_ += '%';
    out_ += node.name;
    out_ += ": ";
    print_type(out_, node.type);
    out_ += " = ";
    if (node.kind == NodeKind::kInput) {
      out_ += "input ";
      out_ += input_kind_name(node.input);
      out_ += ' ';
      print_string(out_, node.target);
      if (node.requires_grad) out_ += " grad";
    } else {
      print_name_or_string(out_, node.target);
      out_ += '(';
      list(node.args);
      bool first = node.args.empty();
      for (const auto& [key, value] : node.kwargs) {
        if (!first) out_ += ", ";
        first = false;
        out_ += key;
        out_ += '=';
        arg(value);
      }
      out_ += ')';
    }
    if (node.checkpoint >= 0) out_ += " checkpoint " + std::to_string(node.checkpoint);
    if (!node.source.empty()) {
      out_ += " loc ";
      print_string(out_, node.source);
    }
  }

  void arg(const Arg& arg) {
    switch (arg.kind) {
      case Arg::Kind::kNone:
        out_ += "None";
        return;
      case Arg::Kind::kEllipsis:
        out_ += "Ellipsis";
        return;
      case Arg::Kind::kValue:
        ensure(arg.value >= 0 && arg.value < graph_.size(), "an argument names no node");
        out_ += '%';
        out_ += graph_.node(arg.value).name;
        return;
      case Arg::Kind::kInt:
        out_ += std::to_string(arg.integer);
        return;
      case Arg::Kind::kBool:
        out_ += arg.integer != 0 ? "True" : "False";
        return;
      case Arg::Kind::kFloat:
        print_float(out_, arg.number);
        return;
      case Arg::Kind::kString:
        print_string(out_, arg.text);
        return;
      case Arg::Kind::kSize:
        out_ += arg.size.to_string();
        return;
      case Arg::Kind::kSlice:
        out_ += "slice(";
        list(arg.items);
        out_ += ')';
        return;
      case Arg::Kind::kList:
        out_ += '[';
        list(arg.items);
        out_ += ']';
        return;
      case Arg::Kind::kTuple:
        parenthesized(arg.items);
        return;
      case Arg::Kind::kLiteral:
        out_ += '@';
        print_name_or_string(out_, arg.text);
        return;
      case Arg::Kind::kGraph:
        out_ += "graph(" + std::to_string(arg.integer) + ")";
        return;
    }
  }

 private:
  static std::string_view input_kind_name(InputKind kind) {
    switch (kind) {
      case InputKind::kUser:
        return "user";
      case InputKind::kParameter:
        return "parameter";
      case InputKind::kBuffer:
        return "buffer";
      case InputKind::kConstant:
        return "constant";
      case InputKind::kSeed:
        return "seed";
    }
    return {};
  }

  void list(const std::vector<Arg>& items) {
    bool first = true;
    for (const Arg& item : items) {
      if (!first) out_ += ", ";
      first = false;
      arg(item);
    }
  }

  void parenthesized(const std::vector<Arg>& items) {
    out_ += '(';
    list(items);
    out_ += items.size() == 1 ? ",)" : ")";
  }

  const Graph& graph_;
  std::string& out_;
};

}  // namespace

std::string print(const Graph& graph) {
  std::string out;
  Printer(graph, out).graph(0);
  return out;
}

std::string print(const Type& type) {
  std::string out;
  print_type(out, type);
  return out;
}

std::string print(const Graph& graph, const Arg& arg) {
  std::string out;
  Printer(graph, out).arg(arg);
  return out;
}

std::string print(const Graph& graph, const Node& node) {
  std::string out;
  Printer(graph, out).node(node);
  return out;
}

}  // namespace autosp
