#include "passes/traffic.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "ops/registered.h"

namespace autosp {
namespace {

enum class Traffic : uint8_t { kNone, kGather, kScatter, kReduce, kExchange, kBroadcast };

// What is sent. A conversion's value is the larger of its sides; of rows it is what all ranks give.
enum class Amount : uint8_t {
  kValue,
  kOperands,    // all of them
  kRows,        // every row
  kRow,         // one row of each rank
  kResult,      // something of each rank that is as large as the result
  kNeighbours,  // the rows that neighbours need
};

struct Communication {
  std::string_view target;
  Traffic forward;
  Traffic backward;
  Amount amount = Amount::kValue;
  size_t dim = 1;  // the argument that names the sharded dimension
};

constexpr Communication kCommunications[] = {
    {"autosp.all_to_all", Traffic::kExchange, Traffic::kExchange, Amount::kOperands},
    {"autosp.s_to_r", Traffic::kGather, Traffic::kNone, Amount::kRows},
    {"autosp.s_to_v", Traffic::kGather, Traffic::kScatter, Amount::kRows},
    {"autosp.p_to_s", Traffic::kScatter, Traffic::kGather},
    {"autosp.p_to_r", Traffic::kReduce, Traffic::kNone},
    {"autosp.p_to_v", Traffic::kReduce, Traffic::kReduce},
    {"autosp.r_to_v", Traffic::kNone, Traffic::kReduce},
    {"autosp.r_to_s", Traffic::kNone, Traffic::kGather, Amount::kResult},
    {"autosp.halo", Traffic::kGather, Traffic::kGather, Amount::kNeighbours},
    {"autosp.flip_rows", Traffic::kGather, Traffic::kGather, Amount::kRows},
    {"autosp.edge_rows", Traffic::kGather, Traffic::kNone, Amount::kRow},
    {"autosp.scan_rows", Traffic::kGather, Traffic::kScatter, Amount::kRow, 2},
    {"autosp.scan_extremes", Traffic::kGather, Traffic::kScatter, Amount::kRow, 2},
    {"autosp.softmax_rows", Traffic::kGather, Traffic::kReduce, Amount::kRow, 2},
    {"autosp.reduce_rows", Traffic::kGather, Traffic::kNone, Amount::kResult},
    {"autosp.extreme_rows", Traffic::kGather, Traffic::kNone, Amount::kResult},
    {"autosp.variance_rows", Traffic::kReduce, Traffic::kReduce, Amount::kResult},
};

// `bytes` is the whole value, of an exchange the rank's part.
int64_t sent(Traffic traffic, int64_t bytes, int ranks) {
  const int64_t to_others = bytes - bytes / ranks;
  switch (traffic) {
    case Traffic::kNone:
      return 0;
    case Traffic::kReduce:
      return 2 * to_others;
    case Traffic::kGather:
    case Traffic::kBroadcast:
      return bytes / ranks * (ranks - 1);
    case Traffic::kScatter:
    case Traffic::kExchange:
      return to_others;
  }
  return 0;
}

std::string_view collective(Traffic traffic) {
  switch (traffic) {
    case Traffic::kNone:
      return "none";
    case Traffic::kGather:
      return "all_gather";
    case Traffic::kScatter:
      return "reduce_scatter";
    case Traffic::kReduce:
      return "all_reduce";
    case Traffic::kExchange:
      return "all_to_all";
    case Traffic::kBroadcast:
      return "broadcast";
  }
  return "none";
}

// Whether someone else sums the gradient over the ranks.
bool leaves_gradients(const Node& node) {
  return node.target == "autosp.r_to_v" && node.args.size() > 3 && node.args[3].integer == 0;
}

// Bytes of one row of the node's first operand along the sharded dimension.
int64_t row_bytes(const Graph& graph, const Node& node, size_t dim_argument) {
  const Type& type = graph.node(node.args.at(0).value).type;
  const auto dim = static_cast<size_t>(node.args.at(dim_argument).integer);
  return graph.bytes(type) / std::max<int64_t>(graph.hint(type.shape.at(dim)), 1);
}

// Bytes of what is added up over the ranks beside gathering everyone's extremes: how many rows
// share one, the value at the place that was found, the sum of exponentials.
int64_t added_up(const Graph& graph, const Node& node) {
  if (node.target == "autosp.extreme_rows") return graph.bytes(node.type.elements.at(0));
  if (node.target == "autosp.softmax_rows") return row_bytes(graph, node, 2);
  if (node.target != "autosp.reduce_rows") return 0;
  const std::string& kind = node.args.at(1).text;
  if (kind == "logsumexp") return graph.bytes(node.type);
  const bool largest = kind == "norm" && std::isinf(node.args.at(5).number);
  if (kind != "amax" && kind != "amin" && !largest) return 0;
  return graph.bytes(Type::tensor(DType::kInt64, node.type.shape));
}

// Of states that every rank hands on in turn, and of their gradients.
Sent passed_on(const Graph& graph, const Node& node, int ranks, const std::vector<bool>& gradient) {
  int64_t states = 0;
  for (const Arg& result : node.args.at(3).items) {
    const Type& type = node.type.is_tensor()
                           ? node.type
                           : node.type.elements.at(static_cast<size_t>(result.integer));
    states += graph.bytes(type);
  }
  const int64_t bytes = sent(Traffic::kBroadcast, states * ranks, ranks);
  return {collective(Traffic::kBroadcast), bytes, gradient[node.id] ? bytes : 0};
}

}  // namespace

std::optional<Sent> sent_by(const Graph& graph, const Node& node, int ranks,
                            const std::vector<bool>& gradient) {
  if (node.target.starts_with(kPassingState)) return passed_on(graph, node, ranks, gradient);
  const auto* found = std::find_if(std::begin(kCommunications), std::end(kCommunications),
                                   [&](const Communication& c) { return node.target == c.target; });
  if (found == std::end(kCommunications)) return std::nullopt;
  Communication does = *found;
  int64_t in = 0;
  int64_t differentiated = 0;
  for_each_value(node.args.at(0), [&](NodeId operand) {
    const int64_t bytes = graph.bytes(graph.node(operand).type);
    in += bytes;
    if (gradient[operand]) differentiated += bytes;
  });
  int64_t whole = 0;
  switch (does.amount) {
    case Amount::kValue:
      whole = std::max(in, graph.bytes(node.type));
      break;
    case Amount::kOperands:
      whole = in;
      break;
    case Amount::kRows:
      whole = in * ranks;
      break;
    case Amount::kRow:
      whole = row_bytes(graph, node, does.dim) * ranks;
      break;
    case Amount::kResult:
      whole = graph.bytes(node.type);
      if (does.forward == Traffic::kGather || does.backward == Traffic::kGather) whole *= ranks;
      break;
    case Amount::kNeighbours:
      if (node.args.at(7).integer != 0) {  // further than the next ranks: all rows
        whole = in * ranks;
        does.backward = Traffic::kScatter;
      } else {
        const int64_t rows = std::max<int64_t>(node.args.at(2).integer, 0) +
                             std::max<int64_t>(node.args.at(3).integer, 0);
        whole = row_bytes(graph, node, does.dim) * rows * ranks;
      }
      break;
  }
  Sent out{collective(does.forward != Traffic::kNone ? does.forward : does.backward),
           sent(does.forward, whole, ranks), 0};
  out.forward += sent(Traffic::kReduce, added_up(graph, node), ranks);
  if (!gradient[node.id] || leaves_gradients(node)) return out;
  if (does.amount == Amount::kOperands) whole = differentiated;
  if (does.amount == Amount::kRow && does.backward == Traffic::kReduce) whole /= ranks;
  if (node.type.kind == Type::Kind::kTuple && does.amount == Amount::kResult)
    whole = graph.bytes(node.type.elements.at(0));  // a variance's, through its mean
  out.backward = sent(does.backward, whole, ranks);
  return out;
}

}  // namespace autosp
