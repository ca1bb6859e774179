#include "tools/report/html.h"

#include "core/base/arena.h"
#include "core/base/log.h"

#include <string.h>

enum { LONG_TEXT = 50 }; /* letters of a cell that would be squeezed on a narrow screen */

/* clang-format off */
static const char style[] =
    ":root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--soft:#5b6470;--line:#d5dae0;--card:#f5f7f9;--gain:#00745a;--loss:#b34a00}\n"
    "@media(prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e6e9ed;--soft:#a2abb6;--line:#3a424c;--card:#1d2127;--gain:#3ecf9f;--loss:#f0934a}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0 auto;max-width:1180px;padding:16px;background:var(--paper);color:var(--ink);\n"
    " font:15px/1.45 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}\n"
    "h1,h2,h3,p,figcaption,.tile{overflow-wrap:anywhere}\n"
    "h1{font-size:1.6em;margin:.3em 0}\n"
    "h2{font-size:1.25em;margin:1.8em 0 .4em;padding-top:.6em;border-top:1px solid var(--line)}\n"
    "h3{font-size:1.05em;margin:1.4em 0 .3em}\n"
    "p{margin:.4em 0;max-width:75ch}\n"
    ".soft{color:var(--soft)}\n"
    "a{color:inherit}\n"
    "nav{display:flex;flex-wrap:wrap;gap:4px 14px;margin:.6em 0}\n"
    ".scroll{overflow-x:auto}\n"
    ".wide{display:block;width:100%;min-width:840px}\n"
    "table{border-collapse:collapse;font-size:.93em;margin:.5em 0}\n"
    "th,td{text-align:left;padding:4px 22px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}\n"
    "th{font-weight:600;color:var(--soft)}\n"
    ".n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
    ".long{min-width:20em;max-width:46em}\n"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));max-width:960px;gap:10px;margin:.8em 0}\n"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:6px;padding:8px 12px}\n"
    ".tile b{display:block;font-size:1.25em;font-weight:600}\n"
    ".tile span{color:var(--soft);font-size:.88em}\n"
    ".panels{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));gap:14px}\n"
    "figure{margin:0 0 8px}\n"
    "figcaption{font-size:.9em}\n"
    ".legend{display:flex;flex-wrap:wrap;gap:2px 16px;margin:.5em 0;font-size:.9em}\n"
    "td .legend{margin:0;flex-wrap:nowrap;white-space:nowrap;font-size:1em}\n"
    ".legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em;border-radius:2px}\n"
    ".bar{display:block;width:clamp(130px,28vw,380px);height:14px;margin-top:3px;background:var(--line);border-radius:3px}\n"
    "#alternatives .bar{width:clamp(80px,12vw,160px)}\n"
    "#alternatives .long{min-width:24em}\n"
    "#alternatives td:first-child{white-space:nowrap}\n"
    "svg text{fill:currentColor;font-family:inherit}\n"
    "svg .on{fill:#10151a}\n"
    "svg .grid{stroke:var(--line)}\n"
    "svg .limit{stroke:currentColor;stroke-dasharray:5 4;fill:none}\n"
    "svg .gain{fill:var(--gain)}\n"
    "svg .loss{fill:var(--loss)}\n"
    "svg .mid{stroke:var(--soft)}\n"
    "@media(max-width:600px){body{padding:12px}th,td{padding-right:12px}.wide{min-width:720px}.long{min-width:14em}}\n"
    "@media print{body{max-width:none}.wide{min-width:0}}\n";
/* clang-format on */

void html_text(FILE *out, struct arena *a, const char *text)
{
    size_t n = 4 * strlen(text) + 1;
    for (const char *c = log_safe(arena_alloc(a, n, 1), n, text); *c; c++) {
        const char *as = *c == '&'    ? "&amp;"
                         : *c == '<'  ? "&lt;"
                         : *c == '>'  ? "&gt;"
                         : *c == '"'  ? "&quot;"
                         : *c == '\'' ? "&#39;"
                                      : NULL;
        if (as)
            fputs(as, out);
        else
            fputc(*c, out);
    }
}

void html_begin(FILE *out, struct arena *a, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>",
          out);
    html_text(out, a, title);
    fprintf(out, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    html_text(out, a, title);
    fputs("</h1>\n", out);
}

void html_end(FILE *out) { fputs("</body>\n</html>\n", out); }

void html_paragraph(FILE *out, struct arena *a, const char *class, const char *text)
{
    fprintf(out, class ? "<p class=\"%s\">" : "<p>", class);
    html_text(out, a, text);
    fputs("</p>\n", out);
}

void html_section(FILE *out, struct arena *a, const char *id, const char *title, const char *text)
{
    fprintf(out, "<section id=\"%s\">\n<h2>", id);
    html_text(out, a, title);
    fputs("</h2>\n", out);
    if (text) html_paragraph(out, a, "soft", text);
}

void html_section_end(FILE *out) { fputs("</section>\n", out); }

void html_table(FILE *out, struct arena *a, const char *const *heads, size_t n)
{
    fputs("<div class=\"scroll\"><table>\n<thead><tr>", out);
    for (size_t i = 0; i < n; i++) {
        bool number = *heads[i] == '#';
        fputs(number ? "<th class=\"n\">" : "<th>", out);
        html_text(out, a, heads[i] + number);
        fputs("</th>", out);
    }
    fputs("</tr></thead>\n<tbody>\n", out);
}

void html_row(FILE *out) { fputs("<tr>", out); }
void html_row_end(FILE *out) { fputs("</tr>\n", out); }
void html_cell_open(FILE *out) { fputs("<td>", out); }
void html_cell_end(FILE *out) { fputs("</td>", out); }

void html_cell(FILE *out, struct arena *a, const char *text, bool number)
{
    fputs(number                     ? "<td class=\"n\">"
          : strlen(text) > LONG_TEXT ? "<td class=\"long\">"
                                     : "<td>",
          out);
    html_text(out, a, text);
    fputs("</td>", out);
}

void html_table_end(FILE *out) { fputs("</tbody></table></div>\n", out); }

void html_legend_begin(FILE *out) { fputs("<div class=\"legend\">", out); }
void html_legend_end(FILE *out) { fputs("</div>\n", out); }

void html_legend(FILE *out, struct arena *a, const char *colour, const char *name)
{
    fprintf(out, "<span><i style=\"background:%s\"></i>", colour);
    html_text(out, a, name);
    fputs("</span>", out);
}

void html_bar(FILE *out, struct arena *a, const struct html_part *parts, size_t n)
{
    double at = 0;
    fputs("<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\">",
          out);
    for (size_t i = 0; i < n; i++) {
        if (!(parts[i].share > 0)) continue;
        fprintf(out, "<rect x=\"%.2f\" width=\"%.2f\" height=\"10\" fill=\"%s\"><title>", 100 * at,
                100 * parts[i].share, parts[i].colour);
        html_text(out, a, parts[i].title);
        fprintf(out, " %.1f %%</title></rect>", 100 * parts[i].share);
        at += parts[i].share;
    }
    fputs("</svg>", out);
}

void html_diverging(FILE *out, double gain, double loss)
{
    fprintf(out,
            "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" role=\"img\">"
            "<rect class=\"gain\" x=\"%.2f\" width=\"%.2f\" height=\"10\"/>"
            "<rect class=\"loss\" x=\"50\" width=\"%.2f\" height=\"10\"/>"
            "<path class=\"mid\" d=\"M50 0V10\" vector-effect=\"non-scaling-stroke\"/></svg>",
            50 - 50 * gain, 50 * gain, 50 * loss);
}
