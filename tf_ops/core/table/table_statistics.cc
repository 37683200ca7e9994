#include "tf_ops/core/table/table_statistics.h"

namespace fused_embedding {
namespace {

struct Field {
  const char* name;
  int64_t TableStatistics::* number;
};

constexpr Field kFields[] = {
    {"size", &TableStatistics::size},
    {"filtered", &TableStatistics::filtered},
    {"memory_bytes", &TableStatistics::memory_bytes},
    {"index_probes", &TableStatistics::index_probes},
    {"hits", &TableStatistics::hits},
    {"misses", &TableStatistics::misses},
    {"inserts", &TableStatistics::inserts},
    {"refusals", &TableStatistics::refusals},
    {"not_admitted", &TableStatistics::not_admitted},
    {"evictions", &TableStatistics::evictions},
    {"expirations", &TableStatistics::expirations},
    {"erasures", &TableStatistics::erasures},
    {"demotions", &TableStatistics::demotions},
    {"written_back", &TableStatistics::written_back},
    {"leaving", &TableStatistics::leaving},
    {"cold_gets", &TableStatistics::cold_gets},
    {"cold_hits", &TableStatistics::cold_hits},
    {"cold_reads", &TableStatistics::cold_reads},
    {"cold_bytes_read", &TableStatistics::cold_bytes_read},
    {"cold_puts", &TableStatistics::cold_puts},
    {"cold_bytes_put", &TableStatistics::cold_bytes_put},
    {"cold_bytes_written", &TableStatistics::cold_bytes_written},
    {"cold_bytes", &TableStatistics::cold_bytes},
};

}  // namespace

TableStatistics& TableStatistics::operator+=(const TableStatistics& other) {
  for (const Field& field : kFields) this->*field.number += other.*field.number;
  return *this;
}

std::vector<std::pair<const char*, int64_t>> NamedStatistics(const TableStatistics& statistics) {
  std::vector<std::pair<const char*, int64_t>> named;
  for (const Field& field : kFields) named.emplace_back(field.name, statistics.*field.number);
  return named;
}

}  // namespace fused_embedding
