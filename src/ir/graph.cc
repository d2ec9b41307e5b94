#include "ir/graph.h"

#include "support/error.h"

namespace autosp {
namespace {

Arg make(Arg::Kind kind) {
  Arg arg;
  arg.kind = kind;
  return arg;
}

Arg make(Arg::Kind kind, int64_t integer) {
  Arg arg = make(kind);
  arg.integer = integer;
  return arg;
}

Arg make(Arg::Kind kind, std::string text) {
  Arg arg = make(kind);
  arg.text = std::move(text);
  return arg;
}

Arg make(Arg::Kind kind, std::vector<Arg> items) {
  Arg arg = make(kind);
  arg.items = std::move(items);
  return arg;
}

}  // namespace

Arg Arg::of(NodeId value) {
  Arg arg = make(Kind::kValue);
  arg.value = value;
  return arg;
}

Arg Arg::integer_of(int64_t value) { return make(Kind::kInt, value); }

Arg Arg::float_of(double value) {
  Arg arg = make(Kind::kFloat);
  arg.number = value;
  return arg;
}

Arg Arg::bool_of(bool value) { return make(Kind::kBool, int64_t{value}); }

Arg Arg::string_of(std::string text) { return make(Kind::kString, std::move(text)); }

Arg Arg::size_of(Expr size) {
  if (size.is_constant()) return integer_of(size.constant_value());
  Arg arg = make(Kind::kSize);
  arg.size = std::move(size);
  return arg;
}

Arg Arg::slice_of(Arg start, Arg stop, Arg step) {
  std::vector<Arg> items;
  items.reserve(3);
  items.push_back(std::move(start));
  items.push_back(std::move(stop));
  items.push_back(std::move(step));
  return make(Kind::kSlice, std::move(items));
}

Arg Arg::list_of(std::vector<Arg> items) { return make(Kind::kList, std::move(items)); }

Arg Arg::tuple_of(std::vector<Arg> items) { return make(Kind::kTuple, std::move(items)); }

Arg Arg::sizes_of(const std::vector<Expr>& sizes) {
  std::vector<Arg> items;
  items.reserve(sizes.size());
  for (const Expr& size : sizes) items.push_back(size_of(size));
  return list_of(std::move(items));
}

Arg Arg::literal_of(std::string repr) { return make(Kind::kLiteral, std::move(repr)); }

Arg Arg::ellipsis() { return make(Kind::kEllipsis); }

Arg Arg::graph_of(int64_t index) { return make(Kind::kGraph, index); }

bool Arg::is_integral() const {
  return kind == Kind::kInt || kind == Kind::kBool || kind == Kind::kSize;
}

Expr Arg::as_expr() const {
  ensure(is_integral(), "an argument that is no integer was read as one");
  return kind == Kind::kSize ? size : Expr(integer);
}

int64_t Graph::bytes(const Type& type) const {
  if (type.kind == Type::Kind::kTensor) {
    return hint(element_count(type)) * dtype_bytes(type.dtype);
  }
  int64_t sum = 0;
  for (const Type& element : type.elements) sum += bytes(element);
  return sum;
}

std::vector<std::vector<NodeId>> users(const Graph& graph) {
  std::vector<std::vector<NodeId>> result(graph.nodes.size());
  const auto add = [&](NodeId value, NodeId user) {
    std::vector<NodeId>& list = result[static_cast<size_t>(value)];
    if (list.empty() || list.back() != user) list.push_back(user);
  };
  for (const Node& node : graph.nodes) {
    for_each_operand(node, [&](NodeId value) { add(value, node.id); });
  }
  for (const Arg& output : graph.outputs) {
    for_each_value(output, [&](NodeId value) { add(value, graph.size()); });
  }
  return result;
}

}  // namespace autosp
