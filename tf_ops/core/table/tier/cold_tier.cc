#include "tf_ops/core/table/tier/cold_tier.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/threads.h"
#include "tf_ops/core/table/shard_loops.h"
#include "tf_ops/core/table/value_bytes.h"

namespace fused_embedding {
namespace {

// Bytes of a row in DRAM beyond the row itself: one of the clock, and its share of the index, which
// is 15 bytes when the indices of most shards have just grown.
constexpr int64_t kIndexBytes = 16;
constexpr int64_t kKeyBytes = sizeof(int64_t);

// A sixteenth of a large budget. This holds the store's filters and index (2.5 bytes a key) if
// there are four times as many keys as rows of 160 bytes in the budget.
int64_t StoreBytes(int64_t dram_bytes) {
  constexpr int64_t kMin = int64_t{4} << 20, kLarge = int64_t{256} << 20;
  return std::max(std::clamp(dram_bytes / 10, kMin, kLarge), dram_bytes / 16);
}

int64_t PartOfRows(int64_t dram_bytes, int64_t divisor) {
  constexpr int64_t kMin = int64_t{1} << 10, kMax = int64_t{32} << 20;
  return std::clamp((dram_bytes - StoreBytes(dram_bytes)) / divisor, kMin, kMax);
}

// Bytes per read batch. The disk queue drains at the end of each batch, so small batches leave it
// idle.
int64_t ReadBytes(int64_t dram_bytes) { return PartOfRows(dram_bytes, 64); }

// Bytes per write batch. Small batches suffice: the store has buffers of its own, from which it
// writes long runs.
int64_t WriteBytes(int64_t dram_bytes) { return PartOfRows(dram_bytes, 256); }

// The part of the budget that is not for resident rows: the store, one read batch, pending rows,
// rows being written, and the copy of a write batch.
int64_t OtherBytes(int64_t dram_bytes) {
  return StoreBytes(dram_bytes) + ReadBytes(dram_bytes) + 5 * WriteBytes(dram_bytes);
}

// Resident rows of all shards together.
int64_t MaxRows(int64_t dram_bytes, int64_t row_bytes) {
  return (dram_bytes - OtherBytes(dram_bytes)) / (row_bytes + kIndexBytes);
}

// Adds a store's counters, but not its present sizes, which end with the store.
void AddCounts(const ColdStoreStatistics& of_store, TableStatistics* statistics) {
  statistics->cold_gets += of_store.num_gets;
  statistics->cold_hits += of_store.num_found;
  statistics->cold_reads += of_store.num_disk_reads;
  statistics->cold_bytes_read += of_store.disk_bytes_read;
  statistics->cold_puts += of_store.num_puts;
  statistics->cold_bytes_put += of_store.put_bytes;
  statistics->cold_bytes_written += of_store.disk_bytes_written;
}

}  // namespace

// Keys of a batch that are read from the store together. They stay reserved until Release, at the
// latest until the Fetch is destroyed.
class ColdTier::Fetch {
 public:
  Fetch(ColdTier* tier, RowUse use)
      : tier_(tier), use_(use), num_tried_(tier->shards_.size()), claimed_(tier->shards_.size()) {}
  ~Fetch() {
    for (size_t s = 0; s < claimed_.size(); ++s) {
      if (claimed_[s].empty()) continue;
      const std::lock_guard<std::mutex> lock(tier_->shards_[s]->mutex());
      Release(s);
    }
    const std::lock_guard<std::mutex> lock(tier_->mutex_);
    ++tier_->num_releases_;
    tier_->released_.notify_all();
  }
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Reserves the first keys of some shards, as many as a read batch has room for. Returns whether
  // another batch has reserved some of them.
  bool Claim(const MissingKeys& missing) {
    int64_t room = std::max<int64_t>(tier_->read_bytes_ / tier_->row_bytes_, 1024);
    bool is_any_foreign = false;
    for (size_t s = 0; s < claimed_.size() && room > 0; ++s) {
      const int64_t n = std::min(missing.of_shard[s].n, room);
      if (n == 0) continue;
      const ShardKeys keys = missing.of_shard[s].Part(0, n);
      num_tried_[s] = n;
      TableShard* shard = tier_->shards_[s].get();
      std::vector<int64_t> wanted;
      {
        const std::lock_guard<std::mutex> lock(shard->mutex());
        is_any_foreign |= shard->Claim(keys, this, &wanted, &claimed_[s]);
      }
      for (const int64_t key : wanted) wanted_.emplace_back(key, s);
      room -= n;
    }
    return is_any_foreign;
  }

  // Reads the reserved keys from the store.
  Status Get() {
    const int64_t n = static_cast<int64_t>(wanted_.size());
    std::sort(wanted_.begin(), wanted_.end());
    std::vector<int64_t> keys;
    for (const auto& wanted : wanted_) keys.push_back(wanted.first);
    Buffer<bool> found;
    FE_RETURN_IF_ERROR(found.Allocate(n));
    FE_RETURN_IF_ERROR(values_.Allocate(n * value_bytes()));
    FE_RETURN_IF_ERROR(tier_->store_->MultiGet(AsSpan(keys), values_.span(), found.span()));
    found_.resize(claimed_.size());
    for (int64_t i = 0; i < n; ++i) {
      if (found[i]) found_[wanted_[static_cast<size_t>(i)].second].push_back(i);
    }
    return Status();
  }

  int64_t num_tried(size_t s) const { return num_tried_[s]; }
  // Inserts the rows that were read for a shard into DRAM. The shard is locked.
  Status Land(size_t s) {
    for (const int64_t i : found_[s]) {
      const int64_t key = wanted_[static_cast<size_t>(i)].first;
      FE_RETURN_IF_ERROR(tier_->shards_[s]->Land(key, values_.data() + i * value_bytes(), use_));
    }
    return Status();
  }
  // The shard is locked.
  void Release(size_t s) {
    tier_->shards_[s]->Release(AsSpan(claimed_[s]));
    claimed_[s].clear();
  }

 private:
  int64_t value_bytes() const { return tier_->store_->value_bytes(); }

  ColdTier* const tier_;
  const RowUse use_;
  std::vector<int64_t> num_tried_;                  // by shard
  std::vector<std::vector<int64_t>> claimed_;       // by shard
  std::vector<std::pair<int64_t, size_t>> wanted_;  // key and shard, ascending after Get
  Buffer<char> values_;
  std::vector<std::vector<int64_t>> found_;  // by shard, indices into `wanted_`
};

Status ColdTier::Create(const StorageConfig& config, const RowLayout& layout, const Shards& shards,
                        std::unique_ptr<ColdTier>* tier) {
  const int64_t num_shards = static_cast<int64_t>(shards.size());
  if (MaxRows(config.dram_bytes, layout.row_bytes()) < num_shards) {
    return InvalidArgument("dram_bytes = ", config.dram_bytes, " is too small for a table with ",
                           "rows of ", layout.row_bytes(),
                           " bytes above a cold store: ", OtherBytes(config.dram_bytes),
                           " are for the store and for rows on their way, and each of ", num_shards,
                           " shards needs room for a row");
  }
  std::unique_ptr<ColdTier> made(new ColdTier(config, shards));
  std::unique_ptr<ColdStore> store;
  FE_RETURN_IF_ERROR(made->OpenStore(layout, "", &store));
  for (const std::unique_ptr<TableShard>& shard : shards) {
    const std::lock_guard<std::mutex> lock(shard->mutex());
    FE_RETURN_IF_ERROR(shard->AddTier(config.strategy, &made->num_leaving_));
  }
  made->UseStore(layout, std::move(store));
  FE_RETURN_IF_ERROR(StartThread(
      "to write rows to " + config.path, [tier = made.get()] { tier->WriteLoop(); },
      &made->writer_));
  *tier = std::move(made);
  return Status();
}

ColdTier::ColdTier(const StorageConfig& config, const Shards& shards)
    : config_(config),
      shards_(shards),
      read_bytes_(ReadBytes(config.dram_bytes)),
      write_bytes_(WriteBytes(config.dram_bytes)) {}

ColdTier::~ColdTier() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_stopping_ = true;
    work_.notify_all();
  }
  if (writer_.joinable()) writer_.join();
}

// Each store has a folder of its own, because the store of a new layout is opened before the old
// store is destroyed.
Status ColdTier::OpenStore(const RowLayout& layout, const std::string& checkpoint,
                           std::unique_ptr<ColdStore>* store) {
  ColdStoreOptions options;
  options.path = config_.path + "/" + std::to_string(num_opened_++);
  options.checkpoint = checkpoint;
  options.value_bytes = StoredBytes(layout);
  options.memory_bytes = StoreBytes(config_.dram_bytes);
  return config_.open(options, store);
}

// Must not fail: the caller has already changed the shards.
void ColdTier::UseStore(RowLayout layout, std::unique_ptr<ColdStore> store) {
  layout_ = std::move(layout);
  row_bytes_ = layout_.row_bytes();
  if (store_ != nullptr) AddCounts(store_->Statistics(), &of_earlier_stores_);
  store_ = std::move(store);
  const int64_t num_shards = static_cast<int64_t>(shards_.size());
  const int64_t max_rows = MaxRows(config_.dram_bytes, row_bytes_) / num_shards;
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> lock(shard->mutex());
    shard->SetMaxRows(std::max<int64_t>(max_rows, 1));
  }
}

// --- Promotion ---

Status ColdTier::RunMissing(MissingKeys* missing, RowUse use, const ShardBody& body) {
  return WithoutExceptions([&] {
    while (!missing->empty()) {
      std::unique_lock<std::mutex> lock(mutex_);
      const uint64_t num_releases = num_releases_;
      lock.unlock();
      bool is_any_foreign = false;
      {
        Fetch fetch(this, use);
        is_any_foreign = fetch.Claim(*missing);
        FE_RETURN_IF_ERROR(fetch.Get());
        FE_RETURN_IF_ERROR(Land(&fetch, missing, body));
      }
      if (missing->empty()) return Status();
      // The batch may demote more rows than there is room for. An error of their write is ignored
      // here, because the batch is partly done; the next batch returns it.
      static_cast<void>(WaitForRoom());
      if (!is_any_foreign) continue;
      lock.lock();
      // This batch's own release counts one: wait for another batch's.
      released_.wait(lock, [&] { return num_releases_ > num_releases + 1; });
    }
    return Status();
  });
}

// Runs on this thread only: a pool's other threads may be waiting for the reserved keys.
Status ColdTier::Land(Fetch* fetch, MissingKeys* missing, const ShardBody& body) {
  for (size_t s = 0; s < shards_.size(); ++s) {
    ShardKeys& keys = missing->of_shard[s];
    if (fetch->num_tried(s) == 0) continue;
    TableShard* shard = shards_[s].get();
    const std::lock_guard<std::mutex> lock(shard->mutex());
    FE_RETURN_IF_ERROR(fetch->Land(s));
    const ShardKeys tried = keys.Part(0, fetch->num_tried(s));
    const ShardKeys settled = tried.Part(0, shard->SplitSettled(tried, fetch));
    keys = keys.Part(settled.n, keys.n);
    if (settled.n > 0) FE_RETURN_IF_ERROR(body(shard, settled));
    fetch->Release(s);
    shard->Trim();
  }
  if (num_leaving_ * row_bytes_ < write_bytes_) return Status();
  const std::lock_guard<std::mutex> lock(mutex_);
  work_.notify_one();
  return Status();
}

// --- Demotion ---

Status ColdTier::WaitForRoom() {
  if (HasRoom()) return Status();
  std::unique_lock<std::mutex> lock(mutex_);
  while (!HasRoom()) {
    // A write in flight may fail of what is mended by now: only a later one answers this request.
    const uint64_t wanted = num_writes_begun_ + 1;
    is_write_wanted_ = true;
    work_.notify_one();
    written_.wait(lock, [&] { return num_writes_ >= wanted || HasRoom(); });
    if (num_writes_ >= wanted) FE_RETURN_IF_ERROR(write_status_);
  }
  return Status();
}

void ColdTier::WriteLoop() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    // After an error, a thread that finds no room for more pending rows requests the next attempt.
    work_.wait(lock, [&] {
      const bool is_much = num_leaving_ * row_bytes_ >= write_bytes_;
      return is_stopping_ || is_write_wanted_ || (is_much && write_status_.ok());
    });
    if (is_stopping_) return;
    is_write_wanted_ = false;
    ++num_writes_begun_;
    lock.unlock();
    const Status status = WriteWaiting();
    lock.lock();
    write_status_ = status;
    num_writes_ = num_writes_begun_;
    written_.notify_all();
  }
}

Status ColdTier::WriteWaiting() {
  const std::lock_guard<std::mutex> lock(write_mutex_);
  return WithoutExceptions([&] { return Write(0, shards_.size()); });
}

// Writes the pending rows of these shards to the store. After a failed write, retries its rows
// first.
Status ColdTier::Write(size_t begin_shard, size_t end_shard) {
  std::vector<const char*> rows;
  std::vector<int64_t> erased;
  for (size_t s = begin_shard; s < end_shard; ++s) {
    const std::lock_guard<std::mutex> lock(shards_[s]->mutex());
    shards_[s]->TakeLeaving();
    shards_[s]->GetWriting(&rows, &erased);
  }
  const auto key_of = [](const char* row) { return reinterpret_cast<const RowHeader*>(row)->key; };
  std::sort(rows.begin(), rows.end(),
            [&](const char* a, const char* b) { return key_of(a) < key_of(b); });
  std::sort(erased.begin(), erased.end());
  const size_t value_bytes = static_cast<size_t>(StoredBytes(layout_));
  const size_t at_once =
      std::max<size_t>(static_cast<size_t>(write_bytes_) / (value_bytes + kKeyBytes), 1);
  std::vector<int64_t> keys;
  std::vector<char> values;
  for (size_t begin = 0; begin < rows.size(); begin += at_once) {
    const size_t end = std::min(begin + at_once, rows.size());
    keys.clear();
    values.resize((end - begin) * value_bytes);
    for (size_t i = begin; i < end; ++i) {
      keys.push_back(key_of(rows[i]));
      std::memcpy(values.data() + (i - begin) * value_bytes, rows[i] + kKeyBytes, value_bytes);
    }
    FE_RETURN_IF_ERROR(store_->MultiPut(AsSpan(keys), AsSpan(values)));
  }
  FE_RETURN_IF_ERROR(store_->Erase(AsSpan(erased)));
  for (size_t s = begin_shard; s < end_shard; ++s) {
    const std::lock_guard<std::mutex> lock(shards_[s]->mutex());
    shards_[s]->ForgetWritten();
  }
  return Status();
}

// Writes all rows to the store, each as of some moment since the call. DRAM keeps its rows.
Status ColdTier::Flush() {
  const std::lock_guard<std::mutex> lock(write_mutex_);
  return WithoutExceptions([&] {
    FE_RETURN_IF_ERROR(Write(0, shards_.size()));
    const int64_t at_once = std::max<int64_t>(write_bytes_ / row_bytes_, 1);
    for (size_t s = 0; s < shards_.size(); ++s) {
      TableShard* shard = shards_[s].get();
      for (int64_t begin = 0, end = 1; begin < end;) {
        {
          const std::lock_guard<std::mutex> shard_lock(shard->mutex());
          shard->TakeLeaving();
          begin = shard->TakeDirty(begin, at_once);
          end = shard->num_row_numbers();
        }
        FE_RETURN_IF_ERROR(Write(s, s + 1));
      }
    }
    return Status();
  });
}

// --- All rows ---

Status ColdTier::Scan(const VisitRowBytes& visit) {
  FE_RETURN_IF_ERROR(Flush());
  return ScanRows(store_.get(), layout_, visit);
}

Status ColdTier::Checkpoint(const std::string& path, RowLayout* layout) {
  FE_RETURN_IF_ERROR(Flush());
  *layout = layout_;
  return store_->Checkpoint(path);
}

Status ColdTier::Adopt(const std::string& checkpoint, const RowLayout& layout,
                       Span<const int64_t> num_rows) {
  const std::unique_lock<std::shared_mutex> alone(use_mutex_);
  const std::lock_guard<std::mutex> write_lock(write_mutex_);
  return WithoutExceptions([&] {
    std::unique_ptr<ColdStore> store;
    FE_RETURN_IF_ERROR(OpenStore(layout, checkpoint, &store));
    RowLayout own_layout = layout;
    std::vector<std::pair<RowLayout, std::vector<char>>> of_shards(
        shards_.size(), {layout, BytesBehindValue(layout)});
    // Nothing below can fail.
    for (size_t s = 0; s < shards_.size(); ++s) {
      const std::lock_guard<std::mutex> lock(shards_[s]->mutex());
      shards_[s]->Clear();
      shards_[s]->ForgetResident(std::move(of_shards[s].first), std::move(of_shards[s].second));
      shards_[s]->SetNumCold(num_rows[static_cast<int64_t>(s)]);
    }
    UseStore(std::move(own_layout), std::move(store));
    return Status();
  });
}

// Copies all rows into the empty `store`, with the initial values of the added slots.
Status ColdTier::Widen(const RowLayout& layout, ColdStore* store) {
  const std::vector<char> behind_value = BytesBehindValue(layout);
  const size_t kept_bytes = static_cast<size_t>(
      layout_.slots_offset() + layout_.slot_width() * layout_.slot_number_bytes() - kKeyBytes);
  const size_t bytes = static_cast<size_t>(store->value_bytes());
  const size_t added_bytes = bytes - kept_bytes;
  std::vector<int64_t> keys;
  std::vector<char> values;
  return Scan([&](const RowLayout& /*layout*/, Span<const char> rows) {
    const int64_t n = rows.size / row_bytes_;
    keys.resize(static_cast<size_t>(n));
    values.resize(static_cast<size_t>(n) * bytes);
    char* value = values.data();
    for (int64_t i = 0; i < n; ++i, value += bytes) {
      const char* row = rows.data + i * row_bytes_;
      std::memcpy(&keys[static_cast<size_t>(i)], row, kKeyBytes);
      std::memcpy(value, row + kKeyBytes, kept_bytes);
      std::memcpy(value + kept_bytes, behind_value.data() + behind_value.size() - added_bytes,
                  added_bytes);
    }
    return store->MultiPut(AsSpan(keys), AsSpan(values));
  });
}

Status ColdTier::SetLayout(const RowLayout& layout) {
  const std::unique_lock<std::shared_mutex> alone(use_mutex_);
  return WithoutExceptions([&] {
    std::unique_ptr<ColdStore> store;
    FE_RETURN_IF_ERROR(OpenStore(layout, "", &store));
    FE_RETURN_IF_ERROR(Widen(layout, store.get()));
    RowLayout own_layout = layout;
    std::vector<std::pair<RowLayout, std::vector<char>>> of_shards(
        shards_.size(), {layout, BytesBehindValue(layout)});
    // Nothing below can fail.
    const std::lock_guard<std::mutex> write_lock(write_mutex_);
    for (size_t s = 0; s < shards_.size(); ++s) {
      const std::lock_guard<std::mutex> lock(shards_[s]->mutex());
      shards_[s]->ForgetResident(std::move(of_shards[s].first), std::move(of_shards[s].second));
    }
    UseStore(std::move(own_layout), std::move(store));
    return Status();
  });
}

Status ColdTier::Clear(const RowLayout& layout) {
  const std::unique_lock<std::shared_mutex> alone(use_mutex_);
  const std::lock_guard<std::mutex> lock(write_mutex_);
  std::unique_ptr<ColdStore> store;
  RowLayout own_layout = layout;
  FE_RETURN_IF_ERROR(OpenStore(layout, "", &store));
  for (const std::unique_ptr<TableShard>& shard : shards_) {
    const std::lock_guard<std::mutex> shard_lock(shard->mutex());
    shard->Clear();
  }
  UseStore(std::move(own_layout), std::move(store));
  return Status();
}

void ColdTier::AddStatistics(TableStatistics* statistics) const {
  const ColdStoreStatistics of_store = store_->Statistics();
  *statistics += of_earlier_stores_;
  AddCounts(of_store, statistics);
  statistics->memory_bytes += of_store.memory_bytes;
  statistics->cold_bytes += of_store.disk_bytes;
}

}  // namespace fused_embedding
