// /chats/{}/report and /reports over HTTP: replies that users complain of.
#include <algorithm>

#include "failure.hpp"
#include "routes.hpp"

namespace kaiju::server {

using Json = nlohmann::ordered_json;

namespace {

// Without a turn it is the newest, without a reply the chosen one.
NewReport report_of(const Fields& fields, const LoadedChat& loaded) {
  const std::vector<Turn>& turns = loaded.chat.turns;
  const std::string kind = fields.text("kind");
  if (kind != "wrong refusal" && kind != "bad reply")
    throw bad_request("kind must be \"wrong refusal\" or \"bad reply\"", "kind");
  if (turns.empty()) throw bad_request("the chat has no turn to report", "turn");
  NewReport wanted;
  wanted.chat = loaded.id;
  wanted.turn = fields.integer("turn", loaded.chat.turn_count - 1, 0, INT32_MAX);
  const size_t turn = std::min(static_cast<size_t>(wanted.turn), turns.size() - 1);
  wanted.reply = fields.integer("reply", std::max<int64_t>(turns[turn].chosen, 0), 0, INT32_MAX);
  wanted.kind = kind;
  wanted.comment = fields.text("comment");
  fields.refuse_others();
  return wanted;
}

asio::awaitable<void> create_report(StoredChats& chats, Exchange& exchange) {
  const nlohmann::json body = exchange.json();
  const Fields fields(body);
  const LoadedChat loaded = co_await chats.load(exchange);
  const NewReport wanted = report_of(fields, loaded);
  const int64_t id =
      co_await chats.store.get<int64_t>([&](Store& store) { return store.add_report(loaded.owner, wanted); });
  co_await exchange.answer(one_field("id", id), 201);
}

Json report_json(const Report& report) {
  return {{"id", report.id},
          {"chat", report.chat},
          {"turn", report.turn},
          {"reply", report.reply},
          {"kind", report.kind},
          {"comment", report.comment},
          {"user", report.user_text ? Json(*report.user_text) : Json()},
          {"text", report.reply_text},
          {"character", report.speaker.id},
          {"version", report.speaker.version},
          {"created", time_text(report.created_ms)}};
}

Json reports_json(const std::vector<Report>& reports) {
  Json list = Json::array();
  for (const Report& report : reports) list.push_back(report_json(report));
  return {{"reports", list}};
}

asio::awaitable<void> list_reports(StoredChats& chats, Exchange& exchange) {
  if (chats.keys && !chats.service.tenants.of(exchange).trusted)
    throw Failure{403, "reports are shown to trusted keys alone"};
  const int64_t after = query_number(exchange, "after", 0);
  const auto reports =
      co_await chats.store.get<std::vector<Report>>([&](Store& store) { return store.reports(after); });
  co_await exchange.answer(reports_json(reports));
}

}  // namespace

void add_report_routes(StoredChats& chats) {
  chats.route("POST", "/chats/{}/report", create_report);
  chats.route("GET", "/reports", list_reports);
}

}  // namespace kaiju::server
