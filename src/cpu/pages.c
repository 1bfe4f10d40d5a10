/* pages.c - taking, sharing and letting go of pages (pages.h). */
#include "cpu/pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

size_t cpu_page_bytes(int n_attn, int n_kv_heads) {
    return (size_t)n_attn * (size_t)n_kv_heads * 2 * CPU_PANEL * sizeof(uint16_t);
}

int cpu_pages_open(struct cpu_pages *p, size_t n_pages, int n_attn, int n_kv_heads, struct calla_err *err) {
    const size_t page_bytes = cpu_page_bytes(n_attn, n_kv_heads);
    int rc;

    *p = (struct cpu_pages){ .page_bytes = page_bytes, .n_kv_heads = n_kv_heads };
    if (n_pages == 0 || n_pages > INT32_MAX || n_pages > SIZE_MAX / 2 / page_bytes)
        return calla_fail(err, CALLA_ERR_ARGUMENT, "%zu pages of %zu bytes for keys and values are out of range",
                          n_pages, page_bytes);
    p->free_list = malloc(n_pages * sizeof *p->free_list);
    p->n_refs = calloc(n_pages, sizeof *p->n_refs);
    p->dirty = calloc(n_pages, sizeof *p->dirty);
    if (p->free_list == NULL || p->n_refs == NULL || p->dirty == NULL)
        rc = calla_fail(err, CALLA_ERR_MEMORY, "no memory for the table of %zu pages", n_pages);
    else
        rc = calla_arena_open(&p->arena, n_pages * page_bytes, err);
    if (rc != 0) {
        cpu_pages_close(p);
        return rc;
    }
    p->n_pages = p->n_free = (int)n_pages;
    for (int i = 0; i < p->n_pages; i++) p->free_list[i] = p->n_pages - 1 - i;
    return 0;
}

void cpu_pages_close(struct cpu_pages *p) {
    if (p->arena.base != NULL) calla_arena_close(&p->arena);
    free(p->dirty);
    free(p->n_refs);
    free(p->free_list);
    *p = (struct cpu_pages){ 0 };
}

int32_t cpu_pages_take(struct cpu_pages *p) {
    if (p->n_free == 0) return -1;
    const int32_t page = p->free_list[--p->n_free];
    /* Masked slots are multiplied by zero, which an old NaN would survive. */
    if (p->dirty[page]) memset(cpu_page_base(p, page), 0, p->page_bytes);
    p->dirty[page] = true;
    p->n_refs[page] = 1;
    return page;
}

void cpu_pages_share(struct cpu_pages *p, int32_t page) {
    assert(p->n_refs[page] > 0);
    p->n_refs[page]++;
}

void cpu_pages_release(struct cpu_pages *p, int32_t page) {
    assert(p->n_refs[page] > 0);
    if (--p->n_refs[page] == 0) p->free_list[p->n_free++] = page;
}
