// A ColdStore in RocksDB, through its C interface: the C++ one changes with each version, and its
// strings and streams are those of another C++ runtime. docs/decisions/026 has the measurements.

#include <rocksdb/c.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "tf_ops/core/storage/cold_store.h"
#include "tf_ops/core/storage/cold_store_library.h"
#include "tf_ops/core/storage/rocksdb/process_threads.h"
#include "tf_ops/core/storage/rocksdb/worker_threads.h"
#include "tf_ops/core/storage/store_folder.h"

namespace fused_embedding {
namespace {

// Keys of one task of a MultiGet: RocksDB looks for as many at once.
constexpr int64_t kKeysPerRead = 32;
// A batch in memory is written in pieces of this size: RocksDB copies them.
constexpr int64_t kBytesPerWrite = int64_t{1} << 20;
constexpr int64_t kBytesPerVisit = int64_t{1} << 20;

// Frees what RocksDB's function of that name frees.
template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <typename T, auto Free>
using Owned = std::unique_ptr<T, Freed<Free>>;
using Options = Owned<rocksdb_options_t, rocksdb_options_destroy>;
using ReadOptions = Owned<rocksdb_readoptions_t, rocksdb_readoptions_destroy>;
using WriteBatch = Owned<rocksdb_writebatch_t, rocksdb_writebatch_destroy>;
using Text = Owned<char, rocksdb_free>;

// Where a call of RocksDB puts its error.
class ErrorText {
 public:
  ~ErrorText() { rocksdb_free(text_); }
  char** out() { return &text_; }
  const char* text() const { return text_; }

 private:
  char* text_ = nullptr;
};

// RocksDB's options as text, of which the C interface has the most and which names a wrong one.
std::string OptionsText(int64_t memory_bytes, bool has_direct_io) {
  const std::string direct = has_direct_io ? "true" : "false";
  const auto part = [&](int64_t eighths) { return std::to_string(memory_bytes / 8 * eighths); };
  return
      // Trained floats do not get smaller by compression, and a row read is a block unpacked.
      "compression=kNoCompression;"
      // Rows are overwritten at random again and again, which sorted levels copy 10 times and more.
      // Dead rows take up to half as much as live ones before all is merged: the default is twice.
      "compaction_style=kCompactionStyleUniversal;"
      "compaction_options_universal={max_size_amplification_percent=50};"
      // The tier above is the cache of rows: pages of the system would be a second one, of memory
      // that nobody gave us.
      "use_direct_reads=" +
      direct + ";use_direct_io_for_flush_and_compaction=" + direct + ";" +
      // Few descriptors: as many files as this are open, the others are opened when read, which
      // costs little as their index is in parts. Processes have 1024 descriptors by default.
      "max_open_files=128;target_file_size_base=268435456;"
      "write_buffer_size=" +
      part(1) +
      ";max_write_buffer_number=2;"
      // What was put and is in no checkpoint does not outlive the store.
      "avoid_flush_during_shutdown=true;"
      "skip_stats_update_on_db_open=true;stats_dump_period_sec=0;stats_persist_period_sec=0;"
      // Files are opened by the calling thread: RocksDB ends the process if it cannot start
      // another. With max_open_files it opens 16 of them at most.
      "max_file_opening_threads=1;"
      // No log: errors come back from calls. And a log that cannot be written, on a full disk, is
      // an assertion that ends the process in Debian's 7.8.3.
      "info_log_level=HEADER_LEVEL;keep_log_file_num=1;"
      "block_based_table_factory={"
      // A block is what one read of the disk brings: its smallest unit at full speed, and rows that
      // were evicted together are seldom missed together. Aligned, it is one unit and not two.
      "block_size=4096;block_align=true;"
      // A key that is in one of several files costs one read; 1 % of the absent ones cost one.
      "filter_policy=bloomfilter:10:false;whole_key_filtering=true;"
      // Filter and index, 3 bytes a row, in parts that are read when needed: keys may exceed
      // memory. What the cache has left is for blocks of rows.
      "partition_filters=true;index_type=kTwoLevelIndexSearch;metadata_block_size=4096;"
      "cache_index_and_filter_blocks=true;cache_index_and_filter_blocks_with_high_priority=true;"
      "pin_top_level_index_and_filter=true;"
      "block_cache={capacity=" +
      part(6) + ";high_pri_pool_ratio=0.9}}";
}

// Of the same order as the numbers: bytes from high to low, the sign bit flipped.
void EncodeKey(int64_t key, char* bytes) {
  const uint64_t bits = static_cast<uint64_t>(key) ^ (uint64_t{1} << 63);
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(bits >> (56 - 8 * i));
}

int64_t DecodeKey(const char* bytes) {
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i) bits = bits << 8 | static_cast<unsigned char>(bytes[i]);
  return static_cast<int64_t>(bits ^ (uint64_t{1} << 63));
}

class RocksDbStore final : public ColdStore {
 public:
  explicit RocksDbStore(const ColdStoreOptions& options)
      : ColdStore(options), folder_({"rocksdb", ".sst"}) {}
  ~RocksDbStore() override;

  Status Open(const ColdStoreOptions& options);

  Status Scan(const Visit& visit) override;
  Status Flush() override;
  Status Checkpoint(const std::string& path) override;

 protected:
  void AddStatistics(ColdStoreStatistics* statistics) const override;

 private:
  Status Get(Span<const int64_t> keys, char* values, bool* found) override;
  Status Put(Span<const int64_t> keys, const char* values) override;
  Status Remove(Span<const int64_t> keys) override;

  // Of at most kKeysPerRead keys.
  Status GetSome(Span<const int64_t> keys, char* values, bool* found);
  Status CopyValue(int64_t key, const char* bytes, size_t size, char* value) const;
  // In pieces, for each of whose keys add(batch, i, encoded key) is called.
  template <typename Add>
  Status Write(Span<const int64_t> keys, const Add& add);
  Status Error(const char* action, const char* text) const;
  int64_t Property(const char* name) const;
  int64_t DiskBytesWritten() const;

  StoreFolder folder_;  // outlives RocksDB
  Options options_;
  ReadOptions read_options_{rocksdb_readoptions_create()};
  Owned<rocksdb_writeoptions_t, rocksdb_writeoptions_destroy> write_options_{
      rocksdb_writeoptions_create()};
  rocksdb_t* db_ = nullptr;
  rocksdb_column_family_handle_t* rows_ = nullptr;
  WorkerThreads readers_;
  std::atomic<int64_t> num_disk_reads_{0}, disk_bytes_read_{0};
};

RocksDbStore::~RocksDbStore() {
  if (rows_ != nullptr) rocksdb_column_family_handle_destroy(rows_);
  if (db_ != nullptr) rocksdb_close(db_);
}

Status RocksDbStore::Error(const char* action, const char* text) const {
  const auto says = [&](const char* part) { return std::strstr(text, part) != nullptr; };
  if (says("Corruption")) {
    return DataLoss("cold store ", path(), " is damaged: ", text, "; restore a checkpoint");
  }
  const bool is_full =
      says("No space left") || says("Disk quota exceeded") || says("File too large");
  return MakeStatus(is_full ? StatusCode::kResourceExhausted : StatusCode::kFailedPrecondition,
                    "cannot ", action, " cold store ", path(), ": ", text);
}

Status RocksDbStore::Open(const ColdStoreOptions& options) {
  FE_RETURN_IF_ERROR(folder_.Open(options));
  FE_RETURN_IF_ERROR(StartProcessThreads());
  const Options defaults(rocksdb_options_create());
  rocksdb_options_set_create_if_missing(defaults.get(), options.checkpoint.empty());
  options_.reset(rocksdb_options_create());
  ErrorText error;
  const std::string text = OptionsText(options.memory_bytes, folder_.HasDirectIo());
  rocksdb_get_options_from_string(defaults.get(), text.c_str(), options_.get(), error.out());
  if (error.text() != nullptr) return Error("choose the options of", error.text());
  rocksdb_writeoptions_disable_WAL(write_options_.get(), 1);
  const char* rows_name = "default";
  const rocksdb_options_t* rows_options = options_.get();
  db_ = options.is_read_only
            ? rocksdb_open_for_read_only_column_families(
                  options_.get(), folder_.data_path().c_str(), 1, &rows_name, &rows_options, &rows_,
                  /*error_if_wal_file_exists=*/0, error.out())
            : rocksdb_open_column_families(options_.get(), folder_.data_path().c_str(), 1,
                                           &rows_name, &rows_options, &rows_, error.out());
  if (error.text() != nullptr) return Error("open", error.text());
  return readers_.Start("to read cold store " + path(), options.num_readers);
}

Status RocksDbStore::Get(Span<const int64_t> keys, char* values, bool* found) {
  const int64_t num_reads = (keys.size + kKeysPerRead - 1) / kKeysPerRead;
  std::vector<Status> statuses(static_cast<size_t>(num_reads));
  readers_.Run(num_reads, [&](int64_t i) {
    const int64_t begin = i * kKeysPerRead;
    const int64_t size = std::min(kKeysPerRead, keys.size - begin);
    statuses[static_cast<size_t>(i)] =
        GetSome({keys.data + begin, size}, values + begin * value_bytes(), found + begin);
  });
  for (const Status& of_keys : statuses) FE_RETURN_IF_ERROR(of_keys);
  return Status();
}

Status RocksDbStore::GetSome(Span<const int64_t> keys, char* values, bool* found) {
  char encoded[kKeysPerRead][8];
  const char* names[kKeysPerRead];
  size_t sizes[kKeysPerRead];
  for (int64_t i = 0; i < keys.size; ++i) {
    EncodeKey(keys[i], encoded[i]);
    names[i] = encoded[i];
    sizes[i] = sizeof(encoded[i]);
  }
  // Counters of this thread, which RocksDB keeps anyway.
  const Owned<rocksdb_perfcontext_t, rocksdb_perfcontext_destroy> counters(
      rocksdb_perfcontext_create());
  const auto counted = [&](int metric) {
    return static_cast<int64_t>(rocksdb_perfcontext_metric(counters.get(), metric));
  };
  const int64_t reads_before = counted(rocksdb_block_read_count);
  const int64_t bytes_before = counted(rocksdb_block_read_byte);
  rocksdb_pinnableslice_t* rows[kKeysPerRead];
  char* errors[kKeysPerRead];
  rocksdb_batched_multi_get_cf(db_, read_options_.get(), rows_, static_cast<size_t>(keys.size),
                               names, sizes, rows, errors, /*sorted_input=*/true);
  num_disk_reads_ += counted(rocksdb_block_read_count) - reads_before;
  disk_bytes_read_ += counted(rocksdb_block_read_byte) - bytes_before;

  Status status;
  for (int64_t i = 0; i < keys.size; ++i) {
    const Owned<rocksdb_pinnableslice_t, rocksdb_pinnableslice_destroy> row(rows[i]);
    const Text error(errors[i]);
    found[i] = row != nullptr;
    Status of_key;
    if (error != nullptr) {
      of_key = Error("read", error.get());
    } else if (row != nullptr) {
      size_t size = 0;
      const char* bytes = rocksdb_pinnableslice_value(row.get(), &size);
      of_key = CopyValue(keys[i], bytes, size, values + i * value_bytes());
    }
    if (status.ok()) status = of_key;
  }
  return status;
}

Status RocksDbStore::CopyValue(int64_t key, const char* bytes, size_t size, char* value) const {
  if (size != static_cast<size_t>(value_bytes())) {
    return DataLoss("cold store ", path(), " is damaged: the row of key ", key, " has ", size,
                    " bytes instead of ", value_bytes(), "; restore a checkpoint");
  }
  std::memcpy(value, bytes, size);
  return Status();
}

template <typename Add>
Status RocksDbStore::Write(Span<const int64_t> keys, const Add& add) {
  const WriteBatch batch(rocksdb_writebatch_create());
  const int64_t keys_per_write = std::max<int64_t>(kBytesPerWrite / value_bytes(), 1);
  char key[8];
  for (int64_t i = 0; i < keys.size; ++i) {
    EncodeKey(keys[i], key);
    add(batch.get(), i, key);
    const bool is_full = (i + 1) % keys_per_write == 0;
    if (!is_full && i + 1 < keys.size) continue;
    ErrorText error;
    rocksdb_write(db_, write_options_.get(), batch.get(), error.out());
    if (error.text() != nullptr) return Error("write", error.text());
    rocksdb_writebatch_clear(batch.get());
  }
  return Status();
}

Status RocksDbStore::Put(Span<const int64_t> keys, const char* values) {
  return Write(keys, [&](rocksdb_writebatch_t* batch, int64_t i, const char* key) {
    rocksdb_writebatch_put(batch, key, 8, values + i * value_bytes(),
                           static_cast<size_t>(value_bytes()));
  });
}

Status RocksDbStore::Remove(Span<const int64_t> keys) {
  return Write(keys, [](rocksdb_writebatch_t* batch, int64_t, const char* key) {
    rocksdb_writebatch_delete(batch, key, 8);
  });
}

Status RocksDbStore::Scan(const Visit& visit) {
  const ReadOptions options(rocksdb_readoptions_create());
  rocksdb_readoptions_set_fill_cache(options.get(), 0);
  rocksdb_readoptions_set_readahead_size(options.get(), size_t{1} << 20);
  const Owned<rocksdb_iterator_t, rocksdb_iter_destroy> row(
      rocksdb_create_iterator_cf(db_, options.get(), rows_));
  const int64_t rows_per_visit = std::max<int64_t>(kBytesPerVisit / value_bytes(), 1);
  std::vector<int64_t> keys;
  std::vector<char> values;
  const auto visit_some = [&] {
    if (keys.empty()) return Status();
    const Status status = visit(AsSpan(keys), AsSpan(values));
    keys.clear();
    values.clear();
    return status;
  };
  for (rocksdb_iter_seek_to_first(row.get()); rocksdb_iter_valid(row.get());
       rocksdb_iter_next(row.get())) {
    size_t key_size = 0, size = 0;
    const char* key = rocksdb_iter_key(row.get(), &key_size);
    if (key_size != 8) {
      return DataLoss("cold store ", path(), " is damaged: a key has ", key_size, " bytes");
    }
    const char* bytes = rocksdb_iter_value(row.get(), &size);
    keys.push_back(DecodeKey(key));
    values.resize(keys.size() * static_cast<size_t>(value_bytes()));
    char* value = values.data() + values.size() - value_bytes();
    FE_RETURN_IF_ERROR(CopyValue(keys.back(), bytes, size, value));
    if (static_cast<int64_t>(keys.size()) == rows_per_visit) FE_RETURN_IF_ERROR(visit_some());
  }
  ErrorText error;
  rocksdb_iter_get_error(row.get(), error.out());
  if (error.text() != nullptr) return Error("read", error.text());
  return visit_some();
}

Status RocksDbStore::Flush() {
  const Owned<rocksdb_flushoptions_t, rocksdb_flushoptions_destroy> options(
      rocksdb_flushoptions_create());
  ErrorText error;
  rocksdb_flush_cf(db_, options.get(), rows_, error.out());
  return error.text() == nullptr ? Status() : Error("flush", error.text());
}

Status RocksDbStore::Checkpoint(const std::string& path) {
  return folder_.Checkpoint(path, [&](const std::string& folder) {
    ErrorText error;
    const Owned<rocksdb_checkpoint_t, rocksdb_checkpoint_object_destroy> checkpoint(
        rocksdb_checkpoint_object_create(db_, error.out()));
    // 0: write buffers go to files first, of which there is no log.
    if (error.text() == nullptr) {
      rocksdb_checkpoint_create(checkpoint.get(), folder.c_str(), 0, error.out());
    }
    return error.text() == nullptr ? Status() : Error("make a checkpoint of", error.text());
  });
}

int64_t RocksDbStore::Property(const char* name) const {
  uint64_t value = 0;
  return rocksdb_property_int(db_, name, &value) == 0 ? static_cast<int64_t>(value) : 0;
}

// RocksDB always counts what flushes and merges write, and tells it in a text alone, in hundredths
// of a GiB. Its statistics have the bytes, but count and time each read for that.
int64_t RocksDbStore::DiskBytesWritten() const {
  const Text text(rocksdb_property_value_cf(db_, rows_, "rocksdb.cfstats-no-file-histogram"));
  constexpr char kLine[] = "Cumulative compaction: ";  // of flushes too
  const char* line = text == nullptr ? nullptr : std::strstr(text.get(), kLine);
  if (line == nullptr) return 0;
  const double gib = std::strtod(line + sizeof(kLine) - 1, nullptr);
  return static_cast<int64_t>(gib * static_cast<double>(int64_t{1} << 30));
}

void RocksDbStore::AddStatistics(ColdStoreStatistics* statistics) const {
  statistics->num_disk_reads = num_disk_reads_;
  statistics->disk_bytes_read = disk_bytes_read_;
  statistics->disk_bytes_written = DiskBytesWritten();
  statistics->disk_bytes = Property("rocksdb.total-sst-files-size");
  statistics->memory_bytes = Property("rocksdb.size-all-mem-tables") +
                             Property("rocksdb.block-cache-usage") +
                             Property("rocksdb.estimate-table-readers-mem");
}

}  // namespace
}  // namespace fused_embedding

extern "C" __attribute__((visibility("default"))) void fused_embedding_open_cold_store_2(
    const fused_embedding::ColdStoreOptions& options, fused_embedding::Status* status,
    fused_embedding::ColdStore** store) {
  // No exception may pass to a library with another C++ runtime.
  try {
    auto made = std::make_unique<fused_embedding::RocksDbStore>(options);
    *status = made->Open(options);
    if (status->ok()) *store = made.release();
  } catch (const std::exception& error) {
    *status = fused_embedding::ResourceExhausted("cannot open cold store ", options.path, ": ",
                                                 error.what(),
                                                 "; free memory, or raise the process's limits");
  }
}
