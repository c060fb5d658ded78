/* kaiju.h: the C interface of kaiju.
 *
 * Rules that hold for every function below:
 *   - Handles are opaque.  X_create / X_load / X_fork give an owned handle; X_destroy takes it back, accepts NULL,
 * never fails, and may be called in any order: children keep what they need of their parents alive.  No other call with
 * that handle may be under way then.
 *   - A function that can fail returns kaiju_status.  One with something to explain also takes `kaiju_error **error`
 * last: NULL ignores details; *error is written only on failure (NULL where not even that had memory) and is then owned
 * by the caller.  *out and *count are written only on success.  A NULL handle is KAIJU_INVALID_ARGUMENT, never a crash.
 *   - Text in is (pointer, size), UTF-8; a NULL pointer is fine where the size is 0.  A path is bytes of any kind but
 * zero, in an option too.  Pointers handed out are borrowed; each says until when. Text that a pointer is handed out to
 * ends with a zero byte, but for an event's and a callback's, which have a size alone.
 *   - What is passed in is read before the call returns and not kept: tokens, texts, options bags may go at once.  Kept
 * are user_data, which comes back and is never looked at, and a clock, as long as engines made with it and their
 * children live.
 *   - A function that fills a buffer writes at most `capacity` elements and always tells the full count, so a first
 * call with NULL and 0 asks for the size.  Compare the two: a count above the capacity means the buffer holds only the
 * beginning.
 *   - Structs cross by pointer only and grow only at the end.  A single struct starts with struct_size, which the
 * caller sets; an array comes with the size of one element.  Older sizes stay valid for ever.
 *   - Any thread may call anything; step, poll and wait want one thread at a time each per engine, beside which any
 * number may be in generate; a session, a conversation and an options bag one thread at a time.  submit, cancel, wake,
 * pending and metrics never wait for a running step.
 *   - fork(), at any moment: a child may use and destroy its parent's models, options, errors and runtimes, and make
 * engines of its own, of its parent's models too.  Its parent's engines, with their sessions and conversations, stay
 * the parent's: in the child calls with them answer KAIJU_INVALID_ARGUMENT, those without a status 0, and destroying
 * returns at once and gives no memory back before the child ends.  An options bag that another thread was just setting
 * is left alone.  On a GPU a child of a process that made an engine cannot make one: CUDA does not allow it.
 *   - The library never prints, never aborts, and starts no thread that calls you.  One limit is known: where memory
 * runs out inside SentencePiece, which loads and runs the tokenizer, that may end the process (docs/testing.md).
 *
 * Before version 1.0 the interface may still change; from then on numbers and layouts are forever. */
#ifndef KAIJU_H
#define KAIJU_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32) && defined(KAIJU_BUILD)
#define KAIJU_API __declspec(dllexport)
#elif defined(_WIN32) && !defined(KAIJU_STATIC)
#define KAIJU_API __declspec(dllimport)
#elif defined(__GNUC__)
#define KAIJU_API __attribute__((visibility("default")))
#else
#define KAIJU_API
#endif
#define KAIJU_OWN /* ownership moves with this value; read by binding generators */

#define KAIJU_VERSION_MAJOR 0
#define KAIJU_VERSION_MINOR 1
#define KAIJU_VERSION_PATCH 0
#define KAIJU_VERSION (KAIJU_VERSION_MAJOR * 10000 + KAIJU_VERSION_MINOR * 100 + KAIJU_VERSION_PATCH)

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kaiju_error kaiju_error;
typedef struct kaiju_runtime kaiju_runtime;
typedef struct kaiju_options kaiju_options;
typedef struct kaiju_model kaiju_model;
typedef struct kaiju_engine kaiju_engine;
typedef struct kaiju_session kaiju_session;
typedef struct kaiju_conversation kaiju_conversation;
typedef uint64_t kaiju_request; /* an id, not a handle: never reused, nothing to free; 0 is none */

typedef int32_t kaiju_status; /* fixed width: an enum's size is the compiler's choice */
enum {
  KAIJU_OK = 0,
  KAIJU_INVALID_ARGUMENT = 1,
  KAIJU_NOT_FOUND = 2,
  KAIJU_UNSUPPORTED = 3,
  KAIJU_OUT_OF_MEMORY = 4,
  KAIJU_BUSY = 5,
  KAIJU_CANCELLED = 6,
  KAIJU_IO = 7,
  KAIJU_BAD_MODEL = 8,
  KAIJU_DEVICE_LOST = 9,
  KAIJU_INTERNAL = 10
};

/* Options are numbered in four scopes with gaps: 100 models, 200 engines, 300 requests, 400 sessions.  Not built yet,
 * numbers kept: 100 device, 101 weight type, 320 beams, 321 length penalty, 330 output (tokens or an embedding). */
typedef int32_t kaiju_option;
enum {
  KAIJU_MODEL_VERIFY = 102, /* int, 1: check digests and every value (the default); 0: structure only */

  KAIJU_ENGINE_MAX_SESSIONS = 200, /* int: sessions that may exist at once */
  KAIJU_ENGINE_CACHE_BYTES = 201,  /* int: memory for KV beside running requests' windows; 0: their whole contexts */
  KAIJU_ENGINE_STEP_TOKENS = 202,  /* int: most tokens one step may process */
  KAIJU_ENGINE_MAX_RUNNING = 203,  /* int: requests computed at once */
  KAIJU_ENGINE_MAX_WAITING = 204,  /* int: a submit beyond is KAIJU_BUSY */
  KAIJU_ENGINE_CHUNK_TOKENS = 205, /* int: most prompt tokens of one request in a step; 0: as many as fit */
  KAIJU_ENGINE_MAX_EVENTS = 206, /* int: events that may wait to be polled; while so many do, step answers KAIJU_BUSY */
  KAIJU_ENGINE_RESERVE_TOKENS =
      207, /* int: memory is reserved for so many generated tokens at a time; 0: for all of max_tokens */
  KAIJU_ENGINE_HOST_BYTES = 208, /* int: host memory for KV that had to make room in cache_bytes; 0: none */
  KAIJU_ENGINE_FILE_BYTES =
      209, /* int: a file for what had to make room there; wants host_bytes and tier_file; 0: none */
  KAIJU_ENGINE_BACKEND =
      210, /* string: "auto" or a name from kaiju_device_info.backends; "cuda" is the first GPU that CUDA shows */
  KAIJU_ENGINE_THREADS = 211, /* int: threads a step computes with, the caller's included; 0: one per core, at most 8 */
  KAIJU_ENGINE_TIER_FILE = 212, /* string: path of that file.  Nothing may be there; it has no name once it is open, and
                                   goes with the engine */
  KAIJU_ENGINE_PREFILL_TOKENS =
      213, /* int: most prompt tokens of a step in which replies go on, up to step_tokens; 0: as many as fit */
  KAIJU_ENGINE_PRODUCTS_FILE = 214, /* string: path of a file.  On a GPU whose products are cuBLASLt's its fastest
                                       algorithms are searched once, and kept there */

  KAIJU_GENERATE_MAX_TOKENS = 300,         /* int: 0 only computes the prompt; -1 as many as the context has room for */
  KAIJU_GENERATE_TEMPERATURE = 301,        /* float: 0 is greedy, else 0.001 to 100 */
  KAIJU_GENERATE_TOP_K = 302,              /* int, 0: off */
  KAIJU_GENERATE_TOP_P = 303,              /* float, 1: off */
  KAIJU_GENERATE_MIN_P = 304,              /* float, 0: off */
  KAIJU_GENERATE_SEED = 305,               /* int: all 64 bits count */
  KAIJU_GENERATE_REPETITION_PENALTY = 306, /* float, 1: off */
  KAIJU_GENERATE_LOGPROBS = 307,           /* int: alternatives reported with each token */
  KAIJU_GENERATE_STOP = 308, /* string, repeatable: ends the reply and is not part of its text.  Its tokens are part of
                                a session's history, but not of a conversation's turn */
  KAIJU_GENERATE_STREAM = 309,     /* int: same seed, another draw; tells retries of one request apart */
  KAIJU_GENERATE_STOP_TOKEN = 310, /* int, repeatable: replaces the model's own stop tokens; -1: none at all */
  KAIJU_GENERATE_PRIORITY = 311, /* int: higher ones begin and have their prompts computed first, equal ones in order of
                                    arrival; replies under way share a step by turns, whatever their priority */
  KAIJU_GENERATE_DEADLINE = 312, /* int: nanoseconds on the engine's clock (kaiju_engine_now); 0: none */
  KAIJU_GENERATE_SCORES =
      313, /* int, 1: the classifier's scores with each token; KAIJU_UNSUPPORTED where KAIJU_MODEL_LABELS is 0 */

  /* Who may share a prompt's KV.  Without these nobody but the session and its forks. */
  KAIJU_SESSION_CHARACTER = 400, /* string: names the shared beginning, such as a character's id and version */
  KAIJU_SESSION_SHARED_TOKENS =
      401,                  /* int: the first so many tokens of the history are that beginning; any boundary will do */
  KAIJU_SESSION_SALT = 402, /* string: a secret; only requests with the same salt share what follows */

  KAIJU_SESSION_KEY = 410, /* string, 16 to 1024 bytes: seals what save writes; restore takes what the same key sealed
                              and nothing else */
  KAIJU_SESSION_KV =
      411 /* int, 1: save the KV too, so that nothing is computed again (the default); 0: the tokens alone */
};

typedef struct kaiju_option_info {
  size_t struct_size;
  const char* name;                  /* static: "generate.temperature" */
  const char* help;                  /* static: one line */
  int32_t type;                      /* 'i', 'f' or 's' */
  int32_t repeatable;                /* 1: each set adds a value */
  double minimum, maximum, standard; /* numbers only; `standard` holds when nothing is set, but of generate.stop_token:
                                        the model's own then */
} kaiju_option_info;

typedef struct kaiju_device_info { /* one for now, the host; a GPU is one of its backends */
  size_t struct_size;
  const char* name;                   /* borrowed until the runtime is destroyed */
  const char* backends;               /* the same: "avx512,portable,reference", best first */
  uint64_t memory_total, memory_free; /* bytes, of the host; 0: not known */
} kaiju_device_info;

enum { /* kaiju_model_number.  Chat symbols are token ids, -1 where the model has none. */
       KAIJU_MODEL_VOCABULARY = 1,
       KAIJU_MODEL_CONTEXT = 2,
       KAIJU_MODEL_LABELS = 3, /* of its classifier; 0: it has none */
       KAIJU_MODEL_WEIGHT_BYTES = 4,
       KAIJU_MODEL_PARAMETERS = 5,
       KAIJU_MODEL_CHAT_BEGIN = 10,
       KAIJU_MODEL_CHAT_CARD = 11,
       KAIJU_MODEL_CHAT_USER = 12,
       KAIJU_MODEL_CHAT_CHARACTER = 13,
       KAIJU_MODEL_CHAT_CLOSE = 14,
       KAIJU_MODEL_CHAT_END = 15,
       KAIJU_MODEL_CHAT_TEXT = 16
};
enum { /* kaiju_model_text; 1 is kept for the architecture, 3 for a chat template */
       KAIJU_MODEL_NAME = 2,
       KAIJU_MODEL_DIGEST = 4 /* the checkpoint's identity: 32 hexadecimal digits */
};

enum { KAIJU_ROLE_CARD = 1, KAIJU_ROLE_USER = 2, KAIJU_ROLE_CHARACTER = 3 };

typedef struct kaiju_message {
  int32_t role;     /* KAIJU_ROLE_* */
  int32_t reserved; /* 0 */
  const char* content;
  size_t content_size;
} kaiju_message;

enum {                       /* kaiju_chat_format */
       KAIJU_CHAT_REPLY = 1, /* end with the symbol that asks for the character's reply */
       KAIJU_CHAT_CLOSE = 2, /* begin with the symbol that closes a reply: after one that ended without it */
       KAIJU_CHAT_BEGIN = 4  /* begin the sequence, where there is no card to do so */
};

enum { /* 2 hypothesis, 3 values and 4 prefix ready are kept; pass over kinds that you do not know */
       KAIJU_EVENT_TOKEN = 1,  /* one token; text is whole UTF-8 or empty */
       KAIJU_EVENT_DONE = 5,   /* last event of a request; says why in `reason` and brings the text still held back */
       KAIJU_EVENT_FAILED = 6, /* last event of a request; `status` and, as text, the message */
       KAIJU_EVENT_SUSPENDED = 7, /* not computed for now: by suspend, or because memory reserved in parts ran short:
                                     then it goes on by itself */
       KAIJU_EVENT_RESUMED = 8    /* computed again */
};
enum { KAIJU_DONE_STOP = 1, KAIJU_DONE_LENGTH = 2, KAIJU_DONE_CANCELLED = 3, KAIJU_DONE_DEADLINE = 4 };

typedef struct kaiju_event { /* pointers: borrowed until the next poll of this engine or its destroy */
  kaiju_request request;
  void* user_data;
  int32_t kind, reason;
  kaiju_status status;
  int32_t reserved;
  const int32_t* tokens;
  size_t token_count; /* TOKEN: the token, then the alternatives asked for, best first */
  const float* values;
  size_t
      value_count; /* TOKEN: their log-probabilities, natural, of the plain model: no penalty, no bias, temperature 1 */
  const char* text;
  size_t text_size;         /* of the first token: may begin with a space, as words do */
  int32_t prompt_tokens;    /* history included; these counts and times are final in DONE */
  int32_t cached_tokens;    /* of those, not computed again */
  int32_t generated_tokens; /* a stop token included */
  int32_t reserved2;
  int64_t wait_nanoseconds;    /* from submit to admission */
  int64_t prefill_nanoseconds; /* from admission to the first token */
  int64_t decode_nanoseconds;  /* from the first token to the last */
  const float* scores;
  size_t score_count; /* TOKEN, with KAIJU_GENERATE_SCORES: one a label, of the text before this token; its own come
                         with the next */
} kaiju_event;

typedef struct kaiju_metrics {
  size_t struct_size;
  uint64_t steps, step_nanoseconds;
  uint64_t tokens_prefilled, tokens_decoded, tokens_from_cache;
  uint64_t requests_waiting, requests_running, requests_done, requests_failed;
  uint64_t sessions, cache_blocks_evicted; /* evicted: blocks of known tokens that made room for others */
  uint64_t cache_global_blocks_total, cache_global_blocks_free;
  uint64_t cache_window_blocks_total, cache_window_blocks_free;
  /* Prompt tokens by what happened to them: their sum, but for prompts that are not yet computed or were given up;
   * tokens_from_cache is the sum of the hits. */
  uint64_t prompt_tokens;
  uint64_t hit_shared, hit_own,
      hit_other; /* in a shared region; computed by the same session; by another one under the same salt */
  uint64_t miss_new, miss_evicted,
      miss_window;    /* never seen; had made room; known, but too far from a point to resume at */
  uint64_t miss_last; /* a prompt found whole computes its last token again */
  uint64_t requests_suspended;
  uint64_t hit_host, hit_file; /* of the hits: those that host memory, and the file, had to bring back */
  uint64_t host_bytes, host_blocks, host_blocks_in,
      host_blocks_out; /* memory taken; blocks in it now; that came down; that went up again */
  uint64_t file_bytes, file_blocks, file_blocks_in, file_blocks_out;
  uint64_t tier_blocks_lost; /* to copies that failed and to damage: they were computed again */
  uint64_t tier_file_failed; /* 1: the file failed and is used no more */
} kaiju_metrics;

typedef struct kaiju_conversation_info {
  size_t struct_size;
  uint64_t turns;
  uint64_t turns_dropped;  /* oldest turns that are not in the context any more */
  uint64_t replies, reply; /* of the newest turn: how many, and which is chosen, from 0 */
  uint64_t tokens;         /* in the context: head, turns, closes */
} kaiju_conversation_info;
enum { KAIJU_TURN_INPUT = 1, KAIJU_TURN_REPLY = 2 };

typedef int64_t (*kaiju_clock_fn)(void* user_data); /* nanoseconds on a steady clock; called from submit, step, wait,
                                                       generate and engine_now, on their threads */
/* Callbacks run on the caller's thread, inside the call that they were given to. */
typedef int32_t (*kaiju_progress_fn)(double done,
                                     void* user_data); /* 0 to 1; nonzero stops the load with KAIJU_CANCELLED */
typedef int32_t (*kaiju_write_fn)(const void* data, size_t size, void* user_data); /* takes all; nonzero stops */
typedef int64_t (*kaiju_read_fn)(void* data, size_t size,
                                 void* user_data); /* bytes read: 1 to size, 0 at the end, negative stops */
typedef int32_t (*kaiju_text_fn)(const char* text, size_t text_size, void* user_data); /* whole UTF-8; nonzero stops */

/* -- version and errors -- */
KAIJU_API uint32_t kaiju_version(void);
KAIJU_API const char* kaiju_version_string(void);                    /* static */
KAIJU_API const char* kaiju_build_info(void);                        /* static */
KAIJU_API const char* kaiju_status_name(kaiju_status status);        /* static; "unknown status" for other numbers */
KAIJU_API kaiju_status kaiju_error_status(const kaiju_error* error); /* KAIJU_OK for NULL */
KAIJU_API const char* kaiju_error_message(const kaiju_error* error); /* borrowed from the error; "" for NULL */
KAIJU_API void kaiju_error_destroy(KAIJU_OWN kaiju_error* error);

/* -- runtime: what other libraries keep in globals -- */
KAIJU_API kaiju_status kaiju_runtime_create(KAIJU_OWN kaiju_runtime** out, kaiju_error** error);
KAIJU_API void kaiju_runtime_destroy(KAIJU_OWN kaiju_runtime* runtime);
KAIJU_API size_t kaiju_runtime_device_count(const kaiju_runtime* runtime); /* 0 for NULL */
KAIJU_API kaiju_status kaiju_runtime_device_info(const kaiju_runtime* runtime, size_t index, kaiju_device_info* out);

/* -- options: one bag, four scopes; a function reads its scope's options and ignores the others' -- */
/* Setters refuse unknown numbers, values of another type, values out of range and NaN, with the option's name and range
 * in the error. */
KAIJU_API kaiju_status kaiju_options_create(KAIJU_OWN kaiju_options** out);
KAIJU_API void kaiju_options_destroy(KAIJU_OWN kaiju_options* options);
KAIJU_API kaiju_status kaiju_options_set_int(kaiju_options* options, kaiju_option option, int64_t value,
                                             kaiju_error** error);
KAIJU_API kaiju_status kaiju_options_set_float(kaiju_options* options, kaiju_option option, double value,
                                               kaiju_error** error);
KAIJU_API kaiju_status kaiju_options_set_string(kaiju_options* options, kaiju_option option, const char* text,
                                                size_t size, kaiju_error** error);
/* Replaces the biases; a token at most once, biases from -10000 to 10000. */
KAIJU_API kaiju_status kaiju_options_set_logit_bias(kaiju_options* options, const int32_t* tokens, const float* bias,
                                                    size_t count, kaiju_error** error);
/* The clock of engines created with these options, for deadlines and times; NULL: the system's steady one. */
KAIJU_API kaiju_status kaiju_options_set_clock(kaiju_options* options, kaiju_clock_fn clock, void* user_data);
/* KAIJU_NOT_FOUND for an unknown number. */
KAIJU_API kaiju_status kaiju_option_describe(kaiju_option option, kaiju_option_info* out);

/* -- model: immutable after load, share it freely -- */
/* `path` ends with a zero byte.  `runtime`, `options` and `progress` may be NULL.  The weights stay in the mapped file,
 * so nobody may write into it or cut it short while a model or an engine of it lives: a lost weight that is touched
 * ends the process (SIGBUS).  To replace the file, rename a new one over it.  A file that changes while it is loaded,
 * or before an engine is created, is KAIJU_IO. */
KAIJU_API kaiju_status kaiju_model_load(kaiju_runtime* runtime, const char* path, const kaiju_options* options,
                                        kaiju_progress_fn progress, void* user_data, KAIJU_OWN kaiju_model** out,
                                        kaiju_error** error);
KAIJU_API void kaiju_model_destroy(KAIJU_OWN kaiju_model* model);
KAIJU_API int64_t kaiju_model_number(const kaiju_model* model,
                                     int32_t property); /* -1 for NULL and unknown properties */
/* Borrowed until the model is destroyed. */
KAIJU_API kaiju_status kaiju_model_text(const kaiju_model* model, int32_t property, const char** text, size_t* size);
/* What the classifier's score `index` is of; KAIJU_NOT_FOUND from KAIJU_MODEL_LABELS on. */
KAIJU_API kaiju_status kaiju_model_label(const kaiju_model* model, size_t index, const char** text, size_t* size);

/* -- text: KAIJU_UNSUPPORTED for a model without a tokenizer -- */
/* The longest text, in bytes; a longer one is KAIJU_INVALID_ARGUMENT.  Tokenizing takes up to 230 bytes of memory for
 * each byte of a text while it runs. */
enum { KAIJU_MOST_TEXT_BYTES = 1048576 };
/* Never gives a control symbol, whatever the text.  A text, as it is given and as the tokenizer's own rules rewrite it,
 * has at most KAIJU_MOST_TEXT_BYTES: tokenize a longer one in parts. */
KAIJU_API kaiju_status kaiju_tokenize(const kaiju_model* model, const char* text, size_t size, int32_t* tokens,
                                      size_t capacity, size_t* count, kaiju_error** error);
/* The bytes of the tokens, without the space that tokenizing puts before a text; whole UTF-8 only where the tokens are.
 * A control symbol and an id that pads the vocabulary, which a model may draw, give nothing, as in events;
 * KAIJU_INVALID_ARGUMENT for ids below 0 and from KAIJU_MODEL_VOCABULARY on. */
KAIJU_API kaiju_status kaiju_detokenize(const kaiju_model* model, const int32_t* tokens, size_t count, char* text,
                                        size_t capacity, size_t* size, kaiju_error** error);
/* Messages with the model's chat symbols around them.  A card begins a sequence: its content is the name, a newline and
 * the description. A greeting is a character's message before the first user's.  Each message has at most
 * KAIJU_MOST_TEXT_BYTES.  `message_size` is sizeof(kaiju_message), `flags` are KAIJU_CHAT_*. */
KAIJU_API kaiju_status kaiju_chat_format(const kaiju_model* model, const kaiju_message* messages, size_t message_size,
                                         size_t message_count, int32_t flags, int32_t* tokens, size_t capacity,
                                         size_t* count, kaiju_error** error);
/* How many of the oldest turns to drop so that card + turns + reply fit the context.  Turns go until half of the
 * context is left, so the cut, and with it the cached beginning, stays where it is for many turns.  Depends on the
 * history alone.  The newest turn always stays. */
KAIJU_API size_t kaiju_chat_turns_to_drop(const size_t* turn_tokens, size_t turn_count, size_t card_tokens,
                                          size_t reply_tokens, size_t context);

/* -- engine: the host owns the loop -- */
/* `options` may be NULL wherever it is taken. */
KAIJU_API kaiju_status kaiju_engine_create(const kaiju_model* model, const kaiju_options* options,
                                           KAIJU_OWN kaiju_engine** out, kaiju_error** error);
KAIJU_API void kaiju_engine_destroy(KAIJU_OWN kaiju_engine* engine);
/* Appends tokens to the session's history (none: goes on from it) and generates.  One request per session at a time,
 * else KAIJU_BUSY, as where too many wait.  Prompt and max_tokens beyond the context: KAIJU_INVALID_ARGUMENT; beyond
 * the engine's memory: KAIJU_OUT_OF_MEMORY. */
KAIJU_API kaiju_status kaiju_engine_submit(kaiju_engine* engine, kaiju_session* session, const int32_t* tokens,
                                           size_t count, const kaiju_options* options, void* user_data,
                                           kaiju_request* out, kaiju_error** error);
/* Takes effect at the next step; its DONE still comes.  Unknown and finished requests are ignored. */
KAIJU_API kaiju_status kaiju_engine_cancel(kaiju_engine* engine, kaiju_request request);
/* Sets a request aside at the next step, whatever its state; SUSPENDED comes.  Its KV stays until others need the room,
 * its deadline runs on. */
KAIJU_API kaiju_status kaiju_engine_suspend(kaiju_engine* engine, kaiju_request request);
/* Lets it go on at its old place in the order of service; RESUMED comes once it is computed again. */
KAIJU_API kaiju_status kaiju_engine_resume(kaiju_engine* engine, kaiju_request request);
/* What the engine's clock says, in nanoseconds: a deadline is this and something more. */
KAIJU_API int64_t kaiju_engine_now(const kaiju_engine* engine); /* 0 for NULL */
/* KAIJU_OK with nothing to do.  KAIJU_BUSY, and nothing done, while KAIJU_ENGINE_MAX_EVENTS wait to be polled, or
 * another thread is in step, be it inside generate.  After KAIJU_DEVICE_LOST or KAIJU_INTERNAL every later call answers
 * with that error at once. On a GPU the next step may be under way when this one returns: poll and do your own work
 * meanwhile. */
KAIJU_API kaiju_status kaiju_engine_step(kaiju_engine* engine, kaiju_error** error);
/* Events written, oldest first.  `event_size` is sizeof(kaiju_event); 0 events for a size no version had. */
KAIJU_API size_t kaiju_engine_poll(kaiju_engine* engine, kaiju_event* events, size_t event_size, size_t capacity);
/* Requests whose last event has not been polled, those inside generate included. */
KAIJU_API size_t kaiju_engine_pending(const kaiju_engine* engine);
/* Blocks until there is something to poll, or to step with no other thread in step, wake is called (or was, since the
 * last wait), the engine has stopped or the time is over; 1 if there is work.  0 nanoseconds and less: only asks.
 * Requests that are suspended by the host are no work until their deadline has passed. */
KAIJU_API int32_t kaiju_engine_wait(kaiju_engine* engine, int64_t timeout_nanoseconds);
KAIJU_API void kaiju_engine_wake(kaiju_engine* engine);
KAIJU_API kaiju_status kaiju_engine_metrics(const kaiju_engine* engine, kaiju_metrics* out);

/* -- sessions: a token history whose KV is kept from turn to turn -- */
/* Destroying a session cancels its unfinished request.  fork and truncate want it idle, else KAIJU_BUSY. */
KAIJU_API kaiju_status kaiju_session_create(kaiju_engine* engine, KAIJU_OWN kaiju_session** out, kaiju_error** error);
/* A new session with the first `length` tokens; it shares their KV. */
KAIJU_API kaiju_status kaiju_session_fork(kaiju_session* session, size_t length, KAIJU_OWN kaiju_session** out,
                                          kaiju_error** error);
KAIJU_API kaiju_status kaiju_session_truncate(kaiju_session* session, size_t length, kaiju_error** error);
/* The history: after DONE the prompt and all generated tokens; while a request is unfinished, and after FAILED, what it
 * was before. */
KAIJU_API size_t kaiju_session_tokens(const kaiju_session* session, int32_t* tokens, size_t capacity);
KAIJU_API void kaiju_session_destroy(KAIJU_OWN kaiju_session* session);
/* Saved sessions: the history and its KV, bound to model and arithmetic.  Reads the session scope's options.  On the
 * thread that steps, between two steps, else KAIJU_BUSY; the callbacks run before the call returns and must not step.
 * KAIJU_CANCELLED when a callback stopped it. */
KAIJU_API kaiju_status kaiju_session_save(kaiju_session* session, const kaiju_options* options, kaiju_write_fn write,
                                          void* user_data, kaiju_error** error);
/* Reads exactly what save wrote.  KAIJU_BAD_MODEL for what is damaged or cut off, KAIJU_UNSUPPORTED for another version
 * or model, KAIJU_INVALID_ARGUMENT for a key missing or too many. */
KAIJU_API kaiju_status kaiju_session_restore(kaiju_engine* engine, const kaiju_options* options, kaiju_read_fn read,
                                             void* user_data, KAIJU_OWN kaiju_session** out, kaiju_error** error);
/* The same with a file; `path` ends with a zero byte.  The file is there whole or not at all, an old one as it was.
 * What a symbolic link leads to is written, and the link stays. */
KAIJU_API kaiju_status kaiju_session_save_file(kaiju_session* session, const kaiju_options* options, const char* path,
                                               kaiju_error** error);
KAIJU_API kaiju_status kaiju_session_restore_file(kaiju_engine* engine, const kaiju_options* options, const char* path,
                                                  KAIJU_OWN kaiju_session** out, kaiju_error** error);

/* -- conversations: the turns of one chat, and the session that holds their KV -- */
/* What the model sees is the head, then the turns that were not cut off, each an input, a reply and the symbol that
 * closes it (the model's own, where it can chat).  The host drives the engine; when a request is done its reply is part
 * of the turn, without the stop token or the stop string that ended it: what the turn keeps spells the text of the
 * events.  Where the string began inside a token, what that has before it is spelled with other tokens, the fewest.
 * All but describe, turn and tokens answer KAIJU_BUSY while a reply is under way.  Destroying a conversation cancels
 * it. */
/* `head` stays at the beginning whatever is cut, a character's card say; it may fill half of the context. */
KAIJU_API kaiju_status kaiju_conversation_create(kaiju_engine* engine, const int32_t* head, size_t count,
                                                 KAIJU_OWN kaiju_conversation** out, kaiju_error** error);
KAIJU_API void kaiju_conversation_destroy(KAIJU_OWN kaiju_conversation* conversation);
/* A new turn: its input ends with what asks for a reply (kaiju_chat_format, KAIJU_CHAT_REPLY).  Where the chat outgrows
 * the context the oldest turns go, many at a time, as kaiju_chat_turns_to_drop says; max_tokens is cut to the room
 * there is. */
KAIJU_API kaiju_status kaiju_conversation_say(kaiju_conversation* conversation, const int32_t* input, size_t count,
                                              const kaiju_options* options, void* user_data, kaiju_request* out,
                                              kaiju_error** error);
/* Another reply to the newest turn, from the next stream of the seed; computes one token of the prompt again. */
KAIJU_API kaiju_status kaiju_conversation_swipe(kaiju_conversation* conversation, const kaiju_options* options,
                                                void* user_data, kaiju_request* out, kaiju_error** error);
/* Which of the newest turn's replies is the one, from 0. */
KAIJU_API kaiju_status kaiju_conversation_choose(kaiju_conversation* conversation, size_t reply, kaiju_error** error);
/* A turn that was computed elsewhere or not at all: a greeting (no input), a chat that is loaded again. */
KAIJU_API kaiju_status kaiju_conversation_append(kaiju_conversation* conversation, const int32_t* input,
                                                 size_t input_count, const int32_t* reply, size_t reply_count,
                                                 kaiju_error** error);
/* `part` is KAIJU_TURN_INPUT: the turn's replies and all later turns go, and swipe asks for an answer to the new input;
 * or KAIJU_TURN_REPLY: later turns stay.  What was before the edit is not computed again. */
KAIJU_API kaiju_status kaiju_conversation_edit(kaiju_conversation* conversation, size_t turn, int32_t part,
                                               const int32_t* tokens, size_t count, kaiju_error** error);
/* Forgets the newest turn. */
KAIJU_API kaiju_status kaiju_conversation_undo(kaiju_conversation* conversation, kaiju_error** error);
/* The first `turns` turns again, with the chosen replies; shares their KV. */
KAIJU_API kaiju_status kaiju_conversation_fork(kaiju_conversation* conversation, size_t turns,
                                               KAIJU_OWN kaiju_conversation** out, kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_describe(kaiju_conversation* conversation, kaiju_conversation_info* out);
/* The tokens of a turn's part, and what the next turn goes on from. */
KAIJU_API kaiju_status kaiju_conversation_turn(kaiju_conversation* conversation, size_t turn, int32_t part,
                                               int32_t* tokens, size_t capacity, size_t* count, kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_tokens(kaiju_conversation* conversation, int32_t* tokens, size_t capacity,
                                                 size_t* count, kaiju_error** error);

/* -- convenience -- */
/* Submits, and steps until the request is done; `on_text` may be NULL.  KAIJU_CANCELLED when on_text stopped it.
 * `done` may be NULL; otherwise it learns the reason, counts and times of a DONE, a stopped one's too (its pointers are
 * NULL); `event_size` is sizeof(kaiju_event).
 * Other requests of the engine are computed beside it, and their events stay for poll, in order; this request's own
 * never get there.  So any number of threads may be in generate, each with another session, beside a thread that steps
 * and polls, whose step answers KAIJU_BUSY while one of them steps; and on_text may submit, poll and call generate with
 * another session.  Refused with KAIJU_BUSY: a session whose request is unfinished; the callbacks of save and restore;
 * and while KAIJU_ENGINE_MAX_EVENTS of other requests wait to be polled: then this request is cancelled, and ends at
 * the next step. */
KAIJU_API kaiju_status kaiju_generate(kaiju_engine* engine, kaiju_session* session, const int32_t* tokens, size_t count,
                                      const kaiju_options* options, kaiju_text_fn on_text, void* user_data,
                                      kaiju_event* done, size_t event_size, kaiju_error** error);

/* Not built yet, names kept: kaiju_prefix_pin / warm / destroy (shared beginnings). */

#ifdef __cplusplus
}
#endif
#endif
