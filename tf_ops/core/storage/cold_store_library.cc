#include "tf_ops/core/storage/cold_store_library.h"

#include <dlfcn.h>
#include <unistd.h>

namespace fused_embedding {

Status OpenColdStore(const std::string& library, const ColdStoreOptions& options,
                     std::unique_ptr<ColdStore>* store) {
  if (access(library.c_str(), F_OK) != 0) {
    return MakeStatus(
        StatusCode::kUnimplemented, "cold store ", options.path, " needs ", library,
        ", which is not there: this fused_embedding was built without RocksDB; ",
        "install librocksdb-dev (Debian, Ubuntu) or rocksdb-devel, and build it again; ",
        "beside a wheel for one TensorFlow, pip install fused-embedding-ssd of its version");
  }
  void* opened = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    return MakeStatus(
        StatusCode::kUnimplemented, "cold store ", options.path, " needs RocksDB, but: ", dlerror(),
        "; install the librocksdb that it names (Debian 12: apt-get install ", "librocksdb7.8)");
  }
  const auto open = reinterpret_cast<OpenColdStoreFunction>(dlsym(opened, kOpenColdStoreName));
  if (open == nullptr) {
    return MakeStatus(StatusCode::kUnimplemented, "cold store ", options.path, ": ", library,
                      " is of another build of fused_embedding; build and install both again");
  }
  Status status;
  ColdStore* made = nullptr;
  open(options, &status, &made);
  store->reset(made);
  return status;
}

std::string RocksDbLibrary() {
  Dl_info here;
  // Of any address in this library; it knows the name that the library was loaded by.
  if (dladdr(kOpenColdStoreName, &here) == 0 || here.dli_fname == nullptr) here.dli_fname = "";
  const std::string path = here.dli_fname;
  return path.substr(0, path.rfind('/') + 1) + "_cold_store_rocksdb.so";
}

Status OpenRocksDb(const ColdStoreOptions& options, std::unique_ptr<ColdStore>* store) {
  return OpenColdStore(RocksDbLibrary(), options, store);
}

}  // namespace fused_embedding
