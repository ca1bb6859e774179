#!/bin/bash
# tests/without_toolkit.sh COMMAND... - runs COMMAND as on a machine that has no CUDA toolkit: in a mount namespace of its own in which
# /usr/local is empty and python3 is not there, and with the search path of a bare system. A header, library or program that a build or a
# test finds by chance is missing then.
# Exit code 6 where no mount namespace can be had, else COMMAND's.
set -u
if (($# == 0)); then
    echo "usage: tests/without_toolkit.sh COMMAND..." >&2
    exit 2
fi
if unshare -m true 2> /dev/null; then own=(unshare -m); else own=(unshare -rm); fi
if ! "${own[@]}" true 2> /dev/null; then
    echo "tests/without_toolkit.sh: this system gives no mount namespace (unshare -m)" >&2
    exit 6
fi
path=/usr/sbin:/usr/bin:/sbin:/bin
hide='mount -t tmpfs -o size=1m none /usr/local || exit 6
for python in /usr/bin/python3*; do [ ! -f "$python" ] || mount --bind /dev/null "$python" || exit 6; done
exec "$@"'
exec "${own[@]}" /bin/bash -c "$hide" - \
    env -i HOME="${HOME:-/root}" PATH=$path LANG=C.UTF-8 ${CI:+CI="$CI"} "$@"
