#include "ops/refine.h"

#include <algorithm>
#include <optional>
#include <span>

namespace autosp {
namespace {

// One side of a group: its dimensions, and how far they are taken from the front and from the back.
class Side {
 public:
  Side(const std::vector<Expr>& sizes, size_t begin, size_t end) : begin_(begin), end_(end) {
    for (size_t dim = begin; dim < end; ++dim) rest_.push_back(sizes[dim]);
    front_.resize(rest_.size());
    back_.resize(rest_.size());
  }

  bool empty() const { return begin_ == end_; }
  const Expr& outer() const { return rest_[begin_ - first_]; }
  const Expr& inner() const { return rest_[end_ - 1 - first_]; }

  // Takes a piece off the outer or inner end; `left` is what its dimension still has, nothing when
  // all is taken.
  void take_outer(int piece, std::optional<Expr> left) {
    front_[begin_ - first_].push_back(piece);
    if (left) {
      rest_[begin_ - first_] = *left;
    } else {
      ++begin_;
    }
  }
  void take_inner(int piece, std::optional<Expr> left) {
    back_[end_ - 1 - first_].push_back(piece);
    if (left) {
      rest_[end_ - 1 - first_] = *left;
    } else {
      --end_;
    }
  }

  // The pieces of each dimension; what was not taken becomes a piece of this side alone.
  void finish(std::vector<Refinement::Piece>& pieces, std::span<std::vector<int>> dims) {
    for (size_t dim = begin_; dim < end_; ++dim) {
      front_[dim - first_].push_back(static_cast<int>(pieces.size()));
      pieces.push_back({rest_[dim - first_], false});
    }
    for (size_t index = 0; index < front_.size(); ++index) {
      dims[index] = front_[index];
      dims[index].insert(dims[index].end(), back_[index].rbegin(), back_[index].rend());
    }
  }

 private:
  size_t begin_;
  size_t end_;
  size_t first_ = begin_;
  std::vector<Expr> rest_;
  std::vector<std::vector<int>> front_;  // outermost first
  std::vector<std::vector<int>> back_;   // innermost first
};

// Matches the two sides at one end as long as one size divides the other.
template <bool kOuter>
void match(Side& left, Side& right, std::vector<Refinement::Piece>& pieces) {
  const auto size = [](const Side& side) -> const Expr& {
    return kOuter ? side.outer() : side.inner();
  };
  const auto take = [](Side& side, int piece, std::optional<Expr> rest) {
    if (kOuter) {
      side.take_outer(piece, std::move(rest));
    } else {
      side.take_inner(piece, std::move(rest));
    }
  };
  while (!left.empty() && !right.empty()) {
    const Expr& a = size(left);
    const Expr& b = size(right);
    const auto piece = static_cast<int>(pieces.size());
    if (a == b) {
      pieces.push_back({a});
      take(left, piece, std::nullopt);
      take(right, piece, std::nullopt);
    } else if (std::optional<Expr> rest = divide_exact(b, a)) {
      pieces.push_back({a});
      take(left, piece, std::nullopt);
      take(right, piece, std::move(rest));
    } else if (std::optional<Expr> rest = divide_exact(a, b)) {
      pieces.push_back({b});
      take(left, piece, std::move(rest));
      take(right, piece, std::nullopt);
    } else {
      return;
    }
  }
}

std::vector<Expr> without_ones(const std::vector<Expr>& sizes, std::vector<size_t>& dims) {
  std::vector<Expr> kept;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (sizes[dim] == Expr(1)) continue;
    dims.push_back(dim);
    kept.push_back(sizes[dim]);
  }
  return kept;
}

std::vector<Expr> prefix_products(const std::vector<Expr>& sizes) {
  std::vector<Expr> products;
  Expr product(1);
  for (const Expr& size : sizes) products.push_back(product *= size);
  return products;
}

}  // namespace

Refinement refine(const std::vector<Expr>& left, const std::vector<Expr>& right) {
  std::vector<size_t> left_dims;
  std::vector<size_t> right_dims;
  const std::vector<Expr> a = without_ones(left, left_dims);
  const std::vector<Expr> b = without_ones(right, right_dims);
  Refinement out;
  std::vector<std::vector<int>> a_pieces(a.size());
  std::vector<std::vector<int>> b_pieces(b.size());
  const auto group = [&](size_t a_begin, size_t a_end, size_t b_begin, size_t b_end) {
    Side one(a, a_begin, a_end);
    Side other(b, b_begin, b_end);
    match<true>(one, other, out.pieces);
    match<false>(one, other, out.pieces);
    one.finish(out.pieces, std::span(a_pieces).subspan(a_begin, a_end - a_begin));
    other.finish(out.pieces, std::span(b_pieces).subspan(b_begin, b_end - b_begin));
  };

  // Dimensions up to which both sides have the same number of elements form a group of their own,
  // so that one group without a refinement does not spoil the next.
  const std::vector<Expr> a_products = prefix_products(a);
  const std::vector<Expr> b_products = prefix_products(b);
  size_t a_begin = 0;
  size_t b_begin = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const auto next = b_products.begin() + static_cast<std::ptrdiff_t>(b_begin);
    const auto found = std::find(next, b_products.end(), a_products[i]);
    if (found == b_products.end()) continue;
    const auto b_end = static_cast<size_t>(found - b_products.begin()) + 1;
    group(a_begin, i + 1, b_begin, b_end);
    a_begin = i + 1;
    b_begin = b_end;
  }
  group(a_begin, a.size(), b_begin, b.size());

  out.left.resize(left.size());
  out.right.resize(right.size());
  for (size_t i = 0; i < a.size(); ++i) out.left[left_dims[i]] = std::move(a_pieces[i]);
  for (size_t i = 0; i < b.size(); ++i) out.right[right_dims[i]] = std::move(b_pieces[i]);
  return out;
}

Application reshape_application(NodeId value, const std::vector<Expr>& from,
                                const std::vector<Expr>& to) {
  const Refinement refinement = refine(from, to);
  Application application;
  for (size_t piece = 0; piece < refinement.pieces.size(); ++piece) {
    application.add("x" + std::to_string(piece), refinement.pieces[piece].size,
                    refinement.pieces[piece].shared ? LetterKind::kPass : LetterKind::kWhole);
  }
  const auto letters = [](const std::vector<std::vector<int>>& dims) {
    TensorLetters out;
    for (const std::vector<int>& dim : dims) out.emplace_back(dim.begin(), dim.end());
    return out;
  };
  application.operands.push_back({value, 0, letters(refinement.left)});
  application.results.push_back(letters(refinement.right));
  return application;
}

}  // namespace autosp
