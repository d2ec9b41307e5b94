// Random numbers as values: what an operator draws, written as arithmetic on a seed that is an
// input of the program and on the place of each element in the whole tensor. So a rank that holds a
// part draws that part of what one device draws, and drawing again gives the same.
//
//   y = dropout(x, p)      u = autosp.uniform(x, seed, 3, 2, 3)       draw number 3 of the program
//                          y = where(u >= p, x * (1 / (1 - p)), 0)
//
//   autosp.uniform(like, seed, stream, rows, dims, dim, size, start)
//     Numbers of [0, 1) in float32 of the shape of `like`, whose data nobody reads: one for each
//     element, or, with less `dims` than it has, for each place in its first `dims` dimensions. Of
//     these the first `rows` number a row, the others a column. Other numbers in every stream.
//     Where `like` is a part, cut along `dim`: the places from `start` on of a tensor that has
//     `size` of them; those past the end have the last one's numbers.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"

namespace autosp {

struct Draw {
  GraphBuilder& builder;
  const Node& near;  // the call, for names and sources
  NodeId seed;
  int64_t& stream;  // the next one's number

  Type type(NodeId node) const { return builder.graph().node(node).type; }
  NodeId call(std::string target, std::vector<Arg> args, Type type) const {
    return builder.call(std::move(target), std::move(args), std::move(type), &near);
  }
  NodeId uniform(NodeId like, int64_t dims) const;
  NodeId uniform(NodeId like) const;
  // Of the same shape and dtype.
  NodeId map(std::string target, NodeId value, std::vector<Arg> more = {}) const;
  NodeId cast(NodeId value, DType dtype) const;
};

}  // namespace autosp
