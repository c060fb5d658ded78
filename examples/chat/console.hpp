// Console: input, commands and output of the chat. It works on a terminal, line by line from a pipe, or with scripted
// turns.
#pragma once

#include "args.hpp"
#include "conversation.hpp"

namespace chat {

struct Console {
  kaiju_model* model;
  kaiju_engine* engine;
  const Args& args;

  int run();

 private:
  int run_terminal(Conversation talk);
  // Also with --json on a terminal.
  int run_lines(Conversation talk);
  int run_script(Conversation talk);
};

}  // namespace chat
