#!/bin/sh
# cuda.sh BIN JOBS: builds _ops_cuda.so with nvcc for a TensorFlow with CUDA, which it installs into
# .venv-cuda, and tests that it is loaded and registers its kernels. Needs no GPU.
set -e
bin=$PWD/$1 jobs=$2
tools/system_packages.sh g++
if [ ! -e .venv-cuda/.done ]; then
    "$bin/python" -m venv .venv-cuda
    # TensorFlow itself; all that it needs is in the other environment, beside its CPU build.
    version=$("$bin/python" tools/find_tensorflow.py | sed 's/.*;//')
    .venv-cuda/bin/pip install -q --no-deps "tensorflow==$version"
    for folder in "$bin"/../lib/python3*/site-packages; do
        echo "$folder" >>"$(echo .venv-cuda/lib/python3*/site-packages)/zz_base.pth"
    done
    touch .venv-cuda/.done
fi
"$bin/cmake" -S . -B build/cuda -G Ninja -DPython_EXECUTABLE="$PWD/.venv-cuda/bin/python" \
    -DCMAKE_MAKE_PROGRAM="$bin/ninja" -DFE_CUDA=ON
"$bin/cmake" --build build/cuda -j "$jobs" --target ops ops_cuda
.venv-cuda/bin/python -m pytest -q tests/packaging/test_cuda_library.py
