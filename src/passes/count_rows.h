// The numbers of rows as a tensor, for passes that write positions out.
#pragma once

#include "ir/builder.h"

namespace autosp {

// 1, 2, … `length`, of a whole `dtype`, on the device of `like` (a value of the new graph): a call
// that takes no device only has one through another tensor.
inline NodeId count_rows(GraphBuilder& builder, const Expr& length, DType dtype, NodeId like,
                         const Node& near) {
  const Type type = Type::tensor(dtype, {length});
  const Kwargs of_dtype = {{"dtype", Arg::literal_of(torch_dtype(dtype))}};
  const NodeId ones = builder.call("Tensor.new_ones", {Arg::of(like), Arg::sizes_of({length})},
                                   of_dtype, type, &near);
  return builder.call("torch.cumsum", {Arg::of(ones), Arg::integer_of(0)}, of_dtype, type, &near);
}

}  // namespace autosp
