// The two kinds of error of the engine.
//
// `Unsupported` is the user's: a program, layout or length that cannot be proved right. Its text
// names the operator, the model's source line, the rule that refuses, and what to do instead.
// `InternalError` is ours: an invariant of the engine is broken, and the text asks for a report.
// Both are thrown before any collective runs, and depend only on the graph and the options, so
// every rank throws the same text.
#pragma once

#include <stdexcept>
#include <string>

namespace autosp {

class Unsupported : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& what)
      : std::logic_error("internal error in AutoSP, please report it: " + what) {}
};

// Throws InternalError unless `condition` holds.
inline void ensure(bool condition, const char* what) {
  if (!condition) throw InternalError(what);
}

}  // namespace autosp
