#include "tools/wrap.h"

#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

int wrap_width(void)
{
    struct winsize w;
    bool terminal = ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return terminal ? w.ws_col : WRAP_WIDTH;
}

static int columns(const char *text, size_t n)
{
    int count = 0;
    for (size_t i = 0; i < n; i++) count += (text[i] & 0xC0) != 0x80;
    return count;
}

void wrap_text(FILE *out, const char *text, int at, int indent, int width)
{
    int lead = 0;
    while (*text) {
        size_t spaces = strspn(text, " "), n = strcspn(text + spaces, " \n");
        int gap = (int)spaces, wide = columns(text + spaces, n);
        if (at > indent + lead && at + gap + wide > width) {
            fprintf(out, "\n%*s", indent + lead, "");
            at = indent + lead, gap = 0;
        }
        fprintf(out, "%*s%.*s", gap, "", (int)n, text + spaces);
        at += gap + wide;
        text += spaces + n;
        if (*text != '\n') continue;
        lead = (int)strspn(++text, " ");
        fprintf(out, "\n%*s", *text && *text != '\n' ? indent : 0, "");
        at = indent;
        lead += lead ? 2 : 0; /* continued lines hang */
    }
}
