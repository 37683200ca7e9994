#!/bin/sh
# make_venv.sh VENV REQUIREMENTS NEWEST_MINOR: makes VENV with the packages of REQUIREMENTS, from
# the first of PYTHON, python3, python3.13 ... that is a Python from 3.10 to 3.NEWEST_MINOR.
# Exits with 77 if there is none.
set -e
venv=$1 requirements=$2 newest=$3
fits() {
    "$1" -c "import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, $newest))" 2>/dev/null
}
for python in ${PYTHON:-python3} python3.13 python3.12 python3.11 python3.10 none; do
    fits "$python" && break
done
if [ "$python" = none ]; then
    echo "no Python from 3.10 to 3.$newest, which $requirements needs; install one or set PYTHON"
    exit 77
fi
"$python" -c 'import ensurepip' 2>/dev/null || tools/system_packages.sh python3-venv
rm -rf "$venv"
"$python" -m venv "$venv"
# pip would compile all modules, of which programs import a small part: Python compiles these when
# they are imported. TensorFlow is imported here, for users of PYTHONDONTWRITEBYTECODE.
"$venv/bin/pip" install -q --no-compile -r "$requirements"
"$venv/bin/python" -c 'import importlib.util as u
if u.find_spec("tensorflow"): import tensorflow as tf; tf.keras'
touch "$venv/.done"
