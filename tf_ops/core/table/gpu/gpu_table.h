// A table of embedding rows by 64-bit key in the memory of a GPU. Every int64 is a key.
//
// The hash of a key selects one bucket of 64 entries. An entry has one byte of the hash (its
// digest; 0: the entry is free), key, frequency, version and score; the digests of a bucket are 64
// bytes, which four lanes load at once. Rows (value and optimizer slots) are in memory of their
// own, one for each entry.
//
// The keys of a batch that have rows are counted side by side. The others are sorted by bucket, and
// one group of lanes owns a bucket: it alone inserts and evicts there, so the content does not
// depend on the order of blocks (docs/decisions/049).
//
// A table that needs room in a bucket doubles its buckets while that fits into the budget. The half
// of the rows whose hash has the new bit moves, each to the same entry of the new bucket. After
// that, a full bucket evicts its row of the smallest (score, key).
//
// A table may count keys before they get a row, in a table of counts of its own: training.cu.h.
//
// The functions below work on several tables with one launch a stage. The host must not call two of
// them for the same table at once.

#ifndef FUSED_EMBEDDING_CORE_TABLE_GPU_GPU_TABLE_H_
#define FUSED_EMBEDDING_CORE_TABLE_GPU_GPU_TABLE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tf_ops/core/base/cuda/device_buffer.h"
#include "tf_ops/core/base/cuda/exec.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/expiry.h"
#include "tf_ops/core/table/initializer.h"
#include "tf_ops/core/table/row_layout.h"

namespace fused_embedding {

struct GpuTableView;  // a table as kernels see it: buckets.cu.h

constexpr int kEntries = 64;     // of a bucket
constexpr int kEntryBytes = 25;  // digest, key, score, frequency, version

// Which row a full bucket evicts; of equal ones, that of the smallest key.
enum class GpuEviction {
  kNone,   // none: the batch is an error, and does not change the table
  kLru,    // the one used longest ago, by step; then least often
  kLfu,    // the one used least often; then longest ago
  kGiven,  // the one with the smallest score, which the caller passes with each key
};

struct GpuTableConfig {
  RowLayout layout;
  InitializerConfig initializer;
  GpuEviction eviction = GpuEviction::kNone;
  int64_t max_bytes = 0;    // of device memory, for buckets and rows
  int64_t min_buckets = 1;  // a power of two
  uint64_t hash_key = 0;    // a secret: nobody can choose keys of one bucket who does not know it

  // Admission: a key gets a row at this occurrence in training lookups, and reads
  // no_permission_value before. 0: at once. Keys without a row are counted in at most
  // max_count_bytes of device memory; where they do not fit, those that were used longest ago are
  // forgotten.
  int64_t min_frequency = 0;
  double no_permission_value = 0;
  int64_t max_count_bytes = 0;
};

// InvalidArgument for a config that makes no sense.
Status CheckGpuTableConfig(const GpuTableConfig& config);

class GpuTable {
 public:
  // InvalidArgument if CheckGpuTableConfig says so. `exec` must live as long as the table.
  static Status Create(const GpuExec& exec, const GpuTableConfig& config,
                       std::unique_ptr<GpuTable>* table);

  const GpuTableConfig& config() const { return config_; }
  int64_t num_buckets() const { return num_buckets_; }
  int64_t memory_bytes() const {
    return memory_bytes_ + (counts_ == nullptr ? 0 : counts_->memory_bytes());
  }
  // The keys without a row that were counted, whose rows have no meaning; null: none are.
  GpuTable* counts() const { return counts_.get(); }
  // A row as the arrays of GpuRows have it: value and slots with the offsets of `layout`, less its
  // header, rounded up to 16 bytes.
  int64_t row_bytes() const { return row_bytes_; }

  // Adds the slots that rows lack, with their initial numbers, behind those that they have. Handles
  // stay valid. Takes memory for the old rows and the new ones. InvalidArgument for a slot of
  // another width, ResourceExhausted if the rows do not fit: the table is then as it was.
  Status EnsureSlots(const GpuExec& exec, Span<const Slot> slots);
  // Whether twice as many buckets fit into the budget.
  bool CanGrow() const;
  // Adds memory for as many buckets as there are. The caller moves the rows.
  Status AddPiece(const GpuExec& exec);
  // Undoes AddPiece, before rows have moved.
  void RemovePiece();
  GpuTableView view() const;
  // Counts the calls that may have moved or removed rows.
  int64_t num_changes() const { return num_changes_; }
  void Change() { ++num_changes_; }

 private:
  explicit GpuTable(const GpuTableConfig& config);
  int64_t BytesOf(int64_t num_buckets) const;
  // Whether so many buckets fit into the budget.
  bool Holds(int64_t num_buckets) const;
  // Copies buckets and rows to a table of as many buckets, which has more slots.
  Status CopyRowsTo(const GpuExec& exec, const GpuTable& wider) const;
  Status Init(const GpuExec& exec);
  Status AddBuckets(const GpuExec& exec, int64_t num_buckets);

  GpuTableConfig config_;
  int64_t row_bytes_;
  int64_t num_buckets_ = 0;
  int64_t memory_bytes_ = 0;
  int64_t num_changes_ = 0;
  // Piece 0 has the first min_buckets buckets, each other piece as many as all before it.
  std::vector<DeviceBuffer<char>> pieces_;
  DeviceBuffer<char> behind_value_;  // the bytes of a new row that follow its value
  DeviceBuffer<char> matrix_;        // InitializerKind::kMatrix
  std::unique_ptr<GpuTable> counts_;
};

// The keys of a call: those of table t are keys[ends[t - 1]] to keys[ends[t] - 1]. Keys of a table
// are distinct; if one occurs twice, its occurrences are handled one after the other.
struct GpuTableKeys {
  Span<GpuTable* const> tables;   // [t] distinct
  Span<const int64_t> ends;       // [t] on the host
  Span<const int64_t> keys;       // [n]
  const bool* is_used = nullptr;  // [n] keys that are not used are passed over; null: all are
};

// Rows as arrays, in device memory or null.
struct GpuRows {
  int64_t* keys = nullptr;
  uint32_t* frequencies = nullptr;
  uint32_t* versions = nullptr;
  uint64_t* scores = nullptr;
  char* rows = nullptr;  // row_bytes() each
};

struct GpuLookupOutput {
  // [n] bucket * kEntries + entry, or -1 for a key without a row. Valid until a call inserts rows.
  Span<int64_t> handles;
  Span<char* const> values = {};  // [t] on the host: [n of the table, dim] each; empty: not wanted
};

// Evaluation: changes nothing. A key without a row reads its first value, or no_permission_value
// where keys are counted first. Does not wait.
Status FindInGpuTables(const GpuExec& exec, const GpuTableKeys& in, const GpuLookupOutput& out);

// What a batch will do. A Run takes the keys that its plan was made for.
struct GpuInsertPlan {
  DeviceBuffer<int64_t> handles;  // [n] of the rows that there are; -1 for the other keys
  // Of the keys that the owner of their bucket handles: those without a row, and all keys of
  // content and of tables with GpuEviction::kGiven.
  DeviceBuffer<uint32_t> buckets;  // ascending; those of all tables are numbered in sequence
  DeviceBuffer<int32_t> order;     // position of each key
  // [buckets of all tables] a bit for each entry whose row a key of the batch has: it is not
  // evicted. Empty where owners handle all keys, or no table evicts.
  DeviceBuffer<unsigned long long> pins;
  bool is_for_content = false;
  std::vector<int64_t> num_changes;  // [t] of each table when the plan was made
  std::vector<int64_t> num_evicted;  // [t] exact for distinct keys, else at most
  int64_t num_refused = 0;           // the same; keys that their bucket has no room for
};

// For RunGpuFindOrInsert. Doubles the tables that need it. Waits once if all keys have rows, else
// twice, and twice more for each round of doublings. ResourceExhausted, after which no row has
// changed, for rows that do not fit and GpuEviction::kNone.
Status PlanGpuInsert(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan);
// The same for RunGpuUpsert.
Status PlanGpuUpsert(const GpuExec& exec, const GpuTableKeys& in, GpuInsertPlan* plan);

// What a training lookup does to the rows of its keys.
struct GpuUses {
  Span<const int32_t> counts;        // [n] occurrences of each; empty: one each
  Span<const uint64_t> scores = {};  // [n] GpuEviction::kGiven
  Span<const int64_t> steps;         // [t] on the host: version of the rows of each table
};

// Where evicted rows are copied, those of a table in the order of its keys.
struct GpuEvicted {
  Span<const GpuRows> rows;  // [t] on the host, of plan.num_evicted[t] rows; empty: not wanted
  Span<int32_t> num_rows;    // [t]
};

// Counts the keys and inserts them, whatever the admission; new rows get their first values. A
// refused key reads zeros. FailedPrecondition if a table changed since the plan.
Status RunGpuFindOrInsert(const GpuExec& exec, const GpuTableKeys& in, const GpuUses& uses,
                          const GpuInsertPlan& plan, const GpuEvicted& evicted,
                          const GpuLookupOutput& out);

// Sets rows, and inserts those that are missing, whatever the admission. `content` is [n] each;
// `scores` is for GpuEviction::kGiven alone, `keys` is not read.
struct GpuContent {
  Span<const uint32_t> frequencies, versions;
  Span<const uint64_t> scores;
  Span<const char* const> rows;  // [t] on the host: [n of the table, row_bytes()] each
};
Status RunGpuUpsert(const GpuExec& exec, const GpuTableKeys& in, const GpuContent& content,
                    const GpuInsertPlan& plan, const GpuEvicted& evicted);

// Sets the values of the keys of one table, `values` [n, dim], and inserts those that are missing,
// whatever the admission, with frequency 0, version `step` and the slots' initial numbers. What
// else a row has stays. Of a key that occurs twice, the last value holds. Not for
// GpuEviction::kGiven.
Status RunGpuUpsertValues(const GpuExec& exec, const GpuTableKeys& in, const char* values,
                          int64_t step, const GpuInsertPlan& plan);

// Counters in device memory that begin at 0, and what they are; the latter waits once.
Status MakeCounters(const GpuExec& exec, int64_t n, DeviceBuffer<unsigned long long>* counters);
Status ReadCounters(const GpuExec& exec, Span<const unsigned long long> counters,
                    Span<int64_t> numbers);

// Adds the number of handles of each table that are negative, keys without a row, to a counter in
// device memory; `counters` [t] and `ends` [t] are on the host. Does not wait.
Status CountMissing(const GpuExec& exec, Span<const int64_t> ends, Span<const int64_t> handles,
                    Span<unsigned long long* const> counters);

// Frequency and version [n] of the keys of one table; 0 and -1 for a key without a row. Does not
// wait.
Status ReadGpuMetadata(const GpuExec& exec, const GpuTableKeys& in, Span<int64_t> frequencies,
                       Span<int64_t> versions);

// Erases rows, and the counts of keys without one. is_erased[i] is set for a key that had a row.
// Does not wait.
Status EraseFromGpuTables(const GpuExec& exec, const GpuTableKeys& in, Span<bool> is_erased);
// The same, of which only the number of rows is asked for. Waits once.
Status EraseFromGpuTables(const GpuExec& exec, const GpuTableKeys& in, int64_t* num_erased);

// Erases the rows, and by their age the counts of keys without one, that expire; `expiry.step` is
// not negative. Waits once, for their number.
Status ExpireInGpuTable(const GpuExec& exec, const Expiry& expiry, GpuTable* table,
                        int64_t* num_expired);

// The rows of buckets [begin, end), in their order.
struct GpuExportPlan {
  int64_t begin = 0, end = 0;
  int64_t num_changes = 0;
  DeviceBuffer<int32_t> offsets;  // [end - begin + 1] of each bucket's rows
  int64_t num_rows = 0;
};
// Waits once.
Status PlanGpuExport(const GpuExec& exec, const GpuTable& table, int64_t begin, int64_t end,
                     GpuExportPlan* plan);
Status RunGpuExport(const GpuExec& exec, const GpuTable& table, const GpuExportPlan& plan,
                    const GpuRows& out);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_GPU_GPU_TABLE_H_
