#!/bin/sh
# sdist.sh BIN FOLDER OUT: puts the source distribution of the last commit into OUT, built in FOLDER.
# It is built twice, and must have the same bytes.
set -e
bin=$1 folder=$2 out=$3
for copy in first other/second; do
    mkdir -p "$folder/$copy"
    git archive --format=tar HEAD | tar -x -C "$folder/$copy"
    "$bin/python" -m build --sdist --no-isolation --outdir "$folder/$copy/dist" "$folder/$copy"
    "$bin/python" tools/release/reproducible_sdist.py "$folder/$copy"/dist/*.tar.gz
done
cmp "$folder"/first/dist/*.tar.gz "$folder"/other/second/dist/*.tar.gz
mv "$folder"/first/dist/*.tar.gz "$out"
echo "two builds in two folders: the same bytes"
