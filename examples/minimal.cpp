// minimal: a character answers once, through the C++ interface. Usage: minimal MODEL "text"
#include <csignal>
#include <cstdio>

#include "kaiju/kaiju.hpp"

// A character: its name, a newline and what it is.
constexpr char kCard[] = "Pip\nPip is a robot who keeps a garden. Pip grows blue tomatoes. Pip is afraid of snails.";

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a broken pipe is an error of fwrite, and ends nothing
  if (argc != 3) return std::fprintf(stderr, "minimal: give a model and a text: minimal MODEL TEXT\n"), 2;
  const auto fail = [](const kaiju::Status& status) {
    return std::fprintf(stderr, "minimal: %s\n", status.message().c_str()), 1;
  };
  auto model = kaiju::Model::load(argv[1]);
  if (!model.ok()) return fail(model.status());
  auto chat = model.value()->chat();
  if (!chat.ok()) return fail(chat.status());
  auto engine = model.value()->create_engine();
  if (!engine.ok()) return fail(engine.status());
  auto session = kaiju::Session::create(engine.value());
  if (!session.ok()) return fail(session.status());

  std::vector<int32_t> prompt;
  const kaiju::ChatMessage messages[] = {{kaiju::ChatRole::kCard, kCard, {}}, {kaiju::ChatRole::kUser, argv[2], {}}};
  if (const auto status = chat.value()->format(messages, {.reply = true}, prompt); !status.ok()) return fail(status);
  const auto done = session->generate(prompt, {}, [](std::string_view text) {
    return std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  });
  if (!done.ok()) return fail(done.status());
  std::puts("");
  if (std::fflush(stdout) != 0 || std::ferror(stdout))
    return fail({kaiju::StatusCode::kIo, "cannot write to the standard output"});
}
