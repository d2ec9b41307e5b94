// Gives products of groups counts of their own, so that what tells where a rank's groups end is
// read by nothing else: rows past the end of a part are in its groups, but are not to be counted.
//
//   before   %n = torch.histc(%keys, …); %ends = torch.cumsum(%n, 0)
//            %y = torch._grouped_mm(%x, %w, offs=%ends); %share = torch.div(%n, s)
//   after    %n = torch.histc(%keys, …); %share = torch.div(%n, s)
//            %n_1 = torch.histc(%keys, …); %ends_1 = torch.cumsum(%n_1, 0)
//            %y = torch._grouped_mm(%x, %w, offs=%ends_1)
//
// Linear. What nothing reads any more stays.
#pragma once

#include "sharding/axes.h"

namespace autosp {

// `axes` are those of the graph. Returns whether it has changed.
bool separate_counts(Graph& graph, const Axes& axes);

}  // namespace autosp
