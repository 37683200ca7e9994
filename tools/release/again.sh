#!/bin/sh
# again.sh BIN MINOR SDIST WORK OUT: builds the wheel for TensorFlow MINOR once more, in another folder,
# and compares it with that in OUT.
set -e
bin=$1 minor=$2 sdist=$3 work=$4 out=$5
again=$work/second/out-$minor
tools/release/wheel.sh "$bin" "$minor" "$sdist" "$work" second/build "$again"
cmp "$again"/*.whl "$out"/fused_embedding_tf"$(echo "$minor" | tr -d .)"-*.whl
echo "two builds in two folders: the same bytes"
