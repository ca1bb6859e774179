# tools/ranks.awk - functions of the scripts that compare predictions with measurements: awk "$(cat tools/ranks.awk)"'…'.

# Median of the n numbers of a list with spaces between them; sets spread, (largest - smallest) / median.
function median(list, n,   v, i, j, t, m) {
    split(list, v, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j-1] + 0 > v[j] + 0; j--) { t = v[j]; v[j] = v[j-1]; v[j-1] = t }
    m = n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2
    spread = (v[n] - v[1]) / m
    return m
}
# Rank of t[i] among t[1] … t[n], from 1; equal numbers share their mean rank.
function rank(t, i, n,   k, r) {
    r = 0.5
    for (k = 1; k <= n; k++) r += t[k] < t[i] ? 1 : t[k] == t[i] ? 0.5 : 0
    return r
}
# Spearman's correlation of two lists of n numbers: Pearson's of their ranks.
function spearman(x, y, n,   i, p, m, mp, mm, a, b, c) {
    for (i = 1; i <= n; i++) { p[i] = rank(x, i, n); m[i] = rank(y, i, n); mp += p[i] / n; mm += m[i] / n }
    for (i = 1; i <= n; i++) { a += (p[i] - mp) * (m[i] - mm); b += (p[i] - mp) ^ 2; c += (m[i] - mm) ^ 2 }
    return a / sqrt(b * c)
}
