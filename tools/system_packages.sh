#!/bin/sh
# Installs the Debian packages named as arguments: with apt as root, else says what is missing.
if ! command -v dpkg-query >/dev/null; then
    echo "not a Debian system, so not checked: the equivalents of $*"
    exit 0
fi
missing=
for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -z "$missing" ] && exit 0
if [ "$(id -u)" != 0 ]; then
    echo "missing system packages; run: sudo apt-get install$missing" >&2
    exit 1
fi
# Stages of `make ci` run side by side, and apt in one process alone.
exec 9>/var/lock/fused_embedding_apt
flock 9
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
# shellcheck disable=SC2086  # a list of words
apt-get install -y -q --no-install-recommends $missing
