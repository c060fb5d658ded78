/* kaiju.h: the C interface of kaiju.
 *
 * Rules that hold for every function below:
 *
 * Handles
 *   - Handles are opaque.  Functions named X_create, X_load and X_fork return a handle that the
 *     caller owns.  Functions named X_destroy release a handle, accept NULL and never fail.
 *     Handles may be destroyed in any order: each handle keeps alive the objects that it needs.
 *     When an engine's handle is destroyed, its conversations can be read and saved, and ask for
 *     no more replies, because nobody could step the engine.
 *     While a handle is destroyed, no other call with that handle may be running.
 *   - If a handle is NULL, the call returns KAIJU_INVALID_ARGUMENT and does not crash.
 *
 * Errors
 *   - A function that can fail returns kaiju_status.  If the last parameter is `kaiju_error**
 *     error`, the function can also return an error message.  To ignore the message, pass NULL.
 *     *error is written only on failure, and the caller owns the error.  *error is NULL if there
 *     was no memory for the message.
 *   - *out and *count are written only on success.
 *   - The library never prints and never aborts the process.  One exception is known: if memory
 *     runs out inside SentencePiece, the library that runs the tokenizer, the process may end
 *     (docs/testing.md).
 *
 * Text, memory and structs
 *   - A text argument is UTF-8, passed as a pointer and a size in bytes.  The pointer of a text
 *     argument may be NULL if the size is 0.  A path may contain any bytes except zero, also if it
 *     is passed as an option.
 *   - Pointers that a function returns are borrowed; the comment of the function says how long
 *     they stay valid.  A returned text ends with a zero byte, except the text of an event or a
 *     callback, which has only a size.
 *   - A function reads its arguments before it returns and keeps none of them: the caller may free
 *     tokens, texts and options bags when the function has returned.  There are two exceptions.
 *     The engine keeps a user_data pointer, returns it in events and never dereferences it.  An
 *     engine uses its clock and its host's threads until the engine and its sessions and
 *     conversations are destroyed.
 *   - A function that fills a buffer writes at most `capacity` elements and always returns the
 *     full count.  To ask for the count alone, pass NULL as the buffer and 0 as the capacity.  If
 *     the count is larger than the capacity, the buffer receives only the first `capacity`
 *     elements.
 *   - Structs are passed by pointer, and new versions add fields only at the end.  A struct that
 *     is passed alone begins with struct_size, which the caller sets; an array of structs is
 *     passed with the size of one element.  The struct sizes of older versions of this header stay
 *     valid for ever.
 *
 * Threads
 *   - Any thread may call any function, within the limits below.  At most one thread at a time may
 *     be in step of an engine, one in poll and one in wait.  Only one thread at a time may use a
 *     session, a conversation, a prefix or an options bag.  Any number of threads may be in
 *     kaiju_generate, also while another thread steps and polls the engine.
 *   - The functions submit, guide, cancel, wake, pending and metrics of an engine never wait for a
 *     running step.
 *   - The library starts no thread that calls your code.
 *
 * fork(), at any moment
 *   - A child process may use and destroy its parent's models, gates, options bags, errors and
 *     runtimes.  The child must not use an options bag that another thread was changing at the moment of the
 *     fork.  The child process may create its own engines, also with models that its parent
 *     loaded. If the parent created an engine on a GPU, the child process cannot create engines on
 *     a GPU, because CUDA does not allow it.
 *   - The parent's engines, with their sessions and conversations, cannot be used in a child
 *     process: a call that returns a status answers KAIJU_INVALID_ARGUMENT, and any other call
 *     answers 0.  If a child process destroys an engine, session or conversation of its parent,
 *     the call returns at once, and the memory is released when the child ends.
 *
 * Before version 1.0 this interface may still change.  From version 1.0 on, option numbers and
 * struct layouts are fixed for ever. */
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
#define KAIJU_OWN /* this value carries ownership; binding generators read the mark */

#define KAIJU_VERSION_MAJOR 0
#define KAIJU_VERSION_MINOR 1
#define KAIJU_VERSION_PATCH 0
#define KAIJU_VERSION \
  (KAIJU_VERSION_MAJOR * 10000 + KAIJU_VERSION_MINOR * 100 + KAIJU_VERSION_PATCH)

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
typedef struct kaiju_prefix kaiju_prefix;
typedef struct kaiju_gate kaiju_gate;
typedef struct kaiju_calibration kaiju_calibration;
typedef struct kaiju_rollout kaiju_rollout;
typedef uint64_t
    kaiju_request; /* an id, not a handle: never reused, nothing to free; 0: no request */

typedef int32_t
    kaiju_status; /* of fixed width, because the compiler chooses the size of an enum */
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

/* Options are numbered in four scopes: models from 100, engines from 200, requests from 300,
 * sessions from 400. */
typedef int32_t kaiju_option;
enum {
  /* int: threads that check digests and every value, the calling thread included; they end before
   * the load does.  1 is the default; 0: check the structure only */
  KAIJU_MODEL_VERIFY = 102,
  /* text: path of a file with another classifier for the model (kaiju-head makes one).  Labels and
   * scores are then those of the file; all else stays as it is, the KV of caches and saved
   * sessions included */
  KAIJU_MODEL_HEAD = 103,
  /* text: path of a file with other scales of keys and values (kaiju_calibration_save writes one) */
  KAIJU_MODEL_SCALES = 104,
  /* int, 1: interleave the weights over the memory nodes (NUMA) of the machine, for engines whose
   * threads are on several of them; the whole file is read first.  Pages that another process has
   * mapped, too, stay where they are.  0: where the system has put the file's pages.  Nothing is
   * done on a machine with one node; KAIJU_UNSUPPORTED if the system refuses */
  KAIJU_MODEL_INTERLEAVE = 110,

  KAIJU_ENGINE_MAX_SESSIONS = 200, /* int: most sessions that exist at once */
  /* int: bytes of KV cache, besides the sliding-window blocks of running requests; 0: room for
   * max_running full contexts, or for 8 if max_running is 0.  The cache always has room for at
   * least one full context, even if a smaller number is given */
  KAIJU_ENGINE_CACHE_BYTES = 201,
  /* int: most tokens that one step computes; 0: 256 on a CPU, 2,048 on a GPU */
  KAIJU_ENGINE_STEP_TOKENS = 202,
  /* int: most requests that run at once; 0: 64, or fewer (at least 8) if the sliding-window blocks
   * of so many would take more than 1 GiB */
  KAIJU_ENGINE_MAX_RUNNING = 203,
  KAIJU_ENGINE_MAX_WAITING =
      204, /* int: most requests that wait; submit answers KAIJU_BUSY while so many wait */
  /* int: most prompt tokens of one request in one step; 0: as many as fit into the step */
  KAIJU_ENGINE_CHUNK_TOKENS = 205,
  /* int: most events that wait to be polled; step answers KAIJU_BUSY while so many wait */
  KAIJU_ENGINE_MAX_EVENTS = 206,
  /* int: KV memory of a request is reserved for this many generated tokens at a time; 0: for all
   * of max_tokens at the start */
  KAIJU_ENGINE_RESERVE_TOKENS = 207,
  KAIJU_ENGINE_HOST_BYTES =
      208, /* int: host memory for KV that was evicted from the cache; 0: none */
  /* int: size of a file for KV that was evicted from host memory; needs host_bytes and tier_file;
     0: no file */
  KAIJU_ENGINE_FILE_BYTES = 209,
  /* string: "auto" (the default: the fastest) or a name from kaiju_device_info.backends; "cuda" is
   * the first GPU that CUDA shows, unless KAIJU_ENGINE_DEVICES names another */
  KAIJU_ENGINE_BACKEND = 210,
  /* int: threads that compute a step, the calling thread included; 0: one for each physical core
   * that the system lets this process use.  On a GPU, threads that draw tokens of requests with
   * samplers; they start when such requests share a step */
  KAIJU_ENGINE_THREADS = 211,
  /* string: path at which the engine creates the file for evicted KV (file_bytes).  Nothing may
   * exist at that path. The engine removes the file's name once the file is open; the disk space
   * is released when the engine is destroyed */
  KAIJU_ENGINE_TIER_FILE = 212,
  /* int: most prompt tokens of a step that also decodes, up to step_tokens; 0: as many as fit into
     the step */
  KAIJU_ENGINE_PREFILL_TOKENS = 213,
  /* string: path of a file that remembers which cuBLASLt algorithms are fastest, on GPUs where
   * cuBLASLt computes the matmuls.  The first engine measures the algorithms and writes the file;
   * later engines read it */
  KAIJU_ENGINE_PRODUCTS_FILE = 214,
  /* int, repeatable: index of a device (kaiju_runtime_device_info) to compute on.  The default is
   * the first device of the backend.  Several GPUs share the model: each has a part of every
   * matrix and of the KV heads.  KAIJU_UNSUPPORTED says how many could, if not these */
  KAIJU_ENGINE_DEVICES = 215,
  /* int: most cache blocks that prefetches (kaiju_session_prefetch) bring up from host memory in a
   * step that also computes; 0: they wait for steps that compute nothing */
  KAIJU_ENGINE_PREFETCH_BLOCKS = 216,
  /* int, 1: prefetch a session after each reply when its user usually comes back; 0: do not */
  KAIJU_ENGINE_PREFETCH_USUAL = 217,
  /* int: most bytes that the engine may take on its device, all that kaiju_memory_need lists;
   * KAIJU_FREE_MEMORY: what is free there, and on the host; 0: no limit.  kaiju_engine_create then
   * returns KAIJU_OUT_OF_MEMORY, with the figures, before it takes anything */
  KAIJU_ENGINE_MEMORY_LIMIT = 218,
  /* int: most cache events that wait for kaiju_engine_poll_cache; of more, all are forgotten, and
   * KAIJU_CACHE_CLEARED says so; 0: none are recorded */
  KAIJU_ENGINE_CACHE_EVENTS = 219,
  /* string: who computes matmuls on a GPU.  "auto" (the default): kaiju's own kernels on compute
   * capability 9.0, on other chips cuBLASLt where it is faster; "own": kaiju's kernels; "cublaslt":
   * cuBLASLt wherever it can, KAIJU_UNSUPPORTED if it is not installed, or if several GPUs share
   * the model, where kaiju's kernels compute on every chip.  The replies are the same */
  KAIJU_ENGINE_PRODUCTS = 220,
  /* int, 1: cache events of stored blocks have the blocks' tokens; 0: they do not */
  KAIJU_ENGINE_CACHE_EVENT_TOKENS = 221,
  /* int, 1: cache events tell of blocks outside the shared regions of characters, too; 0: they do
   * not */
  KAIJU_ENGINE_CACHE_EVENTS_PRIVATE = 222,
  /* int, 1: interleave the KV cache of a CPU over the memory nodes (NUMA) of the machine; 0: each
   * page lies on the node of the thread that first writes it, or where the process's policy says.
   * Nothing is done on a machine with one node; KAIJU_UNSUPPORTED if the system refuses */
  KAIJU_ENGINE_INTERLEAVE = 231,
  /* int, 1: ask the system for pages of 2 MiB for the KV cache of a CPU (madvise), of which one
   * byte may make 2 MiB resident; 0: do not */
  KAIJU_ENGINE_LARGE_PAGES = 232,
  /* int, 1: decode steps of a CPU with four tokens or fewer read only those weights of the
   * feed-forward layers' second matrix that are multiplied by something else than zero, which takes
   * a copy of these matrices; 0: all weights.  The replies are the same.  KAIJU_UNSUPPORTED if the
   * model's feed-forward layers have no squared ReLU */
  KAIJU_ENGINE_SKIP_ZEROS = 233,

  /* int: most generated tokens; 0: only compute the prompt; -1: as many as the context has room
     for */
  KAIJU_GENERATE_MAX_TOKENS = 300,
  KAIJU_GENERATE_TEMPERATURE = 301,        /* float: 0 is greedy, otherwise 0.001 to 100 */
  KAIJU_GENERATE_TOP_K = 302,              /* int, 0: off */
  KAIJU_GENERATE_TOP_P = 303,              /* float, 1: off */
  KAIJU_GENERATE_MIN_P = 304,              /* float, 0: off */
  KAIJU_GENERATE_SEED = 305,               /* int: all 64 bits are used */
  KAIJU_GENERATE_REPETITION_PENALTY = 306, /* float, 1: off */
  KAIJU_GENERATE_LOGPROBS = 307, /* int: number of alternatives reported with each token */
  /* string, repeatable: a stop string, which ends the reply and is not part of the reply's text.
   * The tokens of a stop string are part of a session's history, but not of a conversation's turn
   */
  KAIJU_GENERATE_STOP = 308,
  KAIJU_GENERATE_VARIANT =
      309, /* int: another variant draws other tokens from the same seed, for retries */
  KAIJU_GENERATE_STOP_TOKEN =
      310, /* int, repeatable: replaces the model's own stop tokens; -1: no stop tokens */
  /* int: requests of higher priority start first and have their prompts computed first; requests
   * of equal priority do so in the order in which they were submitted.  If a step cannot compute a
   * token for every running reply, the replies take turns, whatever their priority */
  KAIJU_GENERATE_PRIORITY = 311,
  KAIJU_GENERATE_DEADLINE =
      312, /* int: time on the engine's clock in nanoseconds (kaiju_engine_now); 0: none */
  /* int, 1: report the classifier's scores with each token; KAIJU_UNSUPPORTED if
     KAIJU_MODEL_LABELS is 0 */
  KAIJU_GENERATE_SCORES = 313,
  /* int, 1: before each token, the first included, the request waits until kaiju_engine_guide
   * says what the token may be.  kaiju_generate refuses such a request */
  KAIJU_GENERATE_GUIDED = 314,
  /* int, 1: end a reply that goes in circles (KAIJU_DONE_LOOP): its end repeats a piece of at most
   * 80 bytes four times or more, in 24 bytes or more.  Text that repeats is held back until it is
   * no circle */
  KAIJU_GENERATE_LOOP_GUARD = 315,
  /* string, repeatable: the sampler KAIJU_SAMPLER_DRY finds no repetition across a token whose text
   * contains this string.  At most 64 strings of 1 to 64 bytes */
  KAIJU_GENERATE_BREAKER = 316,

  /* Beam search (docs/beams.md).  With beams, the request continues so many replies at once and
   * ends with the best of them.  The sampling parameters must then have their defaults, and
   * guided, logprobs and a logits hook are KAIJU_UNSUPPORTED.  Tokens are told as soon as it is
   * certain that the reply begins with them, the rest at the end. */
  KAIJU_GENERATE_BEAMS = 317, /* int, 1 to 32; 0: no beams */
  KAIJU_GENERATE_BEAM_CANDIDATES =
      318, /* int, up to 64: likeliest tokens of each beam that are looked at; 0: twice the beams */
  KAIJU_GENERATE_LENGTH_PENALTY =
      319, /* float, 0 to 10: an ended reply is worth log-probability / length^penalty */
  KAIJU_GENERATE_EARLY_STOPPING =
      320, /* int, 1: end when so many replies as beams have ended; 0: when no other can be better */
  KAIJU_GENERATE_BEAM_GROUPS = 321, /* int: diverse groups, which divide the beams */
  KAIJU_GENERATE_DIVERSITY =
      322, /* float, 0 to 100: what a token loses for each earlier group that has just chosen it */
  KAIJU_GENERATE_STOCHASTIC =
      323, /* int, 1: sample without replacement instead; the seed and the variant count */
  /* float, -1000 to 1000: a beam is worth its log-probability - guidance * risk, where the risk
   * comes from the scores of the model's classifier; 0: off */
  KAIJU_GENERATE_GUIDANCE = 324,
  /* int: the risk is 0 the largest probability of a label so far, 1 the mean, 2 the largest
   * log-odds */
  KAIJU_GENERATE_GUIDANCE_RISK = 325,
  KAIJU_GENERATE_LABEL_WEIGHT = 326, /* string, repeatable: "label=weight", 0 to 1000, of a risk */

  /* Verdicts (docs/safety.md).  A verdict says that the probability of a label of the classifier
   * has reached the label's limit in the text so far, the prompt included. */
  KAIJU_GENERATE_LABEL_LIMIT = 327, /* string, repeatable: "label=limit", 0 to 1 */
  KAIJU_GENERATE_TIER = 328,        /* string: limits of kaiju_engine_set_limit too */
  KAIJU_GENERATE_VERDICT_RUN = 329, /* int: a verdict needs so many tokens in a row at the limit */
  /* int, 1: a verdict is an event and the reply goes on; 0: it also ends the reply
   * (KAIJU_DONE_REFUSED) */
  KAIJU_GENERATE_VERDICT_REPORTS = 330,
  /* int, 0 to 64: a token is told when so many texts, of it and of the tokens after it, have been
   * judged; what a verdict that ends the reply finds untold is never told */
  KAIJU_GENERATE_HOLD_BACK = 331,

  /* string, repeatable: a phrase that the reply must not have, whatever the case of ASCII's
   * letters.  A reply that comes to have one goes back to before the phrase and takes another
   * token there.  Text that may become a phrase is held back.  At most 64 of 1 to 1024 bytes;
   * KAIJU_UNSUPPORTED with guided and with beams */
  KAIJU_GENERATE_BANNED = 332,

  /* int, 1: the last event has a record, with which anybody can compute the reply again
   * (kaiju_engine_record) */
  KAIJU_GENERATE_RECORD = 340,
  /* int: so many tokens at the end of the prompt are the beginning of the reply, which another
   * engine began and did not end.  The rest is, bit for bit, what that engine would have generated
   * with the same options.  Stop strings see the whole reply, and the first token's event has the
   * text from its beginning on.  KAIJU_GENERATE_MAX_TOKENS and the counts are of the tokens that
   * are generated here.  KAIJU_UNSUPPORTED with beams, verdicts, banned phrases and mirostat */
  KAIJU_GENERATE_BEGUN_TOKENS = 341,

  /* The options character, shared_tokens and salt say which requests may share the KV of a prompt.
   * If none of these options is set, only the session and its forks share the KV of the session's
   * prompts. */
  KAIJU_SESSION_CHARACTER =
      400, /* string: names a shared region, for example by a character's id and version */
  /* int: number of tokens at the beginning of the history that form the shared region; need not be
   * a multiple of 64. The default is 0: nothing is shared, except that a conversation with a
   * character shares its whole head */
  KAIJU_SESSION_SHARED_TOKENS = 401,
  /* string: a secret; requests with the same salt share the KV of the tokens after the shared
     region */
  KAIJU_SESSION_SALT = 402,
  /* string: whose share of memory and steps (kaiju_engine_set_share) the request takes */
  KAIJU_SESSION_TENANT = 403,

  /* string, 16 to 1024 bytes: the key that save seals with; restore accepts only what was sealed
     with the same key */
  KAIJU_SESSION_KEY = 410,
  /* int, 1: save the KV too, so that restore need not compute it again (the default); 0: save only
     the tokens */
  KAIJU_SESSION_KV = 411
};

/* Samplers of a list (kaiju_options_add_sampler), with their values.  A window is a number of newest
 * tokens; 0: all.  docs/arithmetic.md, section 12, says what each does and names its source. */
typedef int32_t kaiju_sampler;
enum {
  KAIJU_SAMPLER_REPETITION_PENALTY = 1, /* penalty, window (0) */
  KAIJU_SAMPLER_TEMPERATURE = 2,        /* temperature */
  KAIJU_SAMPLER_TOP_K = 3,              /* k */
  KAIJU_SAMPLER_MIN_P = 4,              /* p */
  KAIJU_SAMPLER_TOP_P = 5,              /* p */
  KAIJU_SAMPLER_FREQUENCY_PENALTY = 6,  /* penalty, window (0) */
  KAIJU_SAMPLER_PRESENCE_PENALTY = 7,   /* penalty, window (0) */
  KAIJU_SAMPLER_TYPICAL_P = 8,          /* p */
  KAIJU_SAMPLER_TOP_N_SIGMA = 9,        /* n */
  KAIJU_SAMPLER_EPSILON_CUTOFF = 10,    /* epsilon */
  KAIJU_SAMPLER_ETA_CUTOFF = 11,        /* eta */
  KAIJU_SAMPLER_XTC = 12,               /* probability, threshold (0.1) */
  KAIJU_SAMPLER_DRY = 13,             /* multiplier, base (1.75), allowed length (2), window (0) */
  KAIJU_SAMPLER_NO_REPEAT_NGRAM = 14, /* n */
  KAIJU_SAMPLER_DYNAMIC_TEMPERATURE = 15, /* low, high (1), exponent (1) */
  KAIJU_SAMPLER_MIROSTAT = 16             /* tau, eta (0.1); the last sampler of a list */
};

typedef struct kaiju_option_info {
  size_t struct_size;
  const char* name;   /* static: "generate.temperature" */
  const char* help;   /* static: one line */
  int32_t type;       /* 'i', 'f' or 's' */
  int32_t repeatable; /* 1: each set adds a value */
  double minimum, maximum,
      standard; /* of numeric options.  `standard` is the value of an option that is not set,
                   except for generate.stop_token, whose default is the model's own stop tokens */
} kaiju_option_info;

enum { KAIJU_DEVICE_CPU = 1, KAIJU_DEVICE_GPU = 2 };

typedef struct kaiju_device_info {
  size_t struct_size;
  const char* name; /* "cpu", "cuda:0"; borrowed until the runtime is destroyed */
  /* borrowed like name: "avx512,portable,reference", the fastest first; "": no backend computes on
   * this device */
  const char* backends;
  uint64_t memory_total, memory_free; /* bytes; 0: not known */
  int32_t kind;                       /* KAIJU_DEVICE_* */
  int32_t reserved;
  const char* description; /* borrowed like name: the product's name of a GPU; "" for the host */
} kaiju_device_info;

typedef struct kaiju_engine_info { /* constant while the engine exists */
  size_t struct_size;
  const char* backend; /* borrowed until the engine is destroyed: "avx512" */
  int32_t device;      /* index for kaiju_runtime_device_info */
  int32_t threads;     /* host threads that compute a step, the calling thread included */
  int32_t max_running, step_tokens, max_waiting, max_sessions, max_events;
  int32_t context; /* most tokens of a session */
  int32_t window;  /* tokens of the widest sliding window; 0: no layer has one */
  int32_t reserved;
  /* KV of one token, in bytes: in the layers with full attention, which keep it for the whole
   * history, and in the layers with a sliding window, which keep it for the window */
  uint64_t kv_bytes_per_token, window_kv_bytes_per_token;
  uint64_t cache_bytes; /* KV cache in the memory of the device, windows included */
} kaiju_engine_info;

typedef struct kaiju_replayed { /* a reply that was computed again from its record */
  size_t struct_size;
  int32_t same_model; /* 1: the engine has the model of the record */
  int32_t reason;     /* KAIJU_DONE_*; CANCELLED where the recorded reply was cut off, and this one
                         at the same place */
  size_t recorded_tokens, compared_tokens;
  int64_t differs_at; /* place in the reply of the first token that differs; -1: none does */
  int32_t recorded, generated; /* these two tokens; -1 where the reply had ended */
} kaiju_replayed;

enum { /* Properties for kaiju_model_number.  A chat symbol is a token id.  Imported models have a
        * chat format instead, and may still have the symbols begin, end and text. */
       KAIJU_MODEL_VOCABULARY = 1,
       KAIJU_MODEL_CONTEXT = 2,
       KAIJU_MODEL_LABELS = 3, /* number of labels of the classifier; 0: the model has none */
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
enum { /* kaiju_model_text; 1 is reserved for the architecture, 3 for a chat template */
       KAIJU_MODEL_NAME = 2,
       KAIJU_MODEL_DIGEST = 4 /* digest of the checkpoint: 32 hexadecimal digits */
};

enum {
  KAIJU_ROLE_CARD = 1, /* a character: its name, a newline and the description */
  KAIJU_ROLE_USER = 2,
  KAIJU_ROLE_CHARACTER = 3, /* the model, the assistant of an imported model */
  KAIJU_ROLE_SYSTEM =
      4 /* instructions; KAIJU_UNSUPPORTED if the model has chat symbols, and so has cards */
};

typedef struct kaiju_message {
  int32_t role;     /* KAIJU_ROLE_* */
  int32_t reserved; /* 0 */
  const char* content;
  size_t content_size;
  /* name of the speaker, at most 128 bytes without control characters; not of a card or a system
   * message.  If the model's chat format knows no names, "NAME: " is put before the content.  Size
   * 0: no name */
  const char* name;
  size_t name_size;
} kaiju_message;

typedef struct kaiju_volatile { /* text that changes with every turn, and what it costs */
  size_t struct_size;
  const char* text; /* size 0: none */
  size_t text_size;
  /* how many messages follow the text.  1: it stands right before the newest message, behind the
   * history; 0: it ends the prompt */
  int32_t depth;
  int32_t reserved; /* 0 */
  /* Written by the call.  The first stable_tokens of prompt_tokens do not depend on the text: if the
   * next prompt has another text, KV is found up to there at most, and what is behind is computed
   * again.  stable_behind_history: the same with depth 1 */
  int32_t prompt_tokens, stable_tokens, stable_behind_history;
  int32_t reserved2;
} kaiju_volatile;

enum {                       /* kaiju_chat_format */
       KAIJU_CHAT_REPLY = 1, /* end with the tokens that start the character's reply */
       KAIJU_CHAT_CLOSE = 2, /* begin with the tokens that close a reply, if the previous reply
                                ended without them */
       KAIJU_CHAT_BEGIN =
           4, /* begin with the tokens that start a sequence, if no card or system message does */
       /* leave the last message open, which is a character's: the reply continues its content. Not
        * with KAIJU_CHAT_REPLY.  To begin a reply as one of several characters, give a message
        * with a name and no content */
       KAIJU_CHAT_OPEN = 8,
       /* begin with what follows the stop token of the previous reply, for a session's next
        * message.  Models with chat symbols have nothing there, imported models often a newline */
       KAIJU_CHAT_AFTER_STOP = 16
};

enum { /* The event kinds 2 (hypothesis), 3 and 4 are reserved.  Ignore event kinds that you do
          not know. */
       KAIJU_EVENT_TOKEN = 1, /* one token was generated; its text is whole UTF-8 or empty */
       KAIJU_EVENT_DONE = 5,  /* last event of a request; `reason` says why, `text` has text that
                                 was still held back */
       KAIJU_EVENT_FAILED =
           6, /* last event of a request; `status` says why, `text` has the message */
       /* the request is suspended (not computed for now), either because the host called suspend
        * or because no memory was free for its next tokens (reserve_tokens).  A request that was
        * suspended for lack of memory resumes by itself */
       KAIJU_EVENT_SUSPENDED = 7,
       KAIJU_EVENT_RESUMED = 8, /* the request runs again after it was suspended */
       KAIJU_EVENT_VERDICT =
           9, /* `label` has reached its limit; comes before the TOKEN event of the
                                   token after the judged text */
       KAIJU_EVENT_PREFETCHED = 10 /* kaiju_session_prefetch has ended */
};
enum {
  KAIJU_DONE_STOP_TOKEN = 1, /* `stop` is the token */
  KAIJU_DONE_LENGTH = 2,     /* max_tokens reached */
  KAIJU_DONE_CANCELLED = 3,
  KAIJU_DONE_DEADLINE = 4,
  KAIJU_DONE_STOP_STRING = 5, /* `stop` counts KAIJU_GENERATE_STOP's values from 0 */
  KAIJU_DONE_LOOP = 6,        /* KAIJU_GENERATE_LOOP_GUARD */
  KAIJU_DONE_REFUSED = 7      /* a verdict ended the reply, or every beam: `label` */
};

enum { /* Why the cached part of a prompt ends (docs/cache.md).  Nothing is said about KV that the
          request may not share. */
       KAIJU_REUSE_NONE = 0,      /* the request has not started */
       KAIJU_REUSE_WHOLE = 1,     /* only the last token is left, which is always computed */
       KAIJU_REUSE_DIFFERENT = 2, /* the cached text goes on with another token */
       KAIJU_REUSE_NEW = 3,       /* the prompt goes on where the cached text ends */
       KAIJU_REUSE_EVICTED = 4,   /* the next KV was here and was evicted */
       KAIJU_REUSE_NO_WINDOW =
           5, /* the KV of layers with full attention goes on, but that of layers
                                     with a sliding window is not here */
       KAIJU_REUSE_OTHER_SCOPE =
           6,                  /* the session's request before named another character, salt or
                                       number of shared tokens */
       KAIJU_REUSE_NO_ROOM = 7 /* cached KV of the prompt had to be evicted to make room for it */
};

typedef struct kaiju_event { /* the pointers are borrowed until the engine is polled again or
                                destroyed */
  kaiju_request request;
  void* user_data;
  int32_t kind, reason;
  kaiju_status status;
  int32_t reserved;
  const int32_t* tokens;
  size_t token_count; /* TOKEN: the generated token, then the requested alternatives, the best
                         first */
  /* TOKEN: natural log-probabilities of `tokens` under the model itself: no penalty, no bias,
   * temperature 1 */
  const float* logprobs;
  size_t logprob_count;
  const char* text;
  size_t text_size;      /* text of the generated token; may begin with a space, as words do */
  int32_t prompt_tokens; /* tokens of the prompt, history included; counts and times are final in
                            DONE */
  int32_t cached_tokens; /* prompt tokens whose KV was found in the cache */
  int32_t generated_tokens; /* a stop token included */
  int32_t reserved2;
  int64_t wait_nanoseconds;    /* from submit to admission */
  int64_t prefill_nanoseconds; /* from admission to the first token */
  int64_t decode_nanoseconds;  /* from the first token to the last */
  /* TOKEN, with KAIJU_GENERATE_SCORES: one score for each label of the classifier.  The scores
   * judge the text before this token; the next token event has the scores of the text that
   * includes this token.  VERDICT: the probability of `label`.  DONE, with KAIJU_GENERATE_SCORES or
   * a limit: for each label the largest and the mean probability, and the longest run of tokens at
   * its limit */
  const float* scores;
  size_t score_count;
  int32_t stop;  /* DONE: what stopped the reply (KAIJU_DONE_*); -1: no stop token and no stop
                   string did */
  int32_t label; /* VERDICT, and DONE with KAIJU_DONE_REFUSED: index of a label; otherwise -1 */
  int32_t reuse_end; /* KAIJU_REUSE_*: why cached_tokens is no larger */
  int32_t
      known_tokens;  /* the first tokens of the prompt that agree with the cache, usable or not */
  int32_t known_end; /* KAIJU_REUSE_*: why known_tokens is no larger */
  int32_t reserved3;
} kaiju_event;

typedef struct kaiju_metrics {
  size_t struct_size;
  uint64_t steps, step_nanoseconds;
  uint64_t tokens_prefilled, tokens_decoded, tokens_from_cache;
  uint64_t requests_waiting, requests_running, requests_done, requests_failed;
  uint64_t sessions,
      cache_blocks_evicted; /* blocks whose KV was evicted to make room for other KV */
  /* A block of the cache holds the KV of 64 tokens: a global block for all layers with full
   * attention, a window block for all layers with a sliding window. */
  uint64_t cache_global_blocks_total, cache_global_blocks_free;
  uint64_t cache_window_blocks_total, cache_window_blocks_free;
  /* The fields for hits and misses count prompt tokens by where their KV was found or why it was
   * not found.  The hits and misses add up to prompt_tokens, except for prompts that are not
   * computed yet or whose requests ended before their prompts were computed.  The field
   * tokens_from_cache is the sum of the hits. */
  uint64_t prompt_tokens;
  /* found in a shared region; computed by the same session; computed by another session under the
   * same salt */
  uint64_t hit_shared, hit_own, hit_other;
  /* never seen; evicted; global KV was found, but too far from a position whose window KV is in
   * the cache */
  uint64_t miss_new, miss_evicted, miss_window;
  uint64_t miss_last; /* last tokens of prompts that were found whole: a prompt's last token is
                         always computed */
  uint64_t requests_suspended;
  uint64_t hit_host,
      hit_file; /* the part of the hits that was promoted from host memory, and from the file */
  /* bytes allocated; blocks stored now; blocks moved down into host memory; blocks promoted from
   * host memory */
  uint64_t host_bytes, host_blocks, host_blocks_in, host_blocks_out;
  uint64_t file_bytes, file_blocks, file_blocks_in,
      file_blocks_out;       /* the same counts for the file */
  uint64_t tier_blocks_lost; /* blocks lost to failed copies and to damage; their KV is computed
                                again */
  uint64_t tier_file_failed; /* 1: the file failed and is not used any more */
  /* of cache_blocks_evicted: although a share was promised more (kaiju_share) */
  uint64_t cache_blocks_over_floors;
} kaiju_metrics;

enum { /* whose share it is: a tenant's KV behind shared regions, or a character's shared region */
       KAIJU_SHARE_TENANT = 1,
       KAIJU_SHARE_CHARACTER = 2
};
typedef struct kaiju_share {
  size_t struct_size;
  /* While the share has so many bytes of cache blocks or fewer, no request of another share evicts
   * any.  What is above the ceiling goes first, and a request of the share makes room for itself by
   * evicting KV of the share; what running requests use may exceed it.  0: none */
  uint64_t cache_floor_bytes, cache_ceiling_bytes;
  /* The part, from 0 to 1, of each step's tokens and of the places of running requests that the
   * share gets if it asks for so much, and the most that it gets.  0: none */
  double step_floor, step_ceiling;
} kaiju_share;
typedef struct kaiju_share_usage {
  size_t struct_size;
  uint64_t cache_bytes;     /* of cache blocks on the device that hold its KV */
  uint64_t running;         /* requests */
  uint64_t tokens_computed; /* in steps, since the share was set */
} kaiju_share_usage;

enum { KAIJU_FREE_MEMORY = -1 };   /* for KAIJU_ENGINE_MEMORY_LIMIT */
typedef struct kaiju_memory_need { /* what an engine would take, in bytes */
  size_t struct_size;
  int32_t device; /* index for kaiju_runtime_device_info, where weights, KV and workspace are */
  int32_t reserved;
  uint64_t weight_bytes; /* on a processor: pages of the model's file, which engines share */
  uint64_t kv_bytes;
  uint64_t workspace_bytes; /* on a GPU: an estimate */
  uint64_t host_tier_bytes; /* KAIJU_ENGINE_HOST_BYTES, on the host */
} kaiju_memory_need;

enum { KAIJU_WHOLE_SHARE = 10000 }; /* shares of a rollout are parts of ten thousand */
enum {
  KAIJU_ROLLOUT_STEADY = 0,    /* one engine */
  KAIJU_ROLLOUT_CANDIDATE = 1, /* a candidate beside the current engine */
  KAIJU_ROLLOUT_DRAINING = 2   /* an engine that takes no new sessions beside the current one */
};
typedef struct kaiju_rollout_info {
  size_t struct_size;
  int32_t phase;         /* KAIJU_ROLLOUT_* */
  int32_t share;         /* of the candidate, 0 to KAIJU_WHOLE_SHARE */
  uint64_t warm_left;    /* tokens of prefixes that the candidate has not computed */
  kaiju_engine* current; /* borrowed: the handles that the rollout was given */
  kaiju_engine* other;   /* the candidate, or the engine that drains; NULL: there is none */
} kaiju_rollout_info;

enum {
  KAIJU_CACHE_STORED = 1,  /* the KV of the block is in `tier` */
  KAIJU_CACHE_REMOVED = 2, /* the block is no longer in `tier` */
  KAIJU_CACHE_CLEARED = 3  /* forget all names: the scales changed, or events were lost because
                              nobody polled them */
};
enum { KAIJU_CACHE_DEVICE = 0, KAIJU_CACHE_HOST = 1, KAIJU_CACHE_FILE = 2 };
typedef struct kaiju_cache_event {
  int32_t kind;                 /* KAIJU_CACHE_STORED, REMOVED or CLEARED */
  int32_t tier;                 /* KAIJU_CACHE_DEVICE, HOST or FILE */
  uint64_t name_low, name_high; /* the halves of the block's name */
  uint64_t parent_low,
      parent_high;       /* of the block before it; zeros: it is the first of its prompt */
  int32_t block_tokens;  /* tokens of the block: 64, or fewer at the end of a sequence */
  int32_t is_private;    /* 1: the block is outside shared regions */
  const int32_t* tokens; /* STORED, with KAIJU_ENGINE_CACHE_EVENT_TOKENS: the block's tokens */
  size_t token_count;    /* of `tokens`: block_tokens, or 0 */
} kaiju_cache_event;

typedef struct kaiju_conversation_info {
  size_t struct_size;
  uint64_t turns;
  uint64_t turns_dropped; /* oldest turns that were dropped from the context */
  uint64_t replies,
      reply;       /* number of replies to the newest turn, and which of them is chosen, from 0 */
  uint64_t tokens; /* tokens in the context: head, turns and closing tokens */
} kaiju_conversation_info;
enum { KAIJU_TURN_INPUT = 1, KAIJU_TURN_REPLY = 2 };

typedef struct kaiju_guide { /* what the next token of a guided request may be */
  size_t struct_size;
  /* a bitmask with one bit for each token, in the layout of xgrammar and llguidance: token t is
   * bit t % 32 of word t / 32, and 1 means that the token may be sampled.  NULL: every token may.
   * allowed_words is the vocabulary divided by 32, rounded up */
  const uint32_t* allowed;
  size_t allowed_words;
  /* biases of this token, beside those of the options, as for kaiju_options_set_logit_bias */
  const int32_t* bias_tokens;
  const float* bias;
  size_t bias_count;
} kaiju_guide;

/* Returns the time of a steady clock in nanoseconds.  The functions submit, step, wait, generate
 * and engine_now call the clock on their caller's thread. */
typedef int64_t (*kaiju_clock_fn)(void* user_data);
/* Computes one part of a piece of an engine's work.  Never blocks; needs 64 KiB of stack; any
 * thread may call it, in any floating-point state, which it restores. */
typedef void (*kaiju_part_fn)(void* work, int32_t part);
/* Calls part(work, i) once for each i from 0 to parts - 1, on any threads of the host, at once or
 * one after another in any order, and returns when all of these calls have returned. */
typedef void (*kaiju_host_threads_fn)(void* user_data, int32_t parts, kaiju_part_fn part,
                                      void* work);
/* Callbacks run on the caller's thread, inside the call that they were passed to. */
/* `done` is the part of the load that is done, from 0 to 1.  A nonzero return value of the
 * callback stops the load with KAIJU_CANCELLED. */
typedef int32_t (*kaiju_progress_fn)(double done, void* user_data);
/* Receives a part of a saved session, and has to write all `size` bytes.  A nonzero return value
 * of the callback stops the save. */
typedef int32_t (*kaiju_write_fn)(const void* data, size_t size, void* user_data);
/* Reads a part of a saved session into `data` and returns the number of bytes: 1 to size, or 0 at
 * the end.  A negative return value of the callback stops the restore. */
typedef int64_t (*kaiju_read_fn)(void* data, size_t size, void* user_data);
/* Changes the `count` logits of a row, one for each token of the vocabulary, before a token is
 * sampled from it.  `tokens` are all tokens of the session so far.  Values that are NaN or
 * +infinity count as -infinity; tokens at -infinity are not sampled.  If no finite logit is
 * left, the logits stay as they were. */
typedef void (*kaiju_logits_fn)(float* logits, size_t count, const int32_t* tokens,
                                size_t token_count, void* user_data);
/* `text` is whole UTF-8: it never ends inside a character.  A nonzero return value of the callback
 * stops the reply. */
typedef int32_t (*kaiju_text_fn)(const char* text, size_t text_size, void* user_data);

/* -- version and errors -- */
KAIJU_API uint32_t kaiju_version(void);
KAIJU_API const char* kaiju_version_string(void); /* static */
KAIJU_API const char* kaiju_build_info(void);     /* static */
KAIJU_API const char* kaiju_status_name(
    kaiju_status status); /* static; "unknown status" for other numbers */
KAIJU_API kaiju_status kaiju_error_status(const kaiju_error* error); /* KAIJU_OK for NULL */
KAIJU_API const char* kaiju_error_message(
    const kaiju_error* error); /* borrowed from the error; "" for NULL */
KAIJU_API void kaiju_error_destroy(KAIJU_OWN kaiju_error* error);

/* -- runtime: the devices of this machine; state that other libraries keep in globals -- */
KAIJU_API kaiju_status kaiju_runtime_create(KAIJU_OWN kaiju_runtime** out, kaiju_error** error);
KAIJU_API void kaiju_runtime_destroy(KAIJU_OWN kaiju_runtime* runtime);
KAIJU_API size_t kaiju_runtime_device_count(const kaiju_runtime* runtime); /* 0 for NULL */
KAIJU_API kaiju_status kaiju_runtime_device_info(const kaiju_runtime* runtime, size_t index,
                                                 kaiju_device_info* out);

/* -- options: a bag of values for one call or several -- */
/* A call refuses a bag with an option that it does not read, by name: kaiju_model_load reads the
 * options of models, kaiju_engine_create those of engines, the clock and the host's threads.  Calls
 * that request a reply (submit, generate, say and swipe) read the options of requests, the
 * samplers, the logit biases and the options that say who may share KV.  The comments of save and
 * restore say what these read.
 *
 * The setters refuse unknown option numbers, values of another type, values out of range and NaN.
 * The error message of a setter has the option's name and range. */
KAIJU_API kaiju_status kaiju_options_create(KAIJU_OWN kaiju_options** out);
KAIJU_API void kaiju_options_destroy(KAIJU_OWN kaiju_options* options);
/* Creates a bag with the same values, samplers, logit biases, hook, clock and host's threads. */
KAIJU_API kaiju_status kaiju_options_copy(const kaiju_options* options,
                                          KAIJU_OWN kaiju_options** out);
/* Takes an option's values out of the bag; 0 takes out everything, the samplers, the logit biases,
 * the hook, the clock and the host's threads too.  Returns KAIJU_NOT_FOUND if the option number is
 * unknown. */
KAIJU_API kaiju_status kaiju_options_clear(kaiju_options* options, kaiju_option option);
KAIJU_API kaiju_status kaiju_options_set_int(kaiju_options* options, kaiju_option option,
                                             int64_t value, kaiju_error** error);
KAIJU_API kaiju_status kaiju_options_set_float(kaiju_options* options, kaiju_option option,
                                               double value, kaiju_error** error);
KAIJU_API kaiju_status kaiju_options_set_string(kaiju_options* options, kaiju_option option,
                                                const char* text, size_t size,
                                                kaiju_error** error);
/* Replaces all logit biases.  Each token may appear only once, and each bias must be from -10000
 * to 10000. */
KAIJU_API kaiju_status kaiju_options_set_logit_bias(kaiju_options* options, const int32_t* tokens,
                                                    const float* bias, size_t count,
                                                    kaiju_error** error);
/* Adds a sampler to the list of the bag, at most 32.  `values` are the sampler's, in the order in
 * which KAIJU_SAMPLER_* names them; values left out at the end have their defaults.  Samplers of a
 * list work one after another, in the order in which they were added, on what the one before has
 * left; a request with a list uses no other sampler.  With a GPU, the host draws the tokens of a
 * list that is not repetition_penalty, temperature, top_k, min_p and top_p in this order, each at
 * most once and without a window.  A list takes the place of the options temperature, top_k, top_p,
 * min_p and repetition_penalty, which a bag with a list may not set.
 *
 * KAIJU_SAMPLER_MIROSTAT remembers how surprising the tokens of a reply were, in each sequence of
 * its own: a new request begins anew, and a sequence that is cut or forked has what its tokens
 * left. */
KAIJU_API kaiju_status kaiju_options_add_sampler(kaiju_options* options, kaiju_sampler sampler,
                                                 const double* values, size_t count,
                                                 kaiju_error** error);
KAIJU_API kaiju_status kaiju_options_clear_samplers(kaiju_options* options);
/* Describes value `value` (from 0) of a sampler, with a name like "top_k.k".  Returns
 * KAIJU_NOT_FOUND if there is no such sampler or value. */
KAIJU_API kaiju_status kaiju_sampler_describe(kaiju_sampler sampler, size_t value,
                                              kaiju_option_info* out);
/* Sets the clock of engines that are created with these options, for deadlines and times.  If
 * `clock` is NULL, engines use the system's steady clock. */
KAIJU_API kaiju_status kaiju_options_set_clock(kaiju_options* options, kaiju_clock_fn clock,
                                               void* user_data);
/* Lets engines that are created with these options compute on threads of the host: they start none
 * of their own.  The thread that creates such an engine or is in its step calls `run` for each
 * piece of work that is worth sharing, some hundred times a step, with at most as many parts as
 * KAIJU_ENGINE_THREADS says; that thread may compute parts, too.  The replies are the same.  `run`
 * is called in the engine's floating-point state, must not call kaiju, and must not keep `part` and
 * `work` when it returns.  It has no way to fail: the calling thread computes, after `run` has
 * returned, the parts that were left out.  The engine uses `run` and user_data until the engine and
 * its sessions and conversations are destroyed.  If `run` is NULL, engines start their threads. */
KAIJU_API kaiju_status kaiju_options_set_host_threads(kaiju_options* options,
                                                      kaiju_host_threads_fn run, void* user_data);
/* For experiments: calls `hook` for each row of logits that a request samples from, before
 * penalties and biases.  The reported log-probabilities stay those of the model.  The hook runs
 * inside step, on the thread of that call, must not step, and is slow.  NULL: no hook. */
KAIJU_API kaiju_status kaiju_options_set_logits_hook(kaiju_options* options, kaiju_logits_fn hook,
                                                     void* user_data);
/* Looks up the option with a name ("generate.temperature"), which ends with a zero byte.  Returns
 * KAIJU_NOT_FOUND if no option has that name. */
KAIJU_API kaiju_status kaiju_option_find(const char* name, kaiju_option* out);
/* Returns KAIJU_NOT_FOUND if the option number is unknown. */
KAIJU_API kaiju_status kaiju_option_describe(kaiju_option option, kaiju_option_info* out);

/* -- model: immutable after load, may be shared by any number of engines and threads -- */
/* `path` ends with a zero byte.  `runtime`, `options` and `progress` may be NULL.  The weights
 * stay in the memory-mapped file, so no process may write into the file or truncate it while the
 * model or an engine of it exists: reading a weight that was cut off ends the process with SIGBUS.
 * To replace a model file, rename a new file over the old one.  Returns KAIJU_IO if the file
 * changes while it is loaded.  The function kaiju_engine_create returns KAIJU_IO if the model file
 * has changed since the load. */
KAIJU_API kaiju_status kaiju_model_load(kaiju_runtime* runtime, const char* path,
                                        const kaiju_options* options, kaiju_progress_fn progress,
                                        void* user_data, KAIJU_OWN kaiju_model** out,
                                        kaiju_error** error);
KAIJU_API void kaiju_model_destroy(KAIJU_OWN kaiju_model* model);
/* The next two functions return a property of the model.  They return KAIJU_NOT_FOUND if this
 * model does not have it (a chat symbol), and KAIJU_INVALID_ARGUMENT if this library does not know
 * it.  *text is borrowed until the model is destroyed; `size` may be NULL. */
KAIJU_API kaiju_status kaiju_model_number(const kaiju_model* model, int32_t property,
                                          int64_t* out);
KAIJU_API kaiju_status kaiju_model_text(const kaiju_model* model, int32_t property,
                                        const char** text, size_t* size);
/* Copies the tokens that end a reply if KAIJU_GENERATE_STOP_TOKEN names no others, and returns how
 * many there are. */
KAIJU_API size_t kaiju_model_stop_tokens(const kaiju_model* model, int32_t* tokens,
                                         size_t capacity);
/* Returns the name of the classifier's label `index`, borrowed until the model is destroyed.
 * Returns KAIJU_NOT_FOUND if `index` is KAIJU_MODEL_LABELS or more. */
KAIJU_API kaiju_status kaiju_model_label(const kaiju_model* model, size_t index, const char** text,
                                         size_t* size);

/* -- text: these functions answer KAIJU_UNSUPPORTED for a model without a tokenizer -- */
/* KAIJU_MOST_TEXT_BYTES is the largest size of one text; a function that gets a longer text
 * returns KAIJU_INVALID_ARGUMENT.  While a text is tokenized, the tokenizer needs up to 230 bytes
 * of memory for each byte of the text. */
enum { KAIJU_MOST_TEXT_BYTES = 1048576 };
/* Converts a text to tokens.  No text is ever tokenized to a control symbol.  The text may have at
 * most KAIJU_MOST_TEXT_BYTES, both before and after the tokenizer normalises it: tokenize a longer
 * text in parts. */
KAIJU_API kaiju_status kaiju_tokenize(const kaiju_model* model, const char* text, size_t size,
                                      int32_t* tokens, size_t capacity, size_t* count,
                                      kaiju_error** error);
/* Converts tokens to text, without the space that tokenizing puts before a text.  The text is
 * valid UTF-8 only if the last token ends at the end of a character.  A control symbol gives no
 * text, and neither does a token that only pads the vocabulary.  Returns KAIJU_INVALID_ARGUMENT if
 * a token id is below 0, or is KAIJU_MODEL_VOCABULARY or more. */
KAIJU_API kaiju_status kaiju_detokenize(const kaiju_model* model, const int32_t* tokens,
                                        size_t count, char* text, size_t capacity, size_t* size,
                                        kaiju_error** error);
/* Returns the bytes of one token, as a grammar engine wants them: with a space that begins it, and
 * perhaps only a part of a character.  A control symbol and a token that only pads the vocabulary
 * have none. */
KAIJU_API kaiju_status kaiju_token_text(const kaiju_model* model, int32_t token, char* text,
                                        size_t capacity, size_t* size, kaiju_error** error);
/* Converts messages to tokens, with what the model's chat format puts around each message: control
 * tokens, which no text can produce, and for imported models also text.  A message with the role
 * card or system comes first and begins a sequence.  A card's content is the character's name, a
 * newline and the description; an imported model gets it as the system message "You are NAME.
 * Reply as NAME would, and stay in character.", an empty line, and the description. A greeting is
 * a character's message before the first user message.  If the model's format begins with the
 * user, an empty user message is put before a greeting.  The content of a message, with the text
 * that the format puts around it, may have at most KAIJU_MOST_TEXT_BYTES.  `message_size` is
 * sizeof(kaiju_message); `flags` are KAIJU_CHAT_*. */
KAIJU_API kaiju_status kaiju_chat_format(const kaiju_model* model, const kaiju_message* messages,
                                         size_t message_size, size_t message_count, int32_t flags,
                                         int32_t* tokens, size_t capacity, size_t* count,
                                         kaiju_error** error);
/* The same with a text among the messages that changes with every turn, such as the time or an
 * author's note, and what that costs: kaiju_volatile.  The text becomes a part of the user's
 * message that follows it or precedes it, an empty line apart; where neither is the user's, or the
 * one that follows has a speaker's name, it becomes a user's message of its own. */
KAIJU_API kaiju_status kaiju_chat_format_volatile(const kaiju_model* model,
                                                  const kaiju_message* messages,
                                                  size_t message_size, size_t message_count,
                                                  int32_t flags, kaiju_volatile* text,
                                                  int32_t* tokens, size_t capacity, size_t* count,
                                                  kaiju_error** error);
/* Returns how many of the oldest turns to drop so that card, turns and reply fit into the context.
 * If card, turns and reply do not fit, turns are dropped until the card and the remaining turns
 * fit into half of the context. Because so many turns are dropped at once, the prompt begins with
 * the same tokens for many turns, and their KV stays cached.  The number of turns to drop depends
 * only on the arguments.  The newest turn is never dropped. */
KAIJU_API size_t kaiju_chat_turns_to_drop(const size_t* turn_tokens, size_t turn_count,
                                          size_t card_tokens, size_t reply_tokens, size_t context);

/* -- engine: your program drives it by calling step in a loop -- */
/* The parameter `const kaiju_options* options` may be NULL in every function that has it. */
KAIJU_API kaiju_status kaiju_engine_create(const kaiju_model* model, const kaiju_options* options,
                                           KAIJU_OWN kaiju_engine** out, kaiju_error** error);
KAIJU_API void kaiju_engine_destroy(KAIJU_OWN kaiju_engine* engine);
/* Submits a request, which appends tokens to the session's history and generates a reply.  If
 * `count` is 0, the request continues the history.  Returns KAIJU_BUSY if the session has an
 * unfinished request, or if KAIJU_ENGINE_MAX_WAITING requests are waiting.  Returns
 * KAIJU_INVALID_ARGUMENT if the prompt and max_tokens together exceed the context.  Returns
 * KAIJU_OUT_OF_MEMORY if the request needs more KV memory than the engine has. */
KAIJU_API kaiju_status kaiju_engine_submit(kaiju_engine* engine, kaiju_session* session,
                                           const int32_t* tokens, size_t count,
                                           const kaiju_options* options, void* user_data,
                                           kaiju_request* out, kaiju_error** error);
/* Says what the next token of a guided request (KAIJU_GENERATE_GUIDED) may be.  The guide is
 * copied and counts for one token: give one after submit, say or swipe, and one after each TOKEN
 * event but the last.  The last is a stop token, which has a TOKEN event too, or the one that
 * reaches max_tokens; after it this call returns KAIJU_NOT_FOUND, which you may ignore. Until a
 * guide comes the request waits and keeps its KV and its place among the running requests;
 * kaiju_engine_wait does not count it as something to step.  A guide that is given before the
 * previous one was used replaces it; a guide is used when the step that samples the token begins.
 * Returns KAIJU_NOT_FOUND if the request is unknown or finished.  Returns KAIJU_INVALID_ARGUMENT
 * if the request is not guided, if the mask has a wrong number of words or allows no token, or if
 * a bias is out of range.  Returns KAIJU_BUSY if too many guides wait for the next step. */
KAIJU_API kaiju_status kaiju_engine_guide(kaiju_engine* engine, kaiju_request request,
                                          const kaiju_guide* guide, kaiju_error** error);
/* Sets the limit of a label of the classifier in a tier (KAIJU_GENERATE_TIER).  A tier exists from
 * its first limit on.  `limit` is from 0 to 1; 2: no limit.  Requests under way follow from the
 * next step on; any thread may call this at any time.  Returns KAIJU_INVALID_ARGUMENT if the model
 * has no such label. */
KAIJU_API kaiju_status kaiju_engine_set_limit(kaiju_engine* engine, const char* tier,
                                              const char* label, double limit,
                                              kaiju_error** error);
/* Gives a tenant (KAIJU_SESSION_TENANT) or a character (KAIJU_SESSION_CHARACTER) a share of memory and
 * of steps, or changes it, from the next step on (docs/cache.md#shares).  `name` ends with a zero
 * byte.  What requests of that name compute from then on is charged to the share.  Returns
 * KAIJU_INVALID_ARGUMENT if the name is empty, if a floor is above its ceiling, or if all floors
 * together leave no room for a request of the whole context, or no place for one request, without a
 * share. */
KAIJU_API kaiju_status kaiju_engine_set_share(kaiju_engine* engine, int32_t of, const char* name,
                                              const kaiju_share* share, kaiju_error** error);
/* Returns what a share has as of the last step.  Returns KAIJU_NOT_FOUND if kaiju_engine_set_share
 * was not called for it. */
KAIJU_API kaiju_status kaiju_engine_share_usage(const kaiju_engine* engine, int32_t of,
                                                const char* name, kaiju_share_usage* out);
/* Cancels a request at the next step; the request then ends with a DONE event.  The ids of unknown
 * and finished requests are ignored. */
KAIJU_API kaiju_status kaiju_engine_cancel(kaiju_engine* engine, kaiju_request request);
/* Suspends a request at the next step, whatever its state; a SUSPENDED event follows.  The KV of a
 * suspended request stays in the cache until it is evicted.  The deadline of a suspended request
 * still applies. */
KAIJU_API kaiju_status kaiju_engine_suspend(kaiju_engine* engine, kaiju_request request);
/* Continues a suspended request at its old place in the order of service.  A RESUMED event follows
 * when the request runs again. */
KAIJU_API kaiju_status kaiju_engine_resume(kaiju_engine* engine, kaiju_request request);
/* Returns the time of the engine's clock in nanoseconds.  To set a deadline
 * (KAIJU_GENERATE_DEADLINE), add a duration to the time that kaiju_engine_now returns. */
KAIJU_API int64_t kaiju_engine_now(const kaiju_engine* engine); /* 0 for NULL */
/* Runs one step, which computes tokens of many requests.  Returns KAIJU_OK also if there is
 * nothing to do.  Returns KAIJU_BUSY and does nothing if KAIJU_ENGINE_MAX_EVENTS events are
 * waiting to be polled, or if another thread is in kaiju_engine_step or runs a step inside
 * kaiju_generate.  After a step has returned KAIJU_DEVICE_LOST or KAIJU_INTERNAL, every later call
 * to the engine returns the same error at once.  On a GPU, the next step may already run when
 * kaiju_engine_step returns: your program can poll events and do its own work meanwhile. */
KAIJU_API kaiju_status kaiju_engine_step(kaiju_engine* engine, kaiju_error** error);
/* Moves up to `capacity` events into `events`, the oldest first, and returns how many in *count: 0
 * if there is none. `event_size` is sizeof(kaiju_event); KAIJU_INVALID_ARGUMENT if no version of
 * this header has that size.  A shortage of memory is no error if there are events before it: the
 * next call returns the rest. */
KAIJU_API kaiju_status kaiju_engine_poll(kaiju_engine* engine, kaiju_event* events,
                                         size_t event_size, size_t capacity, size_t* count,
                                         kaiju_error** error);
/* Returns the number of requests whose last event has not been polled, including requests of
 * kaiju_generate. */
KAIJU_API size_t kaiju_engine_pending(const kaiju_engine* engine);
/* Sleeps until one of these holds: there is an event to poll; there is work to step and no other
 * thread is in step; wake was called since the last wait; the engine has stopped; the timeout is
 * over.  Returns 1 if there is an event to poll or work to step.  If the timeout is 0 or less, the
 * function does not sleep.  A request that the host suspended does not count as work until its
 * deadline has passed. */
KAIJU_API int32_t kaiju_engine_wait(kaiju_engine* engine, int64_t timeout_nanoseconds);
KAIJU_API void kaiju_engine_wake(kaiju_engine* engine);
KAIJU_API kaiju_status kaiju_engine_metrics(const kaiju_engine* engine, kaiju_metrics* out);
KAIJU_API kaiju_status kaiju_engine_describe(const kaiju_engine* engine, kaiju_engine_info* out);

/* Gives the engine another classifier, from a file of kaiju-head for the same checkpoint with the
 * same labels, from the next step on, for replies under way too; NULL: the one that the model was
 * loaded with.  KV and replies stay as they are.  An error leaves the classifier as it was.  Returns
 * KAIJU_INVALID_ARGUMENT for the head of another checkpoint or of other labels.  The rules of
 * kaiju_session_save for steps apply. */
KAIJU_API kaiju_status kaiju_engine_set_head(kaiju_engine* engine, const char* path,
                                             kaiju_error** error);
/* Applies a weight update (docs/checkpoint.md, "Weight updates") between two steps: the engine then
 * computes what a file of the new weights gives.  The first update is for the weights of the model;
 * each later one is for what the one before made, and has the next number.  Replies under way go on
 * from the tokens that they have, which the next steps compute anew; KV of the weights before is
 * never found again.  A head or scales that were given before are given up, because they are for
 * the weights before.  The engine keeps the new weights in memory of its own; `update` is borrowed
 * for the call.  Returns KAIJU_INVALID_ARGUMENT for an update of other weights or out of order,
 * KAIJU_BAD_MODEL for a damaged one, KAIJU_UNSUPPORTED if the model was loaded with a head or scales
 * of another file; these leave the engine as it was.  The rules of kaiju_session_save for steps
 * apply: one thread at a time may call this function. */
KAIJU_API kaiju_status kaiju_engine_update_weights(kaiju_engine* engine, const void* update,
                                                   size_t size, kaiju_error** error);
/* Looks at the next part of the weights as they are in memory, of `most_bytes` or somewhat more,
 * round and round, and compares it with what was loaded.  *bytes: how much this call has looked at;
 * *whole: 1 if it has ended a pass over all weights; both may be NULL.  Call it when there is nothing
 * to step.  Returns KAIJU_BAD_MODEL, and the message names the place, if bits have changed: then no
 * reply can be trusted, and the process should end.  The rules of kaiju_session_save for steps
 * apply. */
KAIJU_API kaiju_status kaiju_engine_scrub(kaiju_engine* engine, size_t most_bytes, size_t* bytes,
                                          int32_t* whole, kaiju_error** error);

/* -- cache events: for a router that sends each request to the engine which has its prefix -- */
/* Moves up to `capacity` cache events into `events`, the oldest first, and returns how many in
 * *count: 0 if there is none.  The events of a step are there when the step has returned.
 * `event_size` is sizeof(kaiju_cache_event).  Pointers in the events are borrowed until the next
 * call of this function or of kaiju_engine_cached_blocks, or until the engine is destroyed; only
 * one thread at a time may be in the two.  KAIJU_INVALID_ARGUMENT without
 * KAIJU_ENGINE_CACHE_EVENTS, KAIJU_BUSY while another thread is in step. */
KAIJU_API kaiju_status kaiju_engine_poll_cache(kaiju_engine* engine, kaiju_cache_event* events,
                                               size_t event_size, size_t capacity, size_t* count,
                                               kaiju_error** error);
/* Tells all anew: a STORED event for each block of which events are told and which is cached now,
 * each after its parent.  Writes the first `capacity` of them, and the number of all in *count.
 * Events that wait to be polled stay: poll them first, or a router hears of blocks twice.  Takes
 * as long as there are blocks.  Otherwise as kaiju_engine_poll_cache. */
KAIJU_API kaiju_status kaiju_engine_cached_blocks(kaiju_engine* engine, kaiju_cache_event* events,
                                                  size_t event_size, size_t capacity,
                                                  size_t* count, kaiju_error** error);

/* -- scales of keys and values (docs/operations.md, "Calibration") -- */
/* Computes with other scales of keys and values from the next step on, from a file for the same
 * checkpoint; NULL: those that the model was loaded with.  KV of the scales before is never found
 * again.  Returns KAIJU_BUSY while replies are under way, which suspended ones are too; no other
 * request begins then until this is called again and does not return KAIJU_BUSY.  Any other error
 * leaves the scales as they were.  The rules of kaiju_session_save for steps apply. */
KAIJU_API kaiju_status kaiju_engine_set_scales(kaiju_engine* engine, const char* path,
                                               kaiju_error** error);

/* 0: the default, in every field. */
typedef struct kaiju_calibration_options {
  size_t struct_size;
  int32_t window_blocks;      /* blocks of 64 tokens after which distances are computed; 128 */
  int32_t windows_known;      /* accepted windows before one can be far away; 16 */
  int32_t least_daily_blocks; /* that a character's mean counts as at least; 16 */
  int32_t reserved;
  double sigmas; /* two windows so many standard deviations away freeze the collection; 3 */
  double
      character_ratio; /* a character over so many times its mean of seven days is left out; 10 */
  double most_clipped; /* of a channel's values, by new scales; 1e-4 */
} kaiju_calibration_options;

typedef struct kaiju_calibration_figures {
  size_t struct_size;
  uint64_t blocks, left_out; /* counted, and of these left out */
  uint64_t windows, far_windows;
  int32_t known;  /* 1: what the scales in use were made from is known */
  int32_t frozen; /* 1: nothing is collected until kaiju_calibration_thaw or _reset */
  /* Kullback-Leibler divergence from what the scales in use were made from, in nats: of the tokens
   * and of the magnitudes of keys and values, of the newest window; and the mean and the standard
   * deviation of the accepted windows */
  double tokens, tokens_mean, tokens_deviation;
  double scales, scales_mean, scales_deviation;
} kaiju_calibration_figures;

/* How many keys and values of a KV slot were counted, and how many of them are saturated. */
typedef struct kaiju_saturation {
  size_t struct_size;
  uint64_t keys, values, saturated_keys, saturated_values;
} kaiju_saturation;

/* Watches which magnitudes the engine's keys and values have and which tokens come, compared with
 * what its scales were made from.  `options` may be NULL.  Returns KAIJU_UNSUPPORTED if each key and
 * value of the model has a scale of its own.  After kaiju_engine_set_scales make a new one.  One
 * thread at a time may use a calibration; it outlives its engine. */
KAIJU_API kaiju_status kaiju_calibration_create(const kaiju_engine* engine,
                                                const kaiju_calibration_options* options,
                                                kaiju_calibration** out, kaiju_error** error);
KAIJU_API void kaiju_calibration_destroy(kaiju_calibration* calibration);
/* Adds the newest whole block of one of the running requests.  *counted: 1 if there was one that
 * had not been added; may be NULL.  Costs a copy of the block and about a nanosecond a byte.  The
 * rules of kaiju_session_save for steps apply. */
KAIJU_API kaiju_status kaiju_engine_calibrate(kaiju_engine* engine, kaiju_calibration* calibration,
                                              int32_t* counted, kaiju_error** error);
KAIJU_API kaiju_status kaiju_calibration_read(const kaiju_calibration* calibration,
                                              kaiju_calibration_figures* out);
/* KV slots are numbered from 0.  KAIJU_NOT_FOUND if there is no such slot. */
KAIJU_API kaiju_status kaiju_calibration_saturation(const kaiju_calibration* calibration,
                                                    size_t slot, kaiju_saturation* out);
/* Writes new scales, made of all that was collected, for KAIJU_MODEL_SCALES and
 * kaiju_engine_set_scales.  An old file is replaced as a whole.  KAIJU_NOT_FOUND before the first
 * window has been completed. */
KAIJU_API kaiju_status kaiju_calibration_save(const kaiju_calibration* calibration,
                                              const char* path, kaiju_error** error);
/* Collects again after a freeze. */
KAIJU_API kaiju_status kaiju_calibration_thaw(kaiju_calibration* calibration);
/* Forgets all that was collected, and the history. */
KAIJU_API kaiju_status kaiju_calibration_reset(kaiju_calibration* calibration);

/* -- records of replies: a flight recorder (docs/operations.md) -- */
/* A record is all that it takes to compute a reply again, bit for bit, on any machine: prompt,
 * reply, options, the digest of the checkpoint.  It has no salt, only the salt's digest.  Gives the
 * record of a request with KAIJU_GENERATE_RECORD whose DONE event was among those of the last
 * kaiju_engine_poll; call this function on the thread of that call.  Writes the first `capacity`
 * bytes of the record, and the size of all in *size.  KAIJU_NOT_FOUND if there is none. */
KAIJU_API kaiju_status kaiju_engine_record(const kaiju_engine* engine, kaiju_request request,
                                           void* record, size_t capacity, size_t* size,
                                           kaiju_error** error);
/* Writes, as a JSON object, what a record says beside the tokens: its first `capacity` bytes and the
 * size of all.  KAIJU_BAD_MODEL if the bytes are damaged or no record, KAIJU_UNSUPPORTED if a later
 * version wrote them. */
KAIJU_API kaiju_status kaiju_record_describe(const void* record, size_t size, char* text,
                                             size_t capacity, size_t* text_size,
                                             kaiju_error** error);
/* Copies the tokens of a record, prompt and reply; the same errors. */
KAIJU_API kaiju_status kaiju_record_tokens(const void* record, size_t size, int32_t* tokens,
                                           size_t capacity, size_t* count, kaiju_error** error);
/* Computes the reply of a record again, alone, and compares it.  The call steps the engine, which
 * must have no requests: KAIJU_BUSY otherwise.  A reply that was cut off (cancelled, past its
 * deadline, refused) is compared as far as it went.  With the model of the record replies are equal,
 * on every backend.  KAIJU_UNSUPPORTED for guided replies and those with a logits hook; otherwise
 * the errors of kaiju_record_describe and kaiju_engine_submit. */
KAIJU_API kaiju_status kaiju_engine_replay(kaiju_engine* engine, const void* record, size_t size,
                                           kaiju_replayed* out, kaiju_error** error);

/* -- sessions: a session is a token history; its KV stays in the cache from turn to turn -- */
/* Destroying a session cancels its unfinished request.  The functions kaiju_session_fork and
 * kaiju_session_truncate return KAIJU_BUSY if the session has an unfinished request. */
KAIJU_API kaiju_status kaiju_session_create(kaiju_engine* engine, KAIJU_OWN kaiju_session** out,
                                            kaiju_error** error);
/* Creates a session with the first `length` tokens of another session; both share the KV of these
 * tokens.  Returns KAIJU_BUSY also if more forks and destroyed sessions than max_sessions wait for
 * the next step. */
KAIJU_API kaiju_status kaiju_session_fork(kaiju_session* session, size_t length,
                                          KAIJU_OWN kaiju_session** out, kaiju_error** error);
KAIJU_API kaiju_status kaiju_session_truncate(kaiju_session* session, size_t length,
                                              kaiju_error** error);
/* Copies the session's token history.  After the DONE event of a request, the history includes the
 * prompt and all generated tokens.  While a request is unfinished, and after its FAILED event, the
 * history is the one before that request. */
KAIJU_API size_t kaiju_session_tokens(const kaiju_session* session, int32_t* tokens,
                                      size_t capacity);
/* Brings the KV of the session's history up from host memory and the file before the session's next
 * request, for example while its user is typing: at once, or at a time on the engine's clock (`at`;
 * 0: at once).  `options` say which requests may share the KV (KAIJU_SESSION_*); without any, those
 * of the session's last request hold.  Running requests never wait for this: it is done in steps
 * that compute nothing, or as KAIJU_ENGINE_PREFETCH_BLOCKS says.  A PREFETCHED event with the id
 * *out follows: prompt_tokens is the history's length, and the next request can resume at
 * cached_tokens.  Returns KAIJU_BUSY if the session has an unfinished request, or if
 * KAIJU_ENGINE_MAX_WAITING prefetches have not ended. */
KAIJU_API kaiju_status kaiju_session_prefetch(kaiju_session* session, const kaiju_options* options,
                                              int64_t at, void* user_data, kaiju_request* out,
                                              kaiju_error** error);
KAIJU_API void kaiju_session_destroy(KAIJU_OWN kaiju_session* session);
/* Saves the history and its KV; a saved session can be restored only with the same model and the
 * same arithmetic version.  The function kaiju_session_save reads the options KAIJU_SESSION_KEY
 * and KAIJU_SESSION_KV.  Returns KAIJU_BUSY while a step runs: call this function between two
 * steps, on the thread that steps the engine.  The callback `write` runs before the call returns
 * and must not step the engine.  Returns KAIJU_CANCELLED if the callback stopped the save. */
KAIJU_API kaiju_status kaiju_session_save(kaiju_session* session, const kaiju_options* options,
                                          kaiju_write_fn write, void* user_data,
                                          kaiju_error** error);
/* Creates a session from the bytes that kaiju_session_save wrote, and reads exactly these bytes.
 * The rules of kaiju_session_save for steps and callbacks also apply to kaiju_session_restore. The
 * function kaiju_session_restore reads KAIJU_SESSION_KEY and the options that say which requests
 * may share the KV.  Returns KAIJU_BAD_MODEL if the bytes of the saved session are damaged or
 * incomplete.  Returns KAIJU_UNSUPPORTED if the session was saved with another version or model.
 * Returns KAIJU_INVALID_ARGUMENT if the session was saved with a key and `options` has none, or
 * was saved without a key and `options` has one. */
KAIJU_API kaiju_status kaiju_session_restore(kaiju_engine* engine, const kaiju_options* options,
                                             kaiju_read_fn read, void* user_data,
                                             KAIJU_OWN kaiju_session** out, kaiju_error** error);
/* The next two functions save a session to a file and restore a session from a file; `path` ends
 * with a zero byte. A save replaces the file as a whole: if saving fails, an old file at `path`
 * stays as it was.  If `path` is a symbolic link, the save writes the link's target and the link
 * stays. */
KAIJU_API kaiju_status kaiju_session_save_file(kaiju_session* session,
                                               const kaiju_options* options, const char* path,
                                               kaiju_error** error);
KAIJU_API kaiju_status kaiju_session_restore_file(kaiju_engine* engine,
                                                  const kaiju_options* options, const char* path,
                                                  KAIJU_OWN kaiju_session** out,
                                                  kaiju_error** error);

/* -- conversations: the turns of one chat, and the session that holds their KV -- */
/* The prompt of a conversation is the head (usually a character's card) followed by the turns that
 * were not dropped.  A turn is an input, a reply and the tokens that close a reply (if the model
 * has a chat format).  Your program steps the engine, which computes the replies.  When a request
 * is done, the reply becomes part of the turn, without the stop token or stop string that ended
 * the reply, so the turn spells the text of the events.  If a stop string begins inside a token,
 * the turn spells the part of that token before the stop string with the fewest tokens.
 *
 * While a reply is unfinished, all calls with the conversation except describe, turn and tokens
 * return KAIJU_BUSY. Destroying a conversation cancels its unfinished reply. */
/* `head` is the beginning of every prompt, usually a character's card, and is never dropped.  The
 * head may fill up to half of the context. */
KAIJU_API kaiju_status kaiju_conversation_create(kaiju_engine* engine, const int32_t* head,
                                                 size_t count, KAIJU_OWN kaiju_conversation** out,
                                                 kaiju_error** error);
KAIJU_API void kaiju_conversation_destroy(KAIJU_OWN kaiju_conversation* conversation);
/* Adds a turn to the conversation and requests a reply.  The input has to end with the tokens
 * that start a reply (kaiju_chat_format with KAIJU_CHAT_REPLY adds these tokens).  Without them
 * many models end the reply at once: the reply is then empty and its reason is a stop token.  If
 * the chat does not fit into the context, the oldest turns are dropped, many at a time, by the
 * rule of kaiju_chat_turns_to_drop.  If max_tokens is larger than the room that is left in the
 * context, max_tokens is reduced to that room. */
KAIJU_API kaiju_status kaiju_conversation_say(kaiju_conversation* conversation,
                                              const int32_t* input, size_t count,
                                              const kaiju_options* options, void* user_data,
                                              kaiju_request* out, kaiju_error** error);
/* Requests another reply to the newest turn, sampled with the same seed and the next variant.  The
 * prompt's KV is in the cache, so only the prompt's last token is computed again. */
KAIJU_API kaiju_status kaiju_conversation_swipe(kaiju_conversation* conversation,
                                                const kaiju_options* options, void* user_data,
                                                kaiju_request* out, kaiju_error** error);
/* kaiju_session_prefetch for the conversation's next turn.  If `options` name a character but no
 * shared_tokens, the head is the shared region. */
KAIJU_API kaiju_status kaiju_conversation_prefetch(kaiju_conversation* conversation,
                                                   const kaiju_options* options, int64_t at,
                                                   void* user_data, kaiju_request* out,
                                                   kaiju_error** error);
/* Chooses which reply to the newest turn is part of the chat; `reply` counts from 0. */
KAIJU_API kaiju_status kaiju_conversation_choose(kaiju_conversation* conversation, size_t reply,
                                                 kaiju_error** error);
/* Adds a turn without computing it: a greeting (which has no input), or a turn of a chat that is
 * loaded again. */
KAIJU_API kaiju_status kaiju_conversation_append(kaiju_conversation* conversation,
                                                 const int32_t* input, size_t input_count,
                                                 const int32_t* reply, size_t reply_count,
                                                 kaiju_error** error);
/* Replaces the input or the reply of a turn.  If `part` is KAIJU_TURN_INPUT, the turn's replies
 * and all turns after the edited turn are removed; call kaiju_conversation_swipe for a reply to
 * the new input.  If `part` is KAIJU_TURN_REPLY, the turns after the edited turn stay in the
 * conversation.  After an edit, the next request does not compute the KV of tokens before the edit
 * again. */
KAIJU_API kaiju_status kaiju_conversation_edit(kaiju_conversation* conversation, size_t turn,
                                               int32_t part, const int32_t* tokens, size_t count,
                                               kaiju_error** error);
/* Removes the newest turn. */
KAIJU_API kaiju_status kaiju_conversation_undo(kaiju_conversation* conversation,
                                               kaiju_error** error);
/* Creates a conversation with the first `turns` turns and their chosen replies; both conversations
 * share the KV of these turns. */
KAIJU_API kaiju_status kaiju_conversation_fork(kaiju_conversation* conversation, size_t turns,
                                               KAIJU_OWN kaiju_conversation** out,
                                               kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_describe(kaiju_conversation* conversation,
                                                   kaiju_conversation_info* out);
/* kaiju_conversation_turn copies the tokens of one part of a turn.  kaiju_conversation_tokens
 * copies all tokens that the next turn continues. */
KAIJU_API kaiju_status kaiju_conversation_turn(kaiju_conversation* conversation, size_t turn,
                                               int32_t part, int32_t* tokens, size_t capacity,
                                               size_t* count, kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_tokens(kaiju_conversation* conversation, int32_t* tokens,
                                                 size_t capacity, size_t* count,
                                                 kaiju_error** error);

/* The next four functions save a conversation, with all turns and replies and the KV of its
 * session, and restore it. The rules of kaiju_session_save, _restore, _save_file and _restore_file
 * apply; save returns KAIJU_BUSY while a reply is unfinished.  If `options` of a restore name a
 * character but no shared_tokens, the head is the shared region. */
KAIJU_API kaiju_status kaiju_conversation_save(kaiju_conversation* conversation,
                                               const kaiju_options* options, kaiju_write_fn write,
                                               void* user_data, kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_restore(kaiju_engine* engine,
                                                  const kaiju_options* options, kaiju_read_fn read,
                                                  void* user_data,
                                                  KAIJU_OWN kaiju_conversation** out,
                                                  kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_save_file(kaiju_conversation* conversation,
                                                    const kaiju_options* options, const char* path,
                                                    kaiju_error** error);
KAIJU_API kaiju_status kaiju_conversation_restore_file(kaiju_engine* engine,
                                                       const kaiju_options* options,
                                                       const char* path,
                                                       KAIJU_OWN kaiju_conversation** out,
                                                       kaiju_error** error);

/* -- prefixes: KV that is computed before the first request needs it, and that stays -- */
/* Submits a request that computes the KV of `tokens`, usually a character's card, and generates
 * nothing; its events come like those of every request.  `options` have to name a character or a
 * salt, because otherwise no other session could use the KV.  If they name a character but no
 * shared_tokens, all tokens are the shared region.  `request` may be NULL.  Destroying the prefix
 * leaves the KV in the cache until other KV needs the room. */
KAIJU_API kaiju_status kaiju_prefix_warm(kaiju_engine* engine, const int32_t* tokens, size_t count,
                                         const kaiju_options* options, void* user_data,
                                         KAIJU_OWN kaiju_prefix** out, kaiju_request* request,
                                         kaiju_error** error);
/* Keeps the KV of a prefix in the cache until the prefix is destroyed, and returns in *tokens (may
 * be NULL) how many tokens it covers.  Returns KAIJU_BUSY before the DONE event of the request and
 * while a step runs: call this function between two steps, on the thread that steps the engine.
 * Returns KAIJU_NOT_FOUND if the KV was evicted meanwhile, and KAIJU_OUT_OF_MEMORY if all pinned
 * KV would not leave room for a request of the whole context. */
KAIJU_API kaiju_status kaiju_prefix_pin(kaiju_prefix* prefix, size_t* tokens, kaiju_error** error);
KAIJU_API void kaiju_prefix_destroy(KAIJU_OWN kaiju_prefix* prefix);

/* -- rollouts: another checkpoint, while your program serves (docs/embedding.md) -- */
/* Says how much memory kaiju_engine_create would take with these options, and takes none.  A model
 * that was loaded with KAIJU_MODEL_VERIFY 0 will do. */
KAIJU_API kaiju_status kaiju_model_memory_need(const kaiju_model* model,
                                               const kaiju_options* options,
                                               kaiju_memory_need* out, kaiju_error** error);
/* A rollout holds the current engine and, while the checkpoint changes, a second one: the candidate,
 * which gets a growing share of the new sessions, and becomes the current engine or goes.  Your
 * program steps both.  It owns the handles of the engines, and destroys each after
 * kaiju_rollout_take_drained gave it back, or after the rollout; a rollout gives NULL in place of a
 * handle that was destroyed before.  Any thread may call any function; warm computes on the calling
 * thread, the others return at once.
 *
 * Each session has a key that your program chooses, such as a user's or a chat's name: any bytes.  A
 * digest of the key and the candidate says from which share on the key is the candidate's, so a
 * growing share moves keys one way, and a smaller one moves them back.  A session stays on the
 * engine where it began, unless `move` is 1 or its engine was rolled back: then
 * kaiju_rollout_next_turn moves it. */
KAIJU_API kaiju_status kaiju_rollout_create(kaiju_engine* engine, int32_t move,
                                            KAIJU_OWN kaiju_rollout** out, kaiju_error** error);
KAIJU_API void kaiju_rollout_destroy(KAIJU_OWN kaiju_rollout* rollout);
/* Makes an engine the candidate, with a share of 0.  Returns KAIJU_BUSY while there is a candidate,
 * or an engine that drains.  Returns KAIJU_UNSUPPORTED if its model has another tokenizer,
 * vocabulary or chat format. */
KAIJU_API kaiju_status kaiju_rollout_begin(kaiju_rollout* rollout, kaiju_engine* candidate,
                                           kaiju_error** error);
/* Adds a prefix, usually a character's card, that the candidate shall have in its cache before it
 * gets a share.  `options` are those of kaiju_prefix_warm that say who shares the KV.  Returns
 * KAIJU_NOT_FOUND without a candidate. */
KAIJU_API kaiju_status kaiju_rollout_add_prefix(kaiju_rollout* rollout, const int32_t* tokens,
                                                size_t count, const kaiju_options* options,
                                                kaiju_error** error);
/* Computes the next `most_tokens` tokens of the prefixes, or fewer, and returns how many are left in
 * *left (may be NULL).  Call it again and again where there is time.  Returns KAIJU_BUSY while
 * another thread is in this call, KAIJU_NOT_FOUND without a candidate, and the errors of
 * kaiju_generate; a prefix that failed is left out. */
KAIJU_API kaiju_status kaiju_rollout_warm(kaiju_rollout* rollout, int32_t most_tokens,
                                          uint64_t* left, kaiju_error** error);
/* The next two functions return KAIJU_BUSY while prefixes are left, and KAIJU_NOT_FOUND without a
 * candidate.  After promote the candidate is the current engine, and the one before drains. */
KAIJU_API kaiju_status kaiju_rollout_set_share(kaiju_rollout* rollout, int32_t share,
                                               kaiju_error** error);
KAIJU_API kaiju_status kaiju_rollout_promote(kaiju_rollout* rollout, kaiju_error** error);
/* The way back, at once: the current engine has all new sessions, and those of the candidate move at
 * their next turn.  Returns KAIJU_NOT_FOUND without a candidate. */
KAIJU_API kaiju_status kaiju_rollout_roll_back(kaiju_rollout* rollout, kaiju_error** error);
/* Returns the engine that drains once it has no session and no request, for you to destroy; else
 * NULL. */
KAIJU_API kaiju_engine* kaiju_rollout_take_drained(kaiju_rollout* rollout);
/* Returns the engine for a new session of a key; NULL if an argument is wrong, or if its handle
 * was destroyed. */
KAIJU_API kaiju_engine* kaiju_rollout_engine_for(kaiju_rollout* rollout, const char* key,
                                                 size_t size);
/* Call it before each turn of a session.  Moves the session to another engine where the rules above
 * say so: the same handle, the same tokens, no KV yet; *moved (may be NULL) is then 1, else 0.
 * Returns KAIJU_BUSY if the session has an unfinished request, and KAIJU_INVALID_ARGUMENT if its
 * tokens do not fit the other engine's context; it is then as before. */
KAIJU_API kaiju_status kaiju_rollout_next_turn(const kaiju_rollout* rollout,
                                               kaiju_session* session, const char* key,
                                               size_t size, int32_t* moved, kaiju_error** error);
KAIJU_API kaiju_status kaiju_rollout_describe(kaiju_rollout* rollout, kaiju_rollout_info* out);

/* -- gate: judges a message by its words, before a model reads it (docs/gate.md) -- */
/* Reads a gate's file; `path` ends with a zero byte.  The file is not needed any more afterwards.  A
 * gate is immutable: any number of threads may use it at once. */
KAIJU_API kaiju_status kaiju_gate_load(const char* path, KAIJU_OWN kaiju_gate** out,
                                       kaiju_error** error);
KAIJU_API void kaiju_gate_destroy(KAIJU_OWN kaiju_gate* gate);
KAIJU_API size_t kaiju_gate_label_count(const kaiju_gate* gate); /* 0 for NULL */
/* Returns the name of label `index`, borrowed until the gate is destroyed.  Returns KAIJU_NOT_FOUND
 * if `index` is kaiju_gate_label_count or more. */
KAIJU_API kaiju_status kaiju_gate_label(const kaiju_gate* gate, size_t index, const char** text,
                                        size_t* size);
/* Writes the probability of each label: that it holds for the message.  A text of more than 48
 * words is judged in windows of 25 to 48 words, and the largest probability of any window counts.
 * Bytes that are not UTF-8 count as spaces.  Allocates nothing. */
KAIJU_API kaiju_status kaiju_gate_score(const kaiju_gate* gate, const char* text, size_t size,
                                        float* probabilities, size_t capacity, size_t* count);

/* -- convenience -- */
/* Submits a request and steps the engine until the request is done.  `on_text` may be NULL.
 * Returns KAIJU_CANCELLED if on_text stopped the reply.  `done` may be NULL; otherwise it receives
 * the reason, counts and times of the DONE event, also if on_text stopped the reply.  The pointers
 * in `done` are NULL.  `event_size` is sizeof(kaiju_event).
 *
 * The steps compute the engine's other requests too, and the events of those requests stay in the
 * engine until they are polled, in order.  A call of kaiju_engine_poll never returns events of a
 * request of kaiju_generate.  The callback on_text may submit, poll, and call kaiju_generate with
 * another session.
 *
 * Returns KAIJU_BUSY if the session has an unfinished request, or if the caller is a callback of
 * save or restore. Also, kaiju_generate returns KAIJU_BUSY if KAIJU_ENGINE_MAX_EVENTS events of
 * other requests are waiting to be polled; in this case its request is cancelled, and ends at the
 * next step. */
KAIJU_API kaiju_status kaiju_generate(kaiju_engine* engine, kaiju_session* session,
                                      const int32_t* tokens, size_t count,
                                      const kaiju_options* options, kaiju_text_fn on_text,
                                      void* user_data, kaiju_event* done, size_t event_size,
                                      kaiju_error** error);

#ifdef __cplusplus
}
#endif
#endif
