#include "ops/rule_line.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "support/error.h"

namespace autosp {
namespace {

constexpr std::string_view kLeading = "…";
constexpr std::string_view kState = "state";

using Pattern = std::vector<std::string_view>;  // a token a dimension, or `…`

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

Pattern tokens(std::string_view text) {
  Pattern pattern;
  for (const std::string_view token : split(text, ' ')) {
    if (!token.empty()) pattern.push_back(token);
  }
  return pattern;
}

// Takes the mark of a scan's state from the front of a tensor's letters.
bool take_state(Pattern& pattern) {
  if (pattern.empty() || pattern[0] != kState) return false;
  pattern.erase(pattern.begin());
  return true;
}

struct Line {
  std::vector<Pattern> operands;
  std::vector<Pattern> results;
  std::vector<size_t> first_states;  // operands
  std::vector<size_t> last_states;   // results, one for each of those
  std::vector<std::pair<std::string_view, LetterKind>> kinds;
};

LetterKind parse_kind(std::string_view name) {
  if (name == "gather")
    return LetterKind::kWhole;  // a table that is indexed: any row may be asked for
  for (const LetterKind kind :
       {LetterKind::kSum, LetterKind::kMax, LetterKind::kWhole, LetterKind::kAttend,
        LetterKind::kIndex, LetterKind::kScan, LetterKind::kWindow, LetterKind::kQuery}) {
    if (letter_kind_name(kind) == name) return kind;
  }
  throw InternalError("a rule line names the unknown kind " + std::string(name));
}

Line parse_line(std::string_view text) {
  const size_t arrow = text.find("->");
  ensure(arrow != std::string_view::npos, "a rule line has no arrow");
  Line line;
  const auto read = [](std::string_view side, std::vector<Pattern>& patterns,
                       std::vector<size_t>& states) {
    for (const std::string_view part : split(side, ',')) {
      patterns.push_back(tokens(part));
      if (take_state(patterns.back())) states.push_back(patterns.size() - 1);
    }
  };
  read(text.substr(0, arrow), line.operands, line.first_states);
  std::string_view rest = text.substr(arrow + 2);
  const size_t gap = rest.find("  ");
  read(rest.substr(0, gap), line.results, line.last_states);
  if (gap == std::string_view::npos) return line;
  for (const std::string_view part : split(rest.substr(gap), ',')) {
    const Pattern words = tokens(part);
    ensure(words.size() >= 2, "a kind of a rule line names no letter");
    for (size_t i = 1; i < words.size(); ++i)
      line.kinds.emplace_back(words[i], parse_kind(words[0]));
  }
  return line;
}

bool is_word(std::string_view token) {
  return !token.empty() && std::isalpha(static_cast<unsigned char>(token[0])) != 0 &&
         std::all_of(token.begin(), token.end(),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

// What is wrong with one operand's or result's letters.
std::optional<std::string> pattern_error(const Pattern& pattern) {
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string token(pattern[i]);
    if (pattern[i] == kLeading) {
      if (i > 0) return "… stands for leading dimensions, so it comes first";
    } else if (!is_word(token)) {
      return "'" + token +
             "' is no letter; a letter is a word, and letters have blanks between "
             "them";
    } else if (std::count(pattern.begin(), pattern.end(), pattern[i]) > 1) {
      return "'" + token + "' stands twice in one tensor";
    }
  }
  return std::nullopt;
}

// What is wrong with the states that operands and results are marked to be.
std::optional<std::string> states_error(
    const std::vector<Pattern>& first, const std::vector<Pattern>& last,
    const std::vector<std::pair<std::string, std::string>>& kinds) {
  if (first.empty() && last.empty()) return std::nullopt;
  if (first != last)
    return "each state that it begins with has one that it ends with, of the same letters and in "
           "the same order";
  const auto is_scanned = [](const auto& kind) { return kind.second == "scan"; };
  const auto scanned = std::find_if(kinds.begin(), kinds.end(), is_scanned);
  if (std::count_if(kinds.begin(), kinds.end(), is_scanned) != 1)
    return "a state is what a scan along one letter begins and ends with: name that letter behind "
           "two blanks, \"  scan t\"";
  for (const Pattern& state : first) {
    if (std::find(state.begin(), state.end(), scanned->first) != state.end())
      return "a state has no '" + scanned->first + "', along which it goes";
  }
  return std::nullopt;
}

// Binds the letters of one line to the shapes of one call.
class Binding {
 public:
  Binding(const Line& line, const Call& call, std::string_view text)
      : line_(line), call_(call), text_(text) {}

  Application run() {
    const std::vector<NodeId> operands = tensor_arguments(call_);
    std::vector<const Type*> results;
    if (call_.result().is_tensor()) results.push_back(&call_.result());
    for (const Type& element : call_.result().elements) results.push_back(&element);
    if (results.size() != line_.results.size()) fail();
    if (!line_.first_states.empty() && operands.size() < line_.operands.size()) {
      throw Unsupported(call_.where() + ": it is given " + std::to_string(operands.size()) +
                        " tensors, and the rule '" + std::string(text_) + "' is one of " +
                        std::to_string(line_.operands.size()) +
                        ": give it the state that it begins with, zeros for instance");
    }

    for (size_t i = 0; i < results.size(); ++i) measure(line_.results[i], results[i]->shape);
    for (size_t i = 0; i < operands.size(); ++i) measure(pattern(i), shape(operands[i]));
    Application application;
    for (size_t i = 0; i < operands.size(); ++i) {
      application.operands.push_back(
          {operands[i], 0, letters(pattern(i), shape(operands[i]), application)});
    }
    for (size_t i = 0; i < results.size(); ++i) {
      application.results.push_back(letters(line_.results[i], results[i]->shape, application));
    }
    for (size_t i = 0; i < line_.first_states.size(); ++i)
      application.states.push_back({line_.first_states[i], static_cast<int>(line_.last_states[i])});
    return application;
  }

 private:
  struct Named {
    std::string_view name;
    Expr size;
    LetterId id = -1;
  };

  [[noreturn]] void fail() const {
    throw Unsupported(call_.where() + ": its operands do not have the shapes that the rule '" +
                      std::string(text_) + "' expects");
  }

  const Pattern& pattern(size_t operand) const {
    return line_.operands[std::min(operand, line_.operands.size() - 1)];
  }
  const std::vector<Expr>& shape(NodeId value) const {
    return call_.graph().node(value).type.shape;
  }

  // Number of dimensions that `…` stands for.
  size_t leading(const Pattern& pattern, const std::vector<Expr>& shape) const {
    const bool open = !pattern.empty() && pattern[0] == kLeading;
    const size_t fixed = pattern.size() - (open ? 1 : 0);
    if (shape.size() < fixed || (!open && shape.size() != fixed)) fail();
    return shape.size() - fixed;
  }

  Named& named(std::string_view name) {
    for (Named& entry : named_) {
      if (entry.name == name) return entry;
    }
    named_.push_back({name, Expr(1), -1});
    return named_.back();
  }

  void measure(const Pattern& pattern, const std::vector<Expr>& shape) {
    const size_t count = leading(pattern, shape);
    if (leading_.size() < count)
      leading_.insert(leading_.begin(), count - leading_.size(), Named{{}, Expr(1), -1});
    for (size_t i = 0; i < shape.size(); ++i) {
      Named& entry = i < count ? leading_[leading_.size() - count + i]
                               : named(pattern[pattern.size() - shape.size() + i]);
      if (entry.size == Expr(1)) entry.size = shape[i];
    }
  }

  TensorLetters letters(const Pattern& pattern, const std::vector<Expr>& shape,
                        Application& application) {
    const size_t count = leading(pattern, shape);
    TensorLetters dims(shape.size());
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] == Expr(1)) continue;
      const size_t place = leading_.size() - count + i;
      Named& entry =
          i < count ? leading_[place] : named(pattern[pattern.size() - shape.size() + i]);
      if (entry.id < 0) {
        std::string name = i < count ? "d" + std::to_string(place) : std::string(entry.name);
        entry.id = application.add(std::move(name), entry.size, kind(entry.name));
      }
      dims[i] = {entry.id};
    }
    return dims;
  }

  LetterKind kind(std::string_view name) const {
    for (const auto& [letter, kind] : line_.kinds) {
      if (letter == name) return kind;
    }
    return LetterKind::kPass;
  }

  const Line& line_;
  const Call& call_;
  std::string_view text_;
  std::vector<Named> leading_;
  std::vector<Named> named_;
};

Application pointwise_over(const Call& call, const std::vector<NodeId>& operands) {
  Application application;
  if (!call.result().elements.empty()) return opaque_application(call.graph(), call.node());
  if (!call.result().is_tensor()) {
    application.results.resize(1);
    return application;
  }
  const TensorLetters result = fresh_letters(application, call.result(), "d");
  for (const NodeId operand : operands) {
    application.operands.push_back(
        {operand, 0, broadcast_letters(call.graph().node(operand).type.shape, result)});
  }
  application.results.push_back(result);
  return application;
}

}  // namespace

std::optional<std::string> rule_line_error(std::string_view line, int operands, int results) {
  const auto is_kind = [](std::string_view word) {
    constexpr std::array<std::string_view, 6> kKinds = {"sum",    "whole", "gather",
                                                        "attend", "query", "scan"};
    return std::find(kKinds.begin(), kKinds.end(), word) != kKinds.end();
  };
  const size_t arrow = line.find("->");
  if (arrow == std::string_view::npos || line.find("->", arrow + 2) != std::string_view::npos)
    return "it has operands, one '->' and results, for example \"… d, d -> … d  whole d\"";
  const std::string_view rest = line.substr(arrow + 2);
  const size_t gap = rest.find("  ");
  std::vector<std::pair<std::string, std::string>> kinds;  // of letters
  if (gap != std::string_view::npos) {
    for (const std::string_view part : split(rest.substr(gap), ',')) {
      const Pattern words = tokens(part);
      if (words.empty()) continue;
      const std::string kind(words[0]);
      if (!is_kind(kind))
        return "'" + kind +
               "' is no kind; the kinds are sum, whole, gather, attend, query and scan";
      if (words.size() < 2) return "the kind '" + kind + "' names no letter";
      for (size_t i = 1; i < words.size(); ++i) kinds.emplace_back(words[i], kind);
    }
  }
  std::vector<Pattern> from, to, first, last;
  const auto read = [](std::string_view side, std::vector<Pattern>& patterns,
                       std::vector<Pattern>& states) {
    for (const std::string_view part : split(side, ',')) {
      patterns.push_back(tokens(part));
      if (take_state(patterns.back())) states.push_back(patterns.back());
    }
  };
  read(line.substr(0, arrow), from, first);
  read(rest.substr(0, gap), to, last);
  for (const std::vector<Pattern>* side : {&from, &to}) {
    for (const Pattern& pattern : *side) {
      if (std::any_of(pattern.begin(), pattern.end(), is_kind))
        return "kinds stand behind the results, with two blanks in front: \"… d  whole d\"";
      if (const auto wrong = pattern_error(pattern)) return wrong;
    }
  }
  const auto has = [](const std::vector<Pattern>& side, std::string_view letter) {
    return std::any_of(side.begin(), side.end(), [letter](const Pattern& pattern) {
      return std::find(pattern.begin(), pattern.end(), letter) != pattern.end();
    });
  };
  for (const auto& [letter, kind] : kinds) {
    if (!has(from, letter) && !has(to, letter))
      return "the kind '" + kind + "' names '" + letter + "', which no tensor has";
    if (kind == "sum" && has(to, letter))
      return "'" + letter + "' is summed, so no result can have it";
  }
  if (const auto wrong = states_error(first, last, kinds)) return wrong;
  const auto is_named = [&](std::string_view letter) {
    return std::any_of(kinds.begin(), kinds.end(),
                       [letter](const auto& named) { return named.first == letter; });
  };
  for (const bool forward : {true, false}) {
    for (const Pattern& pattern : forward ? from : to) {
      for (const std::string_view letter : pattern) {
        if (has(forward ? to : from, letter) || is_named(letter) || letter == kLeading) continue;
        return "'" + std::string(letter) + "' stands on one side alone, so it is " +
               (forward ? "summed or whole" : "whole") + ": say which behind two blanks, \"  " +
               (forward ? "sum " : "whole ") + std::string(letter) + "\"";
      }
    }
  }
  if (static_cast<int>(from.size()) > operands)
    return "it has " + std::to_string(from.size()) + " operands, the operator takes " +
           std::to_string(operands) + " tensors";
  if (static_cast<int>(to.size()) != results)
    return "it has " + std::to_string(to.size()) + " results, the operator gives " +
           std::to_string(results) + " tensors";
  return std::nullopt;
}

bool rule_passes_state(std::string_view line) { return !parse_line(line).first_states.empty(); }

Application interpret_rule(std::string_view line, const Call& call) {
  const Line parsed = parse_line(line);
  return Binding(parsed, call, line).run();
}

const Type& tensor_type(const Call& call, std::string_view parameter) {
  if (const Type* type = call.tensor(parameter)) return *type;
  throw Unsupported(call.where() + ": the argument '" + std::string(parameter) +
                    "' must be a tensor");
}

std::vector<NodeId> tensor_arguments(const Call& call) {
  std::vector<NodeId> values;
  for (const auto& [name, arg] : call.bound()) {
    for_each_value(arg, [&](NodeId value) {
      if (call.graph().node(value).type.is_tensor()) values.push_back(value);
    });
  }
  return values;
}

TensorLetters fresh_letters(Application& application, const Type& type, std::string_view stem,
                            LetterKind kind) {
  TensorLetters letters;
  letters.reserve(type.shape.size());
  for (const Expr& size : type.shape) {
    letters.push_back(
        application.dim(std::string(stem) + std::to_string(letters.size()), size, kind));
  }
  return letters;
}

TensorLetters broadcast_letters(const std::vector<Expr>& shape, const TensorLetters& result) {
  ensure(shape.size() <= result.size(),
         "an operand has more dimensions than what it is broadcast to");
  TensorLetters letters(result.end() - static_cast<std::ptrdiff_t>(shape.size()), result.end());
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == Expr(1)) letters[i].clear();
  }
  return letters;
}

Application pointwise_application(const Call& call) {
  return pointwise_over(call, tensor_arguments(call));
}

Application pointwise_application(const Call& call,
                                  std::initializer_list<std::string_view> parameters) {
  std::vector<NodeId> operands;
  for (const std::string_view parameter : parameters) {
    if (call.tensor(parameter) != nullptr) operands.push_back(call.value(parameter));
  }
  return pointwise_over(call, operands);
}

Application along(const Call& call, std::string_view parameter, const std::vector<int64_t>& dims,
                  LetterKind kind) {
  const Type& type = tensor_type(call, parameter);
  Application application;
  TensorLetters letters = fresh_letters(application, type, "d");
  for (const int64_t dim : dims) {
    for (const LetterId letter : letters[static_cast<size_t>(dim)]) {
      application.letters[static_cast<size_t>(letter)].kind = kind;
    }
  }
  application.operands.push_back({call.value(parameter), 0, letters});
  application.results.assign(std::max<size_t>(call.result().elements.size(), 1), letters);
  return application;
}

std::vector<int64_t> dims_or_all(const Call& call, std::string_view parameter, int64_t rank) {
  std::vector<int64_t> dims;
  if (call.has(parameter)) dims = call.integers(parameter);
  if (dims.empty()) {
    for (int64_t dim = 0; dim < rank; ++dim) dims.push_back(dim);
    return dims;
  }
  const int64_t bound = rank == 0 ? 1 : rank;
  for (int64_t& dim : dims) {
    if (dim < -bound || dim >= bound) {
      throw Unsupported(call.where() + ": dimension " + std::to_string(dim) + " of a tensor with " +
                        std::to_string(rank) + " dimensions");
    }
    if (dim < 0) dim += bound;
  }
  std::sort(dims.begin(), dims.end());
  if (rank == 0) dims.clear();
  return dims;
}

}  // namespace autosp
