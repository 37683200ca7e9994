#!/bin/sh
# cuda_tests.sh BIN JOBS [ARCHITECTURES]: builds the CUDA core with nvcc and runs its tests on the
# GPU; without one they are skipped. ARCHITECTURES: that of the GPU here, or all where there is none.
set -e
bin=$PWD/$1 jobs=$2 architectures=$3
tools/system_packages.sh g++ libgtest-dev
if [ -z "$architectures" ] && nvidia-smi >/dev/null 2>&1; then
    architectures=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d . | sort -u |
        sed 's/$/-real/' | paste -sd ';')
fi
folder=build/cuda_core_tests
"$bin/cmake" -S . -B "$folder" -G Ninja -DCMAKE_MAKE_PROGRAM="$bin/ninja" \
    -DFE_BUILD_OPS=OFF -DFE_BUILD_TESTS=ON -DFE_CUDA=ON -DFE_CUDA_ARCHITECTURES="$architectures"
"$bin/cmake" --build "$folder" -j "$jobs" --target cuda_core_tests
"$folder/tf_ops/core/cuda_core_tests" --gtest_brief=1
