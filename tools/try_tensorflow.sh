#!/bin/sh
# try_tensorflow.sh VERSION: what a new user of this TensorFlow does, once: a clone, an empty environment,
# `pip install .`, then tools/first_use.py. Its last line is JSON.
set -e
unset PYTHONPATH
version=$1
tools/system_packages.sh g++
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git clone -q . "$folder/clone"
"${PYTHON:-python3}" -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q "tensorflow-cpu==$version"
"$folder/venv/bin/pip" install -q "$folder/clone"
cd "$folder" && TF_CPP_MIN_LOG_LEVEL=3 venv/bin/python "$folder/clone/tools/first_use.py"
