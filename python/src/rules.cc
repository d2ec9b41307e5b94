#include "rules.h"

#include <nanobind/stl/string.h>

#include <string>

#include "ops/registered.h"
#include "support/error.h"

namespace autosp::python {

namespace nb = nanobind;

namespace {

constexpr const char* kDoc =
    R"(register_rule(op: str, rule: str) -> None

Says how an operator of your own (torch.library) may be cut along its dimensions, so that programs
can call it on the tokens of a rank.

    autosp.register_rule("mine::norm", "... d, d -> ... d  whole d")
    autosp.register_rule("mine::scan", "b t h d, b t h n, b t h n -> b t h d  attend t")

`op` is "namespace::name", with ".overload" behind it unless that is the default one. `rule` is a
line: the dimensions of each tensor that it takes, in the order of its arguments, `->`, those of each
tensor that it gives. Dimensions are letters (words) with blanks between them; one letter is one
axis, and "..." in front stands for any number of leading dimensions, broadcast as torch does. The
last operand's letters serve all further tensors. Two blanks behind the results, letters get kinds
("sum k, whole d e"):

    (none)   a part of the result needs the same part of the operands: token by token, head by head
    sum      no result has it, and results are the sum of what parts give
    whole    must be seen whole; a letter on one side alone is whole or summed
    attend   all positions are seen, in their order (attention, scan kernels): ranks exchange tokens
             for parts of another letter, heads or channels, that the first three operands and the
             results have and that the ranks divide
    query    as attend, where a position's result doesn't depend on where it stands (queries of an
             attention without a causal mask)
    scan     a state goes along it, from the first position to the last

Ranks run a scan in turns, each from the state that the one before it has left, if the operator takes
that and gives it back: "state" stands in front of both, in one order, and the line names no other
letter that is scanned. (What a rank does in turn the others wait for: where heads are independent,
"attend" is faster.) A program has to pass the first state, zeros for instance.

    autosp.register_rule("mine::scan", "b t d, d, state b d -> b t d, state b d  scan t")

A rule is a promise, of the gradient as well: parts of the operands' gradients need the same parts,
operands without the letter get the sum over them. `autosp.check` tells whether it is true. Rules
count from then on in this process, before the first call of a model; a second one for an operator
replaces the first. Every rank has to register the same ones: plans name those that they use.

Raises Unsupported where the line is none or doesn't fit the operator's schema, and for operators
that write to their arguments, that don't exist, or that AutoSP has a rule for.)";

[[noreturn]] void refuse(const std::string& op, const std::string& why) {
  throw Unsupported("register_rule(\"" + op + "\"): " + why);
}

// A default as the engine's signatures spell it. What is no number, name or text is no operand.
std::string literal(const nb::object& value) {
  PyObject* object = value.ptr();
  if (PyBool_Check(object)) return object == Py_True ? "True" : "False";
  if (PyLong_Check(object) || PyFloat_Check(object)) return nb::cast<std::string>(nb::str(value));
  if (PyUnicode_Check(object)) return "'" + nb::cast<std::string>(value) + "'";
  return "None";
}

nb::object find_schema(const std::string& op, const std::string& name, const std::string& overload,
                       bool& is_only) {
  const nb::object schemas =
      nb::module_::import_("torch._C").attr("_jit_get_schemas_for_operator")(name);
  nb::object found;
  for (nb::handle schema : nb::list(schemas)) {
    if (nb::cast<std::string>(schema.attr("overload_name")) == overload) found = nb::borrow(schema);
  }
  if (!found.is_valid()) {
    refuse(op,
           "torch knows no operator of this name; define it first, with torch.library, and "
           "name it \"namespace::name\"");
  }
  is_only = nb::len(schemas) == 1;
  return found;
}

void register_rule(const std::string& op, const std::string& rule) {
  const size_t colons = op.find("::");
  if (colons == std::string::npos || colons == 0)
    refuse(op, "an operator of torch.library has a name like \"namespace::name\"");
  const size_t dot = op.find('.', colons);
  const std::string name = op.substr(0, dot);
  const std::string overload = dot == std::string::npos ? "" : op.substr(dot + 1);
  bool is_only = false;
  const nb::object schema = find_schema(op, name, overload, is_only);

  Registration out;
  out.name = op;
  out.rule = rule;
  const std::string path = "torch.ops." + name.substr(0, colons) + "." + name.substr(colons + 2);
  out.targets.push_back(path + "." + (overload.empty() ? "default" : overload));
  if (is_only) out.targets.push_back(path);
  bool keyword_only = false;
  for (nb::handle argument : nb::list(nb::object(schema.attr("arguments")))) {
    const std::string type = nb::cast<std::string>(nb::str(nb::object(argument.attr("type"))));
    if (nb::cast<bool>(nb::object(argument.attr("is_write"))))
      refuse(op, "it writes to its arguments, which is not supported: let it give a new tensor");
    if (type.find("Tensor") != std::string::npos) ++out.tensors;
    if (!out.signature.empty()) out.signature += ", ";
    if (nb::cast<bool>(nb::object(argument.attr("kwarg_only"))) && !keyword_only) {
      keyword_only = true;
      out.signature += "*, ";
    }
    out.signature += nb::cast<std::string>(argument.attr("name"));
    if (nb::cast<bool>(argument.attr("has_default_value")()))
      out.signature += "=" + literal(nb::object(argument.attr("default_value")));
  }
  for (nb::handle result : nb::list(nb::object(schema.attr("returns")))) {
    const std::string type = nb::cast<std::string>(nb::str(nb::object(result.attr("type"))));
    if (type != "Tensor") refuse(op, "it gives " + type + ", where only tensors are supported");
    if (!nb::object(result.attr("alias_info")).is_none())
      refuse(op,
             "it gives a view of an argument, which is not supported: let it give a new tensor");
    ++out.results;
  }
  autosp::register_rule(std::move(out));
}

}  // namespace

void bind_rules(nb::module_& module) {
  module.def("register_rule", &register_rule, nb::arg("op"), nb::arg("rule"), kDoc);
}

}  // namespace autosp::python
