// Implementations of ColdStore in libraries of their own. A library is loaded when a table needs
// it, so RocksDB need not be installed for anything else.

#ifndef FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_
#define FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_

#include <memory>
#include <string>

#include "tf_ops/core/storage/cold_store.h"

namespace fused_embedding {

// The entry point of such a library. Sets *status and, if it is OK, *store, which the caller owns.
// Library and caller must be of the same build; the number in the name is incremented whenever
// ColdStore changes.
using OpenColdStoreFunction = void (*)(const ColdStoreOptions& options, Status* status,
                                       ColdStore** store);
constexpr char kOpenColdStoreName[] = "fused_embedding_open_cold_store_2";

// Opens a store of the implementation in `library`, such as ".../_cold_store_rocksdb.so". The
// library stays loaded. Unimplemented if it cannot be loaded; the message says what to install.
Status OpenColdStore(const std::string& library, const ColdStoreOptions& options,
                     std::unique_ptr<ColdStore>* store);

// Opens a store of the implementation in RocksDbLibrary().
Status OpenRocksDb(const ColdStoreOptions& options, std::unique_ptr<ColdStore>* store);

// The path of `_cold_store_rocksdb.so`: the folder of the library that contains this function,
// which is determined in each call. So no graph contains a path of the machine that made it.
std::string RocksDbLibrary();

}  // namespace fused_embedding

#endif  // FUSED_EMBEDDING_CORE_STORAGE_COLD_STORE_LIBRARY_H_
