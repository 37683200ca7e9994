#ifndef FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_
#define FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_

#include <cstdint>
#include <utility>
#include <vector>

namespace fused_embedding {

// Counted since the table was made. NamedStatistics gives them with their names.
struct TableStatistics {
  int64_t size = 0;      // rows
  int64_t filtered = 0;  // keys that are counted and not admitted (kCounter)
  int64_t memory_bytes = 0;
  // Keys searched for in an index: one per key and step in the plain path.
  int64_t index_probes = 0;
  int64_t hits = 0;    // keys found by lookups
  int64_t misses = 0;  // keys not found by lookups, whatever came of them
  int64_t inserts = 0;
  int64_t refusals = 0;      // keys that a full table could not take
  int64_t not_admitted = 0;  // keys of training lookups that read no_permission_value
  int64_t evictions = 0;     // rows that a full table gave up
  int64_t expirations = 0;   // rows that Expire removed
  int64_t erasures = 0;      // rows that Erase removed
  // Where a cold store is below DRAM, else 0.
  int64_t demotions = 0;     // rows that left DRAM
  int64_t written_back = 0;  // of these and of saves, rows that the store lacked
  int64_t leaving = 0;       // rows and erased keys that the store has not got yet
  int64_t cold_gets = 0;     // keys that the store was asked for
  int64_t cold_hits = 0;     // of these, had a row there
  int64_t cold_reads = 0;    // of these, neither its cache nor its buffer could answer
  int64_t cold_bytes_read = 0;
  int64_t cold_puts = 0;           // rows that it got
  int64_t cold_bytes_put = 0;      // of these
  int64_t cold_bytes_written = 0;  // to the disk, by flushes and merges
  int64_t cold_bytes = 0;          // of its files

  TableStatistics& operator+=(const TableStatistics& other);
};

// In the order above.
std::vector<std::pair<const char*, int64_t>> NamedStatistics(const TableStatistics& statistics);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_
