#!/bin/sh
# core_tests.sh BIN JOBS [_sanitized]: builds and runs the C++ tests of tf_ops/core; no TensorFlow.
set -e
bin=$PWD/$1 jobs=$2 kind=$3
tools/system_packages.sh g++ libgtest-dev librocksdb-dev
folder=build/core_tests
"$bin/cmake" -S . -B $folder -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DFE_BUILD_OPS=OFF \
    -DFE_BUILD_TESTS=ON
# What Python loads (tests/core_api) is not sanitized: Python is not.
"$bin/cmake" --build $folder -j "$jobs" --target \
    "core_tests$kind" "cuda_emulation_tests$kind" $([ "$kind" ] || echo core_emulated)
"$folder/core_tests$kind" --gtest_brief=1
# In parts side by side: the emulation is one thread, and with sanitizers it takes minutes.
parts=
for part in $(seq 0 $((jobs - 1))); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$part "$folder/cuda_emulation_tests$kind" --gtest_brief=1 &
    parts="$parts $!"
done
for part in $parts; do wait "$part"; done
