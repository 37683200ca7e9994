#ifndef FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_
#define FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace fused_embedding {

// Counted since the table was made. NamedStatistics gives them with their names.
struct TableStatistics {
  int64_t size = 0;      // rows
  int64_t filtered = 0;  // keys that are counted but not admitted (kCounter)
  int64_t memory_bytes = 0;
  // Keys searched for in an index: one per key and step in the plain path.
  int64_t index_probes = 0;
  int64_t hits = 0;    // keys found by lookups
  int64_t misses = 0;  // keys not found by lookups, inserted afterwards or not
  int64_t inserts = 0;
  int64_t refusals = 0;      // keys that a full table refused
  int64_t not_admitted = 0;  // keys of training lookups that read no_permission_value
  int64_t evictions = 0;     // rows that a full table evicted
  int64_t expirations = 0;   // rows that Expire removed
  int64_t erasures = 0;      // rows that Erase removed
  // With a cold store, else 0.
  int64_t demotions = 0;     // rows demoted from DRAM
  int64_t written_back = 0;  // rows that demotions and saves wrote, as the store lacked them
  int64_t leaving = 0;       // rows and erased keys with a write-back pending or in flight
  int64_t cold_gets = 0;     // keys searched for in the store
  int64_t cold_hits = 0;     // those of them that had a row there
  int64_t cold_reads = 0;    // disk reads for them: misses of cache and write buffer
  int64_t cold_bytes_read = 0;
  int64_t cold_puts = 0;           // rows passed to the store
  int64_t cold_bytes_put = 0;      // their bytes
  int64_t cold_bytes_written = 0;  // to the disk, by flushes and compaction
  int64_t cold_bytes = 0;          // present size of its files

  TableStatistics& operator+=(const TableStatistics& other);
};

// The counters with their names, in the order above.
std::vector<std::pair<const char*, int64_t>> NamedStatistics(const TableStatistics& statistics);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_
