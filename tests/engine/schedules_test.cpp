// Random schedules: whatever submits, cuts, forks, cancels, suspensions, deadlines, turns, faults and shortages come in
// whatever order, every reply is that of one-at-a-time decoding, every history is what it should be, and every block is
// accounted for after every step. KAIJU_SEED repeats one schedule.
#include <cstdlib>
#include <random>

#include "tests/engine/harness.hpp"
#include "tests/engine/memory_file.hpp"

using namespace kaiju;
using namespace kaiju::test;

namespace {

struct Expected {
  SessionId session = 0;
  std::vector<int32_t> prompt;
  RequestOptions options;
  bool cancelled = false;
};

// Who a session speaks with, and under which salt.
struct Company {
  std::vector<int32_t> card;  // the beginning all may share
  Scope scope;
};

class Schedule {
 public:
  explicit Schedule(uint64_t seed, bool tiers = false)
      : random_(seed), info_(random_facts()), options_(random_options()), made_(make(tiers)), h_(*made_) {
    if (below(3) == 0)
      h_.executor->before_run = [this](const StepPlan&) {
        return below(10) == 0 ? Status(StatusCode::kBusy, "not now") : Status();
      };
    if (tiers && below(2)) h_.executor->fails_transfer = [this](const BlockTransfer&) { return below(10) == 0; };
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      operation();
      h_.check();
    }
    for (const auto& [session, request] : running_) CHECK(h_.engine->resume(request).ok());
    while (h_.engine->pending() > 0) step();
    for (const auto& [session, history] : histories_) CHECK(h_.engine->session_tokens(session).value() == history);
    for (const auto& [session, history] : histories_) CHECK(h_.engine->destroy_session(session).ok());
    step();
    for (const BlockKind kind : kBothKinds)
      CHECK(h_.count(kind, BlockState::kCached) == h_.used(kind));  // of characters and salts
  }
  size_t finished() const { return finished_; }
  Metrics metrics() const { return made_->engine->metrics(); }

 private:
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  ExecutorInfo random_facts() {
    ExecutorInfo info = small_facts();
    info.context = 700;
    info.has_global = below(4) != 0;
    const int32_t windows[] = {0, 1, 40, 63, 64, 65, 128, 200, 900};
    info.window = windows[below(9)];
    if (!info.has_global && info.window == 0) info.window = 64;
    info.slot_count = 1 + static_cast<int32_t>(below(6));
    info.step_tokens = 1 + static_cast<int32_t>(below(3) == 0 ? below(8) : below(200));
    info.block_count[0] = info.has_global ? 4 + static_cast<int32_t>(below(40)) : 0;
    info.block_count[1] = info.window > 0 ? 4 + static_cast<int32_t>(below(40)) : 0;
    if (info.has_global && info.window > 0 && below(2)) {  // one memory for both kinds
      const int32_t slabs = 2 + static_cast<int32_t>(below(30));
      for (const BlockKind kind : kBothKinds) {
        info.slab_blocks[static_cast<int>(kind)] = 1 + static_cast<int32_t>(below(6));
        info.block_count[static_cast<int>(kind)] = slabs * info.slab_blocks[static_cast<int>(kind)];
      }
    }
    return info;
  }
  EngineOptions random_options() {
    EngineOptions options;
    if (below(2)) options.chunk_tokens = 1 + static_cast<int32_t>(below(static_cast<uint32_t>(info_.step_tokens)));
    if (below(3) == 0)
      options.prefill_tokens = 1 + static_cast<int32_t>(below(static_cast<uint32_t>(info_.step_tokens)));
    if (below(4) == 0) options.max_running = 1;
    options.max_waiting = 1 + static_cast<int32_t>(below(20));
    if (below(2)) options.reserve_tokens = 1 + static_cast<int32_t>(below(100));
    options.clock = [this] { return time_; };
    options.cache.retention.turns = static_cast<int32_t>(below(4));
    options.cache.retention.branch_points = below(2);
    options.cache.retention.every_tokens = below(3) == 0 ? 1 + static_cast<int32_t>(below(300)) : 0;
    return options;
  }
  std::unique_ptr<Harness> make(bool tiers) {
    if (tiers) add_tiers();
    return std::make_unique<Harness>(info_, options_);
  }
  // Behind a device that holds little: host memory for a few blocks or for all, and sometimes a file that loses or
  // spoils some, or ends.
  void add_tiers() {
    for (const BlockKind kind : kBothKinds) {
      int32_t& count = info_.block_count[static_cast<int>(kind)];
      const int32_t per_slab = std::max(1, info_.slab_blocks[static_cast<int>(kind)]);
      if (count > 0) count = std::max(per_slab, std::min(count, 16) / per_slab * per_slab);
    }
    if (info_.shares_memory())
      for (const BlockKind kind : kBothKinds)
        info_.block_count[static_cast<int>(kind)] = 8 * info_.slab_blocks[static_cast<int>(kind)];
    const auto block = std::max(info_.block_bytes[0], info_.block_bytes[1]);
    options_.cache.host_bytes = block * (1 + below(below(3) ? 200 : 12));
    if (below(3) == 0) return;
    options_.cache.host_bytes = block * (6 + below(20));
    options_.cache.file_bytes = block * (1 + below(200));
    auto file = std::make_shared<MemoryFile>();
    if (below(2))
      file->fails_read = [this] { return below(8) == 0 ? Status(StatusCode::kBadModel, "spoilt") : Status(); };
    if (below(4) == 0)
      file->fails_write = [this] { return below(60) == 0 ? Status(StatusCode::kIo, "full") : Status(); };
    options_.cache.file = std::move(file);
  }
  std::vector<int32_t> random_tokens(uint32_t most) {
    std::vector<int32_t> tokens(below(most + 1));
    for (int32_t& token : tokens) token = static_cast<int32_t>(below(97));
    return tokens;
  }
  SessionId any_session() {
    auto place = histories_.begin();
    std::advance(place, below(static_cast<uint32_t>(histories_.size())));
    return place->first;
  }
  bool busy(SessionId session) const { return running_.count(session) > 0; }

  void operation() {
    if (histories_.empty()) return open();
    const SessionId session = any_session();
    auto& history = histories_[session];
    switch (below(24)) {
      case 0:
        if (histories_.size() < 8) open();
        break;
      case 1: {
        const size_t length = below(static_cast<uint32_t>(history.size() + 1));
        const auto child = h_.engine->fork_session(session, length);
        CHECK(child.status().code() == (busy(session) ? StatusCode::kBusy : StatusCode::kOk));
        if (child.ok()) companies_[child.value()] = companies_[session];
        if (child.ok())
          histories_[child.value()] = {history.begin(), history.begin() + static_cast<std::ptrdiff_t>(length)};
        break;
      }
      case 2: {
        const size_t length =
            history.size() - below(static_cast<uint32_t>(std::min<size_t>(history.size(), below(2) ? 70 : 1000) + 1));
        const Status status = h_.engine->truncate_session(session, length);
        CHECK(status.code() == (busy(session) ? StatusCode::kBusy : StatusCode::kOk));
        if (status.ok()) history.resize(length);
        break;
      }
      case 3:
        if (below(4) == 0) {
          CHECK(h_.engine->destroy_session(session).ok());
          if (busy(session)) expected_[running_[session]].cancelled = true;
          running_.erase(session);
          histories_.erase(session);
        }
        break;
      case 4:
      case 5:
        if (busy(session)) {
          expected_[running_[session]].cancelled = true;
          CHECK(h_.engine->cancel(running_[session]).ok());
        }
        break;
      case 6: {  // an edit somewhere in the history
        auto edited = history;
        if (!edited.empty()) edited[below(static_cast<uint32_t>(edited.size()))] = 5;
        submit(session, edited + random_tokens(20), true);
        break;
      }
      case 7:
        if (busy(session))
          CHECK((below(2) ? h_.engine->suspend(running_[session]) : h_.engine->resume(running_[session])).ok());
        break;
      case 8:
      case 9:
      case 10:
      case 11:
        submit(session, random_tokens(below(2) ? 5 : 200), false);
        break;
      default:
        step();
    }
  }
  void open() {
    const SessionId session = h_.session();
    Company& company = companies_[session];
    if (const uint32_t character = below(4); character > 0) {
      company.card = tokens_from(character, 1 + character * 61, 97);
      company.scope.character = "character " + std::to_string(character);
    }
    if (below(2)) company.scope.salt = "salt " + std::to_string(below(2));
    company.scope.shared_tokens = static_cast<int32_t>(company.card.size());
    histories_[session] = company.card;
    CHECK(h_.engine->set_session_tokens(session, company.card).ok());
  }

  void submit(SessionId session, const std::vector<int32_t>& tokens, bool whole) {
    RequestOptions options = asking(static_cast<int32_t>(below(below(2) ? 10 : 150)));
    if (below(10) == 0) options.max_tokens = kToContextEnd;
    if (below(2)) options.sampling.temperature = 1;
    options.sampling.seed = below(5);
    options.sampling.variant = below(3);
    if (below(3) == 0) options.sampling.repetition_penalty = 1.2;
    options.priority = static_cast<int32_t>(below(3));
    if (below(4) == 0) options.deadline = time_ + Clock::duration(below(60));
    if (below(2))
      options.stop_tokens = std::vector<int32_t>{static_cast<int32_t>(below(97)), static_cast<int32_t>(below(97))};
    const auto beginning = whole ? tokens : histories_[session] + tokens;
    options.scope = companies_[session].scope;
    const auto& card = companies_[session].card;  // an edit or a cut may have left less of it
    options.scope.shared_tokens = static_cast<int32_t>(
        std::mismatch(card.begin(), card.end(), beginning.begin(), beginning.end()).first - card.begin());
    const auto request =
        whole ? h_.engine->submit_history(session, tokens, options) : h_.engine->submit(session, tokens, options);
    if (!request.ok()) {
      const StatusCode code = request.status().code();
      INFO(request.status().message());
      CHECK((busy(session) ? code == StatusCode::kBusy || code == StatusCode::kInvalidArgument
                           : code == StatusCode::kInvalidArgument || code == StatusCode::kOutOfMemory ||
                                 code == StatusCode::kBusy));
      return;
    }
    CHECK_FALSE(busy(session));
    running_[session] = request.value();
    expected_[request.value()] = {session, beginning, options, false};
  }

  void step() {
    time_ += Clock::duration(1);
    const Status status = h_.engine->step();
    INFO(status.message());
    REQUIRE((status.ok() || status.code() == StatusCode::kBusy));
    h_.check();
    if (status.ok()) h_.poison_free();
    h_.collect();
    for (auto& [id, reply] : h_.replies) {
      if (!reply.done && !reply.failed) continue;
      REQUIRE_FALSE(reply.failed);
      const auto found = expected_.find(id);
      if (found == expected_.end()) continue;
      const Expected& expected = found->second;
      const int32_t room = h_.info.context - static_cast<int32_t>(expected.prompt.size());
      const int32_t most = expected.options.max_tokens == kToContextEnd ? room : expected.options.max_tokens;
      auto tokens = h_.reference(expected.prompt, most, expected.options);
      if (reply.reason == DoneReason::kDeadline) CHECK(expected.options.deadline <= time_);
      if (reply.reason == DoneReason::kCancelled || reply.reason == DoneReason::kDeadline) {
        CHECK((expected.cancelled || reply.reason == DoneReason::kDeadline));
        REQUIRE(reply.tokens.size() <= tokens.size());
        tokens.resize(reply.tokens.size());
      }
      CHECK(reply.tokens == tokens);
      if (const auto running = running_.find(expected.session); running != running_.end() && running->second == id) {
        histories_[expected.session] = expected.prompt + reply.tokens;
        running_.erase(running);
      }
      expected_.erase(found);
      ++finished_;
    }
    for (auto place = h_.replies.begin(); place != h_.replies.end();)
      place = place->second.done ? h_.replies.erase(place) : std::next(place);
  }

  std::mt19937_64 random_;
  Clock::time_point time_{Clock::duration(1)};
  ExecutorInfo info_;
  EngineOptions options_;
  std::unique_ptr<Harness> made_;
  Harness& h_;
  std::map<SessionId, std::vector<int32_t>> histories_;
  std::map<SessionId, Company> companies_;
  std::map<SessionId, RequestId> running_;
  std::map<RequestId, Expected> expected_;
  size_t finished_ = 0;
};

}  // namespace

TEST_CASE("any schedule gives the tokens of one-at-a-time decoding") {
  const char* one = std::getenv("KAIJU_SEED");
  const char* many = std::getenv("KAIJU_SCHEDULES");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 150;
  size_t finished = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    INFO("KAIJU_SEED=" << seed);
    Schedule schedule(seed);
    schedule.run(400);
    finished += schedule.finished();
  }
  CHECK((one || finished > count * 10));
}

TEST_CASE(
    "any schedule gives the tokens of one-at-a-time decoding while blocks move between device, host memory and file") {
  const char* one = std::getenv("KAIJU_SEED");
  const char* many = std::getenv("KAIJU_SCHEDULES");
  const uint64_t first = one ? std::strtoull(one, nullptr, 10) : 1;
  const uint64_t count = one ? 1 : many ? std::strtoull(many, nullptr, 10) : 100;
  size_t finished = 0;
  uint64_t down = 0, up = 0, from_file = 0, hits = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    INFO("KAIJU_SEED=" << seed);
    Schedule schedule(seed, true);
    schedule.run(800);
    finished += schedule.finished();
    const Metrics metrics = schedule.metrics();
    down += metrics.host.blocks_in;
    up += metrics.host.blocks_out;
    from_file += metrics.file.blocks_out;
    hits += metrics.cache.hit_host + metrics.cache.hit_file;
    CHECK(metrics.cache.hit_host + metrics.cache.hit_file <= metrics.cache.hits());
  }
  INFO(finished << " requests, " << down << " blocks down, " << up << " up, " << from_file << " from the file, " << hits
                << " tokens hit below");
  CHECK((one || (finished > 500 && down > 50 * count && up > 10 * count && from_file > count && hits > 300 * count)));
}
