#!/bin/sh
# test_between.sh TENSORFLOW KERAS JOBS [PYTEST ARGUMENTS]: tools/test_installed.sh with a TensorFlow from 2.16
# on, this Keras 3, and the tf_keras of that TensorFlow.
set -e
tensorflow=$1 keras=$2
shift 2
venv=.venv-$tensorflow-$keras
if [ ! -e "$venv/.done" ] || [ tools/requirements_oldest.txt -nt "$venv/.done" ]; then
    requirements=build/requirements-$tensorflow-$keras.txt
    mkdir -p build
    sed "s/^tensorflow-cpu==.*/tensorflow-cpu==$tensorflow/" tools/requirements_oldest.txt >"$requirements"
    # protobuf 7 lacks what TensorFlow 2.20 calls to write a graph as text.
    printf "%s\n" "keras==$keras" "protobuf<7" >>"$requirements"
    tools/make_venv.sh "$venv" "$requirements" 13
fi
# Without what it requires: `tensorflow`, whose files tensorflow-cpu has.
"$venv/bin/pip" install -q --no-compile --no-deps "tf_keras==${tensorflow%.*}.*"
tools/test_installed.sh "$venv" "$@"
