#!/bin/sh
# wheel.sh BIN MINOR SDIST WORK BUILD OUT: puts the wheel for TensorFlow MINOR into OUT, built of SDIST in
# WORK/BUILD against the TensorFlow in WORK, and tagged as old as TensorFlow 2.15 itself.
set -e
bin=$1 minor=$2 sdist=$3 work=$4 build=$5 out=$6
tensorflow=$("$work/tensorflow-$minor/bin/python" tools/find_tensorflow.py)
folder=$work/$build/$minor
FE_TENSORFLOW_PATH=${tensorflow%%;*} FE_ROCKSDB=OFF FE_CUDA=OFF tools/release/unpacked_wheel.sh \
    "$bin" "$sdist" "$folder" . "fused-embedding-tf$(echo "$minor" | tr -d .)"
tools/portable_wheel.sh "$bin" "$(echo "$folder"/dist/*.whl)" "$out" \
    --plat "manylinux_2_17_$(uname -m)"
