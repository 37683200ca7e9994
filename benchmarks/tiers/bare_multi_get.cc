// RocksDB's MultiGet and nothing else, on the files of a table's store:
// benchmarks/tiers/cold_reads.py compiles it.

#include <rocksdb/c.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace {

struct Bare {
  rocksdb_t* db = nullptr;
  rocksdb_column_family_handle_t* rows = nullptr;
  rocksdb_readoptions_t* read_options = rocksdb_readoptions_create();
};

// Copies the values of n keys of 8 bytes each to `values`; returns how many there are.
int64_t GetSome(const Bare& bare, const char* keys, int64_t n, int64_t value_bytes, char* values) {
  std::vector<const char*> names(static_cast<size_t>(n));
  std::vector<size_t> sizes(static_cast<size_t>(n), 8);
  std::vector<rocksdb_pinnableslice_t*> slices(static_cast<size_t>(n));
  std::vector<char*> errors(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) names[static_cast<size_t>(i)] = keys + 8 * i;
  rocksdb_batched_multi_get_cf(bare.db, bare.read_options, bare.rows, static_cast<size_t>(n),
                               names.data(), sizes.data(), slices.data(), errors.data(),
                               /*sorted_input=*/true);
  int64_t num_found = 0;
  for (int64_t i = 0; i < n; ++i) {
    rocksdb_free(errors[static_cast<size_t>(i)]);
    rocksdb_pinnableslice_t* slice = slices[static_cast<size_t>(i)];
    if (slice == nullptr) continue;
    size_t size = 0;
    const char* value = rocksdb_pinnableslice_value(slice, &size);
    std::memcpy(values + i * value_bytes, value, std::min(size, static_cast<size_t>(value_bytes)));
    rocksdb_pinnableslice_destroy(slice);
    ++num_found;
  }
  return num_found;
}

}  // namespace

// The store at `path`, which another one may have open; null, with a message, if it cannot be.
extern "C" void* bare_open(const char* path, const char* options) {
  rocksdb_options_t* defaults = rocksdb_options_create();
  rocksdb_options_t* chosen = rocksdb_options_create();
  char* error = nullptr;
  auto* bare = new Bare;
  rocksdb_get_options_from_string(defaults, options, chosen, &error);
  if (error == nullptr) {
    const char* name = "default";
    const rocksdb_options_t* of_rows = chosen;
    bare->db = rocksdb_open_for_read_only_column_families(chosen, path, 1, &name, &of_rows,
                                                          &bare->rows, 0, &error);
  }
  if (error == nullptr) return bare;
  std::fprintf(stderr, "%s\n", error);
  return nullptr;
}

extern "C" void bare_close(void* opened) {
  auto* bare = static_cast<Bare*>(opened);
  rocksdb_column_family_handle_destroy(bare->rows);
  rocksdb_close(bare->db);
  rocksdb_readoptions_destroy(bare->read_options);
  delete bare;
}

// Ascending keys, so many a call, by so many threads; returns how many have a row.
extern "C" int64_t bare_get(void* opened, const char* keys, int64_t n, int64_t value_bytes,
                            char* values, int64_t keys_per_call, int num_threads) {
  const auto& bare = *static_cast<const Bare*>(opened);
  std::atomic<int64_t> next{0}, num_found{0};
  const auto work = [&] {
    for (int64_t begin; (begin = next.fetch_add(keys_per_call)) < n;) {
      num_found += GetSome(bare, keys + 8 * begin, std::min(keys_per_call, n - begin), value_bytes,
                           values + begin * value_bytes);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < num_threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return num_found;
}
