#include "sharding/mask_names.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

namespace autosp {
namespace {

using Kind = Formula::Kind;

class Namer {
 public:
  Namer(const Graph& graph, Atoms& atoms, const Type& type, const MaskPlace& place)
      : graph_(graph), atoms_(atoms), type_(type), place_(place) {}

  std::string run(const Elements& elements) {
    if (elements.is_truth()) {
      name_parts(elements.truth);
    } else if (is_floating(type_.dtype)) {
      name_sum(elements.number);
    } else {
      add(kAsWritten, "as written");
    }
    std::string out;
    for (const auto& [order, name] : names_) out += (out.empty() ? "" : ", ") + name;
    return out;
  }

 private:
  enum Order : uint8_t {
    kCausal,
    kWindow,
    kChunks,
    kDocument,
    kPadding,
    kPrefix,
    kTerm,
    kAsWritten,
  };

  void add(Order order, const std::string& name) { names_.emplace(order, name); }
  void as_written() { add(kAsWritten, "as written"); }

  Expr query() const { return index_along(place_.query); }
  Expr key() const { return index_along(place_.key); }
  template <class Of>
  bool has_query(const Of& of) const {
    return atoms_.depends_on(of, place_.query);
  }
  template <class Of>
  bool has_key(const Of& of) const {
    return atoms_.depends_on(of, place_.key);
  }
  bool is_free(const Expr& expr) const { return !has_query(expr) && !has_key(expr); }

  // ---- Truth values ----

  // What is added to query - key, or to key - query, where nothing else depends on either.
  std::optional<Expr> offset(const Formula& part, const Expr& distance) const {
    if (part.kind != Kind::kAtLeast) return std::nullopt;
    const Expr rest = part.value - distance;
    return is_free(rest) ? std::optional(rest) : std::nullopt;
  }

  // Takes the nearer of two bounds, where it is known which that is.
  static bool narrow(std::optional<Expr>& bound, const std::optional<Expr>& other) {
    if (!other) return false;
    if (!bound) bound = other;
    const std::optional<int64_t> farther = (*other - *bound).as_constant();
    if (farther && *farther < 0) bound = other;
    return farther.has_value();
  }

  // Alternatives that another part rules out are none.
  static Formula simplified(const Formula& formula) {
    const std::vector<Formula> parts = formula.parts_of(Kind::kAll);
    Formula out = Formula::constant(true);
    for (const Formula& part : parts) {
      if (part.kind != Kind::kAny) {
        out = both(out, part);
        continue;
      }
      Formula left = Formula::constant(false);
      for (const Formula& choice : part.parts) {
        if (std::find(parts.begin(), parts.end(), negated(choice)) == parts.end())
          left = either(left, choice);
      }
      out = both(out, left);
    }
    return out;
  }

  void name_parts(const Formula& formula) {
    std::optional<Expr> ahead;  // the keys behind a query that it sees still
    std::optional<Expr> behind;
    for (const Formula& part : simplified(formula).parts_of(Kind::kAll)) {
      if (part.kind == Kind::kAtLeast && is_never_negative(part.value, type_.shape)) continue;
      const bool bounds = narrow(ahead, offset(part, query() - key())) ||
                          narrow(behind, offset(part, key() - query()));
      if (!bounds) name_part(part);
    }
    if (ahead && behind && *ahead == *behind && *ahead != Expr(0)) {
      add(kWindow, "two-sided window " + text(*ahead));
      return;
    }
    if (ahead) add(kCausal, *ahead == Expr(0) ? "causal" : "causal offset " + text(*ahead));
    if (!behind) return;
    if (ahead) {
      add(kWindow, "window " + text(*behind + Expr(1)));
    } else {
      as_written();
    }
  }

  void name_part(const Formula& part) {
    if (part.kind == Kind::kZero && name_equal(part.value)) return;
    if (part.kind == Kind::kAny && name_prefix(part)) return;
    if (atoms_.reads(part) && has_query(part) != has_key(part)) {
      add(kPadding, has_key(part) ? "padding of keys" : "padding of queries");
      return;
    }
    as_written();
  }

  // f(query) == f(key)
  bool name_equal(const Expr& difference) {
    Expr left(0);
    Expr right(0);
    for (const Expr::Term& term : difference.terms()) {
      const Expr summand = product(term);
      if (has_query(summand) == has_key(summand)) return false;
      (has_query(summand) ? left : right) += summand;
    }
    if (atoms_.substitute(left, {{index_name(place_.query), key()}}) != -right) return false;
    if (is_reversed(left)) left = -left;
    if (const auto length = chunk(left)) {
      add(kChunks, "chunks of " + length->to_string());
      return true;
    }
    if (!atoms_.reads(left)) return false;
    add(kDocument, "document by " + text(left));
    return true;
  }

  // Of two differences that are 0 together, the one that takes from what is read.
  bool is_reversed(const Expr& expr) const {
    for (const Expr::Term& term : expr.terms()) {
      const Atoms::Atom* atom =
          term.factors.empty() ? nullptr : atoms_.find(term.factors[0].atom->name);
      if (atom != nullptr && atom->kind != Atoms::Kind::kTruth) return term.coefficient < 0;
    }
    return expr.terms()[0].coefficient < 0;
  }

  // The n of (query + something) // n.
  std::optional<Expr> chunk(const Expr& expr) const {
    const std::vector<Expr::Term> terms = expr.terms();
    if (terms.size() != 1 || terms[0].coefficient != 1 || terms[0].factors.size() != 1 ||
        terms[0].factors[0].power != 1) {
      return std::nullopt;
    }
    const Expr::Atom& atom = *terms[0].factors[0].atom;
    if (atom.kind != Expr::AtomKind::kFloorDiv || !is_free(atom.arguments[0] - query()) ||
        !is_free(atom.arguments[1])) {
      return std::nullopt;
    }
    return atom.arguments[1];
  }

  bool name_prefix(const Formula& part) {
    if (part.parts.size() != 2) return false;
    for (const size_t first : {0, 1}) {
      const Formula& other = part.parts[1 - first];
      if (offset(part.parts[first], query() - key()) != Expr(0) || other.kind != Kind::kAtLeast)
        continue;
      const Expr last = other.value + key();
      if (!is_free(last)) continue;
      add(kPrefix, "prefix " + text(last + Expr(1)));
      return true;
    }
    return false;
  }

  // ---- Sums of scores, masks and terms ----

  bool is_hidden(const Atoms::Atom* atom) const {
    return atom != nullptr && atom->kind == Atoms::Kind::kHidden;
  }

  // Whether an expression has the scores in it, or a number that hides them.
  std::pair<bool, bool> contents(const Expr& expr) const {
    bool scores = false;
    bool hidden = false;
    atoms_.for_each_symbol(expr, [&](const std::string&, const Atoms::Atom* atom) {
      scores |= atom != nullptr && atom->node == place_.scores && place_.scores != kNoNode;
      hidden |= is_hidden(atom);
    });
    return {scores, hidden};
  }

  void name_sum(const Expr& sum) {
    Expr hiding(0);  // a score is hidden where it is more than 0
    std::vector<Expr::Term> scores;
    std::vector<Expr::Term> others;
    for (const Expr::Term& term : sum.terms()) {
      const auto [has_scores, has_hidden] = contents(product(term));
      const auto factor = std::find_if(
          term.factors.begin(), term.factors.end(), [this](const Expr::Factor& candidate) {
            return is_hidden(atoms_.find(candidate.atom->name)) && candidate.power == 1;
          });
      if (factor != term.factors.end() && !has_scores) {
        Expr::Term rest = term;
        rest.factors.erase(rest.factors.begin() + (factor - term.factors.begin()));
        hiding += product(rest);
      } else if (has_hidden) {
        as_written();
      } else if (has_scores) {
        scores.push_back(term);
      } else if (!term.factors.empty()) {
        others.push_back(term);
      }
    }
    std::optional<Formula> visible = seen(hiding);
    if (visible) {
      name_parts(*visible);
    } else {
      as_written();
      visible = Formula::constant(true);
    }
    for (Expr::Term& term : scores) {
      without_conditions(term, *visible);
      // Scores that are chosen where nothing is hidden are another mask.
      if (has_condition(term)) as_written();
    }
    Expr added(0);
    for (Expr::Term& term : others) {
      without_conditions(term, *visible);
      added += one_sided(term, *visible);
    }
    name_terms(added.terms());
  }

  // Where nothing hides: each term with a plus hides where all of its factors are true, and each
  // "1 - factors" where one of them isn't.
  std::optional<Formula> seen(const Expr& hiding) {
    Formula out = Formula::constant(true);
    int64_t ones = 0;
    for (const Expr::Term& term : hiding.terms()) {
      if (term.factors.empty()) {
        ones += term.coefficient;
        continue;
      }
      Formula all = Formula::constant(true);
      for (const Expr::Factor& factor : term.factors) {
        const Atoms::Atom* atom = atoms_.find(factor.atom->name);
        if (atom == nullptr) return std::nullopt;
        if (atom->kind == Atoms::Kind::kNumber && atom->number > 0 && term.coefficient > 0)
          continue;
        const bool is_truth = atom->kind == Atoms::Kind::kTruth;
        if (!is_truth && term.coefficient > 0) return std::nullopt;
        all =
            both(all, is_truth ? atom->truth : Formula::not_zero(Expr::symbol(factor.atom->name)));
      }
      if (term.coefficient > 0) {
        out = both(out, negated(all));
      } else if (term.coefficient == -1) {
        out = both(out, all);
        --ones;
      } else {
        return std::nullopt;
      }
    }
    return ones == 0 ? std::optional(out) : std::nullopt;
  }

  // Takes the conditions from a term that hold wherever a score is seen.
  void without_conditions(Expr::Term& term, const Formula& visible) const {
    const std::vector<Formula> parts = visible.parts_of(Kind::kAll);
    std::erase_if(term.factors, [&](const Expr::Factor& factor) {
      const Atoms::Atom* atom = atoms_.find(factor.atom->name);
      if (atom == nullptr || atom->kind != Atoms::Kind::kTruth) return false;
      const std::vector<Formula> conditions = atom->truth.parts_of(Kind::kAll);
      return atom->truth == visible ||
             std::all_of(conditions.begin(), conditions.end(), [&](const Formula& condition) {
               return std::find(parts.begin(), parts.end(), condition) != parts.end();
             });
    });
  }

  // The distance |query - key| is query - key where no other key is seen.
  Expr one_sided(const Expr::Term& term, const Formula& visible) const {
    const Expr distance = query() - key();
    const std::vector<Formula> parts = visible.parts_of(Kind::kAll);
    if (std::find(parts.begin(), parts.end(), Formula::at_least_zero(distance)) == parts.end())
      return product(term);
    Expr out(term.coefficient);
    for (const Expr::Factor& factor : term.factors) {
      const Expr base = product({1, {{factor.atom, 1}}});
      out *= power(base == max(distance, -distance) ? distance : base, factor.power);
    }
    return out;
  }

  bool has_condition(const Expr::Term& term) const {
    return std::any_of(term.factors.begin(), term.factors.end(), [&](const Expr::Factor& factor) {
      const Atoms::Atom* atom = atoms_.find(factor.atom->name);
      return atom != nullptr && atom->kind == Atoms::Kind::kTruth;
    });
  }

  void name_terms(const std::vector<Expr::Term>& terms) {
    Expr steps(0);  // what the linear ones grow by from one key to the next
    bool linear = false;
    for (const Expr::Term& term : terms) {
      // What all keys of a query get changes nothing of a softmax.
      if (!has_key(product(term))) continue;
      if (const auto slope = slope_of(term)) {
        linear = true;
        steps += *slope;
      } else if (is_relative(term)) {
        add(kTerm, "relative bias");
      } else if (is_unknown(product(term))) {
        as_written();
      } else {
        add(kTerm, "score term");
      }
    }
    if (linear) add(kTerm, depends_on_others(steps) ? "ALiBi" : "score term");
  }

  // Of a key's number times what depends on neither it nor the query: that.
  std::optional<Expr> slope_of(const Expr::Term& term) const {
    Expr::Term rest = term;
    const size_t taken = std::erase_if(rest.factors, [&](const Expr::Factor& factor) {
      return factor.power == 1 && factor.atom->name == index_name(place_.key);
    });
    const Expr slope = product(rest);
    return taken == 1 && is_free(slope) ? std::optional(slope) : std::nullopt;
  }

  // Whether it is another number for other heads.
  bool depends_on_others(const Expr& slope) const {
    for (size_t dim = 0; dim < type_.shape.size(); ++dim) {
      if (atoms_.depends_on(slope, dim)) return true;
    }
    return false;
  }

  // A table at a function of the distance: the same where both are one further.
  bool is_relative(const Expr::Term& term) {
    const Expr value = product(term);
    const bool table =
        std::any_of(term.factors.begin(), term.factors.end(), [this](const Expr::Factor& factor) {
          const Atoms::Atom* atom = atoms_.find(factor.atom->name);
          return atom != nullptr && atom->kind == Atoms::Kind::kRead &&
                 !is_free(Expr::symbol(factor.atom->name));
        });
    return table && has_query(value) && has_key(value) &&
           atoms_.substitute(value, {{index_name(place_.query), query() + Expr(1)},
                                     {index_name(place_.key), key() + Expr(1)}}) == value;
  }

  // Whether it may be anything, also hide, for each query and key.
  bool is_unknown(const Expr& expr) const {
    bool unknown = false;
    atoms_.for_each_symbol(expr, [&](const std::string& symbol, const Atoms::Atom* atom) {
      if (atom == nullptr || atom->kind != Atoms::Kind::kRead) return;
      const Expr read = Expr::symbol(symbol);
      unknown |= has_query(read) && has_key(read);
    });
    return unknown;
  }

  // ---- Text ----

  std::string text(const Formula& formula) const {
    switch (formula.kind) {
      case Kind::kAtLeast:
        return text(formula.value) + " >= 0";
      case Kind::kZero:
        return text(formula.value) + " == 0";
      case Kind::kNotZero:
        return text(formula.value) + " != 0";
      case Kind::kAll:
      case Kind::kAny:
        break;
    }
    std::string out;
    for (const Formula& part : formula.parts) {
      if (!out.empty()) out += formula.kind == Kind::kAll ? " and " : " or ";
      out += "(" + text(part) + ")";
    }
    return out;
  }

  std::string text_of_symbol(const std::string& symbol) const {
    const Atoms::Atom* atom = atoms_.find(symbol);
    if (atom == nullptr) return symbol.starts_with("__") ? "index" : symbol;
    if (atom->kind == Atoms::Kind::kTruth) return "(" + text(atom->truth) + ")";
    if (atom->node == kNoNode) return std::to_string(atom->number);
    const Node& node = graph_.node(atom->node);
    return node.kind == NodeKind::kInput ? node.target : node.name;
  }

  std::string text(const Expr& expr) const {
    const std::string symbols = expr.to_string();
    std::string out;
    for (size_t at = 0; at < symbols.size();) {
      size_t end = at;
      while (end < symbols.size() &&
             (symbols[end] == '_' || std::isalnum(static_cast<unsigned char>(symbols[end])) != 0))
        ++end;
      out += end > at ? text_of_symbol(symbols.substr(at, end - at)) : symbols.substr(at, 1);
      at = std::max(end, at + 1);
    }
    return out;
  }

  const Graph& graph_;
  Atoms& atoms_;
  const Type& type_;
  const MaskPlace& place_;
  std::set<std::pair<Order, std::string>> names_;
};

}  // namespace

std::string mask_name(const Graph& graph, MaskElements& elements, NodeId value,
                      const MaskPlace& place) {
  const Type& type = graph.node(value).type;
  const std::optional<Elements>& known = elements.of(value);
  if (!known) return "as written";
  // A dimension of one element has one index.
  Substitution single;
  for (size_t dim = 0; dim < type.shape.size(); ++dim) {
    if (type.shape[dim] == Expr(1)) single[index_name(dim)] = Expr(0);
  }
  return Namer(graph, elements.atoms(), type, place)
      .run(elements.atoms().substitute(*known, single));
}

}  // namespace autosp
