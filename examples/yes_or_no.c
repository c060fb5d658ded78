/* yes_or_no: a guided request whose masks are made by hand: the reply is "yes" or "no".
 *
 *   yes_or_no MODEL "question" */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kaiju.h"

enum { MOST_TOKENS = 16 };
typedef struct answer {
  int32_t tokens[MOST_TOKENS];
  size_t count;
} answer;

static int fail(const char* what, kaiju_error* error) {
  fprintf(stderr, "yes_or_no: %s: %s\n", what, kaiju_error_message(error));
  kaiju_error_destroy(error);
  return 1;
}

/* Allows the next token of each answer that begins with the tokens `said`, and the stop token after a whole answer. */
static void allow(uint32_t* mask, size_t words, const answer* answers, const int32_t* said, size_t count,
                  int32_t stop) {
  int i;
  memset(mask, 0, words * sizeof *mask);
  for (i = 0; i < 2; ++i) {
    int32_t next;
    if (count > answers[i].count || memcmp(said, answers[i].tokens, count * sizeof *said) != 0) continue;
    next = count < answers[i].count ? answers[i].tokens[count] : stop;
    mask[next / 32] |= (uint32_t)1 << next % 32;
  }
}

int main(int argc, char** argv) {
  static const char* const texts[2] = {"yes", "no"};
  answer answers[2];
  int32_t tokens[1024], said[MOST_TOKENS], stop = 0;
  int64_t vocabulary = 0;
  size_t count = 0, said_count = 0, words;
  uint32_t* mask;
  int i, wants_guide = 1;
  kaiju_error* error = NULL;
  kaiju_model* model = NULL;
  kaiju_engine* engine = NULL;
  kaiju_session* session = NULL;
  kaiju_options* options = NULL;
  kaiju_request request = 0;
  kaiju_message message = {KAIJU_ROLE_USER, 0, NULL, 0, NULL, 0};
  signal(SIGPIPE, SIG_IGN); /* a broken pipe is an error of printf, and ends nothing */
  if (argc != 3) return fprintf(stderr, "yes_or_no: give a model and a question: yes_or_no MODEL TEXT\n"), 2;
  if (kaiju_model_load(NULL, argv[1], NULL, NULL, NULL, &model, &error)) return fail("load", error);
  if (kaiju_engine_create(model, NULL, &engine, &error)) return fail("engine", error);
  if (kaiju_session_create(engine, &session, &error)) return fail("session", error);
  if (kaiju_model_stop_tokens(model, &stop, 1) == 0)
    return fprintf(stderr, "yes_or_no: the model has no stop token, so a reply could not end\n"), 1;
  for (i = 0; i < 2; ++i) {
    if (kaiju_tokenize(model, texts[i], strlen(texts[i]), answers[i].tokens, MOST_TOKENS, &answers[i].count, &error))
      return fail("answer", error);
    if (answers[i].count > MOST_TOKENS) return fprintf(stderr, "yes_or_no: an answer has too many tokens\n"), 1;
  }
  message.content = argv[2];
  message.content_size = strlen(argv[2]);
  if (kaiju_chat_format(model, &message, sizeof message, 1, KAIJU_CHAT_BEGIN | KAIJU_CHAT_REPLY, tokens, 1024, &count,
                        &error))
    return fail("prompt", error);
  if (count > 1024) return fprintf(stderr, "yes_or_no: the question is too long\n"), 1;
  if (kaiju_model_number(model, KAIJU_MODEL_VOCABULARY, &vocabulary)) return 1;
  words = (size_t)(vocabulary + 31) / 32;
  mask = calloc(words, sizeof *mask);
  if (!mask || kaiju_options_create(&options)) return fprintf(stderr, "yes_or_no: out of memory\n"), 1;
  if (kaiju_options_set_int(options, KAIJU_GENERATE_GUIDED, 1, &error)) return fail("options", error);
  if (kaiju_engine_submit(engine, session, tokens, count, options, NULL, &request, &error))
    return fail("submit", error);
  while (kaiju_engine_pending(engine) > 0) {
    if (wants_guide) { /* at first, and after each token but the stop token */
      kaiju_guide guide = {sizeof(kaiju_guide), NULL, 0, NULL, NULL, 0};
      kaiju_status status;
      allow(mask, words, answers, said, said_count, stop);
      guide.allowed = mask;
      guide.allowed_words = words;
      status = kaiju_engine_guide(engine, request, &guide, &error);
      if (status != KAIJU_OK && status != KAIJU_NOT_FOUND) return fail("guide", error);
      kaiju_error_destroy(error); /* NOT_FOUND: the token before was the last that max_tokens allows */
      error = NULL;
      wants_guide = 0;
    }
    (void)kaiju_engine_wait(engine, 1000000000);
    if (kaiju_engine_step(engine, &error)) return fail("step", error);
    for (;;) {
      kaiju_event event;
      if (kaiju_engine_poll(engine, &event, sizeof event, 1, &count, &error)) return fail("poll", error);
      if (count == 0) break;
      if (event.kind == KAIJU_EVENT_FAILED)
        return fprintf(stderr, "yes_or_no: %.*s\n", (int)event.text_size, event.text), 1;
      if (event.text_size > 0) printf("%.*s", (int)event.text_size, event.text);
      if (event.kind != KAIJU_EVENT_TOKEN || event.tokens[0] == stop) continue;
      if (said_count < MOST_TOKENS) said[said_count++] = event.tokens[0];
      wants_guide = 1;
    }
  }
  printf("\n");
  free(mask);
  kaiju_options_destroy(options);
  kaiju_session_destroy(session);
  kaiju_engine_destroy(engine);
  kaiju_model_destroy(model);
  if (fflush(stdout) != 0 || ferror(stdout))
    return fprintf(stderr, "yes_or_no: cannot write to the standard output\n"), 1;
  return 0;
}
