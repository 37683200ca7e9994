#!/bin/sh
# unpacked_wheel.sh BIN SDIST FOLDER PROJECT NAME: builds the wheel of the folder PROJECT of SDIST, with
# the distribution's name NAME, in FOLDER/dist, from the content of SDIST alone and without network.
set -e
bin=$1 sdist=$2 folder=$3 project=$4 name=$5
rm -rf "$folder"
mkdir -p "$folder"
tar -xzf "$sdist" -C "$folder" --strip-components=1 --no-same-owner
sed -i "s/^name = \"fused-embedding\"\$/name = \"$name\"/" "$folder/pyproject.toml"
grep -qx "name = \"$name\"" "$folder/$project/pyproject.toml"
# The cache takes paths as seen from FOLDER: the builds for all TensorFlows share the core's objects.
CCACHE_BASEDIR=$folder PATH=$bin:$PATH tools/release/offline.sh "$bin/pip" wheel -q --no-index \
    --no-deps --no-build-isolation -w "$folder/dist" "$folder/$project"
