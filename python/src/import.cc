// FX graph module -> Program.
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <optional>
#include <stdexcept>
#include <unordered_map>

#include "ir/known_sizes.h"
#include "program.h"
#include "source_line.h"
#include "support/error.h"

namespace autosp::python {

namespace {

// The Python side's facts (autosp/fx.py) and the types that the walk tests for.
struct Python {
  nb::module_ fx = nb::module_::import_("autosp.fx");
  nb::module_ torch = nb::module_::import_("torch");
  nb::object target_name = fx.attr("target_name");
  nb::object input_facts = fx.attr("input_facts");
  nb::object size_facts = fx.attr("size_facts");
  nb::object literal_name = fx.attr("literal_name");
  nb::object node = torch.attr("fx").attr("Node");
  nb::object graph_module = torch.attr("fx").attr("GraphModule");
  nb::object tensor = torch.attr("Tensor");
  nb::object parameter = torch.attr("nn").attr("Parameter");
  nb::object size = torch.attr("Size");
  nb::object sym_int = torch.attr("SymInt");
  nb::object sym_float = torch.attr("SymFloat");
  nb::object sym_bool = torch.attr("SymBool");
};

bool has_type(nb::handle object, const nb::object& type) {
  return Py_TYPE(object.ptr()) == reinterpret_cast<PyTypeObject*>(type.ptr());
}
bool is_instance(nb::handle object, const nb::object& type) {
  const int result = PyObject_IsInstance(object.ptr(), type.ptr());
  if (result < 0) throw nb::python_error();
  return result == 1;
}

// "L['self']._modules['layers']._modules['0'].weight" as the user would write it:
// "self.layers.0.weight". Keyword and positional arguments that a frame gathered get their own
// names.
std::string visible_name(const std::string& source, bool from_varargs, bool from_varkw,
                         const std::vector<std::string>& parameters) {
  const auto unquote = [](std::string_view text) {
    return text.size() >= 2 && text.front() == '\'' ? text.substr(1, text.size() - 2) : text;
  };
  std::string result;
  size_t at = 0;
  int subscripts = 0;
  while (at < source.size()) {
    const size_t open = source.find('[', at);
    const size_t close = open == std::string::npos ? open : source.find(']', open);
    if (close == std::string::npos) break;
    std::string_view before = std::string_view(source).substr(at, open - at);
    const std::string_view key = std::string_view(source).substr(open + 1, close - open - 1);
    ++subscripts;
    if (subscripts == 1 && (before == "L" || before == "G")) {
      result = unquote(key);
    } else if (subscripts == 2 && before.empty() && from_varkw) {
      result = unquote(key);
    } else if (subscripts == 2 && before.empty() && from_varargs) {
      const size_t index = std::strtoul(std::string(key).c_str(), nullptr, 10);
      result =
          index < parameters.size() ? parameters[index] : result + "[" + std::string(key) + "]";
    } else {
      bool member = false;
      for (std::string_view table : {"._modules", "._parameters", "._buffers"}) {
        if (!before.ends_with(table)) continue;
        before.remove_suffix(table.size());
        member = true;
      }
      result += before;
      result += member ? "." : "[";
      result += member ? unquote(key) : key;
      if (!member) result += "]";
    }
    at = close + 1;
  }
  return result + source.substr(at);
}

class Importer {
 public:
  Importer(nb::object module, const ImportOptions& options, std::shared_ptr<Captured> captured)
      : options_(options), program_(std::make_shared<Program>()), captured_(*captured) {
    program_->module = std::move(module);
    program_->captured = std::move(captured);
  }

  std::shared_ptr<Program> run() {
    const nb::list nodes(nb::object(program_->module.attr("graph").attr("nodes")));
    for (nb::handle node : nodes) read(nb::borrow(node));
    for (const KnownSizes::Quotient& quotient : known_.quotients) {
      const auto source = program_->symbols.find(quotient.of);
      if (source == program_->symbols.end()) continue;
      SymbolSource divided = source->second;
      divided.divisor = quotient.divisor;
      program_->symbols.emplace(quotient.symbol, std::move(divided));
    }
    return program_;
  }

 private:
  void read(const nb::object& fx) {
    const size_t index = program_->fx_nodes.size();
    program_->fx_nodes.push_back(fx);
    origins_.push_back(static_cast<int32_t>(captured_.nodes.size()));
    captured_.nodes.push_back(fx);
    captured_.targets.emplace_back();
    index_[fx.ptr()] = index;
    values_.emplace_back();
    here_ = fx;
    const std::string op = nb::cast<std::string>(fx.attr("op"));
    const nb::object meta = fx.attr("meta");
    const nb::handle example = PyDict_GetItemString(meta.ptr(), "example_value");
    if (op == "placeholder") {
      read_placeholder(index, fx, example);
    } else if (op == "get_attr") {
      read_attribute(index, fx);
    } else if (op == "output") {
      read_output(nb::object(fx.attr("args"))[0]);
    } else if (op == "call_function" || op == "call_method") {
      read_call(index, fx, meta, example, op == "call_method");
    } else {
      throw Unsupported("the captured graph calls a submodule (" + op + " " +
                        nb::cast<std::string>(nb::str(fx.attr("target"))) +
                        "); capture it with Dynamo's default settings, which open modules");
    }
  }

  void read_placeholder(size_t index, const nb::object& fx, nb::handle example) {
    const auto position = static_cast<int32_t>(index);
    const nb::tuple facts = nb::cast<nb::tuple>(python_.input_facts(fx));
    if (example.ptr() != nullptr && has_type(example, python_.sym_int)) {
      values_[index] = Arg::size_of(read_size(example));
      bind_symbol(SymbolSource{fx, -1, nb::borrow(example)});
      program_->sizes.emplace_back(values_[index]->size, fx);
      if (nb::len(facts) > 0) program_->user_inputs.emplace_back(position, input_name(facts));
      return;
    }
    Node node;
    node.kind = NodeKind::kInput;
    node.target = nb::cast<std::string>(nb::str(fx.attr("target")));
    if (nb::len(facts) > 0) {
      const bool is_parameter = nb::cast<bool>(facts[1]);
      const bool in_module = nb::cast<bool>(facts[2]);
      const bool is_number = nb::cast<bool>(facts[3]);
      node.target = input_name(facts);
      node.input = is_parameter ? InputKind::kParameter
                   : is_number  ? InputKind::kConstant
                   : in_module  ? InputKind::kBuffer
                                : InputKind::kUser;
      if (node.input == InputKind::kUser) program_->user_inputs.emplace_back(position, node.target);
    }
    read_input(index, std::move(node), fx, example);
    if (example.ptr() == nullptr || !program_->graph.nodes.back().type.is_tensor()) return;
    const std::vector<Expr>& shape = program_->graph.nodes.back().type.shape;
    const nb::object sizes = example.attr("shape");
    for (size_t dim = 0; dim < shape.size(); ++dim) {
      const nb::object size = sizes[dim];
      if (has_type(size, python_.sym_int)) {
        bind_symbol(SymbolSource{fx, static_cast<int>(dim), size});
      }
    }
  }

  std::string input_name(const nb::tuple& facts) const {
    return visible_name(nb::cast<std::string>(facts[0]), nb::cast<bool>(facts[4]),
                        nb::cast<bool>(facts[5]), options_.parameters);
  }

  void read_attribute(size_t index, const nb::object& fx) {
    const std::string path = nb::cast<std::string>(nb::str(fx.attr("target")));
    nb::object object = program_->module;
    for (size_t start = 0; start <= path.size();) {
      const size_t end = std::min(path.find('.', start), path.size());
      object = object.attr(path.substr(start, end - start).c_str());
      start = end + 1;
    }
    if (is_instance(object, python_.graph_module)) {
      std::shared_ptr<Program> body = Importer(object, options_, program_->captured).run();
      values_[index] = Arg::graph_of(static_cast<int64_t>(program_->graph.subgraphs.size()));
      program_->graph.subgraphs.emplace_back(path, std::make_shared<Graph>(body->graph));
      program_->bodies[path] = std::move(body);
    } else if (is_instance(object, python_.tensor)) {
      Node node;
      node.kind = NodeKind::kInput;
      node.target = path;
      node.input =
          is_instance(object, python_.parameter) ? InputKind::kParameter : InputKind::kConstant;
      read_input(index, std::move(node), fx, object);
    } else {
      values_[index] = literal(object);
    }
  }

  void read_input(size_t index, Node node, const nb::object& fx, nb::handle example) {
    node.type = example.ptr() == nullptr ? Type::other() : read_type(example);
    node.requires_grad = node.type.is_tensor() && nb::cast<bool>(example.attr("requires_grad"));
    append(index, std::move(node), fx);
  }

  void read_call(size_t index, const nb::object& fx, const nb::object& meta, nb::handle example,
                 bool method) {
    const nb::object target = fx.attr("target");
    std::string name;
    if (method) {
      name = "Tensor." + nb::cast<std::string>(target);
    } else if (const auto known = target_names_.find(target.ptr()); known != target_names_.end()) {
      name = known->second;
    } else {
      name = nb::cast<std::string>(python_.target_name(target));
      target_names_[target.ptr()] = name;
    }
    captured_.targets[static_cast<size_t>(origins_[index])] = name;
    if (example.ptr() != nullptr) {
      if (has_type(example, python_.sym_int) && !depends_on_data(example)) {
        values_[index] = Arg::size_of(read_size(example));
        return;
      }
      if (has_type(example, python_.size)) {
        values_[index] = Arg::tuple_of(read_args(example));
        return;
      }
      // A number that Dynamo traced as symbolic and has since fixed with a guard.
      if (has_type(example, python_.sym_float)) {
        const nb::object expr = example.attr("node").attr("expr");
        if (nb::cast<bool>(expr.attr("is_number"))) {
          values_[index] = Arg::float_of(PyFloat_AsDouble(nb::float_(expr).ptr()));
          return;
        }
      }
    }
    Node node;
    node.target = std::move(name);
    node.type = example.ptr() == nullptr ? Type() : read_type(example);
    const nb::handle trace = PyDict_GetItemString(meta.ptr(), "stack_trace");
    if (trace.ptr() != nullptr && PyUnicode_Check(trace.ptr())) node.source = read_source(trace);
    source_ = node.source;
    for (nb::handle arg : nb::object(fx.attr("args"))) node.args.push_back(read_arg(arg));
    const nb::dict kwargs = nb::cast<nb::dict>(fx.attr("kwargs"));
    for (auto [key, value] : kwargs) {
      node.kwargs.emplace_back(nb::cast<std::string>(key), read_arg(value));
    }
    read_policy(node);
    append(index, std::move(node), fx);
  }

  // What a checkpointed region keeps operator by operator is said beside its body.
  void read_policy(Node& node) {
    if (node.args.empty() || node.args[0].kind != Arg::Kind::kGraph) return;
    const Program& body =
        *program_->bodies.at(program_->graph.subgraphs[node.args[0].integer].first);
    const nb::object policy = body.module.attr("meta").attr("get")("_checkpoint_context_fn");
    if (!policy.is_none()) node.kwargs.emplace_back("context_fn", literal(policy));
  }

  void read_output(const nb::object& result) {
    program_->returns_tuple = PyTuple_Check(result.ptr()) || PyList_Check(result.ptr());
    if (!program_->returns_tuple) {
      program_->graph.outputs.push_back(read_arg(result));
      return;
    }
    for (nb::handle value : result) program_->graph.outputs.push_back(read_arg(value));
  }

  void append(size_t index, Node node, const nb::object& fx) {
    node.id = program_->graph.size();
    node.name = nb::cast<std::string>(fx.attr("name"));
    node.origin = origins_[index];
    values_[index] = Arg::of(node.id);
    program_->graph.nodes.push_back(std::move(node));
  }

  Arg read_arg(nb::handle value) {
    PyObject* object = value.ptr();
    if (value.is_none()) return Arg::none();
    if (has_type(value, python_.node)) {
      const auto found = index_.find(object);
      ensure(found != index_.end(), "an FX node is used before it is defined");
      return *values_[found->second];
    }
    if (PyBool_Check(object)) return Arg::bool_of(object == Py_True);
    if (PyLong_Check(object)) return Arg::integer_of(nb::cast<int64_t>(value));
    if (PyFloat_Check(object)) return Arg::float_of(PyFloat_AsDouble(object));
    if (PyUnicode_Check(object)) return Arg::string_of(nb::cast<std::string>(value));
    if (has_type(value, python_.sym_int)) return Arg::size_of(read_size(value));
    if (PyTuple_Check(object)) return Arg::tuple_of(read_args(value));
    if (PyList_Check(object)) return Arg::list_of(read_args(value));
    if (PySlice_Check(object)) {
      return Arg::slice_of(read_arg(value.attr("start")), read_arg(value.attr("stop")),
                           read_arg(value.attr("step")));
    }
    if (object == Py_Ellipsis) return Arg::ellipsis();
    if (PyDict_Check(object)) {
      for (auto [key, item] : nb::borrow<nb::dict>(value)) {
        if (has_type(item, python_.node))
          throw Unsupported(where() +
                            "an operator takes a dictionary of values, which is not supported");
      }
    }
    return literal(value);
  }

  std::vector<Arg> read_args(nb::handle sequence) {
    std::vector<Arg> result;
    for (nb::handle item : sequence) result.push_back(read_arg(item));
    return result;
  }

  // Equal text means an equal object: a second object with the same text gets a number.
  Arg literal(nb::handle object) {
    const std::string name = nb::cast<std::string>(python_.literal_name(object));
    std::string text = name;
    for (int copy = 2;; ++copy) {
      const auto [entry, is_new] = captured_.literals.try_emplace(text, nb::borrow(object));
      if (is_new || entry->second.is(object) || entry->second.equal(object))
        return Arg::literal_of(text);
      text = name + " #" + std::to_string(copy);
    }
  }

  Type read_type(nb::handle value) {
    PyObject* object = value.ptr();
    if (value.is_none()) return Type();
    if (is_instance(value, python_.tensor)) {
      std::vector<Expr> shape;
      for (nb::handle size : nb::object(value.attr("shape"))) shape.push_back(read_size(size));
      return Type::tensor(read_dtype(value.attr("dtype")), std::move(shape));
    }
    if (PyTuple_Check(object) || PyList_Check(object)) {
      std::vector<Type> elements;
      for (nb::handle element : value) elements.push_back(read_type(element));
      return Type::tuple(std::move(elements));
    }
    if (has_type(value, python_.sym_int) && !depends_on_data(value))
      return Type::of_size(read_size(value));
    if (has_type(value, python_.sym_int) || has_type(value, python_.sym_float) ||
        has_type(value, python_.sym_bool))
      return Type::scalar();
    return Type::other();
  }

  DType read_dtype(const nb::object& dtype) {
    const auto found = dtypes_.find(dtype.ptr());
    if (found != dtypes_.end()) return found->second;
    return dtypes_[dtype.ptr()] = parse_dtype(nb::cast<std::string>(nb::str(dtype)));
  }

  // A number out of a tensor: it may be computed with and checked, but be no size.
  bool depends_on_data(nb::handle size) const {
    const nb::tuple facts = nb::cast<nb::tuple>(python_.size_facts(size));
    for (auto [symbol, hint] : nb::cast<nb::dict>(facts[1])) {
      if (hint.is_none()) return true;
    }
    return false;
  }

  // An int or a SymInt. Sympy objects are read once each: their text is slow to make.
  Expr read_size(nb::handle size) {
    if (PyLong_Check(size.ptr())) return Expr(nb::cast<int64_t>(size));
    const nb::object expr = size.attr("node").attr("expr");
    if (const auto found = sizes_.find(expr.ptr()); found != sizes_.end())
      return found->second.second;
    const nb::tuple facts = nb::cast<nb::tuple>(python_.size_facts(size));
    const std::string text = nb::cast<std::string>(facts[0]);
    if (!guards_read_) {
      guards_read_ = true;
      read_guards(size.attr("node").attr("shape_env"));
    }
    for (auto [symbol, hint] : nb::cast<nb::dict>(facts[1])) {
      if (hint.is_none()) {
        throw Unsupported(where() + "the size " + text +
                          " depends on data, so no rank can know its part of it before the program "
                          "runs. Keep all rows and give those that are not wanted a weight of zero "
                          "(torch.where), or pick them outside of the compiled function.");
      }
      program_->graph.hints[nb::cast<std::string>(symbol)] = nb::cast<int64_t>(hint);
    }
    for (const KnownSizes::Quotient& quotient : known_.quotients) {
      const auto whole = program_->graph.hints.find(quotient.of);
      if (whole != program_->graph.hints.end())
        program_->graph.hints[quotient.symbol] = whole->second / quotient.divisor;
    }
    try {
      const Expr read = Expr::parse(text).substitute(known_.replacements);
      return sizes_.emplace(expr.ptr(), std::pair(expr, read)).first->second.second;
    } catch (const std::invalid_argument& error) {
      throw Unsupported(where() +
                        "a size is computed in a way that is not supported: " + error.what());
    }
  }

  void bind_symbol(SymbolSource source) {
    const nb::tuple facts = nb::cast<nb::tuple>(python_.size_facts(source.value));
    const Expr size = Expr::parse(nb::cast<std::string>(facts[0]));
    const std::vector<std::string> names = size.symbols();
    if (names.size() != 1 || size != Expr::symbol(names[0])) return;
    const auto [entry, is_new] = program_->symbols.try_emplace(names[0], source);
    if (!is_new && entry->second.dim >= 0 && source.dim < 0) entry->second = std::move(source);
  }

  // What the guards say of sizes: those of the first symbolic size's environment, which all share.
  void read_guards(nb::handle environment) {
    std::vector<SizeGuard> guards;
    for (nb::handle guard : nb::object(environment.attr("guards"))) {
      // As sizes are written: without the symbols that others have replaced.
      const nb::object condition = environment.attr("replace")(guard.attr("expr"));
      const auto kind = nb::cast<std::string>(condition.attr("__class__").attr("__name__"));
      if (kind != "Equality" && kind != "LessThan") continue;
      const nb::tuple sides = nb::cast<nb::tuple>(condition.attr("args"));
      const auto side = [&](size_t index) {
        return Expr::parse(nb::cast<std::string>(nb::str(nb::object(sides[index]))));
      };
      try {
        guards.push_back({side(0), side(1), kind == "Equality"});
      } catch (const std::invalid_argument&) {
        continue;  // of numbers that are no sizes
      }
    }
    known_ = known_sizes(guards);
  }

  const std::string& read_source(nb::handle trace) {
    const auto found = sources_.find(trace.ptr());
    if (found != sources_.end()) return found->second;
    return sources_[trace.ptr()] =
               source_line(nb::cast<std::string_view>(trace), options_.packages);
  }

  std::string where() const {
    const std::string name = nb::cast<std::string>(here_.attr("name"));
    return (source_.empty() ? "at value " + name : "at " + source_) + ": ";
  }

  const ImportOptions& options_;
  Python python_;
  std::shared_ptr<Program> program_;
  Captured& captured_;
  std::vector<int32_t> origins_;                 // Node::origin of each FX node
  std::vector<std::optional<Arg>> values_;       // what a use of each FX node reads as
  std::unordered_map<PyObject*, size_t> index_;  // FX node -> its position
  std::unordered_map<PyObject*, std::string> target_names_;
  std::unordered_map<PyObject*, DType> dtypes_;
  std::unordered_map<PyObject*, std::pair<nb::object, Expr>> sizes_;
  KnownSizes known_;
  bool guards_read_ = false;
  std::unordered_map<PyObject*, std::string> sources_;
  nb::object here_;     // the FX node being read, for messages
  std::string source_;  // its source line
};

}  // namespace

std::shared_ptr<Program> import_module(nb::object graph_module, const ImportOptions& options) {
  return Importer(std::move(graph_module), options, std::make_shared<Captured>()).run();
}

}  // namespace autosp::python
