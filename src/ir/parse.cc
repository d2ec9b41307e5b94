#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_map>

#include "ir/text.h"

namespace autosp {
namespace {

constexpr int kMaxDepth = 64;  // of nested arguments, types and subgraphs together

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

template <class Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Told apart from integers and sizes by a point, an exponent or a special name.
bool is_float_text(std::string_view text) {
  if (text == "inf" || text == "-inf" || text == "nan") return true;
  const std::string_view digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || !(is_digit(digits[0]) || digits[0] == '.')) return false;
  return digits.find_first_of(".e") != std::string_view::npos &&
         digits.find_first_not_of("0123456789.e+-") == std::string_view::npos;
}

// Words that an argument may be, which no symbol can be called.
bool is_reserved(std::string_view word) {
  constexpr std::array<std::string_view, 8> kReserved = {"None",  "True",  "False", "Ellipsis",
                                                         "slice", "graph", "inf",   "nan"};
  return std::find(kReserved.begin(), kReserved.end(), word) != kReserved.end();
}

template <class Visit>
void for_each_word(std::string_view text, Visit&& visit) {
  for (size_t i = 0; i < text.size();) {
    size_t end = i + 1;
    if (is_letter(text[i])) {
      while (end < text.size() && (is_letter(text[end]) || is_digit(text[end]))) ++end;
      visit(text.substr(i, end - i));
    }
    i = end;
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Graph whole() {
    Graph result = graph();
    skip();
    if (pos_ != text_.size()) fail("nothing may follow the graph's return");
    return result;
  }

 private:
  // The names of the graph that is being read; a subgraph sees none of its surroundings.
  using Names = std::unordered_map<std::string_view, NodeId>;

  struct Nested {
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("nested too deeply");
    }
    ~Nested() { --parser_.depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;
    Parser& parser_;
  };

  // ---- characters and tokens

  [[noreturn]] void fail(const std::string& what) const { fail_at(pos_, what); }

  [[noreturn]] void fail_at(size_t pos, const std::string& what) const {
    const std::string_view before = text_.substr(0, pos);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    const size_t start = before.rfind('\n');
    const size_t column = start == std::string_view::npos ? pos + 1 : pos - start;
    throw ParseError(line, static_cast<int64_t>(column), what);
  }

  char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }

  void skip() {
    while (pos_ < text_.size()) {
      if (is_space(text_[pos_])) {
        ++pos_;
      } else if (text_.substr(pos_, 2) == "//") {
        pos_ = std::min(text_.find('\n', pos_), text_.size());
      } else {
        return;
      }
    }
  }

  bool accept(char c) {
    skip();
    if (peek() != c) return false;
    ++pos_;
    return true;
  }

  void expect(char c) {
    if (!accept(c)) fail(std::string("expected '") + c + "'");
  }

  // [A-Za-z_][A-Za-z0-9_]*, with dots inside when `dotted`; empty when there is none.
  std::string_view peek_word(bool dotted = false) {
    skip();
    if (!is_letter(peek())) return {};
    size_t end = pos_ + 1;
    while (end < text_.size() &&
           (is_letter(text_[end]) || is_digit(text_[end]) || (dotted && text_[end] == '.'))) {
      ++end;
    }
    return text_.substr(pos_, end - pos_);
  }

  std::string_view word(const char* what, bool dotted = false) {
    const std::string_view result = peek_word(dotted);
    if (result.empty()) fail(std::string("expected ") + what);
    pos_ += result.size();
    return result;
  }

  bool accept_word(std::string_view wanted) {
    if (peek_word() != wanted) return false;
    pos_ += wanted.size();
    return true;
  }

  // The character after the word at the current position, blanks skipped.
  char after(std::string_view word) const {
    const size_t next = text_.find_first_not_of(" \t", pos_ + word.size());
    return next == std::string_view::npos ? '\0' : text_[next];
  }

  std::string string() {
    expect('"');
    std::string result;
    for (;;) {
      if (pos_ == text_.size() || peek() == '\n') fail("a string without an end");
      const char c = text_[pos_++];
      if (c == '"') return result;
      result += c == '\\' ? escape() : c;
    }
  }

  char escape() {
    const char c = peek();
    ++pos_;
    switch (c) {
      case '"':
      case '\\':
        return c;
      case 'n':
        return '\n';
      case 't':
        return '\t';
      case 'x': {
        const std::string_view digits = text_.substr(std::min(pos_, text_.size()), 2);
        if (digits.size() == 2 && hex_digit(digits[0]) >= 0 && hex_digit(digits[1]) >= 0) {
          pos_ += 2;
          return static_cast<char>(16 * hex_digit(digits[0]) + hex_digit(digits[1]));
        }
        break;
      }
      default:
        break;
    }
    fail_at(pos_ - 1, "unknown escape in a string");
  }

  int64_t integer() {
    skip();
    size_t end = pos_ + (peek() == '-' ? 1 : 0);
    while (end < text_.size() && is_digit(text_[end])) ++end;
    const auto number = whole_number<int64_t>(text_.substr(pos_, end - pos_));
    if (!number) fail("expected an integer of 64 bits");
    pos_ = end;
    return *number;
  }

  // ---- sizes

  // The text up to the comma or bracket that ends an expression, or up to what can't be in one.
  // Here "//" divides.
  std::string_view expression_text() {
    skip();
    const size_t start = pos_;
    int depth = 0;
    for (; pos_ < text_.size(); ++pos_) {
      const char c = text_[pos_];
      if (depth == 0 && (c == ',' || c == ')')) break;
      if (c == '(') ++depth;
      if (c == ')') --depth;
      if (!is_letter(c) && !is_digit(c) &&
          std::string_view(" +-*/%(),.").find(c) == std::string_view::npos) {
        break;
      }
    }
    size_t end = pos_;
    while (end > start && is_space(text_[end - 1])) --end;
    return text_.substr(start, end - start);
  }

  Expr to_expression(std::string_view text) const {
    if (const auto number = whole_number<int64_t>(text)) return Expr(*number);
    const auto pos = static_cast<size_t>(text.data() - text_.data());
    for_each_word(text, [&](std::string_view word) {
      if (is_reserved(word)) fail_at(pos, std::string(word) + " is no size");
    });
    try {
      return Expr::parse(text);
    } catch (const std::invalid_argument& error) {
      fail_at(pos, error.what());
    } catch (const std::overflow_error& error) {
      fail_at(pos, error.what());
    } catch (const std::domain_error& error) {
      fail_at(pos, error.what());
    }
  }

  Expr expression() { return to_expression(expression_text()); }

  // ---- types

  Type type() {
    const Nested nested(*this);
    if (accept('(')) {
      std::vector<Type> elements;
      while (!accept(')')) {
        if (!elements.empty()) {
          expect(',');
          if (accept(')')) break;
        }
        elements.push_back(type());
      }
      return Type::tuple(std::move(elements));
    }
    const size_t start = pos_;
    const std::string_view name = word("a type");
    if (accept('[')) {
      const DType dtype = parse_dtype(name);
      if (dtype == DType::kOther && name != dtype_name(DType::kOther))
        fail_at(start, "unknown dtype");
      return Type::tensor(dtype, shape());
    }
    if (name == "none") return {};
    if (name == "scalar") return Type::scalar();
    if (name == "other") return Type::other();
    if (name != "size") fail_at(start, "unknown type");
    expect('(');
    Expr size = expression();
    expect(')');
    return Type::of_size(std::move(size));
  }

  std::vector<Expr> shape() {
    std::vector<Expr> sizes;
    while (!accept(']')) {
      if (!sizes.empty()) {
        expect(',');
        if (accept(']')) break;
      }
      sizes.push_back(expression());
    }
    return sizes;
  }

  // ---- arguments

  Arg arg() {
    const Nested nested(*this);
    skip();
    const size_t start = pos_;
    switch (peek()) {
      case '%':
        return Arg::of(value());
      case '"':
        return Arg::string_of(string());
      case '@':
        ++pos_;
        return Arg::literal_of(name_or_string("a constant"));
      case '[':
        ++pos_;
        return Arg::list_of(items(']'));
      case '(':
        return parenthesized();
      default:
        break;
    }
    if (accept_word("None")) return Arg::none();
    if (accept_word("True")) return Arg::bool_of(true);
    if (accept_word("False")) return Arg::bool_of(false);
    if (accept_word("Ellipsis")) return Arg::ellipsis();
    if (accept_word("slice")) {
      expect('(');
      std::vector<Arg> parts = items(')');
      if (parts.size() != 3) fail_at(start, "a slice has three parts");
      return Arg::slice_of(std::move(parts[0]), std::move(parts[1]), std::move(parts[2]));
    }
    if (accept_word("graph")) {
      expect('(');
      const int64_t index = integer();
      expect(')');
      return Arg::graph_of(index);
    }
    return number();
  }

  Arg number() {
    skip();
    const size_t start = pos_;
    const std::string_view text = expression_text();
    if (text.empty()) fail("expected an argument");
    if (const auto integer = whole_number<int64_t>(text)) return Arg::integer_of(*integer);
    if (is_float_text(text)) {
      const auto real = whole_number<double>(text);
      if (!real) fail_at(start, "not a number of 64 bits");
      return Arg::float_of(*real);
    }
    return Arg::size_of(to_expression(text));
  }

  // "(a, b)", "(a,)", "()" are tuples; "(s + 1)*2" and "(s + 1)" are sizes, known after the first
  // item.
  Arg parenthesized() {
    const size_t start = pos_;
    expect('(');
    std::vector<Arg> parts;
    if (accept(')')) return Arg::tuple_of({});
    parts.push_back(arg());
    if (accept(',')) {
      std::vector<Arg> rest = items(')');
      std::move(rest.begin(), rest.end(), std::back_inserter(parts));
      return Arg::tuple_of(std::move(parts));
    }
    if (parts.front().kind != Arg::Kind::kInt && parts.front().kind != Arg::Kind::kSize) {
      fail("expected ','");
    }
    pos_ = start;
    return number();
  }

  std::vector<Arg> items(char close) {
    std::vector<Arg> result;
    while (!accept(close)) {
      if (!result.empty()) {
        expect(',');
        if (accept(close)) break;
      }
      result.push_back(arg());
    }
    return result;
  }

  std::string name_or_string(const char* what) {
    skip();
    if (peek() == '"') return string();
    return std::string(word(what, true));
  }

  NodeId value() {
    expect('%');
    const size_t start = pos_;
    const std::string_view name = word("a value's name", true);
    const auto found = names_.find(name);
    if (found == names_.end())
      fail_at(start, "no value %" + std::string(name) + " before this line");
    return found->second;
  }

  // ---- nodes and graphs

  void call(Node& node) {
    node.kind = NodeKind::kCall;
    node.target = name_or_string("a callable");
    expect('(');
    bool first = true;
    while (!accept(')')) {
      if (!first) {
        expect(',');
        if (accept(')')) break;
      }
      first = false;
      const std::string_view key = peek_word();
      if (!key.empty() && after(key) == '=') {
        pos_ += key.size();
        expect('=');
        node.kwargs.emplace_back(key, arg());
      } else {
        if (!node.kwargs.empty()) fail("a positional argument after a keyword argument");
        node.args.push_back(arg());
      }
    }
  }

  void input(Node& node) {
    node.kind = NodeKind::kInput;
    skip();
    const size_t start = pos_;
    const std::string_view kind = word("the kind of the input");
    if (kind == "user") {
      node.input = InputKind::kUser;
    } else if (kind == "parameter") {
      node.input = InputKind::kParameter;
    } else if (kind == "buffer") {
      node.input = InputKind::kBuffer;
    } else if (kind == "constant") {
      node.input = InputKind::kConstant;
    } else if (kind == "seed") {
      node.input = InputKind::kSeed;
    } else {
      fail_at(start, "unknown kind of input");
    }
    node.target = string();
    node.requires_grad = accept_word("grad");
  }

  int32_t region() {
    skip();
    const size_t start = pos_;
    const int64_t number = integer();
    if (number < 0 || number > std::numeric_limits<int32_t>::max())
      fail_at(start, "expected the number of a region");
    return static_cast<int32_t>(number);
  }

  void node(Graph& graph) {
    Node node;
    node.id = graph.size();
    const size_t start = pos_;
    const std::string_view name = word("a name", true);
    node.name = name;
    expect(':');
    node.type = type();
    expect('=');
    const std::string_view keyword = peek_word(true);
    if (keyword == "input" && after(keyword) != '(') {
      pos_ += keyword.size();
      input(node);
    } else {
      call(node);
    }
    if (accept_word("checkpoint")) node.checkpoint = region();
    if (accept_word("loc")) node.source = string();
    if (!names_.emplace(name, node.id).second) fail_at(start, "two values are named %" + node.name);
    graph.nodes.push_back(std::move(node));
  }

  std::string_view symbol_name() {
    skip();
    const size_t start = pos_;
    const std::string_view symbol = word("a symbol");
    if (is_reserved(symbol)) fail_at(start, "no symbol can have this name");
    return symbol;
  }

  void symbols(Graph& graph) {
    do {
      skip();
      const size_t start = pos_;
      const std::string_view symbol = symbol_name();
      expect('=');
      if (!graph.hints.emplace(symbol, integer()).second) {
        fail_at(start, "two hints for one symbol");
      }
    } while (accept(','));
  }

  void definition(Graph& graph) {
    const std::string_view name = symbol_name();
    expect('=');
    if (!accept_word("size")) fail("expected size(...)");
    expect('(');
    Expr length = expression();
    expect(')');
    graph.definitions.emplace_back(name, std::move(length));
  }

  void subgraph(Graph& graph) {
    std::string name = string();
    expect('{');
    Names outer;
    std::swap(outer, names_);
    auto body = std::make_shared<Graph>(this->graph());
    std::swap(outer, names_);
    expect('}');
    graph.subgraphs.emplace_back(std::move(name), std::move(body));
  }

  Graph graph() {
    const Nested nested(*this);
    Graph result;
    if (accept_word("symbols")) symbols(result);
    while (accept_word("let")) definition(result);
    while (accept_word("subgraph")) subgraph(result);
    while (accept('%')) node(result);
    if (!accept_word("return")) fail("expected a node or the return");
    expect('(');
    result.outputs = items(')');
    return result;
  }

  std::string_view text_;
  size_t pos_ = 0;
  int depth_ = 0;
  Names names_;
};

}  // namespace

Graph parse_graph(std::string_view text) { return Parser(text).whole(); }

}  // namespace autosp
