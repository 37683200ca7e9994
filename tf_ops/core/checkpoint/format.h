// The bytes of a table's file, little-endian:
//
//   magic "FE_TABLE" | format version uint32 | CRC32C of these 12 bytes uint32
//   blocks: BlockHeader (24 bytes) | payload
//     kTable     what TableHeader holds; first, once
//     kMatrix    values of the initializer's matrix, in pieces
//     kSlots     the slots of the rows that follow; again where an optimizer adds some meanwhile
//     kRows      rows as they lie in memory (row_layout.h), of one shard
//     kFiltered  RowHeaders of the keys that are not admitted
//     kBloom     counters of the Bloom filter, shard after shard, in pieces
//     kFooter    what Totals holds; last, once: a file without it was not finished
//     kRemoved   keys without a row or a count, after what the shard has; of incremental saves
//     kBloomLines  BloomLines that changed, of one shard; of incremental saves
//     kLink      what Link holds; second, once; of files that incremental saves continue
//     kColdFile  what ColdFile holds, one for each file; all rows of a table above a cold store, in
//                the layout of the kSlots before it
//
// An incremental save is a file of the same blocks, with the rows and counts that changed since the
// save it continues. Its initializer is that save's: no kMatrix. Nor has it a kBloom.
//
// Every byte is under a checksum, lengths before they are believed.

#ifndef FUSED_EMBEDDING_CORE_CHECKPOINT_FORMAT_H_
#define FUSED_EMBEDDING_CORE_CHECKPOINT_FORMAT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/span.h"
#include "tf_ops/core/base/status.h"
#include "tf_ops/core/table/embedding_table.h"

namespace fused_embedding {

constexpr char kMagic[] = "FE_TABLE";
// Counts up with every change that older readers would misunderstand.
constexpr uint32_t kFormatVersion = 3;  // 2: incremental saves; 3: cold files; all are read

struct FilePrefix {
  char magic[8];
  uint32_t version;
  uint32_t crc;
};
static_assert(sizeof(FilePrefix) == 16);

enum class BlockType : uint32_t {
  kTable = 1,
  kMatrix = 2,
  kSlots = 3,
  kRows = 4,
  kFiltered = 5,
  kBloom = 6,
  kFooter = 7,
  kRemoved = 8,
  kLink = 9,
  kBloomLines = 10,
  kColdFile = 11,
};

struct BlockHeader {
  uint32_t type;
  uint32_t number;  // blocks before this one
  uint64_t payload_bytes;
  uint32_t payload_crc;
  uint32_t crc;  // of the bytes before it
};
static_assert(sizeof(BlockHeader) == 24);

// The place of a file in a series of saves. Names are drawn at random, never 0.
struct Link {
  uint64_t name = 0;       // 0: nothing continues this file
  uint64_t continues = 0;  // name of the file that this one continues; 0: it has all of the table
};

// What a table is, and what its rows do not say.
struct TableHeader {
  ValueType value_type = ValueType::kFloat;
  int64_t dim = 0;
  InitializerConfig initializer;  // the matrix is in blocks of its own
  int64_t matrix_bytes = 0;
  AdmissionConfig admission;
  int64_t num_shards = 0;
  uint64_t hash_seed = 0;  // the table's own; places in a Bloom filter depend on it and num_shards
  int64_t step = 0;
  Link link;  // in a block of its own
};

struct Totals {
  int64_t num_rows = 0;
  int64_t num_filtered = 0;
  int64_t matrix_bytes = 0;
  int64_t bloom_bytes = 0;
  int64_t num_removed = 0;

  bool operator==(const Totals& other) const {
    return num_rows == other.num_rows && num_filtered == other.num_filtered &&
           matrix_bytes == other.matrix_bytes && bloom_bytes == other.bloom_bytes &&
           num_removed == other.num_removed;
  }
};

// A file of a cold store's checkpoint.
struct ColdFile {
  std::string name;    // in the folder of that checkpoint
  std::string suffix;  // it is the file of that name behind PrefixOf(table's file); empty: `bytes`
  std::string bytes;
};

// Payloads. Decoding believes no length, and gives DataLoss with the reason and no file.
std::string EncodeTable(const TableHeader& header);
Status DecodeTable(Span<const char> payload, TableHeader* header);
std::string EncodeLink(const Link& link);
Status DecodeLink(Span<const char> payload, Link* link);
std::string EncodeSlots(const std::vector<Slot>& slots);
Status DecodeSlots(Span<const char> payload, std::vector<Slot>* slots);
std::string EncodeColdFile(const ColdFile& file);
Status DecodeColdFile(Span<const char> payload, ColdFile* file);
std::string EncodeTotals(const Totals& totals);
Status DecodeTotals(Span<const char> payload, Totals* totals);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_CHECKPOINT_FORMAT_H_
