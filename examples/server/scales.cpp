// See scales.hpp.
#include "scales.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <stdexcept>

#include "../tools/standard_streams.hpp"
#include "checkpoints.hpp"
#include "failure.hpp"
#include "openai.hpp"
#include "service.hpp"

namespace kaiju::server {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr int kRest = 250;  // so many times what a count took pass before the next one: 0.4% of the thread's time
constexpr auto kLongestRest = std::chrono::seconds(1);
constexpr auto kLongestChange = std::chrono::seconds(60);

std::string folder_of(const Scales::Options& options, const Checkpoint& checkpoint) {
  return options.folder.empty() ? "" : options.folder + "/" + checkpoint.digest().substr(0, 16);
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

}  // namespace

Scales::Scales(asio::io_context& io, Replicas& replicas, std::shared_ptr<const Model> model, const Options& options)
    : replicas_(replicas),
      own_(model->checkpoint()),
      options_(options),
      folder_(folder_of(options, *own_)),
      current_(read_current(folder_)),
      timer_(io),
      watched_(std::make_shared<Watched>()) {
  if (folder_.empty()) return;
  begin(*checkpoint_of(current_));
  if (!watched_->calibration) return;
  fs::create_directories(folder_);
  for (Driver& driver : replicas_)
    driver.beside_steps([watched = watched_](Engine& engine) {
      watched->collect(engine);
      return false;
    });
  wait_to_save();
}

void Scales::use_current(const Options& options, const Model& model, Engine& engine) {
  const std::string folder = folder_of(options, *model.checkpoint()), name = read_current(folder);
  if (name == kModel) return;
  const auto scaled = with_scales(model.checkpoint(), file_in(folder, name));
  const Status status = scaled.ok() ? engine.set_scales(*scaled) : scaled.status();
  if (!status.ok())
    throw std::runtime_error(fmt::format("{}; {}/current.json names the scales in use", status.message(), folder));
}

void Scales::begin(const Checkpoint& checkpoint) {
  auto made = Calibration::create(checkpoint, options_.calibration);
  if (made.status().code() == StatusCode::kUnsupported) return;  // it has no clips
  if (!made.ok()) throw std::runtime_error("--scales: " + made.status().message());
  const std::lock_guard lock(watched_->mutex);
  watched_->calibration = std::move(made).value();
}

void Scales::Watched::collect(Engine& engine) {
  const std::lock_guard lock(mutex);
  const Clock::time_point begin = Clock::now();
  if (begin < next) return;
  const bool was_frozen = calibration->figures().frozen;
  const Result<bool> counted = engine.calibrate(*calibration);
  const Clock::time_point end = Clock::now();
  next = end + std::clamp<Clock::duration>(kRest * (end - begin), std::chrono::milliseconds(1), kLongestRest);
  const CalibrationFigures figures = calibration->figures();
  if (!counted.ok() || was_frozen || !figures.frozen) return;
  tools::print(
      stderr,
      "kaiju-server: the calibration of keys and values is frozen: what comes is far from what the scales were "
      "made from (tokens {:.4f} nats, usually {:.4f}; magnitudes {:.4f}, usually {:.4f}); "
      "docs/operations.md, \"Calibration\"\n",
      figures.tokens.newest, figures.tokens.mean, figures.scales.newest, figures.scales.mean);
}

std::vector<std::string> Scales::names() const { return names_in(folder_); }

std::shared_ptr<const Checkpoint> Scales::checkpoint_of(const std::string& name) const {
  if (name == kModel) return own_;
  auto made = with_scales(own_, file_in(folder_, name));
  if (!made.ok()) throw of_status(made.status(), "scales");
  return *made;
}

asio::awaitable<Status> Scales::set(std::shared_ptr<const Checkpoint> checkpoint) {
  Status status;
  for (Driver& driver : replicas_)
    if (status.ok()) status = co_await set(driver, checkpoint);
  co_return status;
}

// Again and again until the replies under way have ended.
asio::awaitable<Status> Scales::set(Driver& driver, std::shared_ptr<const Checkpoint> checkpoint) {
  Status status;
  asio::steady_timer timer(timer_.get_executor());
  const std::function<void(Engine&)> call = [&](Engine& engine) { status = engine.set_scales(checkpoint); };
  for (const Clock::time_point end = Clock::now() + kLongestChange;;) {
    co_await driver.between_steps(call);
    if (status.code() != StatusCode::kBusy || Clock::now() > end) co_return status;
    timer.expires_after(std::chrono::milliseconds(5));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> Scales::change(std::string name) {
  check_name(folder_, name, "scales");
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
  begin(*next);
  write_current(folder_, name);
}

std::string Scales::save() {
  std::unique_lock lock(watched_->mutex);
  const Result<KvScales> made =
      watched_->calibration ? watched_->calibration->propose() : Status(StatusCode::kNotFound, "no --scales");
  lock.unlock();
  if (!made.ok()) throw of_status(made.status(), "collection");
  const std::string name = fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)));
  if (const Status written = write_scales(*own_, *made, file_in(folder_, name)); !written.ok())
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
  const std::lock_guard lock(watched_->mutex);
  if (watched_->calibration) watched_->calibration->thaw();
}

void Scales::reset() {
  const std::lock_guard lock(watched_->mutex);
  if (watched_->calibration) watched_->calibration->reset();
}

ScalesCounts Scales::counts() const {
  const std::lock_guard lock(watched_->mutex);
  return {watched_->calibration.has_value(),
          watched_->calibration ? watched_->calibration->figures() : CalibrationFigures()};
}

void add_scale_routes(Server& server, Service& service) {
  server.route("GET", "/scales", [&service](Exchange& exchange) -> asio::awaitable<void> {
    service.tenants.want_trusted(exchange, "scales");
    co_await exchange.answer(scales_json(service.checkpoints.current()->scales));
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
    Scales& scales = service.checkpoints.current()->scales;
    if (!scales.counts().watched)
      throw Failure{404,
                    "no keys and values are watched, which wants --scales FOLDER and a checkpoint with clips",
                    {},
                    "not_found"};
    if (!name.empty())
      co_await scales.change(name);
    else if (collection == "save")
      (void)scales.save();
    else if (collection == "thaw")
      scales.thaw();
    else if (collection == "reset")
      scales.reset();
    else
      throw bad_request("collection must be \"save\", \"thaw\" or \"reset\"", "collection");
    co_await exchange.answer(scales_json(service.checkpoints.current()->scales));
  });
}

}  // namespace kaiju::server
