// Records of replies and looks at the weights, in the C interface.
#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

namespace {

const std::vector<int32_t> kPrompt = {1, 9, 40, 7, 22};

// Steps until the last event of the request has been polled; its record, empty where it has none.
std::string record_of(Host& host, kaiju_request request) {
  for (kaiju_event event{}; event.kind != KAIJU_EVENT_DONE;) {
    REQUIRE(kaiju_engine_step(host.engine, nullptr) == KAIJU_OK);
    while (event.kind != KAIJU_EVENT_DONE && polled(host.engine, &event, sizeof event, 1) == 1) {
    }
  }
  size_t size = 0;
  const kaiju_status status = kaiju_engine_record(host.engine, request, nullptr, 0, &size, nullptr);
  if (status == KAIJU_NOT_FOUND) return {};
  REQUIRE(status == KAIJU_OK);
  std::string record(size, '\0');
  REQUIRE(kaiju_engine_record(host.engine, request, record.data(), size, &size, nullptr) == KAIJU_OK);
  REQUIRE(size == record.size());
  kaiju_event none{};
  REQUIRE(polled(host.engine, &none, sizeof none, 1) == 0);
  REQUIRE(kaiju_engine_record(host.engine, request, nullptr, 0, &size, nullptr) == KAIJU_NOT_FOUND);
  return record;
}

std::string recorded(Host& host) {
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_RECORD, 1, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_float(host.options, KAIJU_GENERATE_TEMPERATURE, 1.5, nullptr) == KAIJU_OK);
  REQUIRE(kaiju_options_set_int(host.options, KAIJU_GENERATE_SEED, 77, nullptr) == KAIJU_OK);
  return record_of(host, host.submit(kPrompt));
}

kaiju_replayed replayed(Host& host, const std::string& record) {
  kaiju_replayed found{};
  found.struct_size = sizeof found;
  Host::check(
      ask([&](kaiju_error** e) { return kaiju_engine_replay(host.engine, record.data(), record.size(), &found, e); }));
  return found;
}

}  // namespace

TEST_CASE("C: a recorded reply is computed again by another engine, and one that differs is told") {
  Host host(plain_model_file()), other(plain_model_file());
  const std::string record = recorded(host);
  REQUIRE_FALSE(record.empty());
  kaiju_replayed same = replayed(other, record);
  CHECK(same.same_model == 1);
  CHECK(same.differs_at == -1);
  CHECK(same.recorded == -1);
  CHECK(same.recorded_tokens == 8);
  CHECK(same.compared_tokens == 8);
  CHECK(same.reason == KAIJU_DONE_LENGTH);

  size_t count = 0;
  REQUIRE(kaiju_record_tokens(record.data(), record.size(), nullptr, 0, &count, nullptr) == KAIJU_OK);
  REQUIRE(count == kPrompt.size() + 8);
  std::vector<int32_t> tokens(count);
  REQUIRE(kaiju_record_tokens(record.data(), record.size(), tokens.data(), count, nullptr, nullptr) == KAIJU_OK);
  CHECK(std::equal(kPrompt.begin(), kPrompt.end(), tokens.begin()));

  std::string text(4096, '\0');
  size_t size = 0;
  REQUIRE(kaiju_record_describe(record.data(), record.size(), text.data(), text.size(), &size, nullptr) == KAIJU_OK);
  text.resize(size);
  CHECK(text.find("\"seed\":77") != std::string::npos);

  std::string changed = record;
  changed.back() = static_cast<char>(changed.back() ^ 1);  // the last byte of the last token
  const kaiju_replayed differs = replayed(other, changed);
  CHECK(differs.differs_at == 7);
  CHECK(differs.generated == tokens.back());
  REQUIRE(kaiju_record_tokens(changed.data(), changed.size(), tokens.data(), count, nullptr, nullptr) == KAIJU_OK);
  CHECK(differs.recorded == tokens.back());
}

TEST_CASE("C: what is no record, or has none, is refused") {
  Host host(plain_model_file());
  CHECK(record_of(host, host.submit(kPrompt)).empty());
  const std::string record = recorded(host);
  kaiju_replayed found{};
  found.struct_size = sizeof found;
  const auto replay = [&](const char* bytes, size_t size, kaiju_replayed* out) {
    return ask([&](kaiju_error** e) { return kaiju_engine_replay(host.engine, bytes, size, out, e); });
  };
  CHECK(replay("nothing", 7, &found).status == KAIJU_BAD_MODEL);
  CHECK(replay(record.data(), record.size() - 1, &found).says("damaged"));
  CHECK(replay(nullptr, 7, &found).status == KAIJU_INVALID_ARGUMENT);
  CHECK(replay(record.data(), record.size(), nullptr).status == KAIJU_INVALID_ARGUMENT);
  found.struct_size = 0;
  CHECK(replay(record.data(), record.size(), &found).status == KAIJU_INVALID_ARGUMENT);
  found.struct_size = sizeof found;
  host.submit(kPrompt);
  CHECK(replay(record.data(), record.size(), &found).status == KAIJU_BUSY);
  host.drain();
  CHECK(kaiju_engine_record(nullptr, 1, nullptr, 0, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
  CHECK(kaiju_record_describe("KREC", 4, nullptr, 0, nullptr, nullptr) == KAIJU_BAD_MODEL);
}

TEST_CASE("C: the weights in memory are looked at, part by part") {
  Host host(plain_model_file());
  size_t all = 0, bytes = 0;
  int32_t whole = 0;
  REQUIRE(kaiju_engine_scrub(host.engine, size_t{1} << 30, &all, &whole, nullptr) == KAIJU_OK);
  CHECK(whole == 1);
  size_t sum = 0;
  do {
    REQUIRE(kaiju_engine_scrub(host.engine, all / 3, &bytes, &whole, nullptr) == KAIJU_OK);
    sum += bytes;
  } while (whole == 0);
  CHECK(sum == all);
  CHECK(kaiju_engine_scrub(host.engine, 100, nullptr, nullptr, nullptr) == KAIJU_OK);
  CHECK(kaiju_engine_scrub(nullptr, 100, nullptr, nullptr, nullptr) == KAIJU_INVALID_ARGUMENT);
}
