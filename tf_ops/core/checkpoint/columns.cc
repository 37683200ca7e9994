#include "tf_ops/core/checkpoint/columns.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/checkpoint/restore_checks.h"
#include "tf_ops/core/table/shard_loops.h"

namespace fused_embedding {
namespace {

RowHeader HeaderOf(const TableCopy& copy, int64_t row) {
  return HeaderAt(copy.rows.data() + row * copy.layout.row_bytes());
}

// The order of `n` keys, the smallest first.
template <typename KeyOf>
std::vector<int64_t> Order(int64_t n, const KeyOf& key_of) {
  std::vector<std::pair<int64_t, int64_t>> keys(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) keys[static_cast<size_t>(i)] = {key_of(i), i};
  std::sort(keys.begin(), keys.end());
  std::vector<int64_t> order(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) order[i] = keys[i].second;
  return order;
}

template <typename T>
void Permute(const std::vector<int64_t>& order, std::vector<T>* values) {
  std::vector<T> permuted;
  permuted.reserve(values->size());
  for (const int64_t i : order) permuted.push_back((*values)[static_cast<size_t>(i)]);
  values->swap(permuted);
}

// `*is_uniform`: whether no optimizer added slots while the shards were copied.
Status CopyShards(const EmbeddingTable& table, TableCopy* copy, bool* is_uniform) {
  *is_uniform = true;
  for (int64_t shard = 0; shard < table.num_shards(); ++shard) {
    RowLayout layout;
    FE_RETURN_IF_ERROR(table.CopyShard(shard, &layout, &copy->rows, &copy->filtered));
    if (shard > 0 && !(layout.slots == copy->layout.slots)) *is_uniform = false;
    copy->layout = layout;
  }
  return table.CopyCold([&](const RowLayout& layout, Span<const char> rows) {
    if (!(layout.slots == copy->layout.slots)) *is_uniform = false;
    copy->rows.insert(copy->rows.end(), rows.begin(), rows.end());
    return Status();
  });
}

}  // namespace

Status CopyTable(const EmbeddingTable& table, TableCopy* copy) {
  try {
    // Slots are added once, by the first step of an optimizer.
    bool is_uniform = false;
    while (!is_uniform) {
      *copy = TableCopy();
      FE_RETURN_IF_ERROR(CopyShards(table, copy, &is_uniform));
    }
    const int64_t row_bytes = copy->layout.row_bytes();
    copy->order = Order(static_cast<int64_t>(copy->rows.size()) / row_bytes,
                        [&](int64_t row) { return HeaderOf(*copy, row).key; });
    FilteredKeys& filtered = copy->filtered;
    const auto order = Order(static_cast<int64_t>(filtered.keys.size()),
                             [&](int64_t i) { return filtered.keys[static_cast<size_t>(i)]; });
    Permute(order, &filtered.keys);
    Permute(order, &filtered.frequencies);
    Permute(order, &filtered.versions);
    copy->step = table.step();
    copy->initializer = table.initializer();
    return table.CopyBloom(&copy->bloom);
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate a copy of the table's ", table.size(),
                             " rows; save it as a stream: tf.train.Checkpoint or fe.train.Saver");
  }
}

void SplitColumns(const TableCopy& copy, const TableColumns& columns) {
  const RowLayout& layout = copy.layout;
  const int64_t row_bytes = layout.row_bytes();
  const auto value_bytes = static_cast<size_t>(layout.value_bytes());
  const auto slot_bytes = static_cast<size_t>(layout.slot_width() * layout.slot_number_bytes());
  for (int64_t i = 0; i < copy.num_rows(); ++i) {
    const int64_t row = copy.order[static_cast<size_t>(i)];
    const char* bytes = copy.rows.data() + row * row_bytes;
    const RowHeader header = HeaderOf(copy, row);
    columns.keys[i] = header.key;
    columns.frequencies[i] = header.frequency;
    columns.versions[i] = header.version;
    std::memcpy(columns.values + static_cast<size_t>(i) * value_bytes,
                bytes + layout.value_offset(), value_bytes);
    if (slot_bytes == 0) continue;
    std::memcpy(columns.slots + static_cast<size_t>(i) * slot_bytes, bytes + layout.slots_offset(),
                slot_bytes);
  }
}

namespace {

// The rows of one partition, gathered: `Content` points into it.
struct GatheredRows {
  Buffer<int64_t> keys, frequencies, versions;
  Buffer<char> values, slots;
  EmbeddingTable::Content content;
};

template <typename T>
Status GatherRows(Span<const int64_t> positions, const T* in, int64_t width, Buffer<T>* out) {
  FE_RETURN_IF_ERROR(out->Allocate(positions.size * width));
  if (width == 0) return Status();
  for (int64_t i = 0; i < positions.size; ++i) {
    std::memcpy(out->data() + i * width, in + positions[i] * width,
                static_cast<size_t>(width) * sizeof(T));
  }
  return Status();
}

Status PositionsOfPartition(Span<const int64_t> keys, const PartitionFilter& partition,
                            Buffer<int64_t>* positions, int64_t* size) {
  FE_RETURN_IF_ERROR(positions->Allocate(keys.size));
  *size = 0;
  for (int64_t i = 0; i < keys.size; ++i) {
    if (partition.Keeps(keys[i])) (*positions)[(*size)++] = i;
  }
  return Status();
}

Status GatherPartition(const TableContent& in, const PartitionFilter& partition,
                       const RowLayout& layout, GatheredRows* out) {
  Buffer<int64_t> buffer;
  int64_t size = 0;
  FE_RETURN_IF_ERROR(PositionsOfPartition(in.rows.keys, partition, &buffer, &size));
  const Span<const int64_t> positions{buffer.data(), size};
  int64_t slot_width = 0;
  for (const Slot& slot : in.slots) slot_width += slot.width;
  FE_RETURN_IF_ERROR(GatherRows(positions, in.rows.keys.data, 1, &out->keys));
  FE_RETURN_IF_ERROR(GatherRows(positions, in.rows.frequencies.data, 1, &out->frequencies));
  FE_RETURN_IF_ERROR(GatherRows(positions, in.rows.versions.data, 1, &out->versions));
  FE_RETURN_IF_ERROR(GatherRows(positions, in.rows.values, layout.value_bytes(), &out->values));
  FE_RETURN_IF_ERROR(
      GatherRows(positions, in.rows.slots, slot_width * layout.slot_number_bytes(), &out->slots));
  out->content = {out->keys.span(),        out->values.data(),   out->slots.data(),
                  out->frequencies.span(), out->versions.span(), slot_width};
  return Status();
}

Status FilteredOfPartition(const FilteredKeys& in, const PartitionFilter& partition,
                           FilteredKeys* out) {
  try {
    for (size_t i = 0; i < in.keys.size(); ++i) {
      if (!partition.Keeps(in.keys[i])) continue;
      out->keys.push_back(in.keys[i]);
      out->frequencies.push_back(in.frequencies[i]);
      out->versions.push_back(in.versions[i]);
    }
  } catch (const std::bad_alloc&) {
    return ResourceExhausted("cannot allocate the counts of ", in.keys.size(), " keys");
  }
  return Status();
}

Status CheckNotNegative(const char* name, Span<const int64_t> numbers) {
  for (int64_t i = 0; i < numbers.size; ++i) {
    if (numbers[i] < 0) {
      return InvalidArgument(name, " must not be negative, got ", name, "[", i, "] = ", numbers[i]);
    }
  }
  return Status();
}

Status CheckSlots(const std::vector<Slot>& slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i].width < 1 || slots[i].width > kMaxDim) {
      return InvalidArgument("slot ", slots[i].name, " must have a width in [1, ", kMaxDim,
                             "], got ", slots[i].width);
    }
    for (size_t j = 0; j < i; ++j) {
      if (slots[i].name == slots[j].name) {
        return InvalidArgument("slot names must be distinct, got ", slots[i].name, " twice");
      }
    }
  }
  return Status();
}

// ResourceExhausted where the table would refuse rows of these keys.
Status CheckFits(Span<const int64_t> keys, const EmbeddingTable& table) {
  if (!RefusesRows(table.config())) return Status();
  return WithoutExceptions([&] {
    std::vector<int64_t> distinct(keys.begin(), keys.end());
    std::sort(distinct.begin(), distinct.end());
    distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
    std::vector<int64_t> num_rows_of_shard(static_cast<size_t>(table.num_shards()));
    for (const int64_t key : distinct) ++num_rows_of_shard[static_cast<size_t>(table.ShardOf(key))];
    return fused_embedding::CheckFits(table.config(), "the saved variable",
                                      AsSpan(num_rows_of_shard));
  });
}

Status InsertRows(const CpuExec& exec, const EmbeddingTable::Content& rows, EmbeddingTable* table) {
  const RowLayout& layout = table->config().layout;
  const int64_t slots_bytes = rows.slot_width * layout.slot_number_bytes();
  const int64_t step = RestoredAtOnce(table->config());
  for (int64_t begin = 0, n; begin < rows.keys.size; begin += n) {
    n = std::min(step, rows.keys.size - begin);
    EmbeddingTable::Content batch = rows;
    batch.keys = {rows.keys.data + begin, n};
    batch.values = rows.values + begin * layout.value_bytes();
    batch.slots = rows.slots + begin * slots_bytes;
    batch.frequencies = {rows.frequencies.data + begin, n};
    batch.versions = {rows.versions.data + begin, n};
    FE_RETURN_IF_ERROR(table->Upsert(exec, batch));
  }
  return Status();
}

}  // namespace

Status ReplaceContent(const CpuExec& exec, const TableContent& content,
                      const PartitionFilter& partition, EmbeddingTable* table) {
  FE_RETURN_IF_ERROR(CheckPartition(partition));
  FE_RETURN_IF_ERROR(CheckInitializer(content.initializer, table->config().layout));
  FE_RETURN_IF_ERROR(CheckNotNegative("frequencies", content.rows.frequencies));
  FE_RETURN_IF_ERROR(CheckNotNegative("versions", content.rows.versions));
  FE_RETURN_IF_ERROR(CheckSlots(content.slots));
  if (!content.bloom.empty()) FE_RETURN_IF_ERROR(table->CheckBloom(content.bloom));
  GatheredRows rows;
  FilteredKeys filtered;
  FE_RETURN_IF_ERROR(GatherPartition(content, partition, table->config().layout, &rows));
  FE_RETURN_IF_ERROR(FilteredOfPartition(content.filtered, partition, &filtered));
  FE_RETURN_IF_ERROR(CheckFits(rows.content.keys, *table));
  // Nothing was changed before this line.
  FE_RETURN_IF_ERROR(table->Clear());
  const auto fill = [&] {
    FE_RETURN_IF_ERROR(table->SetInitializer(content.initializer));
    table->set_step(content.step);
    FE_RETURN_IF_ERROR(table->EnsureSlots(AsSpan(content.slots)));
    FE_RETURN_IF_ERROR(InsertRows(exec, rows.content, table));
    FE_RETURN_IF_ERROR(table->RestoreFiltered(filtered));
    return content.bloom.empty() ? Status() : table->RestoreBloom(content.bloom);
  };
  const Status filled = fill();
  return filled.ok() ? filled : EmptyTableAfter(filled, table);
}

}  // namespace fused_embedding
