#!/bin/sh
# test_oldest.sh JOBS [PYTEST ARGUMENTS]: tools/test_installed.sh with the oldest supported TensorFlow.
# Exits with 77 where there is no Python for that TensorFlow.
set -e
if [ ! -e .venv-oldest/.done ] || [ tools/requirements_oldest.txt -nt .venv-oldest/.done ]; then
    tools/make_venv.sh .venv-oldest tools/requirements_oldest.txt 11
fi
tools/test_installed.sh .venv-oldest "$@"
