// Indexing on a part of the sequence: each rank gives the rows that it holds, shifted rows come
// from neighbours, and rows at given positions from whoever holds them, as a partial sum.
#pragma once

#include "ops/local_form.h"

namespace autosp {

LocalResult getitem_local(LocalForm& form);
LocalResult narrow_local(LocalForm& form);
LocalResult select_local(LocalForm& form);
LocalResult gather_local(LocalForm& form);        // gather along the sharded dimension
LocalResult index_select_local(LocalForm& form);  // index_select along it
LocalResult scatter_sum_local(LocalForm& form);   // its rows added up into zeros
LocalResult slice_scatter_local(LocalForm& form);

// The parameter of a scatter that what is added stands in.
inline std::string_view added_parameter(const Call& call) {
  return call.find("src") != nullptr ? "src" : "source";
}

}  // namespace autosp
