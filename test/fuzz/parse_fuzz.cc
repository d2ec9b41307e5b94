// Random input for the text form: mutates valid graphs and checks that the parser either refuses a
// text with ParseError or gives a graph whose text is a fixed point. Built with sanitizers, which
// find the rest.
//
//   parse_fuzz [SECONDS [SEED]]
//
// A failure prints seed and input and exits with status 1.
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <iostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "ir/text.h"
#include "ir/verify.h"
#include "support/error.h"

namespace autosp {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kCorpus[] = {
    R"ir(symbols s27=4096, s52=2
%ids: i64[s52, s27] = input user "L_ids_"
%w: f32[97, 32] = input parameter "L_w" grad
%b: bf16[32] = input buffer "L_b"
%e: f32[s52, s27, 32] = torch.nn.functional.embedding(%ids, %w, None, None, 2.0, False, True) loc "m.py:4 in forward: e = self.e(ids)"
%v: f32[s27*s52, 32] = Tensor.view(%e, -1, 32)
%a: i64[s27] = torch.arange(s27, device=@"device(type='cpu')")
%g: f32[s52, s27, 16] = _operator.getitem(%e, (Ellipsis, slice(None, 16, None)))
%c: f32[s52, s27, 32] = torch.cat((%g, %g), dim=-1)
%f: f32[s52, s27, 32] = torch.mul(%c, -1e-05)
%st: none = torch._C._set_grad_enabled(False)
return (%f, %a, None)
)ir",
    R"ir(subgraph "body" {
  symbols s0=8
  %x: f32[s0] = input user "x" grad
  %y: f32[s0] = torch.sin(%x)
  return (%y,)
}
subgraph "other" {
  subgraph "nested" {
    return ()
  }
  %x: c64[] = input constant "x"
  return ((%x, [1, 2]),)
}
%x: f32[8] = input user "x" grad
%t: (f32[8],) = torch.ops.higher_order.wrap(graph(0), %x, graph(1))
%y: f32[8] = _operator.getitem(%t, 0)
return (%y,)
)ir",
    R"ir(symbols s1=12, s2=5, shard0=6
let shard0 = size((s1//2))
// sizes of every form
%x: u8[s1 + 1, ((s1 + 3)//4), Mod(s1, 5), Min(s1, s2), Max(2, s1), s1**2 - 3*s1*s2] = input user "x"
%n: size(2*s1 - 1) = torch.sym_max(s1, (s1 + 1)*2, (s1 + s2)//2, ((s1 + s2)//2, s1), (s1,), [Mod(s1, 2)])
%s: scalar = Tensor.item(%x)
%o: other = "a.<lambda>"(inf, -inf, nan, 1e300, -0.0, 9223372036854775807, -9223372036854775808)
%q: other[3] = "torch op"("\"quoted\\ \x01\n\t", @torch.float32, @"<unknown>", [], (), [None, True], key=%x)
%m: (i64[s1], (f64[], i32[2]), size(s1), scalar, none) = torch.max(%x, slice(1, -1, 2), slice(%n, None, None))
return (%x, [%m, %s], -1)
)ir",
};

constexpr std::string_view kTokens[] = {
    "(",        ")",
    "[",        "]",
    "{",        "}",
    ",",        "=",
    ":",        "%",
    "%x",       "\"",
    "\\",       "\\x",
    "@",        "//",
    "/",        "*",
    "**",       "+",
    "-",        "\n",
    " ",        "None",
    "True",     "slice(",
    "graph(0)", "nan",
    "inf",      "-inf",
    "1.5",      "1e9999",
    "-",        "0",
    "-1",       "9223372036854775807",
    "s1",       "Mod(",
    "Min(",     "Max(",
    "FloorDiv", "size(",
    "none",     "scalar",
    "other",    "f32[",
    "bool[]",   "input ",
    "user ",    "loc \"",
    "return ",  "grad ",
    "symbols ", "subgraph \"a\" {",
    "((((((((", "[[[[[[[[",
    "))))))))", "\0",
    "\xff",     ".",
    "_",        "99999999999999999999",
};

class Fuzzer {
 public:
  explicit Fuzzer(uint64_t seed) : random_(seed), pool_(std::begin(kCorpus), std::end(kCorpus)) {}

  std::string next() {
    std::string text = pool_[below(pool_.size())];
    const size_t count = 1 + below(4);
    for (size_t i = 0; i < count; ++i) mutate(text);
    return text;
  }

  // A mutant that parses is where the next ones start from.
  void keep(const std::string& text) {
    if (text.size() > kLongest) return;
    if (pool_.size() < kPool) {
      pool_.push_back(text);
    } else {
      pool_[std::size(kCorpus) + below(kPool - std::size(kCorpus))] = text;
    }
  }

 private:
  static constexpr size_t kPool = 500;
  static constexpr size_t kLongest = 4000;

  size_t below(size_t bound) {
    return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
  }

  void mutate(std::string& text) {
    const size_t at = below(text.size() + 1);
    const size_t length = std::min(below(40) + 1, text.size() - at);
    switch (below(8)) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kTokens[below(std::size(kTokens))]);
        break;
      case 2:
        text.replace(at, length, kTokens[below(std::size(kTokens))]);
        break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 4:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 5: {
        const std::string& other = pool_[below(pool_.size())];
        text.insert(at, other, below(other.size() + 1), below(80));
        break;
      }
      case 6:
        move_line(text, at);
        break;
      default:
        for (size_t i = below(100); i > 0; --i) text.insert(at, text.substr(at, 1));
        break;
    }
  }

  void move_line(std::string& text, size_t at) {
    const size_t start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    const size_t end = std::min(text.find('\n', start), text.size() - 1) + 1;
    if (start >= end) return;
    const std::string line = text.substr(start, end - start);
    text.erase(start, end - start);
    text.insert(text.find('\n', below(text.size() + 1)) + 1, line);
  }

  std::mt19937_64 random_;
  std::vector<std::string> pool_;
};

// Empty when all is well; else what is wrong. `parsed` says whether the text was a graph.
std::string test_one(const std::string& text, bool& parsed) {
  parsed = false;
  try {
    const Graph graph = parse_graph(text);
    parsed = true;
    const std::string once = print(graph);
    try {
      const std::string twice = print(parse_graph(once));
      if (once != twice) return "not a fixed point:\n" + once + "\nand\n" + twice;
    } catch (const ParseError& error) {
      return std::string("the printed text does not parse: ") + error.what() + "\n" + once;
    }
    verify(graph);
  } catch (const ParseError&) {
    return {};
  } catch (const InternalError&) {
    return {};  // the verifier's refusal
  } catch (const std::exception& error) {
    return std::string("an exception of another kind: ") + error.what();
  }
  return {};
}

int run(double seconds, uint64_t seed) {
  for (const std::string_view text : kCorpus) verify(parse_graph(text));
  Fuzzer fuzzer(seed);
  const auto start = Clock::now();
  const std::chrono::duration<double> limit(seconds);
  int64_t inputs = 0;
  int64_t graphs = 0;
  while (Clock::now() - start < limit) {
    const std::string text = fuzzer.next();
    const std::clock_t begin = std::clock();
    bool parsed = false;
    std::string problem = test_one(text, parsed);
    // Texts are short: this is a blow-up, whatever the machine.
    if (problem.empty() && std::clock() - begin > 5 * CLOCKS_PER_SEC) problem = "took 5 seconds";
    if (!problem.empty()) {
      std::cerr << "parse_fuzz: seed " << seed << ", input " << inputs << ": " << problem
                << "\n---- input\n"
                << text << "\n----\n";
      return 1;
    }
    ++inputs;
    if (parsed) {
      ++graphs;
      fuzzer.keep(text);
    }
  }
  std::cout << "parse_fuzz: " << inputs << " inputs, " << graphs << " graphs, seed " << seed
            << '\n';
  return 0;
}

}  // namespace
}  // namespace autosp

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::strtod(argv[1], nullptr) : 10;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  return autosp::run(seconds, seed);
}
