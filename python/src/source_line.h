// The model's own line behind an operator, from the stack trace that Dynamo keeps with it.
#pragma once

#include <string>
#include <string_view>

namespace autosp::python {

// `trace` is Python's traceback text ("File "…", line N, in f" and the code below it), outermost
// frame first. Returns the innermost frame whose file is not below `torch_root`, as
// "modeling_x.py:238 in forward: code", or "" when there is none. Linear in the text.
std::string source_line(std::string_view trace, std::string_view torch_root);

}  // namespace autosp::python
