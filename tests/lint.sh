#!/bin/bash
# tests/lint.sh - project rules that a compiler does not check. Prints file:line: rule.
# usage: tests/lint.sh [FILE...]     default: every source of the tree; exit code 1 if a rule is broken
# Files are relative to the root of the tree, which is the working directory.
set -u
shopt -s extglob
if (($# == 0)); then
    shopt -s nullglob
    set -- {core,traces,profiles,sim,planner,exec,tools,tests}{,/*}/*.{c,h,cu,cuh,cpp} docs/generate/*.[ch] tests/{bench,gpu}/*/*.{c,h,cpp}
fi
(($#)) || exit 0
failed=0

awk -v layers="$(dirname "$0")/layers.txt" '
BEGIN {
    while ((getline line < layers) > 0)
        if (match(line, /^[a-z]+:/)) {
            n = split(substr(line, RLENGTH + 2), names, " ")
            for (i = 1; i <= n; i++) rank[substr(line, 1, RLENGTH - 1) "/" names[i]] = i
        }
    split("core:core;traces:core traces;profiles:core traces profiles;" \
          "sim:core traces profiles sim;planner:core traces profiles sim planner;" \
          "exec:core traces exec;tools:*;docs:*;tests:*", rows, ";")
    for (i in rows) { split(rows[i], kv, ":"); may[kv[1]] = " " kv[2] " " }
    # <header that begins so> may be included by files that match
    wall["sqlite3.h"] = "^(profiles/store[a-z_]*|traces/import_[a-z_]*)\\.c$"
    wall["gsl/"] = "^(profiles|sim|planner)/[a-z0-9_/]*\\.c$"
    wall["igraph"] = "^planner/[a-z0-9_/]*\\.c$"
    wall["glpk.h"] = "^planner/lp\\.c$"
    wall["mpi.h"] = wall["cblas"] = wall["cuda"] = wall["cublas"] = wall["nccl"] = "^exec/"
    wall["cupti"] = "^exec/cupti/"
    wall["jansson.h"] = wall["yaml.h"] = "^core/document/document\\.c$"
    wall["check.h"] = "^tests/"
    # variables of the environment that the table has
    while ((getline line < "core/base/settings.c") > 0)
        if (match(line, /"MUSHER_[A-Z_]+"/)) setting[substr(line, RSTART, RLENGTH)] = 1
    # longer than 500 lines with good reason
    long["sim/engine/sim.c"] = 1
}
function say(rule) { printf "%s:%d: %s\n", FILENAME, FNR, rule; bad = 1 }
# The line without comments and without what stands in quotes.
function bare(line,    out, c, i, n, quote) {
    n = length(line)
    for (i = 1; i <= n; i++) {
        c = substr(line, i, 1)
        if (in_comment) {
            if (substr(line, i, 2) == "*/") { in_comment = 0; i++ }
        } else if (quote) {
            if (c == "\\") i++
            else if (c == quote) { quote = ""; out = out c }
        } else if (substr(line, i, 2) == "/*") { in_comment = 1; i++ }
        else if (substr(line, i, 2) == "//") break
        else { if (c == "\"" || c == "\047") quote = c; out = out c }
    }
    return " " out
}
# The folder or module that a path is in: planner/exact, sim/cost; tools/cmd_* is one.
function node(path,    step, n) {
    n = split(path, step, "/")
    if (n == 2) sub(/\.[a-z]+$/, "", step[2])
    sub(/^cmd_.*/, "cmd_*", step[2])
    return step[1] "/" step[2]
}
FNR == 1 {
    split(FILENAME, at, "/"); folder = at[1]; in_comment = 0; here = node(FILENAME)
    if (folder ~ /^(core|sim|planner|exec|tools)$/ && !(here in rank)) say(here " is not in tests/layers.txt")
}
FNR == 501 && !(FILENAME in long) { say("more than 500 lines: split the file") }
/[ \t]$/ { say("space at the end of the line") }
/TO[D]O|FIX[M]E|XX[X][ :]/ { say("unfinished work is not committed") }
match($0, /^#[ \t]*include "[^"]+"/) {
    split($0, quoted, "\"")
    n = split(quoted[2], to, "/")
    if (n > 1 && may[folder] != " * " && !index(may[folder], " " to[1] " ")) say(folder " may not include " to[1])
    below = node(quoted[2])
    if (n > 1 && to[1] == folder && below != here && below in rank && here in rank && rank[below] >= rank[here])
        say(here " may not include " below ", which stands above it")
}
/^#[ \t]*include [<"]/ {
    header = $0
    sub(/^#[ \t]*include [<"]/, "", header)
    for (w in wall)
        if (folder != "tests" && index(header, w) == 1 && FILENAME !~ wall[w]) say(w " stays behind its wall")
}
folder != "tests" && match($0, /"MUSHER_[A-Z_]+"/) && !(substr($0, RSTART, RLENGTH) in setting) {
    say("variables of the environment are in the table of core/base/settings.c")
}
{ code = bare($0) }
# A buffer of open_memstream is freed, unless the comment beside it names the owner.
code ~ /[^a-zA-Z0-9_](malloc|calloc|realloc|free|strdup|asprintf)\(/ && FILENAME !~ /^(core\/base\/arena(_malloc)?\.c|tests\/)/ && !/open_memstream/ {
    say("memory comes from core/base/arena.h")
}
code ~ /[^a-zA-Z0-9_](strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atof|gets|rand|srand)\(/ {
    say("banned: fails silently or overruns")
}
code ~ /[^a-zA-Z0-9_](exit|printf|puts|putchar)\(/ && folder !~ /^(tools|docs|tests)$/ {
    say("only tools/ prints and exits")
}
code ~ /[^a-zA-Z0-9_](stdout|stderr)[^a-zA-Z0-9_]/ && folder !~ /^(tools|docs|tests|exec)$/ && FILENAME !~ /^core\/base\/(log|error|arena|file)\.c$/ {
    say("talk goes through core/base/log.h, data through core/base/file.h")
}
code ~ /[^a-zA-Z0-9_](_exit|abort)\(/ && folder !~ /^(tools|docs|tests|exec)$/ && FILENAME !~ /^core\/base\/(error|arena)\.c$/ {
    say("the end of the program is not decided here")
}
code ~ /[^a-zA-Z0-9_]setlocale\(/ && folder != "tests" { say("banned: numbers would depend on the place") }
code ~ /typedef[ \t]+(struct|enum|union)/ && code !~ /\(/ && FILENAME !~ /^tests\/standin\// { say("no typedef of structs") }
END { exit bad }
' "$@" || failed=1

"${0%lint.sh}tuning.sh" "$@" || failed=1 # numbers of planner/ and docs/tuning.md

# The include guard of a header is its path, so that no two headers share one.
for file in "$@"; do
    [[ $file == *.h ]] || continue
    guard=$(tr 'a-z/.' 'A-Z__' <<<"$file")
    if ! grep -qx "#ifndef $guard" "$file"; then
        echo "$file:1: the guard is $guard"
        failed=1
    fi
done
# A tag is defined in one header, so that any two headers can be included together.
headers=()
for file in "$@"; do [[ $file == *.h && $file != tests/gpu/plain/* ]] && headers+=("$file"); done
if ((${#headers[@]})); then
    twice=$(grep -hoE '^(struct|enum|union) [a-z0-9_]+( \{|$)' "${headers[@]}" | sed 's/ {$//' | sort | uniq -d)
    while read -r tag; do
        [[ $tag ]] || continue
        grep -nE "^$tag( \{|\$)" "${headers[@]}" /dev/null | sed "s/:\([0-9]*\):.*/:\1: $tag is defined in another header too/"
        failed=1
    done <<<"$twice"
fi
# An exported function bears the name of its file, of its folder or of a struct that its header defines, so that a call states its module.
# Headers of a whole folder (internal.h, FOLDER/FOLDER.h) declare what the folder's files define, by those files' names.
functions=()
for file in "$@"; do [[ $file == *.h && $file != tests/@(standin|plugins|gpu/plain)/* ]] && functions+=("$file"); done
for file in "${functions[@]}"; do
    stem=${file##*/} folder=${file%/*} && stem=${stem%.h} && folder=${folder##*/}
    names="$stem ${stem%_internal}"
    [[ $file == */*/* ]] && names+=" $folder"
    if [[ $stem == *internal || $stem == "$folder" ]]; then
        for other in "${file%/*}"/*.*; do other=${other##*/} && names+=" ${other%%.*}"; done
    fi
    awk -v names="$names" -v file="$file" '
    BEGIN { n = split(names, own, " "); allowed["musher_plugin"] = 1 }
    match($0, /^(struct|enum|union) [a-z0-9_]+( \{|$)/) { tag = $2; own[++n] = tag }
    /^[a-z].*[ *][a-z][a-z0-9_]*\(/ && !/^(typedef|return|extern|template|static const [^(]*=)/ && !/^[^(]*=/ {
        name = $0; sub(/\(.*/, "", name); sub(/.*[ *]/, "", name)
        seen[++m] = name; at[m] = FNR
    }
    END {
        for (i = 1; i <= m; i++) {
            good = seen[i] in allowed
            for (k = 1; k <= n && !good; k++) {
                p = own[k]; q = p; sub(/s$/, "", q)
                good = seen[i] == p || seen[i] == q || index(seen[i], p "_") == 1 || index(seen[i], q "_") == 1
            }
            if (!good) { printf "%s:%d: %s: the name begins with that of its module\n", file, at[i], seen[i]; bad = 1 }
        }
        exit bad
    }' "$file" || failed=1
done
exit $failed
