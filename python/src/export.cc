// Program + per-rank graph -> the FX graph module, rewritten in place.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "program.h"
#include "support/error.h"

namespace autosp::python {

namespace {

// Where Dynamo found an input; compilers ask every placeholder of a captured module.
constexpr const char* kDynamoSource = "_dynamo_source";

// Writes an expression with `leaf(symbol)` for its symbols and `apply(function, a, b)` for its
// operations.
template <class Leaf, class Apply>
class SizeWriter {
 public:
  SizeWriter(Leaf leaf, Apply apply) : leaf_(std::move(leaf)), apply_(std::move(apply)) {}

  nb::object write(const Expr& size) {
    if (size.is_constant()) return nb::int_(size.constant_value());
    if (const auto known = written_.find(size); known != written_.end()) return known->second;
    for (const auto& [given, value] : given_) {
      const Expr more = size - given;
      if (more.is_constant()) {
        const nb::object sum = apply_("_operator.add", value, nb::int_(more.constant_value()));
        return written_.emplace(size, sum).first->second;
      }
    }
    nb::object sum;
    for (const Expr::Term& term : size.terms()) {
      nb::object product;
      if (term.coefficient != 1 || term.factors.empty()) product = nb::int_(term.coefficient);
      for (const Expr::Factor& factor : term.factors) {
        const nb::object atom = write_atom(*factor.atom);
        for (int i = 0; i < factor.power; ++i) {
          product = product.is_valid() ? apply_("_operator.mul", product, atom) : atom;
        }
      }
      sum = sum.is_valid() ? apply_("_operator.add", sum, product) : product;
    }
    return written_.emplace(size, sum).first->second;
  }

  // What is there already, for others to be computed from.
  void give(const Expr& size, const nb::object& value) {
    written_.emplace(size, value);
    given_.emplace_back(size, value);
  }

 private:
  nb::object write_atom(const Expr::Atom& atom) {
    using Kind = Expr::AtomKind;
    if (atom.kind == Kind::kSymbol) return leaf_(atom.name);
    const char* function = atom.kind == Kind::kFloorDiv ? "_operator.floordiv"
                           : atom.kind == Kind::kMod    ? "_operator.mod"
                           : atom.kind == Kind::kMin    ? "torch.sym_min"
                                                        : "torch.sym_max";
    nb::object result = write(atom.arguments[0]);
    for (size_t i = 1; i < atom.arguments.size(); ++i) {
      result = apply_(function, result, write(atom.arguments[i]));
    }
    return result;
  }

  Leaf leaf_;
  Apply apply_;
  std::map<Expr, nb::object> written_;
  std::vector<std::pair<Expr, nb::object>> given_;
};

const SymbolSource& source_of(const Program& program, const std::string& symbol) {
  const auto found = program.symbols.find(symbol);
  if (found == program.symbols.end()) {
    throw Unsupported("the size " + symbol + " is not the size of any input of the program");
  }
  return found->second;
}

class Exporter {
 public:
  Exporter(Program& program, const Graph& local, int64_t rank, const std::string& group,
           bool is_body = false)
      : program_(program),
        local_(local),
        group_(group),
        is_body_(is_body),
        fx_graph_(program.module.attr("graph")),
        resolve_(nb::module_::import_("autosp.fx").attr("resolve")),
        output_(program.fx_nodes.back()),
        sizes_([this](const std::string& symbol) { return symbol_node(symbol); },
               [this](const char* function, const nb::object& a, const nb::object& b) {
                 return create("call_function", resolve_(function), nb::make_tuple(a, b),
                               nb::dict(), nb::none());
               }) {
    known_[std::string(kRankSymbol)] = Expr(rank);
    for (const auto& [name, length] : local.definitions) known_[name] = length.substitute(known_);
    for (const auto& [size, placeholder] : program.sizes) sizes_.give(size, placeholder);
  }

  void run() {
    // The context manager keeps the insertion point until it is left.
    const nb::object insertion = fx_graph_.attr("inserting_before")(output_);
    for (const Node& node : local_.nodes) nodes_.push_back(write(node));
    nb::object results = write_items(local_.outputs, true);
    if (!program_.returns_tuple) results = results[0];
    output_.attr("args") = nb::make_tuple(results);
    insertion.attr("__exit__")(nb::none(), nb::none(), nb::none());
    erase_the_rest();
    program_.module.attr("recompile")();
  }

 private:
  nb::object write(const Node& node) {
    if (node.kind == NodeKind::kInput) {
      if (node.input == InputKind::kSeed) return seed(node);
      if (node.origin >= 0) return kept(captured(node.origin));
      ensure(is_body_, "an input of the rewritten program is not one of the captured program");
      return new_input(node);
    }
    source_ = node.source;
    const nb::object args = write_items(node.args, true);
    nb::dict kwargs;
    for (const auto& [key, value] : node.kwargs) kwargs[key.c_str()] = write(value);
    nb::object fx;
    if (node.origin >= 0 &&
        program_.captured->targets[static_cast<size_t>(node.origin)] == node.target) {
      const nb::object from = captured(node.origin);
      if (from.attr("graph").is(fx_graph_) && moved_.insert(from.ptr()).second) {
        fx = kept(from);
        fx.attr("args") = args;
        fx.attr("kwargs") = kwargs;
        output_.attr("prepend")(fx);
      } else {
        fx = create(from.attr("op"), from.attr("target"), args, kwargs, nb::cast(node.name));
        fx.attr("meta").attr("update")(from.attr("meta"));
      }
    } else if (node.target.starts_with("Tensor.")) {
      fx = create(nb::cast("call_method"), nb::cast(node.target.substr(7)), args, kwargs,
                  nb::cast(node.name));
    } else {
      fx = create(nb::cast("call_function"), resolve_(node.target), args, kwargs,
                  nb::cast(node.name));
    }
    // The types recorded at capture are the whole program's. Compilers ask only whether there is
    // one.
    const nb::dict meta = nb::cast<nb::dict>(fx.attr("meta"));
    if (node.type.is_tensor()) {
      meta["example_value"] = nb::none();
    } else if (meta.contains("example_value")) {
      nb::del(meta["example_value"]);
    }
    if (node.checkpoint >= 0) {
      meta["recompute"] = recompute_;
      meta["ac_graph_id"] = node.checkpoint;
    }
    return fx;
  }

  // One more argument of the module, behind the others.
  nb::object new_input(const Node& node) {
    const auto first_call = std::find_if(
        program_.fx_nodes.begin(), program_.fx_nodes.end(),
        [](const nb::object& fx) { return nb::cast<std::string>(fx.attr("op")) != "placeholder"; });
    const nb::object insertion = fx_graph_.attr("inserting_before")(*first_call);
    const nb::object fx =
        create("placeholder", nb::cast(node.target), nb::tuple(), nb::dict(), nb::cast(node.name));
    insertion.attr("__exit__")(nb::none(), nb::none(), nb::none());
    return fx;
  }

  nb::object seed(const Node& node) {
    const nb::object fx = new_input(node);
    fx.attr(kDynamoSource) = nb::none();
    fx.attr("meta")["example_value"] = nb::module_::import_("autosp.fx").attr("seed_tensor")(0);
    return fx;
  }

  nb::object create(nb::object op, nb::object target, nb::object args, nb::object kwargs,
                    nb::object name) {
    nb::object fx = fx_graph_.attr("create_node")(op, target, args, kwargs, name);
    keep_.insert(fx.ptr());
    return fx;
  }
  nb::object create(const char* op, nb::object target, nb::object args, nb::object kwargs,
                    nb::object name) {
    return create(nb::cast(op), std::move(target), std::move(args), std::move(kwargs),
                  std::move(name));
  }

  const nb::object& captured(int32_t origin) const {
    return program_.captured->nodes[static_cast<size_t>(origin)];
  }

  nb::object kept(nb::object fx) {
    keep_.insert(fx.ptr());
    return fx;
  }

  nb::object symbol_node(const std::string& symbol) {
    if (is_body_ && !program_.symbols.contains(symbol)) {
      throw Unsupported((source_.empty() ? "" : source_ + ": ") +
                        "a function that an operator calls computes a size from others in a way "
                        "that is not supported: compute it outside of the function");
    }
    const SymbolSource& source = source_of(program_, symbol);
    nb::object size = source.node;
    if (source.dim >= 0) {
      // A body's tensors have a rank's lengths.
      if (is_body_ && !local_.definitions.empty())
        throw Unsupported("the size " + symbol + " is not handed to the body of a function");
      size = create("call_function", resolve_("torch.ops.aten.sym_size.int"),
                    nb::make_tuple(source.node, source.dim), nb::dict(), nb::none());
    }
    if (source.divisor == 1) return size;
    return create("call_function", resolve_("_operator.floordiv"),
                  nb::make_tuple(size, source.divisor), nb::dict(), nb::none());
  }

  nb::object write(const Arg& arg) {
    switch (arg.kind) {
      case Arg::Kind::kNone:
        return nb::none();
      case Arg::Kind::kValue:
        return nodes_[static_cast<size_t>(arg.value)];
      case Arg::Kind::kInt:
        return nb::int_(arg.integer);
      case Arg::Kind::kFloat:
        return nb::float_(arg.number);
      case Arg::Kind::kBool:
        return nb::bool_(arg.integer != 0);
      case Arg::Kind::kString:
        return nb::cast(arg.text);
      case Arg::Kind::kSize:
        return sizes_.write(arg.size.substitute(known_));
      case Arg::Kind::kList:
        return write_items(arg.items, false);
      case Arg::Kind::kTuple:
        return write_items(arg.items, true);
      case Arg::Kind::kEllipsis:
        return nb::borrow(Py_Ellipsis);
      case Arg::Kind::kLiteral:
        return literal(arg.text);
      case Arg::Kind::kGraph:
        return body(static_cast<size_t>(arg.integer));
      case Arg::Kind::kSlice: {
        PyObject* slice = PySlice_New(write(arg.items[0]).ptr(), write(arg.items[1]).ptr(),
                                      write(arg.items[2]).ptr());
        if (slice == nullptr) throw nb::python_error();
        return nb::steal(slice);
      }
    }
    throw InternalError("an argument of unknown kind");
  }

  nb::object write_items(const std::vector<Arg>& items, bool as_tuple) {
    const auto size = static_cast<Py_ssize_t>(items.size());
    nb::object result = nb::steal(as_tuple ? PyTuple_New(size) : PyList_New(size));
    for (Py_ssize_t i = 0; i < size; ++i) {
      PyObject* item = write(items[static_cast<size_t>(i)]).release().ptr();
      if (as_tuple) {
        PyTuple_SET_ITEM(result.ptr(), i, item);
      } else {
        PyList_SET_ITEM(result.ptr(), i, item);
      }
    }
    return result;
  }

  nb::object literal(const std::string& text) {
    const auto& literals = program_.captured->literals;
    if (const auto known = literals.find(text); known != literals.end()) return known->second;
    if (text == kGroupLiteral) return nb::cast(group_);
    return resolve_(text);
  }

  // The get_attr node of a nested graph, which is written when it is first used.
  nb::object body(size_t index) {
    nb::object& fx = bodies_[index];
    if (fx.is_valid()) return fx;
    const auto& [path, graph] = local_.subgraphs[index];
    const int64_t rank = known_.at(std::string(kRankSymbol)).constant_value();
    Exporter(find_body(program_, path), *graph, rank, group_, true).run();
    fx = create("get_attr", nb::cast(path), nb::tuple(), nb::dict(), nb::none());
    return fx;
  }

  // By its path: a body of a body is the outer one's.
  static Program& find_body(Program& program, const std::string& path) {
    if (const auto found = program.bodies.find(path); found != program.bodies.end())
      return *found->second;
    for (const auto& [outer, body] : program.bodies) {
      if (path.starts_with(outer + ".")) return find_body(*body, path.substr(outer.size() + 1));
    }
    throw InternalError("a nested graph is not part of the captured program");
  }

  // Kept nodes read only kept nodes and stand behind all others, so backwards nothing erased is
  // still used.
  void erase_the_rest() {
    for (auto fx = program_.fx_nodes.rbegin() + 1; fx != program_.fx_nodes.rend(); ++fx) {
      if (keep_.contains(fx->ptr()) || nb::cast<std::string>(fx->attr("op")) == "placeholder")
        continue;
      fx_graph_.attr("erase_node")(*fx);
    }
  }

  Program& program_;
  const Graph& local_;
  const std::string& group_;
  bool is_body_;
  std::string source_;  // of the node that is being written
  nb::object fx_graph_;
  nb::object resolve_;
  nb::object output_;
  std::map<std::string, Expr> known_;  // the rank and the local lengths, written out
  std::vector<nb::object> nodes_;      // by id in `local_`
  nb::object recompute_ = nb::module_::import_("torch.utils.checkpoint")
                              .attr("CheckpointPolicy")
                              .attr("PREFER_RECOMPUTE");
  std::map<size_t, nb::object> bodies_;
  std::set<PyObject*> keep_;
  std::set<PyObject*> moved_;
  SizeWriter<std::function<nb::object(const std::string&)>,
             std::function<nb::object(const char*, const nb::object&, const nb::object&)>>
      sizes_;
};

// A module of the program's own in place of the captured one, in which Dynamo looks for the
// arguments that it will pass.
void copy_module(Program& program) {
  const nb::module_ fx = nb::module_::import_("torch.fx");
  const nb::object old = program.module;
  const nb::object graph = fx.attr("Graph")();
  nb::dict copies;
  const nb::object results = graph.attr("graph_copy")(old.attr("graph"), copies);
  copies[program.fx_nodes.back()] = graph.attr("output")(results);
  for (const nb::object& node : program.fx_nodes) {
    if (nb::hasattr(node, kDynamoSource))
      nb::object(copies[node]).attr(kDynamoSource) = node.attr(kDynamoSource);
  }
  for (std::vector<nb::object>* nodes : {&program.fx_nodes, &program.captured->nodes}) {
    for (nb::object& node : *nodes) {
      if (copies.contains(node)) node = copies[node];
    }
  }
  for (auto& [symbol, source] : program.symbols) source.node = copies[source.node];
  for (auto& [size, placeholder] : program.sizes) placeholder = copies[placeholder];
  program.module = fx.attr("GraphModule")(old, graph);
  for (const char* name : {"meta", "_param_name_to_source", "_source_to_user_stacks"}) {
    if (nb::hasattr(old, name)) program.module.attr(name) = old.attr(name);
  }
}

}  // namespace

void export_module(Program& program, const Graph& local, int64_t rank, const std::string& group) {
  const bool draws = std::any_of(local.nodes.begin(), local.nodes.end(), [](const Node& node) {
    return node.kind == NodeKind::kInput && node.input == InputKind::kSeed;
  });
  if (draws) copy_module(program);
  Exporter(program, local, rank, group).run();
}

nb::object size_value(const Program& program, const Expr& size) {
  const nb::object resolve = nb::module_::import_("autosp.fx").attr("resolve");
  const auto apply = [&](const char* function, const nb::object& a, const nb::object& b) {
    return nb::object(resolve(function)(a, b));
  };
  const auto symbol_value = [&](const std::string& symbol) {
    const SymbolSource& source = source_of(program, symbol);
    if (source.divisor == 1) return source.value;
    return apply("_operator.floordiv", source.value, nb::int_(source.divisor));
  };
  SizeWriter writer(symbol_value, apply);
  return writer.write(size);
}

}  // namespace autosp::python
