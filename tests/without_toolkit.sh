#!/bin/bash
# tests/without_toolkit.sh COMMAND... - runs COMMAND as on a machine without a CUDA toolkit: in a mount namespace in which
# /usr/local is empty and python3 is missing, with the search path of a bare system. So a header, library or program that a build or a
# test finds only by chance is missing.
# Exit code: 6 if a mount namespace cannot be created, else COMMAND's.
set -u
if (($# == 0)); then
    echo "usage: tests/without_toolkit.sh COMMAND..." >&2
    exit 2
fi
if unshare -m true 2> /dev/null; then own=(unshare -m); else own=(unshare -rm); fi
if ! "${own[@]}" true 2> /dev/null; then
    echo "tests/without_toolkit.sh: cannot create a mount namespace (unshare -m)" >&2
    exit 6
fi
path=/usr/sbin:/usr/bin:/sbin:/bin
hide='mount -t tmpfs -o size=1m none /usr/local || exit 6
for python in /usr/bin/python3*; do [ ! -f "$python" ] || mount --bind /dev/null "$python" || exit 6; done
exec "$@"'
exec "${own[@]}" /bin/bash -c "$hide" - \
    env -i HOME="${HOME:-/root}" PATH=$path LANG=C.UTF-8 ${CI:+CI="$CI"} "$@"
