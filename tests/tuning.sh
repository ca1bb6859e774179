#!/bin/bash
# tests/tuning.sh - named numbers of planner/ are those of docs/tuning.md, with their values. Prints file:line: rule.
# usage: tests/tuning.sh FILE...     exit code 1 if a number is missing, has another value, or is in the document only
# A named number is a member of an unnamed enum, a #define or a scalar const whose value has a literal. In the document it is `NAME = VALUE`
# in a row of a table whose first cell is its file. Rows of files that are neither given nor missing are not checked. The first table has
# the tuning constants, one a row; there are no more of them than `most`.
set -u
most=39
files=()
for file in "$@"; do [[ $file == planner/* ]] && files+=("$file"); done
document=docs/tuning.md
[[ -f $document ]] || document=/dev/null
((${#files[@]})) || [[ $document != /dev/null ]] || exit 0

awk -v document="$document" -v most="$most" '
function say(where, rule) { print where ": " rule; bad = 1 }
function trimmed(s) { gsub(/[ \t\\]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }
# The text without comments and without what stands in quotes.
function bare(s,    out, at) {
    gsub(/"([^"\\\n]|\\.)*"/, "\"\"", s)
    while (at = index(s, "/*")) {
        out = out substr(s, 1, at - 1) " "
        s = substr(s, at)
        s = (at = index(s, "*/")) ? substr(s, at + 2) : ""
    }
    s = out s
    gsub(/\/\/[^\n]*/, "", s)
    return s
}
# A number of the code. Its line is that of its first "NAME =" or "#define NAME".
function number(name, value,    i, where) {
    value = trimmed(value)
    if (value ~ /^INT64_C\([0-9]+\)$/) gsub(/INT64_C\(|\)/, "", value)
    if ((" " value) !~ /[^A-Za-z0-9_][0-9.]/) return
    for (i = 1; i <= n_lines; i++)
        if (line[i] ~ ("(^|[^A-Za-z0-9_])" name " *=|#define " name " ")) break
    where = file ":" (i > n_lines ? 1 : i)
    seen[file, name] = 1
    if (!((file, name) in row)) say(where, name " = " value " is not in docs/tuning.md")
    else if (stated[file, name] != value) say(where, name " is " value ", in docs/tuning.md " stated[file, name])
}
function members(body,    i, n, item, at) {
    n = split(body, item, ",")
    for (i = 1; i <= n; i++)
        if (at = index(item[i], "=")) number(trimmed(substr(item[i], 1, at - 1)), substr(item[i], at + 1))
}
function numbers(text,    body) {
    text = bare(text)
    gsub(/\\\n/, " ", text)
    n_parts = split(text, part, "\n")
    for (p = 1; p <= n_parts; p++) {
        if (match(part[p], /^#define [A-Za-z_][A-Za-z0-9_]* /))
            number(trimmed(substr(part[p], 9, RLENGTH - 9)), substr(part[p], RLENGTH + 1))
        if (match(part[p], /const (double|float|size_t|u?int[0-9]*(_t)?) [A-Za-z_0-9]+ = [-+*\/ ()0-9.e]+;/)) {
            body = substr(part[p], RSTART, RLENGTH - 1)
            sub(/^const [a-z0-9_]+ /, "", body)
            members(body)
        }
    }
    gsub(/\n/, " ", text)
    while (match(text, /(^|[^A-Za-z0-9_])enum *\{[^}]*\}/)) {
        body = substr(text, RSTART, RLENGTH - 1)
        text = substr(text, RSTART + RLENGTH)
        sub(/^[^{]*\{/, "", body)
        members(body)
    }
}
function document_row(s, nr,    cell, path, entry, at) {
    split(s, cell, "|")
    path = trimmed(cell[2])
    gsub(/`/, "", path)
    if (path !~ /^planner\//) return
    named[path] = 1
    while (match(s, /`[A-Za-z_][A-Za-z0-9_]* = [^`]*`/)) {
        entry = substr(s, RSTART + 1, RLENGTH - 2)
        s = substr(s, RSTART + RLENGTH)
        at = index(entry, " = ")
        row[path, substr(entry, 1, at - 1)] = nr
        stated[path, substr(entry, 1, at - 1)] = substr(entry, at + 3)
        if (sections == 1 && ++tuning == most + 1)
            say("docs/tuning.md:" nr, "more than " most " tuning constants: derive one from another, or remove one that has no effect")
    }
}
BEGIN {
    while ((getline text < document) > 0) {
        nr++
        if (text ~ /^## /) sections++
        if (text ~ /^\| /) document_row(text, nr)
    }
    for (a = 1; a < ARGC; a++) {
        file = ARGV[a]
        given[file] = 1
        text = ""
        n_lines = 0
        while ((getline one < file) > 0) { text = text one "\n"; line[++n_lines] = one }
        close(file)
        numbers(text)
    }
    for (path in named) missing[path] = !(path in given) && (getline one < path) < 0
    for (key in row) {
        split(key, at, SUBSEP)
        if (missing[at[1]] || (at[1] in given && !(key in seen)))
            say("docs/tuning.md:" row[key], at[2] " is not a number of " at[1])
    }
    exit bad
}' "${files[@]}"
