#!/bin/sh
# exec/cuda/works.sh FILE 'WHAT…' 'COMMAND' - does a compiler work with what is installed? Says nothing where COMMAND succeeds, else what
# it said first of an error, as one line without quotes. What it leaves is called FILE.*, and is removed.
# A success is remembered in FILE and COMMAND not run again while it is the same, and WHAT, files and programs, are as old as they were.
set -u
file=$1 what=$2 command=$3
mkdir -p "$(dirname "$file")"
key="$command $(for f in $what; do stat -L -c '%n %Y %s' "$(command -v "$f" || echo "$f")" 2>/dev/null; done)"
[ -f "$file" ] && [ "$key" = "$(cat "$file")" ] && exit 0
said=$(sh -c "$command" 2>&1)
code=$?
rm -f "$file".*
[ $code = 0 ] && { printf '%s\n' "$key" >"$file"; exit 0; }
rm -f "$file"
first=$(printf '%s\n' "$said" | grep -i -m 1 -e error -e unsupported -e 'not found' -e cannot || printf '%s\n' "$said" | head -n 1)
printf '%s\n' "${first:-exit $code of $command}" | tr -d '"`$\\'"'" | cut -c 1-200
