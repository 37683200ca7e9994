#!/bin/sh
# tensorflow.sh MINOR WORK: makes WORK/tensorflow-MINOR, an environment with the newest patch of that
# TensorFlow, unless it is there already.
set -e
minor=$1 work=$2
[ -e "$work/tensorflow-$minor/.done" ] && exit
echo "tensorflow-cpu==$minor.*" >"$work/tensorflow-$minor.txt"
tools/make_venv.sh "$work/tensorflow-$minor" "$work/tensorflow-$minor.txt" 11
