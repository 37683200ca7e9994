// Implementations of ColdStore in libraries of their own, which are loaded when a table asks for
// one: RocksDB needs not be there for anything else.

#ifndef FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_
#define FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_

#include <memory>
#include <string>

#include "tf_ops/core/storage/cold_store.h"

namespace fused_embedding {

// The function of such a library: sets *status, and *store, which the caller owns, if it is OK.
// Both sides are of one build. The name counts up with changes of ColdStore.
using OpenColdStoreFunction = void (*)(const ColdStoreOptions& options, Status* status,
                                       ColdStore** store);
constexpr char kOpenColdStoreName[] = "fused_embedding_open_cold_store_2";

// A store of the implementation in `library`, such as ".../_cold_store_rocksdb.so", which stays
// loaded. Unimplemented where it cannot be: says what to install.
Status OpenColdStore(const std::string& library, const ColdStoreOptions& options,
                     std::unique_ptr<ColdStore>* store);

// One in RocksDB, from RocksDbLibrary().
Status OpenRocksDb(const ColdStoreOptions& options, std::unique_ptr<ColdStore>* store);

// Where `_cold_store_rocksdb.so` is: beside the library that this function is in, which is looked
// up each time. So no graph names a folder of the machine that it was made on.
std::string RocksDbLibrary();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_
