#!/bin/sh
# build.sh BIN JOBS: builds python/fused_embedding/_ops.so for the TensorFlow of BIN/python.
set -e
bin=$PWD/$1 jobs=$2
tools/system_packages.sh g++
"$bin/cmake" -S . -B build/dev -G Ninja -DPython_EXECUTABLE="$bin/python" \
    -DCMAKE_MAKE_PROGRAM="$bin/ninja"
"$bin/cmake" --build build/dev -j "$jobs"
