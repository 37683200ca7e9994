#!/bin/sh
# try.sh MINOR WORK OUT: installs the wheel for TensorFlow MINOR and the part for SSDs from the folder OUT,
# without network, and does what a new user does: the README's example, training, a Saver, an export, a
# table on an SSD, `fused-embedding doctor`.
set -e
minor=$1 work=$2 out=$3
name=fused-embedding-tf$(echo "$minor" | tr -d .)
bin=$work/tensorflow-$minor/bin
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$bin/pip" uninstall -q -y "$name" fused-embedding-ssd
"$bin/pip" freeze >"$folder/before"
tools/release/offline.sh "$bin/pip" install -q --no-index --find-links "$out" "$name[cpu,ssd]"
"$bin/pip" freeze | grep -v '^fused-embedding' >"$folder/after"
diff "$folder/before" "$folder/after"
"$bin/pip" check
tools=$PWD/tools
cd "$folder"
export TF_CPP_MIN_LOG_LEVEL=3
"$bin/python" "$tools/first_use.py"
"$bin/fused-embedding" --version
"$bin/fused-embedding" doctor
