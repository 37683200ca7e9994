#!/bin/sh
# source.sh BIN MINOR SDIST WORK: builds SDIST under its own name, fused-embedding, for TensorFlow MINOR, from
# its own content and without network, and tries it as a user does.
set -e
bin=$1 minor=$2 sdist=$3 work=$4
tensorflow=$("$work/tensorflow-$minor/bin/python" tools/find_tensorflow.py)
FE_TENSORFLOW_PATH=${tensorflow%%;*} tools/release/unpacked_wheel.sh "$bin" "$sdist" \
    "$work/first/source" . fused-embedding
tools/release/try.sh "$minor" "$work" "$work/first/source/dist" fused-embedding cpu
