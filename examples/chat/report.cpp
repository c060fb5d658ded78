// Implements the reports.
#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace chat {
namespace {

std::string text_of(kaiju_model* model, int32_t property) {
  const char* text = "";
  kaiju_model_text(model, property, &text, nullptr);
  return text;
}

// 0 where the model has no such number.
int64_t number_of(kaiju_model* model, int32_t property) {
  int64_t number = 0;
  kaiju_model_number(model, property, &number);
  return number;
}

double millions(kaiju_model* model) { return static_cast<double>(number_of(model, KAIJU_MODEL_PARAMETERS)) * 1e-6; }

}  // namespace

void Totals::add(const Reply& reply) {
  prompt_tokens += reply.prompt_tokens;
  cached_tokens += reply.cached_tokens;
  generated_tokens += reply.generated_tokens;
  prefill_seconds += reply.prefill_seconds;
  decode_seconds += reply.decode_seconds;
  decoded += std::max(reply.generated_tokens - 1, 0);
}

std::string counted(size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string about_model(kaiju_model* model) {
  const std::string name = text_of(model, KAIJU_MODEL_NAME);
  const std::string size = fmt::format("{:.0f} M parameters", millions(model));
  if (name == "kaiju-nano")
    return fmt::format(
        "The model is {}, a small one of our own ({}). It answers plain questions about its character's "
        "card, and little else.",
        name, size);
  if (int64_t symbol = 0; kaiju_model_number(model, KAIJU_MODEL_CHAT_CARD, &symbol) != KAIJU_OK)
    return fmt::format("The model is {} ({}), imported. It reads the character's card as an instruction.", name, size);
  return fmt::format("The model is {} ({}).", name, size);
}

std::string about_machine(kaiju_engine* engine) {
  kaiju_engine_info info{};
  info.struct_size = sizeof info;
  if (kaiju_engine_describe(engine, &info) != KAIJU_OK) return "";
  kaiju_runtime* runtime = nullptr;
  kaiju_device_info device{};
  device.struct_size = sizeof device;
  std::string name;
  if (kaiju_runtime_create(&runtime, nullptr) == KAIJU_OK &&
      kaiju_runtime_device_info(runtime, static_cast<size_t>(info.device), &device) == KAIJU_OK) {
    name = fmt::format("{}, ", device.name);
    if (*device.description) name += fmt::format("{}, ", device.description);
  }
  kaiju_runtime_destroy(runtime);
  return fmt::format("{}{}, {}", name, info.backend, counted(static_cast<size_t>(info.threads), "thread"));
}

std::string ending(const Reply& reply) {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : " · ") + text; };
  if (reply.finish == "length")
    add(fmt::format("cut at {}", counted(static_cast<size_t>(reply.generated_tokens), "token")));
  if (reply.finish == "cancelled") add("stopped");
  if (reply.finish == "refused")
    add(fmt::format("refused: what was said reaches the limit of {}", reply.refused_label));
  if (reply.finish == "circle") add("ended where it began to repeat itself");
  if (reply.turns_dropped > 0) add(fmt::format("the oldest {} left the context", counted(reply.turns_dropped, "turn")));
  return out;
}

std::string figures(const Reply& reply) {
  return fmt::format("{:.0f} tokens/s · {} of {} prompt tokens reused · {:.2f} s", reply.decode_rate(),
                     reply.cached_tokens, reply.prompt_tokens, reply.prefill_seconds + reply.decode_seconds);
}

std::string stats(const Conversation& talk, const Totals& totals, kaiju_model* model, kaiju_engine* engine) {
  const auto rate = [](double count, double seconds) { return seconds > 0 ? count / seconds : 0; };
  std::string out = fmt::format("  model      {} ({:.1f} M int8 weights, {:.8})\n", text_of(model, KAIJU_MODEL_NAME),
                                millions(model), text_of(model, KAIJU_MODEL_DIGEST));
  out += fmt::format("  machine    {}\n", about_machine(engine));
  out += fmt::format("  context    {} of {} tokens, turns: {}, of which left the context: {}\n",
                     talk.tokens_in_context(), talk.context(), talk.turns().size(), talk.dropped());
  out += fmt::format("  prompts    {} tokens, {} of them reused, {:.0f} tokens/s\n", totals.prompt_tokens,
                     totals.cached_tokens,
                     rate(static_cast<double>(totals.prompt_tokens - totals.cached_tokens), totals.prefill_seconds));
  out += fmt::format("  replies    {} tokens, {:.0f} tokens/s\n", totals.generated_tokens,
                     rate(totals.decoded, totals.decode_seconds));
  return out + fmt::format("  seed       {}\n", talk.seed());
}

std::string json_line(const Reply& reply, const Conversation& talk) {
  nlohmann::ordered_json line = {{"turn", talk.turns().size()},
                                 {"seed", talk.seed()},
                                 {"retries", talk.turns().back().retries},
                                 {"reply", reply.text},
                                 {"prompt_tokens", reply.prompt_tokens},
                                 {"cached_tokens", reply.cached_tokens},
                                 {"prefill_tokens_per_second", std::round(reply.prefill_rate() * 10) / 10},
                                 {"decode_tokens_per_second", std::round(reply.decode_rate() * 10) / 10},
                                 {"finish", reply.finish}};
  if (!reply.refused_label.empty()) line["label"] = reply.refused_label;
  return line.dump();
}

}  // namespace chat
