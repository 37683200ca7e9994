#!/bin/sh
# portable_wheel.sh BIN WHEEL FOLDER [OPTIONS]: puts WHEEL into FOLDER, with the libraries that it needs
# inside and a manylinux tag, by auditwheel, which gets OPTIONS.
set -e
bin=$(cd "$1" && pwd) wheel=$2 folder=$3
shift 3
# TensorFlow is where pip installs it: never in this wheel, and loaded before it.
PATH=$bin:$PATH "$bin/auditwheel" repair --exclude libtensorflow_framework.so.2 "$@" -w "$folder" "$wheel"

unpacked=$(mktemp -d)
trap 'rm -rf "$unpacked"' EXIT
name=$(basename "$wheel" | cut -d- -f1)
"$bin/python" -m zipfile -e "$(echo "$folder/$name"-*.whl)" "$unpacked"
rocksdb=$unpacked/fused_embedding/_cold_store_rocksdb.so
if [ -e "$rocksdb" ]; then
    echo "in the wheel:"
    ldd "$rocksdb" | grep "$unpacked.*librocksdb"
fi
