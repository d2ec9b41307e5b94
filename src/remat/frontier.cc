#include "remat/frontier.h"

#include <algorithm>
#include <functional>
#include <tuple>
#include <utility>

#include "support/error.h"

namespace autosp {

namespace {

using Solve = std::function<CutSolution(const CutWeights&)>;

// Adds the corners between two, exclusive.
void subdivide(const Solve& solve, const CutSolution& low, const CutSolution& high,
               std::vector<CutSolution>& hull) {
  const double bytes = static_cast<double>(high.bytes - low.bytes);
  const double ns = static_cast<double>(low.ns - high.ns);
  if (bytes <= 0 || ns <= 0) return;
  const CutSolution middle = solve({.byte = ns, .ns = bytes});
  const auto cost = [&](const CutSolution& point) {
    return ns * static_cast<double>(point.bytes) + bytes * static_cast<double>(point.ns);
  };
  // Capacities are rounded: a gain below a millionth is none.
  if (cost(middle) >= std::min(cost(low), cost(high)) * (1 - 1e-6)) return;
  if (middle.bytes <= low.bytes || middle.ns <= high.ns) return;
  subdivide(solve, low, middle, hull);
  hull.push_back(middle);
  subdivide(solve, middle, high, hull);
}

// Time that a byte saves from one corner to the next.
double slope(const CutSolution& from, const CutSolution& to) {
  return static_cast<double>(from.ns - to.ns) /
         static_cast<double>(std::max<int64_t>(to.bytes - from.bytes, 1));
}

// Those of the points, from the fewest bytes on, that are on the lower convex hull.
std::vector<CutSolution> convex(std::vector<CutSolution> points) {
  std::vector<CutSolution> hull;
  for (CutSolution& point : points) {
    while (hull.size() >= 2 &&
           slope(hull.back(), point) >= slope(hull[hull.size() - 2], hull.back())) {
      hull.pop_back();
    }
    hull.push_back(std::move(point));
  }
  return hull;
}

std::vector<CutSolution> lower_hull(const Planner& planner, int segment_class, Offload offload) {
  const Solve stay = [&](const CutWeights& weights) {
    return planner.solve(segment_class, {}, weights);
  };
  const Solve leave = [&](const CutWeights& weights) {
    return planner.solve_with_offload(segment_class, weights);
  };
  const Solve& solve = offload == Offload::kAuto ? leave : stay;
  std::vector<CutSolution> hull = {solve(CutWeights::fewest_bytes())};
  const CutSolution fastest = solve(CutWeights::least_time());
  const CutSolution smallest = hull.front();
  subdivide(solve, smallest, fastest, hull);
  if (fastest.ns < hull.back().ns) hull.push_back(fastest);
  hull = convex(std::move(hull));
  if (offload == Offload::kAuto) {
    CutSolution without = stay(CutWeights::least_time());
    if (without.bytes > hull.back().bytes && without.ns <= hull.back().ns) {
      hull.push_back(std::move(without));
    }
  }
  return hull;
}

}  // namespace

Offload parse_offload(const std::string& text, const Planner& planner) {
  if (text == "off") return Offload::kOff;
  if (text == "auto") return planner.can_offload() ? Offload::kAuto : Offload::kOff;
  if (text != "all") throw Unsupported("offload=\"" + text + "\" is none of auto, off, all");
  if (!planner.can_offload()) {
    throw Unsupported(
        "offload=\"all\" needs an accelerator: this device has no other memory to offload to");
  }
  return Offload::kAll;
}

Frontier::Frontier(const Planner& planner, Offload offload) : planner_(planner), offload_(offload) {
  const Segments& segments = planner.segments();
  for (int c = 0; c < planner.segment_classes(); ++c) {
    hulls_.push_back(lower_hull(planner, c, offload));
  }

  std::vector<std::vector<int>> members(hulls_.size());
  for (int s = segments.count() - 1; s >= 0; --s) {
    if (!planner.is_tail(s)) members[planner.class_of(s)].push_back(s);
  }
  for (int c = 0; c < static_cast<int>(hulls_.size()); ++c) {
    if (members[c].empty()) continue;
    for (int k = 1; k < static_cast<int>(hulls_[c].size()); ++k) {
      steps_.push_back({c, k, slope(hulls_[c][k - 1], hulls_[c][k])});
    }
  }
  std::sort(steps_.begin(), steps_.end(), [](const Step& a, const Step& b) {
    return std::tuple(-a.ns_per_byte, a.segment_class, a.corner) <
           std::tuple(-b.ns_per_byte, b.segment_class, b.corner);
  });
  for (const Step& step : steps_) {
    for (const int segment : members[step.segment_class]) moves_.push_back(segment);
    class_moves_.push_back(step_count());
  }
}

RematPlan Frontier::after(int moves) const {
  std::vector<int> corner(planner_.segments().begin.size(), 0);
  for (int i = 0; i < moves; ++i) ++corner[moves_[i]];
  std::vector<const CutSolution*> chosen;
  for (int s = 0; s < planner_.segments().count(); ++s) {
    chosen.push_back(&hulls_[planner_.class_of(s)][corner[s]]);
  }
  return planner_.assemble(chosen, offload_ == Offload::kAll);
}

std::vector<FrontierPoint> Frontier::points() const {
  std::vector<FrontierPoint> all;
  const auto add = [&](int moves) {
    const RematPlan plan = after(moves);
    all.push_back({plan.peak.kept_bytes, plan.peak.offloaded_bytes, plan.peak.peak_bytes,
                   plan.recompute_ns, plan.wait_ns, plan.step_ns});
  };
  add(0);
  for (const int moves : class_moves_) add(moves);
  std::sort(all.begin(), all.end(), [](const FrontierPoint& a, const FrontierPoint& b) {
    return std::tuple(a.peak_bytes, a.step_ns, a.offloaded_bytes, a.kept_bytes) <
           std::tuple(b.peak_bytes, b.step_ns, b.offloaded_bytes, b.kept_bytes);
  });
  std::vector<FrontierPoint> best;
  for (const FrontierPoint& point : all) {
    if (best.empty() || point.step_ns < best.back().step_ns) best.push_back(point);
  }
  return best;
}

RematPlan Frontier::fastest(int64_t memory_bytes) const {
  const auto fits = [&](const RematPlan& plan) { return plan.peak.peak_bytes <= memory_bytes; };
  RematPlan best = after(step_count());
  if (fits(best)) return best;
  best = after(0);
  if (fits(best)) {
    int low = 0;
    int high = step_count();
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      RematPlan plan = after(middle);
      const bool is_low = fits(plan);
      (is_low ? low : high) = middle;
      if (is_low) best = std::move(plan);
    }
    return best;
  }
  // Fewest bytes kept need not be the least peak: attentions that run again need room.
  for (const int moves : class_moves_) {
    RematPlan plan = after(moves);
    const bool better = fits(plan) ? !fits(best) || plan.step_ns < best.step_ns
                                   : plan.peak.peak_bytes < best.peak.peak_bytes;
    if (better) best = std::move(plan);
  }
  return best;
}

RematPlan Frontier::least_peak(double overhead) const {
  const double allowed = overhead * static_cast<double>(planner_.nothing().step_ns);
  const auto fits = [&](const RematPlan& plan) {
    return static_cast<double>(plan.recompute_ns + plan.wait_ns) <= allowed;
  };
  RematPlan best = after(0);
  if (fits(best)) return best;
  int low = 0;
  int high = step_count();
  best = after(high);
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    RematPlan plan = after(middle);
    const bool is_high = fits(plan);
    (is_high ? high : low) = middle;
    if (is_high) best = std::move(plan);
  }
  return best;
}

}  // namespace autosp
