// Rows of several tables as they travel between tasks: one vector a server, in which the rows of
// its parts of tables follow each other without gaps, whatever their widths are.
//
//   table 0 of width 2 in two parts, table 1 of width 1 in one; servers of the parts [0, 1, 0]
//   part_sizes [1, 2, 3]  ->  server 0: 1 * 2 + 3 * 1 values, server 1: 2 * 2 values

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_PACKED_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_PACKED_ROWS_H_

#include <cstdint>
#include <vector>

#include "tf_ops/core/base/buffer.h"
#include "tf_ops/core/base/dtype.h"
#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Which parts the tables have, table after table, and which server has each part.
struct PackedLayout {
  std::vector<int64_t> dims;          // [num_tables] values of a row
  std::vector<int64_t> num_parts;     // [num_tables]
  std::vector<int64_t> part_servers;  // [sum of num_parts], each in [0, num_servers)
  int64_t num_servers = 0;

  int64_t num_tables() const { return static_cast<int64_t>(dims.size()); }
};

// Checks that lists agree in length, and dims, servers and numbers of parts.
Status CheckPackedLayout(const PackedLayout& layout);

struct PackedPlaces {
  struct Part {
    int64_t server, offset;  // of its first value in the server's vector
    int64_t num_values;
  };
  struct Table {
    int64_t first_part, num_parts;
    int64_t num_rows, num_values;
    bool is_whole;  // one server has all parts, so that the rows of the table have no gaps
  };
  std::vector<Part> parts;
  std::vector<Table> tables;
  std::vector<int64_t> server_sizes;  // values of each server
};

// Finds the places for these numbers of rows in each part.
Status PlacePackedRows(const PackedLayout& layout, Span<const int64_t> part_sizes,
                       PackedPlaces* places);

// Where the rows of a whole table begin in the servers' vectors.
template <typename T>
T* WholeTable(const PackedPlaces& places, const PackedPlaces::Table& table,
              Span<T* const> servers) {
  const PackedPlaces::Part& first = places.parts[static_cast<size_t>(table.first_part)];
  return servers[first.server] + first.offset;
}

// The servers' vectors must have the sizes of `places`.
Status CheckPackedSizes(const PackedPlaces& places, Span<const int64_t> sizes);

// Copies the rows of table `t` from the servers' vectors to `rows`, and back.
template <typename T>
void UnpackTable(const PackedPlaces& places, int64_t t, Span<const T* const> servers, T* rows);
template <typename T>
void PackTable(const PackedPlaces& places, int64_t t, const T* rows, Span<T* const> servers);

// The rows of tables without gaps: those of one server where they are, the others in copies.
template <typename T>
class ContiguousTables {
 public:
  Status Gather(const PackedPlaces& places, Span<const T* const> servers);
  const T* operator[](int64_t t) const { return tables_[static_cast<size_t>(t)]; }

 private:
  std::vector<const T*> tables_;
  std::vector<Buffer<T>> copies_;
};

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_PACKED_ROWS_H_
