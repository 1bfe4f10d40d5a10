#include "base/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

enum { BAR = 24, LINE = 160 };
static const uint64_t terminal_ns = 100000000u, plain_ns = 5000000000u;

void calla_progress_init(struct calla_progress *p, int fd) {
    *p = (struct calla_progress){ .fd = fd, .is_terminal = isatty(fd) == 1 };
}

static void put_text(const struct calla_progress *p, const char *s) {
    for (size_t n = strlen(s); n > 0;) {
        const ssize_t k = write(p->fd, s, n);
        if (k <= 0) return;   /* nobody reads it: no reason to stop the work */
        s += k;
        n -= (size_t)k;
    }
}

void calla_progress_text(char *out, size_t cap, const char *what, uint64_t done, uint64_t total, double bytes_per_s, bool bar) {
    static const char *const units[] = { "B", "kB", "MB", "GB", "TB" };
    char bar_text[BAR + 8] = "", rate[32] = "", left[32] = "";
    double unit = 1, rate_unit = 1;
    int u = 0, v = 0;
    if (done > total) done = total;
    const double share = total > 0 ? (double)done / (double)total : 1;
    for (; u < 4 && (double)total >= unit * 1000; u++) unit *= 1000;
    for (; v < 4 && bytes_per_s >= rate_unit * 1000; v++) rate_unit *= 1000;
    if (bar) {
        char cells[BAR + 1];
        for (int i = 0; i < BAR; i++) cells[i] = (double)i < share * BAR ? '#' : '.';
        cells[BAR] = 0;
        snprintf(bar_text, sizeof bar_text, "[%s] ", cells);
    }
    if (bytes_per_s > 0) snprintf(rate, sizeof rate, "  %.1f %s/s", bytes_per_s / rate_unit, units[v]);
    if (bytes_per_s > 0 && done < total) {
        double s = (double)(total - done) / bytes_per_s;
        if (s > 359999) s = 359999;
        const int t = (int)(s + 0.5);
        if (t >= 3600) snprintf(left, sizeof left, "  %d:%02d:%02d left", t / 3600, t / 60 % 60, t % 60);
        else snprintf(left, sizeof left, "  %d:%02d left", t / 60, t % 60);
    }
    snprintf(out, cap, "%s  %s%3d %%  %.*f of %.*f %s%s%s", what, bar_text, (int)(share * 100), u > 0, (double)done / unit, u > 0,
             (double)total / unit, units[u], rate, left);
}

void calla_progress_end(struct calla_progress *p) {
    if (p->drawn) put_text(p, "\n");
    p->drawn = false;
    p->what[0] = 0;
}

void calla_progress_put(void *user, const char *what, uint64_t done, uint64_t total) {
    struct calla_progress *p = user;
    const uint64_t now = calla_now_ns();
    char text[LINE], line[LINE + 16];
    if (strncmp(p->what, what, sizeof p->what - 1) != 0 || p->what[0] == 0) {
        calla_progress_end(p);
        snprintf(p->what, sizeof p->what, "%s", what);
        p->start_ns = p->shown_ns = now;
        p->start_bytes = done;
    }
    const uint64_t pause = p->is_terminal ? terminal_ns : plain_ns;
    const bool last = done >= total && (p->drawn || now - p->start_ns >= plain_ns);   /* what was quick stays silent */
    if (now - p->shown_ns < pause && !last) return;
    p->shown_ns = now;
    const double s = (double)(now - p->start_ns) * 1e-9;
    calla_progress_text(text, sizeof text, what, done, total, s > 0 ? (double)(done - p->start_bytes) / s : 0, p->is_terminal);
    snprintf(line, sizeof line, p->is_terminal ? "\r%s\033[K" : "%s\n", text);
    put_text(p, line);
    p->drawn = p->is_terminal;
    if (done >= total) calla_progress_end(p);
}

