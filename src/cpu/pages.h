/* pages.h - the pool of keys and values, in pages of 64 positions.
 *
 * A page holds 64 consecutive positions (on the absolute grid) of all attention
 * layers: for every layer and kv head a key panel [256][64] and a value panel
 * [64][256], bf16.  Pages are counted, so that states share what they have in
 * common.  One reserved mapping, committed as it is touched.
 * Not locked: the thread that runs steps. */
#ifndef CALLA_CPU_PAGES_H
#define CALLA_CPU_PAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "cpu/kernels.h"
#include "model/shape.h"

enum { CPU_PANEL = CALLA_HEAD * CPU_PAGE };   /* values of one panel */

struct cpu_pages {
    struct calla_arena arena;
    size_t    page_bytes;
    int       n_pages, n_free, n_kv_heads;
    int32_t  *free_list;          /* [n_pages], the first n_free are free; last out first      */
    uint32_t *n_refs;             /* [n_pages] states that hold the page                       */
    bool     *dirty;              /* [n_pages] was used before: holds an older sequence's values */
};

size_t cpu_page_bytes(int n_attn, int n_kv_heads);

int  cpu_pages_open(struct cpu_pages *p, size_t n_pages, int n_attn, int n_kv_heads, struct calla_err *err);
void cpu_pages_close(struct cpu_pages *p);

/* A zeroed page that one state holds, or -1 when none is free. */
int32_t cpu_pages_take(struct cpu_pages *p);
void    cpu_pages_share(struct cpu_pages *p, int32_t page);     /* one more state holds it    */
void    cpu_pages_release(struct cpu_pages *p, int32_t page);   /* one state lets go          */

static inline uint16_t *cpu_page_base(const struct cpu_pages *p, int32_t page) {
    return (uint16_t *)(void *)(p->arena.base + (size_t)page * p->page_bytes);
}
static inline uint16_t *cpu_page_k(const struct cpu_pages *p, int32_t page, int attn_idx, int g) {
    return cpu_page_base(p, page) + (size_t)(attn_idx * p->n_kv_heads + g) * 2 * CPU_PANEL;
}
static inline uint16_t *cpu_page_v(const struct cpu_pages *p, int32_t page, int attn_idx, int g) {
    return cpu_page_k(p, page, attn_idx, g) + CPU_PANEL;
}

#endif
