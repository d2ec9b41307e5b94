// Writes as values: what a tensor is once a view of it, or a part of it, has a new value.
//
//   v = x[:, 2]; v' new        x' = torch.select_scatter(x, v', 1, 2)
//   v = x.view(6, 4); v' new   x' = torch.reshape(v', x's sizes)
//   v = x.transpose(0, 1)      x' = torch.permute(v', the inverse)
//   x[..., 1:, :3] = y         both cuts as slice_scatter, the inner one into the outer part
//   x[i, j] = y                x' = torch.index_put(x, (i, j), y)
//   x[mask] = 0                x' = torch.masked_fill(x, mask, 0)
//
// Only functions of torch, whose gradients are right and which compilers cache. Every function
// appends to the builder and returns the new value of `base`.
#pragma once

#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/op.h"

namespace autosp {

struct WriteBack {
  GraphBuilder& builder;
  const Node& near;        // the write, for names and sources
  NodeId base;             // in the new graph, as all values here: what is written to, before
  NodeId value = kNoNode;  // the new value of the view
  int element = 0;         // which view, where an operator gives several

  Type type(NodeId node) const { return builder.graph().node(node).type; }
  NodeId call(std::string target, std::vector<Arg> args, Type type) const {
    return builder.call(std::move(target), std::move(args), std::move(type), &near);
  }
  NodeId reshape(NodeId node, const std::vector<Expr>& shape) const;
};

// The inverses of views, for `OpDef::write_back`; the call is the view's. kNoNode where the
// arguments say something that can't be followed.
NodeId same_back(const Call& view, const WriteBack& write);     // the tensor itself
NodeId reshape_back(const Call& view, const WriteBack& write);  // the order of elements is kept
NodeId permute_back(const Call& view, const WriteBack& write);
NodeId index_back(const Call& view, const WriteBack& write);  // numbers, slices, None
NodeId select_back(const Call& view, const WriteBack& write);
NodeId narrow_back(const Call& view, const WriteBack& write);
NodeId part_back(const Call& view, const WriteBack& write);  // one of split, chunk, unbind

// The new value of `base` after the assignment `call`, copy_ or setitem (`value` is not read).
// Throws Unsupported for indices and values that it does not turn into a value.
NodeId assigned(const Call& call, const WriteBack& write);

}  // namespace autosp
