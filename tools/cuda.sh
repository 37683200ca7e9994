#!/bin/sh
# cuda.sh BIN JOBS [ARCHITECTURES]: builds python/fused_embedding/_ops_cuda.so with nvcc for the
# TensorFlow of BIN/python, loads it and lists its kernels. Also links core_gpu.so, which is not
# loaded. Needs no GPU. ARCHITECTURES: all where empty. Exits with 77 if there is no nvcc.
set -e
bin=$PWD/$1 jobs=$2 architectures=$3
tools/system_packages.sh g++
folder=build/dev
"$bin/cmake" -S . -B $folder -G Ninja -DPython_EXECUTABLE="$bin/python" \
    -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DFE_CUDA_ARCHITECTURES="$architectures"
if ! "$bin/cmake" --build $folder --target help | grep -q '^ops_cuda:'; then
    echo "no nvcc that works here: install the CUDA toolkit, or set CUDA_HOME"
    exit 77
fi
"$bin/cmake" --build $folder -j "$jobs" --target ops ops_cuda core_gpu
"$bin/python" -m pytest -q tests/packaging/test_cuda_library.py
