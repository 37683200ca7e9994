// Random sequences of all operations, against a map.

#include <functional>
#include <unordered_map>

#include "tests/cpp/memory_cold_store.h"
#include "tests/cpp/table_testing.h"
#include "tests/cpp/temporary_folder.h"
#include "tf_ops/core/base/hash.h"

namespace fused_embedding {
namespace {

using Floats = std::vector<float>;

struct ModelRow {
  uint32_t frequency = 0;
  uint32_t version = 0;
  Floats value, slots;
};

// An EmbeddingTable of floats as one would write it down.
struct Model {
  TableConfig config;
  std::vector<Slot> slots;
  std::unordered_map<int64_t, ModelRow> rows;
  std::unordered_map<int64_t, std::pair<uint32_t, uint32_t>> filtered;  // frequency, version

  Floats InitialValue(int64_t key) const {
    Floats value(static_cast<size_t>(config.layout.dim));
    char* bytes = reinterpret_cast<char*>(value.data());
    Initialize(config.initializer, config.layout, &key, &bytes, 1);
    return value;
  }
  Floats InitialSlots() const {
    Floats initial;
    for (const Slot& slot : slots) {
      initial.insert(initial.end(), static_cast<size_t>(slot.width),
                     static_cast<float>(slot.initial));
    }
    return initial;
  }
  Floats Constant(double value) const {
    return Floats(static_cast<size_t>(config.layout.dim), static_cast<float>(value));
  }

  Floats FindOrInsert(int64_t key, int32_t count, uint32_t version) {
    const auto row = rows.find(key);
    if (row != rows.end()) {
      row->second.frequency += static_cast<uint32_t>(count);
      row->second.version = version;
      return row->second.value;
    }
    uint32_t frequency = static_cast<uint32_t>(count);
    if (filtered.count(key) > 0) frequency += filtered[key].first;
    if (config.admission.kind == AdmissionKind::kCounter &&
        frequency < config.admission.min_frequency) {
      if (frequency > 0) filtered[key] = {frequency, version};
      return Constant(config.no_permission_value);
    }
    filtered.erase(key);
    rows[key] = {frequency, version, InitialValue(key), InitialSlots()};
    return rows[key].value;
  }
  Floats Find(int64_t key) const {
    const auto row = rows.find(key);
    if (row != rows.end()) return row->second.value;
    return config.admission.kind == AdmissionKind::kAll ? InitialValue(key)
                                                        : Constant(config.no_permission_value);
  }

  TableContents Contents() const {
    TableContents contents;
    RowLayout layout = config.layout;
    layout.slots = slots;
    for (const auto& [key, row] : rows) {
      std::string bytes(static_cast<size_t>(layout.row_bytes()), '\0');
      const RowHeader header{key, row.frequency, row.version};
      std::memcpy(bytes.data(), &header, sizeof(header));
      std::copy_n(reinterpret_cast<const char*>(row.value.data()), layout.value_bytes(),
                  bytes.data() + layout.value_offset());
      std::copy_n(reinterpret_cast<const char*>(row.slots.data()), row.slots.size() * sizeof(float),
                  bytes.data() + layout.slots_offset());
      contents.rows[key] = bytes;
    }
    contents.filtered = {filtered.begin(), filtered.end()};
    return contents;
  }
};

// A table beside its model. Each operation is done to both, and what they return is compared.
class RandomRun {
 public:
  // `open`: of the cold store below the table; empty: none.
  explicit RandomRun(int seed, StorageConfig::Open open = {})
      : random_(seed), exec_(1 + seed % 3), open_(std::move(open)) {
    model_.config.layout.dim = RandomInt(&random_, 1, 9);
    model_.config.initializer.kind = InitializerKind::kUniform;
    model_.config.initializer.a = -1.0;
    model_.config.initializer.b = 1.0;
    model_.config.initializer.seed = static_cast<uint64_t>(seed);
    model_.config.no_permission_value = -7.0;
    if (RandomBool(&random_)) {
      model_.config.admission = {AdmissionKind::kCounter, RandomInt(&random_, 0, 4)};
    }
    // Small spaces of keys for rows that come and go, large ones for growth.
    num_keys_ = RandomBool(&random_) ? 50 : 20000;
    Rebuild();
  }

  void Step() {
    switch (RandomInt(&random_, 0, 19)) {
      case 0:
        return Upsert();
      case 1:
        return Erase();
      case 2:
        return Expire();
      case 3:
        return EnsureSlots();
      case 4:
        return RestoreFiltered();
      case 5:
        return MoveToOtherTable();
      case 6:
      case 7:
      case 8:
        return Update();
      case 9:
      case 10:
        return Find();
      case 11:
        return RandomInt(&random_, 0, 9) == 0 ? Clear() : Find();
      default:
        return FindOrInsert();
    }
  }

  TableStatistics Statistics() const { return table_->Statistics(); }

  void CompareContents() {
    const TableContents got = ContentsOf(*table_), want = model_.Contents();
    ASSERT_EQ(got.filtered, want.filtered);
    ASSERT_EQ(got.rows.size(), want.rows.size());
    for (const auto& [key, row] : want.rows) {
      ASSERT_EQ(got.rows.count(key), 1u) << "key " << key;
      ASSERT_EQ(got.rows.at(key), row) << "key " << key;
    }
    const TableStatistics statistics = table_->Statistics();
    ASSERT_EQ(statistics.size, want.rows.size());
    ASSERT_EQ(table_->size(), want.rows.size());
    ASSERT_EQ(statistics.filtered, want.filtered.size());
  }

 private:
  void Rebuild() {
    TableConfig config = model_.config;
    config.num_shards = int64_t{1} << RandomInt(&random_, 0, 5);
    config.storage.open = open_;
    config.storage.path = folder_.path() + "/" + std::to_string(num_tables_++);
    config.storage.strategy = RandomBool(&random_) ? CacheStrategy::kLru : CacheStrategy::kLfu;
    // Room for the store, and for 30 to 3,000 rows.
    config.storage.dram_bytes = (int64_t{4} << 20) + (1 << RandomInt(&random_, 14, 18));
    table_ = MakeTable(config);
    handles_.clear();
  }

  // With duplicates now and then.
  Ints RandomKeys() {
    Ints keys(static_cast<size_t>(RandomInt(&random_, 0, RandomBool(&random_) ? 20 : 2000)));
    for (int64_t& key : keys) {
      key = static_cast<int64_t>(Mix64(static_cast<uint64_t>(RandomInt(&random_, 0, num_keys_))));
      if (RandomInt(&random_, 0, 500) == 0) key = RandomBool(&random_) ? kInt64Min : kInt64Max;
    }
    return keys;
  }
  Floats RandomFloats(size_t n) {
    Floats floats(n);
    for (float& x : floats) x = static_cast<float>(RandomInt(&random_, -999, 999));
    return floats;
  }

  void FindOrInsert() {
    const Ints keys = RandomKeys();
    LookupArgs args;
    args.step = RandomBool(&random_) ? ++step_ : -1;
    const uint32_t version = static_cast<uint32_t>(args.step < 0 ? table_->step() : args.step);
    if (RandomBool(&random_)) args.counts.resize(keys.size());
    for (int32_t& count : args.counts) count = static_cast<int32_t>(RandomInt(&random_, 0, 3));
    const Lookup got = LookUp(table_.get(), keys, args, exec_);
    ASSERT_TRUE(IsOk(got.status));
    Floats want;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Floats value =
          model_.FindOrInsert(keys[i], args.counts.empty() ? 1 : args.counts[i], version);
      want.insert(want.end(), value.begin(), value.end());
      ASSERT_EQ(got.handles[i] >= 0, model_.rows.count(keys[i]) > 0);
      handles_[keys[i]] = got.handles[i];
    }
    ASSERT_EQ(got.values, want);
    if (RandomBool(&random_)) table_->AdvanceStep();
  }

  void Find() {
    const Ints keys = RandomKeys();
    const Lookup got = LookUp(table_.get(), keys, {{}, 99, false}, exec_);
    ASSERT_TRUE(IsOk(got.status));
    Floats want;
    for (size_t i = 0; i < keys.size(); ++i) {
      const Floats value = model_.Find(keys[i]);
      want.insert(want.end(), value.begin(), value.end());
      ASSERT_EQ(got.handles[i] >= 0, model_.rows.count(keys[i]) > 0);
    }
    ASSERT_EQ(got.values, want);
  }

  // As an optimizer does: with handles that may be old, foreign or none.
  void Update() {
    const Ints keys = RandomKeys();
    Ints handles;
    if (RandomBool(&random_)) {
      for (const int64_t key : keys) {
        const bool is_known = handles_.count(key) > 0 && RandomInt(&random_, 0, 9) > 0;
        handles.push_back(is_known ? handles_[key] : static_cast<int64_t>(random_()));
      }
    }
    const size_t dim = static_cast<size_t>(model_.config.layout.dim);
    Array<int32_t> visits(static_cast<int64_t>(keys.size()));
    const Status status = table_->ForEachRow(
        exec_, View(keys), View(handles), [&](const RowLayout& layout, const RowBatch& batch) {
          for (int64_t i = 0; i < batch.n; ++i) {
            visits[batch.positions[i]] += batch.rows[i] == nullptr ? 1 : 2;
            if (batch.rows[i] == nullptr) continue;
            float* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
            float* slots = reinterpret_cast<float*>(batch.rows[i] + layout.slots_offset());
            value[dim - 1] += 1.0f;
            if (layout.slot_width() > 0) slots[layout.slot_width() - 1] += 2.0f;
          }
        });
    ASSERT_TRUE(IsOk(status));
    for (size_t i = 0; i < keys.size(); ++i) {
      const auto row = model_.rows.find(keys[i]);
      ASSERT_EQ(visits[static_cast<int64_t>(i)], row == model_.rows.end() ? 1 : 2);
      if (row == model_.rows.end()) continue;
      row->second.value.back() += 1.0f;
      if (!row->second.slots.empty()) row->second.slots.back() += 2.0f;
    }
  }

  void Upsert() {
    const Ints keys = RandomKeys();
    const size_t dim = static_cast<size_t>(model_.config.layout.dim);
    // The slots that their writer knew: the first of those that there are.
    const size_t num_slots =
        static_cast<size_t>(RandomInt(&random_, 0, static_cast<int64_t>(model_.slots.size())));
    size_t width = 0;
    for (size_t s = 0; s < num_slots; ++s) width += static_cast<size_t>(model_.slots[s].width);
    const Floats values = RandomFloats(keys.size() * dim);
    const Floats slots = RandomFloats(keys.size() * width);
    Ints frequencies, versions;
    const bool has_slots = RandomBool(&random_) && width > 0;
    if (RandomBool(&random_)) frequencies = Ints(keys.size(), ++step_);
    if (RandomBool(&random_)) versions = Ints(keys.size(), ++step_);
    EmbeddingTable::Content content;
    content.keys = View(keys);
    content.values = reinterpret_cast<const char*>(values.data());
    if (has_slots) content.slots = reinterpret_cast<const char*>(slots.data());
    if (has_slots) content.slot_width = static_cast<int64_t>(width);
    content.frequencies = View(frequencies);
    content.versions = View(versions);
    ASSERT_TRUE(IsOk(table_->Upsert(exec_, content)));
    for (size_t i = 0; i < keys.size(); ++i) {
      if (model_.rows.count(keys[i]) == 0) {
        model_.rows[keys[i]] = {
            0, static_cast<uint32_t>(table_->step()), {}, model_.InitialSlots()};
      }
      model_.filtered.erase(keys[i]);
      ModelRow& row = model_.rows[keys[i]];
      const auto at = [&](const Floats& all, size_t n) {
        return Floats(all.data() + i * n, all.data() + (i + 1) * n);
      };
      row.value = at(values, dim);
      const Floats row_slots = at(slots, has_slots ? width : 0);
      std::copy(row_slots.begin(), row_slots.end(), row.slots.begin());
      if (!frequencies.empty()) row.frequency = static_cast<uint32_t>(frequencies[i]);
      if (!versions.empty()) row.version = static_cast<uint32_t>(versions[i]);
    }
  }

  void Erase() {
    const Ints keys = RandomKeys();
    int64_t want = 0;
    for (const int64_t key : keys) {
      want += static_cast<int64_t>(model_.rows.erase(key));
      model_.filtered.erase(key);
    }
    ASSERT_EQ(EraseKeys(table_.get(), keys), want);
  }

  void Expire() {
    Expiry in;
    in.step = RandomBool(&random_) ? step_ : -1;
    if (RandomBool(&random_)) in.steps_to_live = RandomInt(&random_, 1, 20);
    if (RandomBool(&random_)) in.l2_threshold = 0.9;
    const int64_t now = in.step < 0 ? table_->step() : in.step;
    const auto is_old = [&](uint32_t version) {
      return in.steps_to_live > 0 && now - int64_t{version} > in.steps_to_live;
    };
    int64_t want = 0;
    for (auto row = model_.rows.begin(); row != model_.rows.end();) {
      double squares = 0;
      for (const float x : row->second.value) squares += double{x} * x;
      const bool is_expired =
          is_old(row->second.version) || (in.l2_threshold > 0 && std::sqrt(squares) < 0.9);
      want += is_expired;
      row = is_expired ? model_.rows.erase(row) : std::next(row);
    }
    for (auto key = model_.filtered.begin(); key != model_.filtered.end();) {
      key = is_old(key->second.second) ? model_.filtered.erase(key) : std::next(key);
    }
    int64_t got = -1;
    ASSERT_TRUE(IsOk(table_->Expire(exec_, in, &got)));
    ASSERT_EQ(got, want);
  }

  void EnsureSlots() {
    if (model_.slots.size() == 3) return;
    const std::string name = "slot" + std::to_string(model_.slots.size());
    const Slot slot{name, RandomBool(&random_) ? 1 : model_.config.layout.dim, 0.25};
    std::vector<Slot> slots = model_.slots;
    slots.push_back(slot);
    ASSERT_TRUE(IsOk(table_->EnsureSlots({slots.data(), static_cast<int64_t>(slots.size())})));
    model_.slots = slots;
    for (auto& [key, row] : model_.rows) {
      row.slots.insert(row.slots.end(), static_cast<size_t>(slot.width), 0.25f);
    }
    ASSERT_EQ(table_->SlotOffset(name), table_->layout().SlotOffset(name));
  }

  void RestoreFiltered() {
    FilteredKeys filtered;
    for (const int64_t key : RandomKeys()) {
      filtered.keys.push_back(key);
      filtered.frequencies.push_back(1);
      filtered.versions.push_back(static_cast<uint32_t>(step_));
      const bool is_counted = model_.config.admission.kind == AdmissionKind::kCounter;
      if (is_counted && model_.rows.count(key) == 0) {
        model_.filtered[key] = {1, static_cast<uint32_t>(step_)};
      }
    }
    ASSERT_TRUE(IsOk(table_->RestoreFiltered(filtered)));
  }

  // Save and restore, with another number of shards.
  void MoveToOtherTable() {
    const std::unique_ptr<EmbeddingTable> old = std::move(table_);
    Rebuild();
    table_->set_step(old->step());
    const std::vector<Slot> slots = old->layout().slots;
    ASSERT_TRUE(IsOk(table_->EnsureSlots({slots.data(), static_cast<int64_t>(slots.size())})));
    const TableContents contents = ContentsOf(*old);
    FilteredKeys filtered;
    for (const auto& [key, counts] : contents.filtered) {
      filtered.Add({key, counts.first, counts.second});
    }
    ASSERT_TRUE(IsOk(table_->RestoreFiltered(filtered)));
    const RowLayout layout = old->layout();
    Ints keys, frequencies, versions;
    std::string values, slot_bytes;
    for (const auto& [key, row] : contents.rows) {
      keys.push_back(key);
      frequencies.push_back(HeaderOf(row).frequency);
      versions.push_back(HeaderOf(row).version);
      values += row.substr(static_cast<size_t>(layout.value_offset()),
                           static_cast<size_t>(layout.value_bytes()));
      slot_bytes += row.substr(static_cast<size_t>(layout.slots_offset()),
                               static_cast<size_t>(layout.slot_width()) * sizeof(float));
    }
    EmbeddingTable::Content content{View(keys),        values.data(),  slot_bytes.data(),
                                    View(frequencies), View(versions), layout.slot_width()};
    ASSERT_TRUE(IsOk(table_->Upsert(exec_, content)));
  }

  void Clear() {
    EXPECT_TRUE(IsOk(table_->Clear()));
    model_.rows.clear();
    model_.filtered.clear();
    model_.slots.clear();
  }

  Random random_;
  ThreadedExec exec_;
  const StorageConfig::Open open_;
  TemporaryFolder folder_;
  int num_tables_ = 0;
  Model model_;
  std::unique_ptr<EmbeddingTable> table_;
  std::unordered_map<int64_t, int64_t> handles_;  // of the last lookup: some are out of date
  int64_t num_keys_ = 0;
  int64_t step_ = 0;
};

TEST(EmbeddingTableModelTest, RandomOperationsDoWhatTheyDoToAMap) {
  for (int seed = 0; seed < NumCases(30); ++seed) {
    RandomRun run(seed);
    for (int step = 0; step < 120; ++step) {
      run.Step();
      if (step % 20 == 19) run.CompareContents();
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
  }
}

// Rows that leave DRAM and come back are what they were.
TEST(EmbeddingTableModelTest, RandomOperationsAboveAColdStore) {
  TableStatistics sum;
  for (int seed = 0; seed < NumCases(30); ++seed) {
    RandomRun run(seed, MemoryColdStore::Open);
    for (int step = 0; step < 120; ++step) {
      run.Step();
      if (step % 20 == 19) run.CompareContents();
      if (HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    sum += run.Statistics();
  }
  EXPECT_GT(sum.demotions, 10000);
  EXPECT_GT(sum.cold_hits, 10000);
  EXPECT_GT(sum.written_back, 10000);
}

// --- The same content whatever the shards and threads ---

TableContents RunSequence(int64_t num_shards, int num_threads, int seed) {
  Random random(seed);
  TableConfig config = TestConfig();
  config.num_shards = num_shards;
  config.initializer.kind = InitializerKind::kNormal;
  config.initializer.b = 1.0;
  if (seed % 2 == 0) config.admission = {AdmissionKind::kCounter, 3};
  const auto table = MakeTable(config);
  const ThreadedExec exec(num_threads);
  for (int64_t step = 0; step < 12; ++step) {
    Ints keys(static_cast<size_t>(RandomInt(&random, 1, 9000)));
    for (int64_t& key : keys) key = RandomInt(&random, -8000, 8000);
    EXPECT_TRUE(IsOk(LookUp(table.get(), keys, {{}, step}, exec).status));
    EXPECT_TRUE(IsOk(
        table->ForEachRow(exec, View(keys), {}, [](const RowLayout& layout, const RowBatch& batch) {
          for (int64_t i = 0; i < batch.n; ++i) {
            if (batch.rows[i] == nullptr) continue;
            float* value = reinterpret_cast<float*>(batch.rows[i] + layout.value_offset());
            value[0] = 0.5f * value[0] + static_cast<float>(batch.positions[i]);
          }
        })));
    int64_t num_expired = 0;
    if (step % 5 != 4) continue;
    EXPECT_TRUE(IsOk(table->Expire(exec, {step, 3, 0.01}, &num_expired)));
  }
  return ContentsOf(*table);
}

TEST(EmbeddingTableModelTest, ContentDoesNotDependOnShardsAndThreads) {
  for (int seed = 0; seed < 4; ++seed) {
    const TableContents want = RunSequence(1, 1, seed);
    EXPECT_GT(want.rows.size(), 1000u);
    for (const int64_t num_shards : {1, 4, 16, 256}) {
      for (const int num_threads : kThreadCounts) {
        EXPECT_TRUE(RunSequence(num_shards, num_threads, seed) == want)
            << num_shards << " shards, " << num_threads << " threads, seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace fused_embedding
