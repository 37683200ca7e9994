#!/bin/sh
# bare_system.sh OUT [NOTEBOOK]: as root, makes a bare Debian 12 without a compiler by debootstrap, installs the
# newest wheel of the folder OUT and its TensorFlow there as a user would, and runs the README's example and
# NOTEBOOK. Prints the seconds that the user waits. Certificates of this machine are trusted there.
set -e
out=$1 notebook=$2
tools/system_packages.sh debootstrap
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root"
# With /proc, as containers have it: TensorFlow reads it.
in_root() {
    unshare --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i \
        PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TF_CPP_MIN_LOG_LEVEL=3 \
        PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$@"
}
! in_root sh -c 'command -v cc c++ gcc g++ clang cmake ninja make'
cp /etc/resolv.conf "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir "$root/wheels"
cp "$out"/*.whl "$root/wheels"
python3 tools/readme_example.py >"$root/example.py"
start=$(date +%s)
in_root python3 -m venv /venv
in_root /venv/bin/pip install -q --find-links /wheels 'fused-embedding-tf221[cpu]'
in_root /venv/bin/python /example.py
in_root /venv/bin/fused-embedding --version
if [ -n "$notebook" ]; then
    cp "$notebook" "$root/notebook.ipynb"
    in_root /venv/bin/pip install -q --find-links /wheels nbclient ipykernel
    in_root /venv/bin/jupyter execute --output=done.ipynb /notebook.ipynb
    grep -A3 '"text": \[' "$root/done.ipynb" | grep '^ *"' | tail -20
fi
echo "$(($(date +%s) - start)) s from the first command of the user to the last"
