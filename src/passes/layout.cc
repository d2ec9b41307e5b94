#include "passes/layout.h"

#include <algorithm>

#include "support/error.h"

namespace autosp {

bool Layout::is_exact(FactorId leaf) const {
  if (const auto found = given_.find(leaf); found != given_.end()) return found->second.second;
  const FactorId base = axes_.shard_base(leaf);
  if (base != leaf) {
    const Expr rows = axes_.factors().size(base) * axes_.rows_per_base(leaf);
    return rows == axes_.factors().size(leaf) && is_exact(base);
  }
  const FactorId axis = axes_.is_bag(leaf) ? axes_.bag_base(leaf) : leaf;
  return axes_.graph().hint(axes_.factors().size(axis)) % ranks_ == 0;
}

Expr Layout::shard_length(FactorId leaf) const {
  if (const auto found = given_.find(leaf); found != given_.end()) return found->second.first;
  const Expr& extent = axes_.factors().size(leaf);
  const FactorId base = axes_.shard_base(leaf);
  const int64_t more = axes_.extension(leaf);
  const Expr rows = axes_.rows_per_base(leaf);
  if (more > 0 || (base != leaf && axes_.factors().size(base) * rows == extent))
    return rows * shard_length(base) + Expr(more);
  const Expr filled = is_exact(base) ? extent : extent + Expr(ranks_ - 1);
  const Expr length = base == leaf ? floor_div(filled, Expr(ranks_)) : rows * shard_length(base);
  for (size_t i = 0; i < definitions_.size(); ++i) {
    if (definitions_[i].second == length && extents_[i] == extent)
      return Expr::symbol(definitions_[i].first);
  }
  definitions_.emplace_back("shard" + std::to_string(definitions_.size()), length);
  extents_.push_back(extent);
  return Expr::symbol(definitions_.back().first);
}

Expr Layout::part_length(FactorId leaf) const {
  if (!axes_.is_bag(leaf)) return shard_length(leaf);
  const FactorId base = axes_.bag_base(leaf);
  const std::optional<Expr> rows =
      divide_exact(axes_.factors().size(leaf), axes_.factors().size(base));
  ensure(rows.has_value(), "a bag has another number of rows than a multiple of its tokens");
  return *rows * shard_length(base);
}

Expr Layout::leaf_size(const std::vector<FactorList>& leaves, int dim, int position,
                       const Placement& placement) const {
  const FactorId leaf = leaves[dim][position];
  if (placement.is_sharded() && placement.where == Occurrence{dim, position})
    return part_length(leaf);
  return axes_.factors().size(leaf);
}

std::vector<Expr> Layout::shape(const std::vector<Expr>& global,
                                const std::vector<FactorList>& leaves,
                                const Placement& placement) const {
  std::vector<Expr> out = global;
  if (!placement.is_sharded()) return out;
  const int dim = placement.where.dim;
  Expr size(1);
  for (int position = 0; position < static_cast<int>(leaves[dim].size()); ++position) {
    size *= leaf_size(leaves, dim, position, placement);
  }
  out[dim] = size;
  return out;
}

std::vector<Expr> Layout::isolated(const std::vector<Expr>& global,
                                   const std::vector<FactorList>& leaves,
                                   const Placement& placement,
                                   const std::vector<Occurrence>& occurrences,
                                   std::vector<int>* dims) const {
  const std::vector<Expr> local = shape(global, leaves, placement);
  std::vector<Expr> out;
  dims->assign(occurrences.size(), -1);
  for (int dim = 0; dim < static_cast<int>(global.size()); ++dim) {
    const bool cut =
        std::any_of(occurrences.begin(), occurrences.end(), [dim](const Occurrence& occurrence) {
          return occurrence.dim == dim && occurrence.position > 0;
        });
    const auto note = [&](int position) {
      for (size_t i = 0; i < occurrences.size(); ++i) {
        if (occurrences[i] == Occurrence{dim, position}) (*dims)[i] = static_cast<int>(out.size());
      }
    };
    if (!cut) {
      note(0);
      out.push_back(local[dim]);
      continue;
    }
    Expr size(1);
    bool open = false;
    for (int position = 0; position < static_cast<int>(leaves[dim].size()); ++position) {
      const Occurrence here{dim, position};
      if (open && std::find(occurrences.begin(), occurrences.end(), here) != occurrences.end()) {
        out.push_back(size);
        size = Expr(1);
      }
      note(position);
      size *= leaf_size(leaves, dim, position, placement);
      open = true;
    }
    out.push_back(size);
  }
  return out;
}

}  // namespace autosp
