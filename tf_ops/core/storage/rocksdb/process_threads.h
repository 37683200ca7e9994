#ifndef FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_PROCESS_THREADS_H_
#define FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_PROCESS_THREADS_H_

#include "tf_ops/core/base/status.h"

namespace fused_embedding {

// Starts the threads that all databases of the process share, one each for compactions, flushes and
// RocksDB's timer; they run until the process ends. Afterwards, opening a database with
// max_file_opening_threads=1, writing to it and closing it start no thread. ResourceExhausted if
// one cannot be started; the next call tries again.
//
// RocksDB itself would start them within rocksdb_open, where a failure is an exception that leaves
// locks and state behind.
Status StartProcessThreads();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_ROCKSDB_PROCESS_THREADS_H_
