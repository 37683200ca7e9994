#include "tf_ops/core/lookup/group/group_lookup_grad.cu.h"

#include <utility>

#include "tf_ops/core/base/cuda/launch.cu.h"
#include "tf_ops/core/lookup/group/group_column.cu.h"
#include "tf_ops/core/lookup/stages/unique.cu.h"

namespace fused_embedding {
namespace {

// A column, where its gradient is, and where its pairs lie among those of all tables: first those
// of its ids, then one for each row that may be filled, or one for all where the filled rows are
// zero.
template <typename T>
struct GradColumn : GpuColumn<T> {
  CombinedGrad<T> grad;
  int64_t first_position = 0;
  bool is_full_width = false;
  int num_lanes = 1;
  Range clip_blocks;  // of ClipPositionsKernel

  FE_HOST_DEVICE int64_t num_positions() const {
    const GroupColumn<T>& column = this->column;
    if (!column.fill) return column.num_pairs();
    return column.num_pairs() + (column.fills_default() ? column.num_rows : 1);
  }
};

// What is known of each pair. Positions that turn out to be none are not used.
template <typename T>
struct PairPositions {
  int64_t* ids;
  bool* is_used;
  ScaledRow<T>* pairs;

  __device__ void Set(int64_t position, int64_t id, const ScaledRow<T>& pair) const {
    ids[position] = id;
    is_used[position] = true;
    pairs[position] = pair;
  }
};

// The pairs of each row, in input order; both null where no column needs them.
struct PairsOfRows {
  const int32_t* splits;
  const int32_t* order;
};

// row_scale: what the sum of each row is multiplied by.
template <typename T>
__global__ void RowScalesKernel(const GradColumn<T>* __restrict__ columns, int64_t num_columns,
                                const int32_t* __restrict__ counts, PairsOfRows pairs,
                                ComputeType<T>* __restrict__ row_scale) {
  using C = ComputeType<T>;
  const GradColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::row_blocks);
  const GroupColumn<T>& column = of_block.column;
  of_block.ForEachRow([&](int64_t row) {
    const int64_t number = of_block.first_row + row;
    double terms = counts[number];
    if (column.combiner != Combiner::kSum && !column.weights.empty()) {
      // A pair that does not exist may be among them: its column is an error then.
      const auto pair_at = [&](int64_t i) { return pairs.order[i] - of_block.first_pair; };
      terms = TermsOf(column, pairs.splits[number], pairs.splits[number + 1], pair_at).sum;
    }
    row_scale[number] = static_cast<C>(ScaleOfRow(column, row, terms));
  });
}

template <typename T>
__global__ void CollectPairsKernel(const GradColumn<T>* __restrict__ columns, int64_t num_columns,
                                   const ComputeType<T>* __restrict__ row_scale,
                                   PairPositions<T> positions) {
  const GradColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::pair_blocks);
  const GroupColumn<T>& column = of_block.column;
  of_block.ForEachPair([&](int64_t k) {
    if (!column.Exists(k)) return;
    const int64_t row = column.row_ids[k];
    const ComputeType<T> scale = row_scale[of_block.first_row + row];
    positions.Set(of_block.first_position + k, column.ids[k],
                  {PassedBack(of_block.grad.data, row, of_block.grad.stride, scale),
                   scale * column.weight(k)});
  });
}

template <typename T>
__global__ void CollectFilledKernel(const GradColumn<T>* __restrict__ columns, int64_t num_columns,
                                    const int32_t* __restrict__ counts,
                                    PairPositions<T> positions) {
  const GradColumn<T>& of_block = ItemOfBlock(columns, num_columns, &GpuColumn<T>::row_blocks);
  const GroupColumn<T>& column = of_block.column;
  // As Exists: this runs before a check can tell of an id that the table does not have.
  const bool exists = column.ids_are_keys || column.filled_id() < column.table_rows;
  if (!column.fill || !exists) return;
  const int64_t first = of_block.first_position + column.num_pairs();
  of_block.ForEachRow([&](int64_t row) {
    if (counts[of_block.first_row + row] != 0) return;
    if (column.fills_default()) {
      positions.Set(first + row, column.filled_id(), {of_block.grad.row(row), 1});
    } else {
      positions.Set(first, column.filled_id(), {nullptr, 0});  // the same for each empty row
    }
  });
}

// A table, and where its results go.
template <typename T>
struct GradTable {
  int64_t end_position = 0;
  int64_t first_unique = 0, end_unique = 0;
  int64_t* unique_ids = nullptr;  // or null: not wanted
  const T* table = nullptr;
  int64_t dim = 0;
};

// The table of a position, or of a unique id: the end of each table is its field `end`.
template <typename T>
__device__ const GradTable<T>& TableAt(const GradTable<T>* tables, int64_t num_tables,
                                       int64_t GradTable<T>::* end, int64_t at) {
  return tables[ItemOfPosition(num_tables, at, [&](int64_t t) { return tables[t].*end; })];
}

// Numbers the positions; those that are not used come last.
template <typename T>
struct Numbering {
  const uint32_t* first;
  const int32_t* numbers;
  int64_t num_positions, num_unique;
  uint32_t* unique_idx;  // [num_positions]
  const T** embeddings;  // [num_unique], or null: no column clips
};

template <typename T>
__global__ void NumberPositionsKernel(PairPositions<T> positions,
                                      const GradTable<T>* __restrict__ tables, int64_t num_tables,
                                      Numbering<T> out) {
  for (int64_t i = ThreadOfGrid(); i < out.num_positions; i += NumThreadsOfGrid()) {
    const uint32_t first = out.first[i];
    const bool is_used = first != kNoPosition;
    const int64_t number = is_used ? out.numbers[first] : out.num_unique;
    out.unique_idx[i] = static_cast<uint32_t>(number);
    if (first != i || !is_used) continue;
    const GradTable<T>& table = TableAt(tables, num_tables, &GradTable<T>::end_position, i);
    const int64_t id = positions.ids[i];
    if (table.unique_ids) table.unique_ids[number - table.first_unique] = id;
    if (out.embeddings) out.embeddings[number] = table.table + id * table.dim;
  }
}

// The same where ids are positions in distinct rows, each a unique id: no search for the first.
template <typename T>
__global__ void NumberOwnPositionsKernel(PairPositions<T> positions,
                                         const GradTable<T>* __restrict__ tables,
                                         int64_t num_tables, Numbering<T> out) {
  for (int64_t i = ThreadOfGrid(); i < out.num_positions; i += NumThreadsOfGrid()) {
    int64_t number = out.num_unique;
    if (positions.is_used[i]) {
      const GradTable<T>& table = TableAt(tables, num_tables, &GradTable<T>::end_position, i);
      number = table.first_unique + positions.ids[i];
    }
    out.unique_idx[i] = static_cast<uint32_t>(number);
  }
  for (int64_t u = ThreadOfGrid(); u < out.num_unique; u += NumThreadsOfGrid()) {
    const GradTable<T>& table = TableAt(tables, num_tables, &GradTable<T>::end_unique, u);
    const int64_t row = u - table.first_unique;
    if (table.unique_ids) table.unique_ids[row] = row;
    if (out.embeddings) out.embeddings[u] = table.table + row * table.dim;
  }
}

template <int kWidth, typename T>
__device__ void ClipPosition(const GradColumn<T>& of_block, const PairPositions<T>& positions,
                             ComputeType<T>* projections) {
  const GroupColumn<T>& column = of_block.column;
  const Lanes lanes(of_block.num_lanes);
  const int64_t number = lanes.GroupOf(of_block.clip_blocks);
  const int64_t position = of_block.first_position + number;
  if (number >= of_block.num_positions() || !positions.is_used[position]) return;
  ScaledRow<T> pair = positions.pairs[position];
  const ComputeType<T> projection = ClipPair<kWidth>(
      lanes, column.row_of_id(positions.ids[position]), column.dim, column.max_norm, &pair);
  if (lanes.lane != 0) return;
  positions.pairs[position] = pair;
  projections[position] = projection;
}

template <typename T>
__global__ void __launch_bounds__(kBlockSize, kMinBlocks)
    ClipPositionsKernel(const GradColumn<T>* __restrict__ columns, int64_t num_columns,
                        PairPositions<T> positions, ComputeType<T>* __restrict__ projections) {
  const GradColumn<T>& column = ItemOfBlock(columns, num_columns, &GradColumn<T>::clip_blocks);
  if (column.is_full_width) {
    ClipPosition<kFullWidth<T>>(column, positions, projections);
  } else {
    ClipPosition<1>(column, positions, projections);
  }
}

template <typename T>
PairPositions<T> PositionsOf(const GpuGroupGradPlan<T>& plan) {
  return {plan.ids.data(), plan.is_used.data(), plan.pairs.data()};
}

// The columns of one table after those of another, each laid out.
template <typename T>
Status LayOut(const GroupGradInput<T>& in, LaidOutColumns<T>* laid_out,
              std::vector<GradColumn<T>>* columns, int64_t* num_clip_blocks,
              GpuGroupGradPlan<T>* plan) {
  const std::vector<int64_t> order = ColumnsByTable(in.table_of_column);
  std::vector<GroupColumn<T>> by_table;
  for (const int64_t c : order) by_table.push_back(in.columns[c]);
  FE_RETURN_IF_ERROR(LayOutColumns<T>(AsSpan(by_table), laid_out));
  plan->tables.assign(static_cast<size_t>(in.num_tables), {});
  for (size_t i = 0; i < order.size(); ++i) {
    GradColumn<T> column;
    static_cast<GpuColumn<T>&>(column) = laid_out->columns[i];
    column.grad = in.combined_grads[order[i]];
    column.first_position = plan->num_positions;
    // A sum of int32 numbers, for they were checked, and of 2^32 rows at most.
    plan->num_positions += column.num_positions();
    GpuTableGradPlan<T>& table = plan->tables[static_cast<size_t>(in.table_of_column[order[i]])];
    table.table = column.column.table;
    table.dim = column.column.dim;
    if (in.ids_are_positions) table.num_unique = column.column.table_rows;
    table.num_positions += column.num_positions();
    const uint64_t bits = column.grad.address_bits() | reinterpret_cast<uintptr_t>(table.table);
    table.address_bits |= bits;
    column.is_full_width = HasFullWidth<T>(table.dim, bits);
    column.num_lanes = NumLanes<T>(table.dim, column.is_full_width);
    const bool clips = column.column.max_norm >= 0 && table.dim > 0;
    column.clip_blocks = TakeBlocks(clips ? column.num_positions() : 0,
                                    kBlockSize / column.num_lanes, num_clip_blocks);
    columns->push_back(column);
  }
  return CheckNumPairs(plan->num_positions);
}

// Fills plan->ids, is_used and pairs.
template <typename T>
Status CollectPairs(const GpuExec& exec, const LaidOutColumns<T>& laid_out,
                    const DeviceBuffer<GradColumn<T>>& columns, GpuGroupGradPlan<T>* plan) {
  bool needs_rows = false;
  for (const GpuColumn<T>& column : laid_out.columns) {
    needs_rows |= column.column.combiner != Combiner::kSum && !column.column.weights.empty();
  }
  DeviceBuffer<GpuColumn<T>> plain_columns;
  FE_RETURN_IF_ERROR(Upload<GpuColumn<T>>(exec, AsSpan(laid_out.columns), &plain_columns));
  GpuPairGroups by_row;
  if (needs_rows) {
    // Whether rows decrease is not known yet, and to wait for it would take longer than to sort.
    FE_RETURN_IF_ERROR(
        GroupColumnsByRow(exec, laid_out, plain_columns, /*are_sorted=*/false, &by_row));
  }
  DeviceBuffer<int32_t> counts;
  DeviceBuffer<ComputeType<T>> row_scale;
  FE_RETURN_IF_ERROR(counts.Allocate(exec, laid_out.num_rows));
  FE_RETURN_IF_ERROR(row_scale.Allocate(exec, laid_out.num_rows));
  FE_RETURN_IF_ERROR(CountPairs(exec, laid_out, plain_columns, counts.span()));
  FE_RETURN_IF_ERROR(LaunchBlocks(
      exec, laid_out.num_row_blocks, RowScalesKernel<T>, columns.data(), columns.size(),
      counts.data(), PairsOfRows{by_row.splits.data(), by_row.order.data()}, row_scale.data()));
  FE_RETURN_IF_ERROR(plan->ids.Allocate(exec, plan->num_positions));
  FE_RETURN_IF_ERROR(plan->is_used.Allocate(exec, plan->num_positions));
  FE_RETURN_IF_ERROR(plan->pairs.Allocate(exec, plan->num_positions));
  FE_RETURN_IF_ERROR(Fill(exec, false, plan->is_used.span()));
  FE_RETURN_IF_ERROR(LaunchBlocks(exec, laid_out.num_pair_blocks, CollectPairsKernel<T>,
                                  columns.data(), columns.size(), row_scale.data(),
                                  PositionsOf(*plan)));
  return LaunchBlocks(exec, laid_out.num_row_blocks, CollectFilledKernel<T>, columns.data(),
                      columns.size(), counts.data(), PositionsOf(*plan));
}

// Where clipped embeddings make it necessary, turns gradients into those before the clipping.
template <typename T>
Status Clip(const GpuExec& exec, const DeviceBuffer<GradColumn<T>>& columns,
            int64_t num_clip_blocks, GpuGroupGradPlan<T>* plan) {
  if (num_clip_blocks == 0) return Status();
  FE_RETURN_IF_ERROR(plan->projections.Allocate(exec, plan->num_positions));
  FE_RETURN_IF_ERROR(Fill(exec, 0, plan->projections.span()));
  return LaunchBlocks(exec, num_clip_blocks, ClipPositionsKernel<T>, columns.data(), columns.size(),
                      PositionsOf(*plan), plan->projections.data());
}

// Numbers the ids. `device_numbers` [num_tables + 1]: how many of them are before those of each
// table.
template <typename T>
Status Number(const GpuExec& exec, GpuGroupGradPlan<T>* plan,
              DeviceBuffer<int32_t>* device_numbers) {
  std::vector<int64_t> ends = {0};
  for (const GpuTableGradPlan<T>& table : plan->tables) {
    ends.push_back(ends.back() + table.num_positions);
  }
  const int64_t num_ends = static_cast<int64_t>(ends.size());
  FE_RETURN_IF_ERROR(NumberFirst<int64_t>(
      exec, {plan->ids.span(), plan->is_used.data(), {ends.data() + 1, num_ends - 1}},
      &plan->unique));
  return NumbersBefore(exec, plan->unique, AsSpan(std::as_const(ends)), device_numbers);
}

// The numbers of unique ids, once their table's are known.
template <typename T>
void SetFirstUnique(GpuGroupGradPlan<T>* plan) {
  int64_t next = 0;
  for (GpuTableGradPlan<T>& table : plan->tables) {
    table.first_unique = next;
    next += table.num_unique;
  }
  plan->unique.num_unique = next;
}

// Writes the unique ids and what SumPairs needs: the number of each position, and embeddings.
template <typename T>
Status NumberPositions(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                       Span<const TableGrad<T>> grads, const DeviceBuffer<uint32_t>& unique_idx,
                       const DeviceBuffer<const T*>& embeddings) {
  std::vector<GradTable<T>> tables;
  int64_t end = 0;
  for (int64_t t = 0; t < grads.size; ++t) {
    const GpuTableGradPlan<T>& table = plan.tables[static_cast<size_t>(t)];
    end += table.num_positions;
    tables.push_back({end, table.first_unique, table.first_unique + table.num_unique,
                      grads[t].unique_ids, table.table, table.dim});
  }
  DeviceBuffer<GradTable<T>> device_tables;
  FE_RETURN_IF_ERROR(Upload<GradTable<T>>(exec, AsSpan(tables), &device_tables));
  const Numbering<T> numbering = {plan.unique.first.data(), plan.unique.numbers.data(),
                                  plan.num_positions,       plan.unique.num_unique,
                                  unique_idx.data(),        embeddings.data()};
  return Launch(exec, plan.num_positions,
                plan.ids_are_positions ? NumberOwnPositionsKernel<T> : NumberPositionsKernel<T>,
                PositionsOf(plan), device_tables.data(), device_tables.size(), numbering);
}

}  // namespace

template <typename T>
Status PlanGroupLookupGrad(const GpuExec& exec, const GroupGradInput<T>& in,
                           GpuGroupGradPlan<T>* plan) {
  ColumnCheck check;
  Readback readback;
  FE_RETURN_IF_ERROR(StartCheck(exec, in.columns, &check, &readback));
  LaidOutColumns<T> laid_out;
  std::vector<GradColumn<T>> columns;
  int64_t num_clip_blocks = 0;
  FE_RETURN_IF_ERROR(LayOut(in, &laid_out, &columns, &num_clip_blocks, plan));
  DeviceBuffer<GradColumn<T>> device_columns;
  FE_RETURN_IF_ERROR(Upload<GradColumn<T>>(exec, AsSpan(columns), &device_columns));
  FE_RETURN_IF_ERROR(CollectPairs(exec, laid_out, device_columns, plan));
  FE_RETURN_IF_ERROR(Clip(exec, device_columns, num_clip_blocks, plan));
  DeviceBuffer<int32_t> device_numbers;
  std::vector<int32_t> first_uniques;
  plan->ids_are_positions = in.ids_are_positions;
  if (!in.ids_are_positions) {
    FE_RETURN_IF_ERROR(Number(exec, plan, &device_numbers));
    first_uniques.resize(plan->tables.size() + 1);
    readback.Add<int32_t>(device_numbers.data(), AsSpan(first_uniques));
  }
  FE_RETURN_IF_ERROR(readback.Wait(exec));
  std::vector<PairOrder> orders;
  FE_RETURN_IF_ERROR(FinishCheck(exec, in.columns, check, &orders));
  for (size_t t = 0; t < plan->tables.size(); ++t) {
    GpuTableGradPlan<T>& table = plan->tables[t];
    if (!in.ids_are_positions) table.num_unique = first_uniques[t + 1] - first_uniques[t];
    FE_RETURN_IF_ERROR(CheckDistinctRows(table.num_unique, table.num_positions));
  }
  SetFirstUnique(plan);
  return Status();
}

template <typename T>
Status SortGroupPairs(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                      Span<const TableGrad<T>> grads, SortedGroupPairs<T>* sorted) {
  const int64_t num_unique = plan.unique.num_unique;
  DeviceBuffer<uint32_t> unique_idx;
  FE_RETURN_IF_ERROR(unique_idx.Allocate(exec, plan.num_positions));
  FE_RETURN_IF_ERROR(sorted->splits.Allocate(exec, num_unique + 1));
  if (plan.projections.size() > 0) {
    FE_RETURN_IF_ERROR(sorted->embeddings.Allocate(exec, num_unique));
  }
  FE_RETURN_IF_ERROR(NumberPositions(exec, plan, grads, unique_idx, sorted->embeddings));
  FE_RETURN_IF_ERROR(SortByKey(exec, unique_idx.span(), num_unique + 1, &sorted->by_unique));
  FE_RETURN_IF_ERROR(SplitByKey(exec, sorted->by_unique.keys.span(), sorted->splits.span()));
  sorted->pairs = {
      plan.pairs.data(),     sorted->by_unique.keys.data(), sorted->by_unique.order.data(),
      sorted->splits.data(), plan.projections.data(),       sorted->embeddings.data()};
  return Status();
}

template <typename T>
Status RunGroupLookupGrad(const GpuExec& exec, const GpuGroupGradPlan<T>& plan,
                          Span<const TableGrad<T>> grads) {
  SortedGroupPairs<T> sorted;
  FE_RETURN_IF_ERROR(SortGroupPairs(exec, plan, grads, &sorted));
  std::vector<SumTable<T>> tables;
  for (int64_t t = 0; t < grads.size; ++t) {
    T* rows_grad = grads[t].rows_grad;
    tables.push_back(SumTableOf(plan.tables[static_cast<size_t>(t)],
                                reinterpret_cast<uintptr_t>(rows_grad),
                                StoreSums<T>{rows_grad, nullptr}));
  }
  return SumPairs<T>(exec, sorted.pairs, tables);
}

#define FE_INSTANTIATE(T)                                                        \
  template Status PlanGroupLookupGrad(const GpuExec&, const GroupGradInput<T>&,  \
                                      GpuGroupGradPlan<T>*);                     \
  template Status RunGroupLookupGrad(const GpuExec&, const GpuGroupGradPlan<T>&, \
                                     Span<const TableGrad<T>>);                  \
  template Status SortGroupPairs(const GpuExec&, const GpuGroupGradPlan<T>&,     \
                                 Span<const TableGrad<T>>, SortedGroupPairs<T>*);
FE_FOR_EACH_VALUE_TYPE(FE_INSTANTIATE)
#undef FE_INSTANTIATE

}  // namespace fused_embedding
