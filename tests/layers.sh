#!/bin/bash
# tests/layers.sh [FOLDER...] - the folders of each top-level folder and their includes, lowest layer first (tests/layers.txt).
set -u
cd "$(dirname "$0")/.." || exit 6
folders=${*:-core sim planner exec tools}
for folder in $folders; do
    grep -q "^$folder:" tests/layers.txt || { echo "tests/layers.sh: no folder '$folder' in tests/layers.txt" >&2; exit 2; }
    echo "$folder"
    for node in $(sed -n "s/^$folder: //p" tests/layers.txt); do
        if [[ -d $folder/$node ]]; then files=$(find "$folder/$node" -name '*.[ch]*' | sort); else files=$(compgen -G "$folder/$node.[ch]" | sort); fi
        [[ $files ]] || continue
        below=$(sed -n "s|^#include \"$folder/\([^\"]*\)\".*|\1|p" $files | sed 's|/.*||; s|\.[a-z]*$||' | sort -u | grep -vx -- "${node/\*/.*}" | paste -sd ' ')
        printf '  %-18s %3d files  %s\n' "$node" "$(wc -l <<<"$files")" "${below:+includes $below}"
    done
done
