/* host_loop: a program that drives the engine itself.  Submits two requests, steps the engine, and prints events.
 *
 *   host_loop MODEL "first prompt" "second prompt" */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "kaiju.h"

static int fail(const char* what, kaiju_error* error) {
  fprintf(stderr, "host_loop: %s: %s\n", what, kaiju_error_message(error));
  kaiju_error_destroy(error);
  return 1;
}

int main(int argc, char** argv) {
  kaiju_error* error = NULL;
  kaiju_model* model = NULL;
  kaiju_engine* engine = NULL;
  kaiju_session* sessions[2] = {NULL, NULL};
  int i;
  signal(SIGPIPE, SIG_IGN); /* a broken pipe is an error of printf, and ends nothing */
  if (argc != 4) return fprintf(stderr, "host_loop: give a model and two prompts: host_loop MODEL TEXT TEXT\n"), 2;
  if (kaiju_model_load(NULL, argv[1], NULL, NULL, NULL, &model, &error)) return fail("load", error);
  if (kaiju_engine_create(model, NULL, &engine, &error)) return fail("engine", error);
  for (i = 0; i < 2; ++i) { /* a real host gets these from its users, on any thread */
    int32_t tokens[1024];
    size_t count = 0;
    kaiju_message message = {KAIJU_ROLE_USER, 0, NULL, 0, NULL, 0};
    message.content = argv[i + 2];
    message.content_size = strlen(argv[i + 2]);
    if (kaiju_chat_format(model, &message, sizeof message, 1, KAIJU_CHAT_BEGIN | KAIJU_CHAT_REPLY, tokens, 1024, &count,
                          &error))
      return fail("prompt", error);
    if (count > 1024) return fprintf(stderr, "host_loop: the prompt is too long\n"), 1;
    if (kaiju_session_create(engine, &sessions[i], &error)) return fail("session", error);
    if (kaiju_engine_submit(engine, sessions[i], tokens, count, NULL, &sessions[i], NULL, &error))
      return fail("submit", error);
  }
  while (kaiju_engine_pending(engine) > 0) { /* the loop: one step for everyone, then everyone's news */
    kaiju_event event;
    size_t count = 0;
    if (kaiju_engine_step(engine, &error)) return fail("step", error);
    for (;;) {
      int who;
      if (kaiju_engine_poll(engine, &event, sizeof event, 1, &count, &error)) return fail("poll", error);
      if (count == 0) break;
      who = event.user_data == &sessions[0] ? 1 : 2;
      if (event.text_size > 0) printf("%d: %.*s\n", who, (int)event.text_size, event.text);
      if (event.kind == KAIJU_EVENT_DONE) printf("%d: done after %d tokens\n", who, (int)event.generated_tokens);
    }
  }
  for (i = 0; i < 2; ++i) kaiju_session_destroy(sessions[i]);
  kaiju_engine_destroy(engine);
  kaiju_model_destroy(model);
  if (fflush(stdout) != 0 || ferror(stdout))
    return fprintf(stderr, "host_loop: cannot write to the standard output\n"), 1;
  return 0;
}
