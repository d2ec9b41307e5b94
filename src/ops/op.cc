#include "ops/op.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "ops/rule_line.h"
#include "support/error.h"

namespace autosp {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Parameter {
  std::string_view name;
  std::string_view fallback;  // a Python literal; empty when the argument must be given
  bool keyword_only = false;
  bool varargs = false;
};

std::vector<Parameter> parse_signature(std::string_view signature) {
  std::vector<Parameter> parameters;
  parameters.reserve(12);
  bool keyword_only = false;
  while (!signature.empty()) {
    const size_t comma = signature.find(',');
    std::string_view text = trim(signature.substr(0, comma));
    signature.remove_prefix(comma == std::string_view::npos ? signature.size() : comma + 1);
    Parameter parameter;
    parameter.keyword_only = keyword_only;
    if (text.starts_with('*')) {
      keyword_only = true;
      text.remove_prefix(1);
      if (text.empty()) continue;
      parameter.varargs = true;
    }
    const size_t equals = text.find('=');
    parameter.name = text.substr(0, equals);
    if (equals != std::string_view::npos) parameter.fallback = text.substr(equals + 1);
    parameters.push_back(parameter);
  }
  return parameters;
}

Arg parse_default(std::string_view text) {
  if (text == "None") return Arg::none();
  if (text == "True") return Arg::bool_of(true);
  if (text == "False") return Arg::bool_of(false);
  if (text.size() >= 2 && (text.front() == '"' || text.front() == '\'')) {
    return Arg::string_of(std::string(text.substr(1, text.size() - 2)));
  }
  int64_t integer = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), integer);
  if (error == std::errc() && end == text.data() + text.size()) return Arg::integer_of(integer);
  const std::string number(text);
  char* rest = nullptr;
  const double value = std::strtod(number.c_str(), &rest);
  ensure(rest == number.c_str() + number.size(),
         "an operator's signature has a default that is no literal");
  return Arg::float_of(value);
}

bool is_list(const Arg& arg) {
  return arg.kind == Arg::Kind::kList || arg.kind == Arg::Kind::kTuple;
}

// torch accepts NumPy's names beside its own, and the first operand of a function under either
// name.
std::string_view synonym(std::string_view name) {
  if (name == "axis") return "dim";
  if (name == "keepdims") return "keepdim";
  if (name == "input") return "self";
  if (name == "self") return "input";
  return {};
}

}  // namespace

std::string_view letter_kind_name(LetterKind kind) {
  switch (kind) {
    case LetterKind::kPass:
      return "pass";
    case LetterKind::kSum:
      return "sum";
    case LetterKind::kMax:
      return "max";
    case LetterKind::kWhole:
      return "whole";
    case LetterKind::kQuery:
      return "query";
    case LetterKind::kAttend:
      return "attend";
    case LetterKind::kPrefix:
      return "prefix";
    case LetterKind::kBag:
      return "bag";
    case LetterKind::kIndex:
      return "index";
    case LetterKind::kScan:
      return "scan";
    case LetterKind::kWindow:
      return "window";
    case LetterKind::kPick:
      return "pick";
    case LetterKind::kShift:
      return "shift";
  }
  throw InternalError("a letter has no kind");
}

LetterId Application::add(std::string name, Expr size, LetterKind kind) {
  letters.push_back({std::move(name), std::move(size), kind, -1});
  return static_cast<LetterId>(letters.size() - 1);
}

DimLetters Application::dim(std::string name, Expr size, LetterKind kind) {
  if (size == Expr(1)) return {};
  return {add(std::move(name), std::move(size), kind)};
}

Call::Call(const Graph& graph, const Node& node, const OpDef& op)
    : graph_(&graph), node_(&node), op_(&op) {
  const std::vector<Parameter> parameters = parse_signature(op.signature);
  bound_.reserve(parameters.size());
  std::vector<bool> used(node.kwargs.size(), false);
  size_t position = 0;
  for (const Parameter& parameter : parameters) {
    if (parameter.varargs && position < node.args.size()) {
      std::vector<Arg> rest(node.args.begin() + static_cast<std::ptrdiff_t>(position),
                            node.args.end());
      position = node.args.size();
      const bool packed = rest.size() == 1 && is_list(rest[0]);
      bound_.emplace_back(parameter.name,
                          packed ? std::move(rest[0]) : Arg::list_of(std::move(rest)));
      continue;
    }
    if (!parameter.keyword_only && position < node.args.size()) {
      bound_.emplace_back(parameter.name, node.args[position++]);
      continue;
    }
    const Arg* given = nullptr;
    for (size_t index = 0; index < node.kwargs.size(); ++index) {
      const std::string& key = node.kwargs[index].first;
      if (used[index] || (key != parameter.name && synonym(key) != parameter.name)) continue;
      used[index] = true;
      given = &node.kwargs[index].second;
      break;
    }
    if (given != nullptr) {
      bound_.emplace_back(parameter.name, *given);
    } else if (!parameter.fallback.empty()) {
      bound_.emplace_back(parameter.name, parse_default(parameter.fallback));
    }
  }
  if (position < node.args.size()) {
    throw Unsupported(where() + ": AutoSP knows " + std::to_string(position) +
                      " positional arguments of this operator (" + std::string(op.signature) +
                      "), the call has " + std::to_string(node.args.size()));
  }
  for (size_t index = 0; index < used.size(); ++index) {
    if (used[index]) continue;
    throw Unsupported(where() + ": AutoSP does not know the argument '" + node.kwargs[index].first +
                      "' of this operator (" + std::string(op.signature) + ")");
  }
}

const Arg* Call::find(std::string_view parameter) const {
  for (const auto& [name, arg] : bound_) {
    if (name == parameter) return &arg;
  }
  return nullptr;
}

bool Call::has(std::string_view parameter) const {
  const Arg* arg = find(parameter);
  return arg != nullptr && !arg->is_none();
}

int64_t Call::integer(std::string_view parameter) const {
  const Arg* arg = find(parameter);
  if (arg != nullptr && arg->is_integral()) {
    if (const auto value = arg->as_expr().as_constant()) return *value;
  }
  throw Unsupported(where() + ": the argument '" + std::string(parameter) +
                    "' must be an integer that is known when the program is compiled");
}

int64_t Call::integer_or(std::string_view parameter, int64_t fallback) const {
  return has(parameter) ? integer(parameter) : fallback;
}

bool Call::boolean_or(std::string_view parameter, bool fallback) const {
  return integer_or(parameter, fallback ? 1 : 0) != 0;
}

std::string Call::string_or(std::string_view parameter, std::string_view fallback) const {
  if (!has(parameter)) return std::string(fallback);
  const Arg* arg = find(parameter);
  if (arg->kind == Arg::Kind::kString) return arg->text;
  throw Unsupported(where() + ": the argument '" + std::string(parameter) + "' must be a string");
}

std::vector<Expr> Call::sizes(std::string_view parameter) const {
  const Arg* arg = find(parameter);
  std::vector<Expr> sizes;
  if (arg != nullptr && arg->is_integral()) return {arg->as_expr()};
  if (arg != nullptr && is_list(*arg)) {
    sizes.reserve(arg->items.size());
    for (const Arg& item : arg->items) {
      if (!item.is_integral()) break;
      sizes.push_back(item.as_expr());
    }
    if (sizes.size() == arg->items.size()) return sizes;
  }
  throw Unsupported(where() + ": the argument '" + std::string(parameter) +
                    "' must be sizes that do not depend on the values of tensors");
}

std::vector<int64_t> Call::integers(std::string_view parameter) const {
  std::vector<int64_t> integers;
  for (const Expr& size : sizes(parameter)) {
    const auto value = size.as_constant();
    if (!value) {
      throw Unsupported(where() + ": the argument '" + std::string(parameter) +
                        "' must be integers that are known when the program is compiled");
    }
    integers.push_back(*value);
  }
  return integers;
}

const Type* Call::tensor(std::string_view parameter) const {
  const NodeId id = value(parameter);
  if (id == kNoNode) return nullptr;
  const Type& type = graph_->node(id).type;
  return type.is_tensor() ? &type : nullptr;
}

NodeId Call::value(std::string_view parameter) const {
  const Arg* arg = find(parameter);
  return arg != nullptr && arg->is_value() ? arg->value : kNoNode;
}

int64_t Call::dim_or(std::string_view parameter, int64_t rank, int64_t fallback) const {
  const int64_t dim = integer_or(parameter, fallback);
  const int64_t bound = rank == 0 ? 1 : rank;  // torch lets a scalar have dimensions 0 and -1
  const int64_t index = dim < 0 ? dim + bound : dim;
  if (index >= 0 && index < bound) return index;
  throw Unsupported(where() + ": dimension " + std::to_string(dim) + " of a tensor with " +
                    std::to_string(rank) + " dimensions");
}

std::string Call::where() const {
  return node_->target + (node_->source.empty() ? "" : " at " + node_->source);
}

std::string to_string(const Application& application) {
  std::vector<std::string> names;
  for (const Letter& letter : application.letters) {
    std::string name = letter.name;
    // Two letters of one name are different axes: tell them apart.
    for (bool taken = true; taken;) {
      taken = false;
      for (const std::string& other : names) taken |= other == name;
      if (taken) name += "'";
    }
    names.push_back(std::move(name));
  }
  const auto tensor = [&](const TensorLetters& dims) {
    if (dims.empty()) return std::string("[]");
    std::string text;
    for (const DimLetters& dim : dims) {
      text += '(';
      for (size_t i = 0; i < dim.size(); ++i)
        text += (i == 0 ? "" : " ") + names[static_cast<size_t>(dim[i])];
      text += ')';
    }
    return text;
  };
  std::string text;
  for (const Operand& operand : application.operands)
    text += (text.empty() ? "" : ", ") + tensor(operand.letters);
  text += text.empty() ? "->" : " ->";
  for (size_t i = 0; i < application.results.size(); ++i)
    text += (i == 0 ? " " : ", ") + tensor(application.results[i]);
  std::string kinds;
  for (size_t i = 0; i < application.letters.size(); ++i) {
    const Letter& letter = application.letters[i];
    if (letter.kind == LetterKind::kPass) continue;
    kinds +=
        (kinds.empty() ? "  " : ", ") + std::string(letter_kind_name(letter.kind)) + ' ' + names[i];
    if (letter.link >= 0) kinds += " of " + names[static_cast<size_t>(letter.link)];
  }
  return text + kinds;
}

Application apply_rule(const Call& call) {
  Application application;
  if (call.op().apply != nullptr) {
    application = call.op().apply(call);
  } else if (!call.op().rule.empty()) {
    application = interpret_rule(call.op().rule, call);
  } else {
    return opaque_application(call.graph(), call.node());
  }
  const auto fits = [](const Type& type, const TensorLetters& letters) {
    return letters.size() == type.shape.size();
  };
  const Type& type = call.result();
  bool agree = true;
  if (type.is_tensor()) {
    agree = application.results.size() == 1 && fits(type, application.results[0]);
  } else if (type.kind == Type::Kind::kTuple) {
    agree = application.results.size() == type.elements.size();
    for (size_t i = 0; agree && i < type.elements.size(); ++i)
      agree = fits(type.elements[i], application.results[i]);
  }
  for (const Operand& operand : application.operands) {
    const Type& read = call.graph().node(operand.value).type;
    agree = agree &&
            (read.is_tensor()
                 ? fits(read, operand.letters)
                 : static_cast<size_t>(operand.element) < read.elements.size() &&
                       fits(read.elements[static_cast<size_t>(operand.element)], operand.letters));
  }
  if (!agree)
    throw InternalError("the rule of " + call.where() +
                        " does not fit its shapes: " + to_string(application));
  return application;
}

bool linear_together(const Call& call, const std::vector<bool>& marked) {
  // A number in an operand's place would be counted by every rank.
  const Arg* other = call.find("other");
  return std::all_of(marked.begin(), marked.end(), [](bool mark) { return mark; }) &&
         (other == nullptr || other->is_value() || other->is_none());
}

bool linear_in_one(const Call&, const std::vector<bool>& marked) {
  return std::count(marked.begin(), marked.end(), true) == 1 && marked.size() <= 2;
}

bool linear_in_first(const Call&, const std::vector<bool>& marked) {
  return std::count(marked.begin(), marked.end(), true) == 1 && marked[0];
}

bool makes_zeros(const Node& node) {
  const OpDef* op = node.kind == NodeKind::kCall ? find_op(node.target) : nullptr;
  return op != nullptr && op->creates && op->name.find("zeros") != std::string_view::npos;
}

bool is_linear(const Call& call, const std::vector<bool>& marked) {
  const OpDef& op = call.op();
  // Numbers that are cut to whole ones add up to something else.
  const auto adds_up = [](const Type& type) { return type.is_tensor() && is_floating(type.dtype); };
  const std::vector<Type>& elements = call.result().elements;
  if (!adds_up(call.result()) &&
      (elements.empty() || !std::all_of(elements.begin(), elements.end(), adds_up)) &&
      op.linear != linear_in_first)
    return false;
  if (op.linear != nullptr) return op.linear(call, marked);
  if (op.einsum) return linear_in_one(call, marked);
  return op.aliases && linear_together(call, marked);
}

Application opaque_application(const Graph& graph, const Node& node) {
  Application application;
  const auto fresh = [&](const Type& type, const char* stem) {
    TensorLetters letters;
    if (!type.is_tensor()) return letters;
    letters.reserve(type.shape.size());
    for (const Expr& size : type.shape) {
      letters.push_back(application.dim(stem + std::to_string(application.letters.size()), size,
                                        LetterKind::kWhole));
    }
    return letters;
  };
  for_each_operand(node, [&](NodeId value) {
    const Type& type = graph.node(value).type;
    if (type.is_tensor()) application.operands.push_back({value, 0, fresh(type, "x")});
    for (size_t i = 0; i < type.elements.size(); ++i) {
      if (!type.elements[i].is_tensor()) continue;
      application.operands.push_back({value, static_cast<int>(i), fresh(type.elements[i], "x")});
    }
  });
  if (node.type.is_tensor()) application.results.push_back(fresh(node.type, "y"));
  for (const Type& element : node.type.elements) application.results.push_back(fresh(element, "y"));
  return application;
}

}  // namespace autosp
