// See scales.hpp.
#include "scales.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "../tools/standard_streams.hpp"
#include "failure.hpp"
#include "openai.hpp"
#include "service.hpp"
#include "watch.hpp"

namespace kaiju::server {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kRest = 250;  // so many times what a count took pass before the next one: 0.4% of the thread's time
constexpr auto kLongestRest = std::chrono::seconds(1);
constexpr auto kLongestChange = std::chrono::seconds(60);

fs::path current_file(const std::string& folder) { return fs::path(folder) / "current"; }

void name_current(const std::string& folder, const std::string& name) {
  const fs::path file = current_file(folder), made = fs::path(folder) / "current.new";
  std::ofstream(made) << name << "\n";
  fs::rename(made, file);
}

nlohmann::ordered_json distance_json(const CalibrationDistance& distance) {
  return {{"newest", distance.newest}, {"mean", distance.mean}, {"deviation", distance.deviation}};
}

nlohmann::ordered_json scales_json(const Scales& scales) {
  const CalibrationFigures figures = scales.counts().figures;
  return {{"scales", scales.current()},
          {"previous", text_or_null(scales.previous().empty() ? nullptr : scales.previous().c_str())},
          {"sets", scales.names()},
          {"calibration",
           {{"blocks", figures.blocks},
            {"left_out", figures.left_out},
            {"windows", figures.windows},
            {"far_windows", figures.far_windows},
            {"known", figures.known},
            {"frozen", figures.frozen},
            {"tokens", distance_json(figures.tokens)},
            {"magnitudes", distance_json(figures.scales)}}}};
}

asio::awaitable<void> change(Service& service, const std::string& name) {
  service.watch.ask_canaries(false);
  const auto again = [&] { service.watch.ask_canaries(service.scales.current() == Scales::kModel); };
  try {
    co_await service.scales.change(name);
  } catch (...) {
    again();
    throw;
  }
  again();
}

}  // namespace

std::string Scales::current_in(const std::string& folder) {
  std::string name;
  if (!folder.empty()) std::getline(std::ifstream(current_file(folder)), name);
  return name.empty() ? kModel : name;
}

Scales::Scales(asio::io_context& io, Driver& driver, std::shared_ptr<const Model> model, const Options& options)
    : driver_(driver),
      model_(std::move(model)),
      own_(model_->checkpoint()),
      options_(options),
      files_(options.folder),
      current_(current_in(options.folder)),
      timer_(io) {
  if (options_.folder.empty()) return;
  begin(checkpoint_of(current_));
  driver_.beside_steps([this](Engine& engine) { collect(engine); });
  wait_to_save();
}

void Scales::begin(const std::shared_ptr<const Checkpoint>& checkpoint) {
  auto made = Calibration::create(*checkpoint, options_.calibration);
  if (!made.ok()) throw std::runtime_error("--scales: " + made.status().message());
  const std::lock_guard lock(mutex_);
  calibration_ = std::move(made).value();
}

void Scales::collect(Engine& engine) {
  const Clock::time_point begin = Clock::now();
  if (begin < next_) return;
  const std::lock_guard lock(mutex_);
  const bool was_frozen = calibration_->figures().frozen;
  const Result<bool> counted = engine.calibrate(*calibration_);
  const Clock::time_point end = Clock::now();
  next_ = end + std::clamp<Clock::duration>(kRest * (end - begin), std::chrono::milliseconds(1), kLongestRest);
  if (!counted.ok() || was_frozen || !calibration_->figures().frozen) return;
  const CalibrationFigures figures = calibration_->figures();
  tools::print(
      stderr,
      "kaiju-server: the calibration of keys and values is frozen: what comes is far from what the scales were "
      "made from (tokens {:.4f} nats, usually {:.4f}; magnitudes {:.4f}, usually {:.4f}); "
      "docs/operations.md, \"Calibration drift\"\n",
      figures.tokens.newest, figures.tokens.mean, figures.scales.newest, figures.scales.mean);
}

std::shared_ptr<const Checkpoint> Scales::checkpoint_of(const std::string& name) const {
  if (name == kModel) return own_;
  auto made = with_scales(own_, files_.path_of(name));
  if (!made.ok()) throw of_status(made.status(), "scales");
  return *made;
}

// Again and again until the replies under way have ended.
asio::awaitable<Status> Scales::set(std::shared_ptr<const Checkpoint> checkpoint) {
  Status status;
  asio::steady_timer timer(timer_.get_executor());
  const std::function<void(Engine&)> call = [&](Engine& engine) { status = engine.set_scales(checkpoint); };
  for (const Clock::time_point end = Clock::now() + kLongestChange;;) {
    co_await driver_.between_steps(call);
    if (status.code() != StatusCode::kBusy || Clock::now() > end) co_return status;
    timer.expires_after(std::chrono::milliseconds(5));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> Scales::change(std::string name) {
  if (!files_.has(name))
    throw Failure{404, fmt::format("there are no scales \"{}\"; there are: {}", name, fmt::join(names(), ", ")),
                  "scales", "scales_not_found"};
  if (changing_) throw Failure{409, "the scales are being changed: try again", {}, "conflict"};
  if (name == current_) co_return;
  const std::shared_ptr<const Checkpoint> next = checkpoint_of(name), before = checkpoint_of(current_);
  changing_ = true;
  const Status status = co_await set(next);
  if (status.code() == StatusCode::kBusy) (void)co_await set(before);  // requests begin again
  changing_ = false;
  if (status.code() == StatusCode::kBusy)
    throw Failure{409, "a reply took too long: the scales are as they were; try again", {}, "conflict"};
  if (!status.ok()) throw of_status(status, "scales");
  previous_ = std::exchange(current_, name);
  begin(next);
  name_current(options_.folder, name);
}

std::string Scales::save() {
  std::unique_lock lock(mutex_);
  const Result<KvScales> made = calibration_ ? calibration_->propose() : Status(StatusCode::kNotFound, "no --scales");
  lock.unlock();
  if (!made.ok()) throw of_status(made.status(), "collection");
  const std::string name = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  if (const Status written = write_scales(*own_, *made, files_.path_of(name)); !written.ok())
    throw of_status(written, "collection");
  return name;
}

void Scales::wait_to_save() {
  if (options_.hours_between_saves == 0) return;
  timer_.expires_after(std::chrono::hours(options_.hours_between_saves));
  timer_.async_wait([this](auto error) {
    if (error) return;
    try {
      (void)save();
    } catch (const Failure& failure) {
      tools::print(stderr, "kaiju-server: no scales were saved: {}\n", failure.message);
    }
    wait_to_save();
  });
}

void Scales::thaw() {
  const std::lock_guard lock(mutex_);
  if (calibration_) calibration_->thaw();
}

void Scales::reset() {
  const std::lock_guard lock(mutex_);
  if (calibration_) calibration_->reset();
}

ScalesCounts Scales::counts() const {
  const std::lock_guard lock(mutex_);
  return {calibration_.has_value(), calibration_ ? calibration_->figures() : CalibrationFigures()};
}

void add_scale_routes(Server& server, Service& service) {
  server.route("GET", "/scales", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "scales");
    co_await exchange.answer(scales_json(service.scales));
  });
  server.route("POST", "/scales", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "scales");
    const nlohmann::json body = exchange.json();
    const Fields fields(body);
    const std::string name = fields.text("scales"), collection = fields.text("collection");
    fields.refuse_others();
    if (name.empty() == collection.empty())
      throw bad_request(
          "give scales, the name of a set such as \"model\", or collection: \"save\", \"thaw\" or \"reset\"", "scales");
    if (!service.scales.counts().watched)
      throw Failure{404, "this server watches no keys and values: --scales FOLDER", {}, "not_found"};
    if (!name.empty())
      co_await change(service, name);
    else if (collection == "save")
      (void)service.scales.save();
    else if (collection == "thaw")
      service.scales.thaw();
    else if (collection == "reset")
      service.scales.reset();
    else
      throw bad_request("collection must be \"save\", \"thaw\" or \"reset\"", "collection");
    co_await exchange.answer(scales_json(service.scales));
  });
}

}  // namespace kaiju::server
