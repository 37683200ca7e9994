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

  TableStatistics& operator+=(const TableStatistics& other);
};

// In the order above.
std::vector<std::pair<const char*, int64_t>> NamedStatistics(const TableStatistics& statistics);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_TABLE_TABLE_STATISTICS_H_
