#!/bin/sh
# ssd.sh BIN SDIST FOLDER OUT: puts the wheel fused-embedding-ssd into OUT, with RocksDB inside, built of
# SDIST in FOLDER. Its tag is the oldest that this machine's RocksDB permits.
set -e
bin=$1 sdist=$2 folder=$3 out=$4
tools/system_packages.sh g++ librocksdb-dev
tools/release/unpacked_wheel.sh "$bin" "$sdist" "$folder" ssd fused-embedding-ssd
tools/portable_wheel.sh "$bin" "$(echo "$folder"/dist/*.whl)" "$out"
