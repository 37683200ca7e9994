#!/bin/sh
# core_tests.sh BIN JOBS [SANITIZERS]: builds and runs the C++ tests of tf_ops/core; no TensorFlow.
set -e
bin=$PWD/$1 jobs=$2 sanitizers=$3
tools/system_packages.sh g++ libgtest-dev librocksdb-dev
folder=build/core_tests${sanitizers:+_sanitized}
"$bin/cmake" -S . -B "$folder" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" \
    -DFE_BUILD_OPS=OFF -DFE_BUILD_TESTS=ON -DFE_SANITIZE="$sanitizers"
# What Python loads (tests/core_api) is not sanitized: Python is not.
"$bin/cmake" --build "$folder" -j "$jobs" ${sanitizers:+--target core_tests cuda_emulation_tests}
"$folder/core_tests" --gtest_brief=1
# In parts side by side: the emulation is one thread, and with sanitizers it takes minutes.
parts=
for part in $(seq 0 $((jobs - 1))); do
    GTEST_TOTAL_SHARDS=$jobs GTEST_SHARD_INDEX=$part "$folder/cuda_emulation_tests" --gtest_brief=1 &
    parts="$parts $!"
done
for part in $parts; do wait "$part"; done
