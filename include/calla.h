/* calla.h - the public interface of calla: model, session, engine, request.
 *
 * Token ids in, token ids out.  Text (tokenizer, chat template, tool calls) is
 * not here: programs that need it use src/text beside this header.
 *
 * Errors: a function that can fail returns 0 or a negative enum calla_status.
 * Its last argument, which may be NULL, receives the message, written where the
 * facts are known: the name of the thing, both numbers and the way out.
 *
 * Threads: a model is read-only after it is opened.  A session belongs to one
 * thread at a time.  An engine has a thread of its own; requests may be
 * submitted, read, cancelled and freed from any thread. */
#ifndef CALLA_H
#define CALLA_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum calla_status {
    CALLA_OK = 0,
    CALLA_ERR_IO = -1,          /* a file or a socket                               */
    CALLA_ERR_FORMAT = -2,      /* a file is not what it should be                  */
    CALLA_ERR_MEMORY = -3,      /* the plan or an allocation does not fit           */
    CALLA_ERR_ARGUMENT = -4,    /* the caller's value is outside what is accepted   */
    CALLA_ERR_LIMIT = -5,       /* a stated limit (context, size, depth) is passed  */
    CALLA_ERR_BUSY = -6,        /* a bounded queue is full: try again               */
    CALLA_ERR_CANCELLED = -7,   /* the caller asked for it                          */
    CALLA_ERR_UNSUPPORTED = -8, /* well formed, but not built here                  */
    CALLA_ERR_DEVICE = -9,      /* the device faulted; nothing more runs on it      */
    CALLA_ERR_NUMERIC = -10     /* a result is not finite                           */
};

struct calla_err {
    int  code;                  /* enum calla_status                                */
    char message[1024];         /* one line, no final newline                       */
};

/* ---- model ---------------------------------------------------------------- */

struct calla_model;             /* the checkpoint, mapped, and its opened backend   */

struct calla_options {
    const char *model_dir;
    const char *backend;        /* "auto", "cpu", "reference"; NULL: auto           */
    int         n_threads;      /* 0: one a physical core                           */
    int         ctx_tokens;     /* prompt + answer of a sequence; 0: what fits, at
                                 * most 262,144                                     */
    int         max_rows;       /* most rows in one step; 0: the default (512)      */
    int         n_sequences;    /* sequences that run at once; 0: the default (8)   */
    int         n_usable_ids;   /* ids from here on are never sampled; 0: the
                                 * checkpoint's vocabulary                          */
    size_t      memory_limit_bytes; /* 0: what the machine has free                 */
    size_t      cache_bytes;    /* for parked states (state_bytes each; their pages
                                 * come from the common pool and are given up when
                                 * it is empty); 0: a share of what is left         */

    /* Called on the opening thread; may be NULL.  `log` gets the memory plan,
     * line by line, before anything large is allocated. */
    void (*log)(void *user, const char *line);
    void (*progress)(void *user, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void  *user;
};

struct calla_sampling {         /* plain value; order of application: docs/model.md, "Sampling" */
    float    temperature;       /* 0: greedy                                        */
    int      top_k;             /* 0: off                                           */
    float    top_p;             /* 1: off                                           */
    float    min_p;             /* 0: off                                           */
    float    presence_penalty;  /* ids of the answer only                           */
    float    frequency_penalty; /* ids of the answer only                           */
    float    repetition_penalty;/* ids of prompt and answer; 1: off                 */
    uint64_t seed;              /* the draw depends on seed and position only       */
    const struct calla_logit_bias *bias; /* [n_bias], copied by calla_request_submit */
    int      n_bias;
};

struct calla_logit_bias { int32_t id; float bias; };

struct calla_model_info {
    const char *shape_name;     /* "full", "demo", "tiny"                           */
    const char *backend_name;   /* "cpu"                                            */
    const char *device;         /* "avx512-vnni, 2 threads"                         */
    int      n_layers, n_vocab, n_usable_ids;
    int      ctx_tokens;        /* of one sequence                                  */
    int      n_sequences, max_rows, n_threads;
    uint64_t n_params;          /* weights of the text model, without MTP           */
    uint64_t weights_bytes, state_bytes, kv_bytes_per_token;
    struct calla_sampling sampling;  /* generation_config.json's defaults           */
    const int32_t *stop_ids;    /* generation_config.json's eos ids                 */
    int      n_stop_ids;
};

int  calla_model_open(struct calla_model **out, const struct calla_options *opt,
                      struct calla_err *err);
void calla_model_close(struct calla_model **model);
/* The memory plan that open() with these options would follow, to opt->log and
 * into out (may be NULL; its stop_ids and device are NULL): the checkpoint is
 * read, nothing large is allocated.  CALLA_ERR_MEMORY when the plan does not fit. */
int  calla_model_plan(struct calla_model_info *out, const struct calla_options *opt, struct calla_err *err);
void calla_model_info(const struct calla_model *model, struct calla_model_info *out);

/* ---- session: one sequence, driven directly ------------------------------- */

struct calla_session;

int  calla_session_new(struct calla_session **out, struct calla_model *model,
                       struct calla_err *err);
void calla_session_free(struct calla_session **s);

/* Runs ids through the model.  on_logits (may be NULL) is called for every id
 * in order with f32 logits [n_usable_ids], borrowed for the call; a negative
 * return ends the feed with that status.  With on_logits NULL only state is
 * kept.  After an error or a cancel the session stands at its last resume
 * point. */
int calla_session_feed(struct calla_session *s, const int32_t *ids, int n_ids,
                       int (*on_logits)(void *user, int pos, const float *logits), void *user,
                       const atomic_bool *cancel, struct calla_err *err);

/* Borrowed; valid until the session's next feed or resume. */
const int32_t *calla_session_ids(const struct calla_session *s, int *n_ids);

/* Recurrent state cannot be cut back, so a session resumes only where it was
 * told to: checkpoint() keeps the present position (it costs state_bytes),
 * resume_point() is the largest kept position <= want (0 is always kept), and
 * resume() goes back to one. */
int calla_session_checkpoint(struct calla_session *s, struct calla_err *err);
int calla_session_resume_point(const struct calla_session *s, int want);
int calla_session_resume(struct calla_session *s, int pos, struct calla_err *err);

/* Ids and state, to a file that another process with the same checkpoint can
 * load; written to a temporary name and renamed into place. */
int calla_session_save(const struct calla_session *s, const char *path, struct calla_err *err);
int calla_session_load(struct calla_session *s, const char *path, struct calla_err *err);

/* For readers of logits: the log-sum-exp (fp64 inside), and the n (at most 4096)
 * best ids, best first, the lower id first among equals; returns how many. */
double calla_logsumexp(const float *logits, int n_usable);
int    calla_top_ids(const float *logits, int n_usable, int n, int32_t *ids);

/* ---- engine: many requests over one model --------------------------------- */

struct calla_engine;
struct calla_request;

enum { CALLA_MAX_TOP_LOGPROBS = 20, CALLA_MAX_STOP_IDS = 16 };

struct calla_request_params {
    const int32_t *prompt;      /* [n_prompt], copied                               */
    int      n_prompt;
    int      max_tokens;        /* most ids to sample; < 0: what the context leaves */
    struct calla_sampling sampling;
    const int32_t *stop_ids;    /* [n_stop_ids], copied; the stop id is reported
                                 * as the last id of the answer                     */
    int      n_stop_ids;
    const int32_t *boundaries;  /* [n_boundaries], ascending, copied; may be NULL:
                                 * prompt positions where a message begins, so that
                                 * the state before it is worth keeping             */
    int      n_boundaries;
    int      n_top_logprobs;    /* -1: no logprobs, 0: the sampled id's only        */
    bool     prompt_logprobs;   /* CALLA_EVENT_PROMPT for every prompt id           */
    void   (*notify)(void *user); /* engine thread: an event is there; may be NULL;
                                 * must not block or call back                      */
    void    *user;
};

enum calla_event_kind { CALLA_EVENT_PREFILL, CALLA_EVENT_PROMPT, CALLA_EVENT_TOKEN, CALLA_EVENT_DONE };
enum calla_finish { CALLA_FINISH_STOP, CALLA_FINISH_LENGTH, CALLA_FINISH_CANCELLED, CALLA_FINISH_ERROR };

struct calla_logprob { int32_t id; float logprob; };

struct calla_usage {
    int    n_prompt, n_cached, n_sampled; /* n_cached: prompt ids that were not run again */
    double queue_s, prefill_s, decode_s;
};

struct calla_event {
    enum calla_event_kind kind;
    int     pos;                /* PREFILL: prompt ids read so far; PROMPT, TOKEN: the
                                 * id's position in the sequence                     */
    int32_t id;                 /* PROMPT, TOKEN                                     */
    float   logprob;            /* log-softmax of the raw logits over the usable ids;
                                 * NAN where not asked for, and for prompt id 0      */
    int     n_top;
    struct calla_logprob top[CALLA_MAX_TOP_LOGPROBS]; /* best first                  */
    enum calla_finish finish;   /* DONE                                              */
    struct calla_err  err;      /* DONE with CALLA_FINISH_ERROR                      */
    struct calla_usage usage;   /* DONE                                              */
};

struct calla_engine_status { int n_running, n_queued, queue_limit; uint64_t n_sampled; bool failed; };

/* n_queue: requests that may wait; a further one is CALLA_ERR_BUSY. */
int  calla_engine_start(struct calla_engine **out, struct calla_model *model, int n_queue,
                        struct calla_err *err);
/* Cancels what runs, joins the thread.  Requests stay readable until freed. */
void calla_engine_stop(struct calla_engine **e);
void calla_engine_status(const struct calla_engine *e, struct calla_engine_status *out);

/* CALLA_ERR_LIMIT when n_prompt leaves no room in the context (both numbers in
 * the message), CALLA_ERR_ARGUMENT for an id or a parameter out of range. */
int  calla_request_submit(struct calla_engine *e, const struct calla_request_params *params,
                          struct calla_request **out, struct calla_err *err);
bool calla_request_next(struct calla_request *r, struct calla_event *out);  /* never waits */
bool calla_request_wait(struct calla_request *r, struct calla_event *out, int timeout_ms);
void calla_request_cancel(struct calla_request *r);   /* takes effect before the next step */
void calla_request_free(struct calla_request **r);    /* cancels first                     */

/* ---- measuring ------------------------------------------------------------ */

struct calla_bench_test { int n_prompt, n_gen, n_depth, n_rows; };
struct calla_bench_result {
    double   prompt_s, gen_s;      /* 0 where the test has no such part              */
    double   experts_per_layer;    /* distinct experts read a layer and step, mean   */
};

/* One repetition: fills n_rows sequences with n_depth random ids (untimed), then
 * times the prompt and the answer.  Ids are random, never one id repeated. */
int calla_bench_run(struct calla_model *model, const struct calla_bench_test *test, uint64_t seed,
                    struct calla_bench_result *out, struct calla_err *err);

const char *calla_version(void);   /* "0.1.0" */

#endif
