#include "ops/index_rule.h"

#include <algorithm>

#include "ops/rule_line.h"

namespace autosp {
namespace {

const std::vector<Arg>& index_entries(const Arg& index, std::vector<Arg>& storage) {
  if (index.kind == Arg::Kind::kTuple) return index.items;
  storage = {index};
  return storage;
}

// What an entry does, or nothing for those that AutoSP does not read (masks, nested lists).
std::optional<IndexItem::Kind> entry_kind(const Graph& graph, const Arg& entry) {
  switch (entry.kind) {
    case Arg::Kind::kNone:
      return IndexItem::Kind::kNew;
    case Arg::Kind::kInt:
    case Arg::Kind::kSize:
      return IndexItem::Kind::kSelect;
    case Arg::Kind::kSlice:
      return IndexItem::Kind::kSlice;
    case Arg::Kind::kList: {
      const bool integers =
          std::all_of(entry.items.begin(), entry.items.end(),
                      [](const Arg& item) { return item.kind == Arg::Kind::kInt; });
      return integers ? std::optional(IndexItem::Kind::kList) : std::nullopt;
    }
    case Arg::Kind::kValue: {
      const Type& type = graph.node(entry.value).type;
      if (type.kind == Type::Kind::kSize) return IndexItem::Kind::kSelect;
      if (!type.is_tensor() || type.dtype == DType::kBool || type.dtype == DType::kUInt8)
        return std::nullopt;
      // torch reads an index without dimensions as a number.
      return type.shape.empty() ? IndexItem::Kind::kSelect : IndexItem::Kind::kTensor;
    }
    default:
      return std::nullopt;
  }
}

bool takes_dimension(const IndexItem& item) { return item.kind != IndexItem::Kind::kNew; }
bool is_block(const IndexItem& item) {
  return item.kind == IndexItem::Kind::kTensor || item.kind == IndexItem::Kind::kList;
}

}  // namespace

std::optional<int64_t> constant_of(const Arg& arg) {
  return arg.is_integral() ? arg.as_expr().as_constant() : std::nullopt;
}

std::optional<Expr> first_row(const Arg& slice, const Expr& size) {
  const Arg& start = slice.items[0];
  if (start.is_none()) return Expr(0);
  const std::optional<int64_t> number = constant_of(start);
  if (number) return *number < 0 ? size + Expr(*number) : Expr(*number);
  return start.is_integral() ? std::optional(start.as_expr()) : std::nullopt;
}

bool is_trim(const Expr& size, const Expr& length) {
  if (!(size - length).is_constant()) return false;
  const std::optional<int64_t> rows = size.as_constant();
  return !rows || 2 * length.constant_value() > *rows;
}

Cut cut_dimension(Application& application, const Expr& size, const Expr& length,
                  const Arg& slice) {
  const Arg& stop = slice.items[1];
  const bool step_one = slice.items[2].is_none() || constant_of(slice.items[2]) == 1;
  const std::string number = std::to_string(application.letters.size());
  if (step_one && size == length) {
    const DimLetters same = application.dim("x" + number, size);
    return {same, same};
  }
  const std::optional<Expr> first = step_one ? first_row(slice, size) : std::nullopt;
  const int64_t begin = first ? first->as_constant().value_or(-1) : -1;
  const bool to_end = stop.is_none() || constant_of(stop).value_or(0) < 0;
  const bool from_end = !stop.is_none() && to_end;
  const bool has_parts = length != Expr(1) && length != Expr(0);
  const std::optional<int64_t> count = length.as_constant();
  const std::optional<int64_t> rows = size.as_constant();
  if (begin >= 0 && has_parts && (size - length).is_constant()) {
    if ((begin == 0 ? from_end : to_end) || is_trim(size, length)) {
      const LetterId letter = application.add("x" + number, size);
      const LetterId left = application.add("y" + number, length, LetterKind::kPrefix);
      application.letters[static_cast<size_t>(left)].link = letter;
      if (begin > 0) {
        application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWindow;
        application.letters[static_cast<size_t>(left)].kind = LetterKind::kShift;
      }
      return {{letter}, {left}};
    }
  }
  const bool few = first && count && (!rows || 4 * *count <= *rows);
  Cut out;
  out.operand = application.dim("x" + number, size, few ? LetterKind::kPick : LetterKind::kWhole);
  out.result = application.dim("y" + number, length, LetterKind::kWhole);
  return out;
}

std::optional<Index> read_index(const Graph& graph, const Arg& arg, size_t rank) {
  std::vector<Arg> storage;
  const std::vector<Arg>& entries = index_entries(arg, storage);
  const Arg everything = Arg::slice_of(Arg::none(), Arg::none(), Arg::none());
  const auto consumed =
      static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [](const Arg& entry) {
        return !entry.is_none() && entry.kind != Arg::Kind::kEllipsis;
      }));
  if (consumed > rank) return std::nullopt;

  Index index;
  const auto add_full = [&](size_t count) {
    for (size_t i = 0; i < count; ++i)
      index.items.push_back({IndexItem::Kind::kSlice, everything, -1, -1, -1});
  };
  bool open = true;
  for (size_t position = 0; position < entries.size(); ++position) {
    if (entries[position].kind == Arg::Kind::kEllipsis) {
      if (!open) return std::nullopt;
      open = false;
      add_full(rank - consumed);
      continue;
    }
    const std::optional<IndexItem::Kind> kind = entry_kind(graph, entries[position]);
    if (!kind) return std::nullopt;
    index.items.push_back({*kind, entries[position], static_cast<int>(position), -1, -1});
  }
  if (open) add_full(rank - consumed);

  int dim = 0;
  int blocks = 0;  // runs of neighbouring index tensors
  bool in_run = false;
  for (IndexItem& item : index.items) {
    if (takes_dimension(item)) item.operand = dim++;
    if (item.kind == IndexItem::Kind::kSelect) continue;
    if (is_block(item) && !in_run) ++blocks;
    in_run = is_block(item);
    if (!in_run) continue;
    const int item_rank = item.kind == IndexItem::Kind::kList
                              ? 1
                              : static_cast<int>(graph.node(item.arg.value).type.shape.size());
    index.block_rank = std::max(index.block_rank, item_rank);
  }
  bool placed = blocks != 1;
  index.rank = blocks > 1 ? index.block_rank : 0;
  for (IndexItem& item : index.items) {
    if (item.kind == IndexItem::Kind::kSelect) continue;
    if (!is_block(item)) {
      item.result = index.rank++;
    } else if (!placed) {
      placed = true;
      index.block_begin = index.rank;
      index.rank += index.block_rank;
    }
  }
  return index;
}

Indexed index_letters(Application& application, const Graph& graph, const Index& index,
                      const Type& operand, const std::vector<Expr>& shape, LetterKind block_kind,
                      LetterKind rows_kind) {
  Indexed out;
  out.operand.resize(operand.shape.size());
  out.selected.resize(shape.size());
  TensorLetters block;
  for (int i = 0; i < index.block_rank; ++i) {
    const auto dim = static_cast<size_t>(index.block_begin) + static_cast<size_t>(i);
    block.push_back(application.dim("i" + std::to_string(i), shape[dim], block_kind));
    out.selected[dim] = block.back();
  }
  for (const IndexItem& item : index.items) {
    const auto dim = static_cast<size_t>(item.operand);
    const auto rows = [&] {
      return application.dim("x" + std::to_string(application.letters.size()), operand.shape[dim],
                             rows_kind);
    };
    if (item.kind == IndexItem::Kind::kSlice) {
      const Cut parts = cut_dimension(application, operand.shape[dim],
                                      shape[static_cast<size_t>(item.result)], item.arg);
      out.operand[dim] = parts.operand;
      out.selected[static_cast<size_t>(item.result)] = parts.result;
    } else if (takes_dimension(item)) {
      out.operand[dim] = rows();
    }
    if (item.kind == IndexItem::Kind::kList) {
      // A constant list is a cut: its entries are positions in the whole operand.
      for (LetterId letter : block.back())
        application.letters[static_cast<size_t>(letter)].kind = LetterKind::kWhole;
    }
    for_each_value(item.arg, [&](NodeId value) {
      const Type& type = graph.node(value).type;
      if (type.is_tensor()) out.tensors.push_back({value, 0, broadcast_letters(type.shape, block)});
    });
    if (item.kind == IndexItem::Kind::kTensor && block.size() == 1 && !block[0].empty() &&
        !out.operand[dim].empty()) {
      out.picked = Picked{0, out.operand[dim][0], block[0][0]};
    }
  }
  // Several index tensors pick together.
  if (out.tensors.size() != 1) out.picked.reset();
  return out;
}

}  // namespace autosp
