#!/bin/sh
# build.sh BIN JOBS: builds python/fused_embedding/_ops.so for the TensorFlow of BIN/python, and
# _cold_store_rocksdb.so beside it where there is RocksDB.
set -e
bin=$PWD/$1 jobs=$2
tools/system_packages.sh g++
tools/system_packages.sh librocksdb-dev ||
    echo "no librocksdb-dev: no _cold_store_rocksdb.so, and so no tables on an SSD"
"$bin/cmake" -S . -B build/dev -G Ninja -DPython_EXECUTABLE="$bin/python" \
    -DCMAKE_MAKE_PROGRAM="$bin/ninja"
"$bin/cmake" --build build/dev -j "$jobs"
