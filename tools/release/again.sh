#!/bin/sh
# again.sh BIN PART SDIST WORK OUT: builds the wheel for the TensorFlow PART, or the part "ssd", once more, in
# another folder, and compares it with that in OUT.
set -e
bin=$1 part=$2 sdist=$3 work=$4 out=$5
again=$work/second/out-$part
if [ "$part" = ssd ]; then
    name=ssd
    tools/release/ssd.sh "$bin" "$sdist" "$work/second/build/ssd" "$again"
else
    name=tf$(echo "$part" | tr -d .)
    tools/release/wheel.sh "$bin" "$part" "$sdist" "$work" second/build "$again"
fi
cmp "$again"/*.whl "$out/fused_embedding_$name"-*.whl
echo "two builds in two folders: the same bytes"
