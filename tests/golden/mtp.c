/* mtp.c - the reference's MTP head, and what its calls refuse. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"
#include "runner.h"

void golden_mtp(struct plan *p) {
    struct json_object *golden = fixture_json(p->data, "tiny_mtp.json"), *top8 = fixture_get(golden, "top8");
    struct calla_weights *w = open_tiny(p, "hf", 4);
    const size_t v_n = (size_t)w->shape->n_vocab, d_n = (size_t)w->shape->n_hidden;
    struct calla_reference_state s, kv;
    struct calla_err err = { 0 };
    int n_ids, n_want;
    int32_t *ids = fixture_ids(fixture_get(golden, "ids"), &n_ids);
    const int n = n_ids - 1;
    const int32_t draft = json_object_get_int(fixture_get(golden, "draft"));
    float *hidden = fixture_alloc((size_t)n * d_n, sizeof *hidden), *m = fixture_alloc((size_t)n * d_n, sizeof *m);
    float *logits = fixture_alloc((size_t)(n + 1) * v_n, sizeof *logits), *parts = fixture_alloc((size_t)n * v_n, sizeof *parts);

    if (calla_reference_state_init(&s, w, n, &err) != 0 || calla_reference_mtp_state_init(&kv, w, n + 1, &err) != 0 ||
        calla_reference_forward(w, &s, ids, n, NULL, hidden, NULL, &err) != 0 ||
        calla_reference_mtp(w, &kv, hidden, ids + 1, n, logits, m, &err) != 0 ||
        calla_reference_mtp(w, &kv, m + (size_t)(n - 1) * d_n, &draft, 1, logits + (size_t)n * v_n, NULL, &err) != 0)
        fixture_die("%s", err.message);
    double top = 0.0, last = 0.0;
    int n_clear = 0, n_equal = 0;
    for (int t = 0; t < n; t++) {
        const float *row = logits + (size_t)t * v_n;
        struct json_object *list = json_object_array_get_idx(top8, (size_t)t);
        double value[8];
        int id[8], best = 0;
        for (size_t i = 0; i < 8; i++) {
            id[i] = json_object_get_int(json_object_array_get_idx(json_object_array_get_idx(list, i), 0));
            value[i] = json_object_get_double(json_object_array_get_idx(json_object_array_get_idx(list, i), 1));
            top = fmax(top, fabs(value[i] - (double)row[id[i]]));
        }
        for (int i = 1; i < 1024; i++)
            if (row[i] > row[best]) best = i;
        if (value[0] - value[1] > 1e-3) {
            n_clear++;
            n_equal += best == id[0];
        }
    }
    const char *const keys[2] = { "last_logits", "second_logits" };
    for (int k = 0; k < 2; k++) {
        float *want = fixture_floats(fixture_get(golden, keys[k]), &n_want);
        for (int i = 0; i < n_want; i++) last = fmax(last, fabs((double)want[i] - (double)logits[(size_t)(n - 1 + k) * v_n + (size_t)i]));
        free(want);
    }
    check(p, n_equal == n_clear && last <= p->runner->last_row,
          "MTP: %d of %d clear best ids, last row and second draft within %.1e, top 8 within %.1e", n_equal, n_clear, last, top);

    kv.n_tokens = 0;
    for (int done = 0, step = 1; done < n; done += step, step = 3 * step < n - done ? 3 * step : n - done)
        if (calla_reference_mtp(w, &kv, hidden + (size_t)done * d_n, ids + 1 + done, step, parts + (size_t)done * v_n, NULL, &err) != 0)
            fixture_die("%s", err.message);
    check(p, memcmp(parts, logits, (size_t)n * v_n * sizeof *parts) == 0, "MTP in parts of 1, 3, 9, ... gives the same bits as at once");

    calla_reference_state_free(&s);
    calla_reference_state_free(&kv);
    calla_weights_close(&w);
    free(ids);
    free(hidden);
    free(m);
    free(logits);
    free(parts);
    json_object_put(golden);
}

/* The demo's head is trained on its own answers, where 99.98 % of its first drafts are right.  So a wrong wiring (which
 * state, which id, which order) shows here, whatever the golden was made with. */
void golden_drafts(struct plan *p) {
    struct json_object *golden = fixture_json(p->data, "demo.json"), *cases = fixture_get(golden, "cases");
    struct calla_weights *w = open_folder(p->demo, 0);
    const int n_vocab = w->shape->n_vocab;
    const size_t d_n = (size_t)w->shape->n_hidden;
    int n_drafts = 0, n_right = 0;
    for (size_t i = 0; i < json_object_array_length(cases); i++) {
        struct json_object *c = json_object_array_get_idx(cases, i);
        struct calla_reference_state s, kv;
        struct calla_err err = { 0 };
        int n_prompt, n_answer;
        int32_t *prompt = fixture_ids(fixture_get(c, "ids"), &n_prompt), *answer = fixture_ids(fixture_get(c, "greedy"), &n_answer);
        const int n = n_prompt + n_answer;
        int32_t *ids = fixture_alloc((size_t)n, sizeof *ids);
        float *hidden = fixture_alloc((size_t)n * d_n, sizeof *hidden), *logits = fixture_alloc((size_t)n * (size_t)n_vocab, sizeof *logits);
        memcpy(ids, prompt, (size_t)n_prompt * sizeof *ids);
        memcpy(ids + n_prompt, answer, (size_t)n_answer * sizeof *ids);
        if (calla_reference_state_init(&s, w, n, &err) != 0 || calla_reference_mtp_state_init(&kv, w, n, &err) != 0 ||
            calla_reference_forward(w, &s, ids, n, NULL, hidden, NULL, &err) != 0 ||
            calla_reference_mtp(w, &kv, hidden, ids + 1, n - 1, logits, NULL, &err) != 0)
            fixture_die("%s", err.message);
        for (int t = n_prompt - 1; t + 2 < n; t++) {
            const float *row = logits + (size_t)t * (size_t)n_vocab;
            int best = 0;
            for (int v = 1; v < n_vocab; v++)
                if (row[v] > row[best]) best = v;
            n_drafts++;
            n_right += best == ids[t + 2];
        }
        calla_reference_state_free(&s);
        calla_reference_state_free(&kv);
        free(prompt);
        free(answer);
        free(ids);
        free(hidden);
        free(logits);
    }
    check(p, n_drafts >= 100 && n_right >= 0.97 * n_drafts, "demo: %d of %d first drafts of its MTP head are what the model says", n_right, n_drafts);
    calla_weights_close(&w);
    json_object_put(golden);
}

void golden_refusals(struct plan *p) {
    struct calla_weights *w = open_tiny(p, "mlx", 0);
    const int n_vocab = w->shape->n_vocab;
    const int32_t good[4] = { 1, 2, 3, 4 }, negative[2] = { 5, -1 }, high[2] = { 5, n_vocab };
    struct calla_reference_state s, kv;
    struct calla_err err = { 0 };
    if (calla_reference_state_init(&s, w, 5, &err) != 0 || calla_reference_mtp_state_init(&kv, w, 5, &err) != 0 ||
        calla_reference_forward(w, &s, good, 4, NULL, NULL, NULL, &err) != 0)
        fixture_die("%s", err.message);
    const size_t n_k = 2 * 5 * (size_t)calla_kv_width(w->shape);
    float *before = fixture_alloc(n_k, sizeof *before);
    memcpy(before, s.k, n_k * sizeof *before);
    check(p, calla_reference_forward(w, &s, negative, 1, NULL, NULL, NULL, NULL) == 0, "the last position of a state is used");
    s.n_tokens = 4;
    memcpy(s.k, before, n_k * sizeof *before);
    check(p, calla_reference_forward(w, &s, good, 2, NULL, NULL, NULL, &err) == CALLA_ERR_LIMIT && strstr(err.message, "5 positions") != NULL,
          "ids past the state are refused: %s", err.message);
    s.n_tokens = 3;
    check(p, calla_reference_forward(w, &s, negative, 2, NULL, NULL, NULL, &err) == CALLA_ERR_ARGUMENT && strstr(err.message, "-1") != NULL,
          "a negative id is refused: %s", err.message);
    check(p, calla_reference_forward(w, &s, high, 2, NULL, NULL, NULL, &err) == CALLA_ERR_ARGUMENT && strstr(err.message, "1088") != NULL,
          "an id past the vocabulary is refused: %s", err.message);
    check(p, s.n_tokens == 3 && memcmp(s.k, before, n_k * sizeof *before) == 0, "what is refused changes no state");
    check(p, calla_reference_mtp(w, &kv, before, good, 1, NULL, NULL, &err) == CALLA_ERR_UNSUPPORTED, "no MTP head: %s", err.message);
    calla_reference_state_free(&s);
    calla_reference_state_free(&kv);
    free(before);
    calla_weights_close(&w);
}
