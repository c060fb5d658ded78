// The C interface over kaiju.hpp: scales of keys and values, and calibration.
#include "handles.hpp"

using kaiju::Status;
using kaiju::StatusCode;
using namespace kaiju::capi;

kaiju_status kaiju_engine_set_scales(kaiju_engine* engine, const char* path, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine) return missing("engine");
    std::shared_ptr<const kaiju::Checkpoint> next = engine->checkpoint();
    if (path) {
      auto scaled = kaiju::with_scales(next, path);
      if (!scaled.ok()) return scaled.status();
      next = std::move(scaled).value();
    }
    KAIJU_TRY(engine->engine->set_scales(next));
    engine->scaled = std::move(next);
    return {};
  });
}

kaiju_status kaiju_calibration_create(const kaiju_engine* engine,
                                      const kaiju_calibration_options* options,
                                      kaiju_calibration** out, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !out) return missing(engine ? "out" : "engine");
    kaiju_calibration_options given{};
    if (options) {
      KAIJU_TRY(check_struct_size<kaiju_calibration_options>("kaiju_calibration_options",
                                                             options->struct_size));
      copy_sized(options, options->struct_size, &given, sizeof given);
    }
    kaiju::CalibrationOptions own;
    const auto take = [](auto value, auto& to) {
      if (value != 0) to = value;
    };
    take(given.window_blocks, own.window_blocks);
    take(given.windows_known, own.windows_known);
    take(given.least_daily_blocks, own.least_daily_blocks);
    take(given.sigmas, own.sigmas);
    take(given.character_ratio, own.character_ratio);
    take(given.most_clipped, own.most_clipped);
    auto checkpoint = engine->scaled ? engine->scaled : engine->checkpoint();
    auto made = kaiju::Calibration::create(*checkpoint, own);
    if (!made.ok()) return made.status();
    *out = new kaiju_calibration{std::move(checkpoint), std::move(made).value()};
    return {};
  });
}

void kaiju_calibration_destroy(kaiju_calibration* calibration) { delete calibration; }

kaiju_status kaiju_engine_calibrate(kaiju_engine* engine, kaiju_calibration* calibration,
                                    int32_t* counted, kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!engine || !calibration) return missing(engine ? "calibration" : "engine");
    const kaiju::Result<bool> looked = engine->engine->calibrate(calibration->calibration);
    if (!looked.ok()) return looked.status();
    if (counted) *counted = *looked ? 1 : 0;
    return {};
  });
}

kaiju_status kaiju_calibration_read(const kaiju_calibration* calibration,
                                    kaiju_calibration_figures* out) {
  return guard(nullptr, [&]() -> Status {
    if (!calibration || !out) return missing(calibration ? "out" : "calibration");
    KAIJU_TRY(check_struct_size<kaiju_calibration_figures>("kaiju_calibration_figures",
                                                           out->struct_size));
    const kaiju::CalibrationFigures now = calibration->calibration.figures();
    const kaiju_calibration_figures figures{
        out->struct_size,     now.blocks,        now.left_out,
        now.windows,          now.far_windows,   now.known,
        now.frozen,           now.tokens.newest, now.tokens.mean,
        now.tokens.deviation, now.scales.newest, now.scales.mean,
        now.scales.deviation};
    copy_sized(&figures, sizeof figures, out, out->struct_size);
    return {};
  });
}

kaiju_status kaiju_calibration_saturation(const kaiju_calibration* calibration, size_t slot,
                                          kaiju_saturation* out) {
  return guard(nullptr, [&]() -> Status {
    if (!calibration || !out) return missing(calibration ? "out" : "calibration");
    KAIJU_TRY(check_struct_size<kaiju_saturation>("kaiju_saturation", out->struct_size));
    const kaiju::CalibrationFigures now = calibration->calibration.figures();
    if (slot >= now.slots.size()) return Status(StatusCode::kNotFound, "no such KV slot");
    const kaiju::CalibrationFigures::Slot& own = now.slots[slot];
    const kaiju_saturation saturation{out->struct_size, own.keys, own.values, own.saturated_keys,
                                      own.saturated_values};
    copy_sized(&saturation, sizeof saturation, out, out->struct_size);
    return {};
  });
}

kaiju_status kaiju_calibration_save(const kaiju_calibration* calibration, const char* path,
                                    kaiju_error** error) {
  return guard(error, [&]() -> Status {
    if (!calibration || !path) return missing(calibration ? "path" : "calibration");
    const kaiju::Result<kaiju::KvScales> made = calibration->calibration.propose();
    if (!made.ok()) return made.status();
    return kaiju::write_scales(*calibration->checkpoint, *made, path);
  });
}

kaiju_status kaiju_calibration_thaw(kaiju_calibration* calibration) {
  return guard(nullptr, [&]() -> Status {
    if (!calibration) return missing("calibration");
    calibration->calibration.thaw();
    return {};
  });
}

kaiju_status kaiju_calibration_reset(kaiju_calibration* calibration) {
  return guard(nullptr, [&]() -> Status {
    if (!calibration) return missing("calibration");
    calibration->calibration.reset();
    return {};
  });
}
