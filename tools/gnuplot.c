#include "tools/gnuplot.h"

#include "core/base/file.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define IMAGE_MAX ((size_t)1 << 30)
#define WITHOUT "-o NAME.gp writes only the script"
enum { CANNOT_EXEC = 127 };

/* gnuplot reads three or four octal digits, so a digit must not follow an escape. */
void gnuplot_text(FILE *out, const char *text)
{
    bool plain = true;
    fputc('"', out);
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        plain = (*c < 0x80 && isalpha(*c)) || strchr(" ._-+:#/()", *c) || (plain && isdigit(*c));
        fprintf(out, plain ? "%c" : "\\%03o", *c);
    }
    fputc('"', out);
}

enum status gnuplot_open(FILE **script, struct error *err)
{
    int fd = memfd_create("gnuplot", MFD_CLOEXEC);
    *script = fd < 0 ? NULL : fdopen(fd, "w");
    if (*script) return OK;
    int why = errno;
    if (fd >= 0) close(fd);
    return error_set(err, ERR_RESOURCE, "cannot write a script for gnuplot: %s", strerror(why));
}

/* Whether the PNG is complete: chunks from the signature to IEND at the end of the file. */
static bool whole_png(const unsigned char *p, size_t n)
{
    enum { FRAME = 12 }; /* length, type, sum */
    if (n < 8 || memcmp(p, "\x89PNG\r\n\x1a\n", 8) != 0) return false;
    for (size_t at = 8; n - at >= FRAME;) {
        uint32_t length = (uint32_t)p[at] << 24 | (uint32_t)p[at + 1] << 16 |
                          (uint32_t)p[at + 2] << 8 | p[at + 3];
        if (length > n - at - FRAME) return false;
        bool end = !memcmp(p + at + 4, "IEND", 4);
        at += length + FRAME;
        if (end) return at == n;
    }
    return false;
}

static bool whole_svg(const char *text, size_t n)
{
    static const char first[] = "<?xml", last[] = "</svg>";
    while (n && isspace((unsigned char)text[n - 1])) n--;
    return n > sizeof first + sizeof last && !memcmp(text, first, sizeof first - 1) &&
           !memcmp(text + n - (sizeof last - 1), last, sizeof last - 1);
}

static void be_gnuplot(int script, int image)
{
    /* Names are UTF-8, for which gnuplot prints a warning in the C locale. */
    if (dup2(script, STDIN_FILENO) < 0 || dup2(image, STDOUT_FILENO) < 0 ||
        setenv("LC_ALL", "C.UTF-8", 1))
        _exit(1);
    /* -d: a user's .gnuplot could print into the image, or redirect it */
    execlp("gnuplot", "gnuplot", "-d", "-", (char *)NULL);
    _exit(CANNOT_EXEC);
}

static enum status exit_of(pid_t child, struct error *err)
{
    int how = 0;
    while (waitpid(child, &how, 0) < 0)
        if (errno != EINTR) return error_set(err, ERR_RESOURCE, "gnuplot: %s", strerror(errno));
    if (WIFEXITED(how) && WEXITSTATUS(how) == 0) return OK;
    if (WIFEXITED(how) && WEXITSTATUS(how) == CANNOT_EXEC)
        return error_set(err, ERR_RESOURCE, "gnuplot is not installed; " WITHOUT);
    return error_set(err, ERR_RESOURCE, "gnuplot failed (%s %d); " WITHOUT,
                     WIFEXITED(how) ? "exit code" : "signal",
                     WIFEXITED(how) ? WEXITSTATUS(how) : WTERMSIG(how));
}

static enum status run(struct arena *a, int script, char **image, size_t *n, struct error *err)
{
    int ends[2];
    if (lseek(script, 0, SEEK_SET) || pipe2(ends, O_CLOEXEC))
        return error_set(err, ERR_RESOURCE, "cannot start gnuplot: %s", strerror(errno));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) be_gnuplot(script, ends[1]);
    int why = errno;
    enum status st = OK;
    close(ends[1]);
    if (child < 0)
        st = error_set(err, ERR_RESOURCE, "cannot start gnuplot: %s", strerror(why));
    else if (file_read_fd(a, ends[0], "gnuplot's image", IMAGE_MAX, image, n, err) != OK)
        st = error_wrap(err, ERR_RESOURCE, "gnuplot");
    close(ends[0]); /* ends a gnuplot that is still writing */
    if (child < 0) return st;
    struct error end;
    enum status ended = exit_of(child, &end);
    return st != OK || ended == OK ? st : error_set(err, ended, "%s", end.text);
}

enum status gnuplot_draw(struct arena *a, FILE *script, const char *format, char **image,
                         size_t *n, struct error *err)
{
    errno = 0;
    bool bad = ferror(script) | fflush(script);
    enum status st = bad ? error_set(err, ERR_RESOURCE, "cannot write a script for gnuplot: %s",
                                     strerror(errno ? errno : EIO))
                         : run(a, fileno(script), image, n, err);
    fclose(script);
    if (st != OK) return st;
    bool whole = strcmp(format, "svg") ? whole_png((const unsigned char *)*image, *n)
                                       : whole_svg(*image, *n);
    return whole ? OK
                 : error_set(err, ERR_RESOURCE,
                             "gnuplot ended without an error, but its image is cut off after %zu bytes", *n);
}
