// The model's own line behind an operator, from the stack trace that Dynamo keeps with it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace autosp::python {

// `trace` is Python's traceback text ("File "…", line N, in f" and the code below it), outermost
// frame first. Returns the innermost frame whose file is below none of `packages`, as
// "modeling_x.py:238 in forward: code"; where all are, the innermost. The last package is AutoSP
// itself, whose frames are never named; "" where there are no others. Linear in the text.
std::string source_line(std::string_view trace, const std::vector<std::string>& packages);

}  // namespace autosp::python
