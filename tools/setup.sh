#!/bin/sh
# tools/setup.sh - installs the missing Debian packages of the build and the tests.
# Prints nothing if none is missing. Exit code 6: a package could not be installed.
set -u

# package: purpose
PACKAGES='build-essential: compilers of C and C++, make
pkg-config: compiler flags of the libraries
libgsl-dev: statistics and robust fits
libsqlite3-dev: profile database
libopenblas-dev: matrix products of the host executor
libopenmpi-dev: messages between ranks
openmpi-bin: start of the ranks of several hosts (mpirun)
libyaml-dev: YAML parser
libjansson-dev: JSON parser
libigraph-dev: graphs of operators and devices
libglpk-dev: linear programs
zlib1g-dev: checksums
check: unit tests
jq: tests of JSON output
python3: the test of event files
procps: tests of processes that a run leaves
gnuplot-nox: plots
fonts-dejavu-core: font of the plots'

names=$(printf '%s\n' "$PACKAGES" | sed 's/:.*//')
# Of any origin.
if command -v python3 >/dev/null 2>&1; then names=$(printf '%s\n' "$names" | grep -vx python3); fi

if ! command -v dpkg-query >/dev/null 2>&1; then
    # Not Debian: check the programs and libraries that the build uses.
    missing=
    for tool in cc c++ make pkg-config mpicc mpirun gnuplot jq python3; do
        command -v $tool >/dev/null 2>&1 || missing="$missing $tool"
    done
    for library in gsl sqlite3 openblas yaml-0.1 jansson zlib igraph check; do
        pkg-config --exists $library 2>/dev/null || missing="$missing $library"
    done
    [ -z "$missing" ] && exit 0
    echo "musher: missing:$missing" >&2
    echo "musher: not a Debian system; install the equivalents of these packages:" >&2
    printf '%s\n' "$PACKAGES" | sed 's/^/  /' >&2
    exit 6
fi

# shellcheck disable=SC2086
installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' $names 2>/dev/null | sed -n 's/^installed //p')
missing=
for name in $names; do
    case "
$installed
" in
    *"
$name
"*) ;;
    *) missing="$missing $name" ;;
    esac
done
[ -z "$missing" ] && exit 0

for name in $missing; do
    printf '%s\n' "$PACKAGES" | sed -n "s/^$name: /musher: missing $name: /p" >&2
done
if [ "$(id -u)" = 0 ]; then
    as_root=
elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
else
    echo "musher: cannot install packages: not root, and sudo is missing. As root: apt-get install$missing" >&2
    exit 6
fi
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086
if $as_root apt-get update -qq >&2 &&
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >&2; then
    echo "musher: installed$missing" >&2
else
    echo "musher: apt-get could not install$missing" >&2
    exit 6
fi
command -v clang-format >/dev/null 2>&1 || echo "musher: clang and clang-format are optional (make format)" >&2
exit 0
