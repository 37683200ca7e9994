// The server's side of a lookup in tables of other tasks: a message of keys becomes the rows of all
// of its tables, without gaps.

#ifndef FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_ROWS_H_
#define FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tf_ops/core/base/exec.h"
#include "tf_ops/core/lookup/remote/key_message.h"
#include "tf_ops/core/lookup/stages/gather.h"

namespace fused_embedding {

// The keys of one table of a message, and where its rows begin in those of all.
struct MessagePart {
  Span<const int64_t> keys;
  Span<const int32_t> counts;  // as many, or none
  int64_t first_byte = 0;
};

// The parts of a message, whose tables have rows of so many bytes, and the bytes of all rows.
Status SplitMessage(const KeyMessage& message, Span<const int64_t> row_bytes,
                    std::vector<MessagePart>* parts, int64_t* num_bytes);

// Copies the rows of `parts` [num_tables] of tables that are arrays. InvalidArgument names the
// first row that a table lacks; a table is called names[t], or by its number if there are no names.
Status GatherParts(const CpuExec& exec, Span<const TableView> tables, Span<const MessagePart> parts,
                   const std::vector<std::string>& names, char* rows);

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_LOOKUP_REMOTE_REMOTE_ROWS_H_
