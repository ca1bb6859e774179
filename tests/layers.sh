#!/bin/bash
# tests/layers.sh [ROOM...] - the folders of each room and what each of them includes, lowest first (tests/layers.txt).
set -u
cd "$(dirname "$0")/.." || exit 6
rooms=${*:-core sim planner exec tools}
for room in $rooms; do
    grep -q "^$room:" tests/layers.txt || { echo "tests/layers.sh: no room '$room' in tests/layers.txt" >&2; exit 2; }
    echo "$room"
    for node in $(sed -n "s/^$room: //p" tests/layers.txt); do
        if [[ -d $room/$node ]]; then files=$(find "$room/$node" -name '*.[ch]*' | sort); else files=$(compgen -G "$room/$node.[ch]" | sort); fi
        [[ $files ]] || continue
        below=$(sed -n "s|^#include \"$room/\([^\"]*\)\".*|\1|p" $files | sed 's|/.*||; s|\.[a-z]*$||' | sort -u | grep -vx -- "${node/\*/.*}" | paste -sd ' ')
        printf '  %-18s %3d files  %s\n' "$node" "$(wc -l <<<"$files")" "${below:+includes $below}"
    done
done
