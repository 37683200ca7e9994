#!/bin/sh
# try.sh MINOR WORK FOLDER [NAME EXTRAS]: installs the distribution NAME with EXTRAS (default: the wheel for
# TensorFlow MINOR, with cpu and ssd) from FOLDER, without network, into the environment with this TensorFlow,
# which must not change. Then does what a new user does: the README's example, training, a Saver, an
# export, a table on an SSD, `fused-embedding doctor`.
set -e
minor=$1 work=$2 wheels=$3
wheel=fused-embedding-tf$(echo "$minor" | tr -d .)
name=${4:-$wheel} extras=${5:-cpu,ssd}
bin=$work/tensorflow-$minor/bin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bin/pip" uninstall -q -y fused-embedding "$wheel" fused-embedding-ssd
"$bin/pip" freeze >"$folder/before"
tools/release/offline.sh "$bin/pip" install -q --no-index --find-links "$wheels" "$name[$extras]"
"$bin/pip" freeze | grep -v '^fused-embedding' >"$folder/after"
diff "$folder/before" "$folder/after"
"$bin/pip" check
tools=$PWD/tools
cd "$folder"
export TF_CPP_MIN_LOG_LEVEL=3
"$bin/python" "$tools/first_use.py"
"$bin/fused-embedding" --version
"$bin/fused-embedding" doctor
