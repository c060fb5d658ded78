// Engine's shares: limits of memory and steps by tenant and character. Part of engine_impl.hpp.
#pragma once

#include "kaiju/base/detail/number_text.hpp"
#include "kaiju/engine/detail/engine_impl.hpp"

namespace kaiju {

inline Status EngineImpl::set_share(ShareOf of, const std::string& name, const ShareLimits& limits) {
  KAIJU_TRY(check_process());
  const Status status = guarded<Status>([&] {
    return inbox_.locked([&](Inbox& inbox) -> Status {
      if (!inbox.stopped.ok()) return inbox.stopped;
      KAIJU_TRY(check_share(inbox, {of, name}, limits));
      if (inbox.sequence_calls >= static_cast<size_t>(options_.max_events))
        return {StatusCode::kBusy, "too many calls wait for the next step: call step first"};
      Command command;
      command.kind = Command::Kind::kShare;
      command.share = {of, name};
      command.share_limits = limits;
      inbox.commands.push_back(std::move(command));
      ++inbox.sequence_calls;
      inbox.shares[{of, name}] = limits;
      inbox.share_usage.try_emplace({of, name});
      return {};
    });
  });
  inbox_.notify();
  return status;
}

// All floors together must leave what one request needs that belongs to no share.
inline Status EngineImpl::check_share(const Inbox& inbox, const ShareName& name, const ShareLimits& limits) const {
  if (name.first != ShareOf::kTenant && name.first != ShareOf::kCharacter)
    return invalid_argument("a share is a tenant's (1) or a character's (2)");
  if (name.second.empty()) return invalid_argument("a share needs the name of a tenant or a character");
  if (limits.cache_floor_bytes < 0 || limits.cache_ceiling_bytes < 0)
    return invalid_argument("floor and ceiling of a share's memory must be 0 bytes or more");
  const FloatState float_state;
  for (const double part : {limits.step_floor, limits.step_ceiling})
    if (!(part >= 0 && part <= 1))
      return invalid_argument("floor and ceiling of a share's steps must be from 0 to 1, and one is " +
                              number_text(part));
  if (limits.cache_ceiling_bytes > 0 && limits.cache_floor_bytes > limits.cache_ceiling_bytes)
    return invalid_argument("the share's floor of " + std::to_string(limits.cache_floor_bytes) +
                            " bytes is above its ceiling of " + std::to_string(limits.cache_ceiling_bytes));
  if (limits.step_ceiling > 0 && limits.step_floor > limits.step_ceiling)
    return invalid_argument("the share's floor of steps is above its ceiling");
  int64_t bytes = limits.cache_floor_bytes;
  int32_t places = floor_of(limits.step_floor, scheduler_.limits().max_running),
          tokens = floor_of(limits.step_floor, scheduler_.limits().step_tokens);
  for (const auto& [other, theirs] : inbox.shares) {
    if (other == name) continue;
    bytes += theirs.cache_floor_bytes;
    places += floor_of(theirs.step_floor, scheduler_.limits().max_running);
    tokens += floor_of(theirs.step_floor, scheduler_.limits().step_tokens);
  }
  const int64_t room = info().cache_bytes() - scheduler_.largest_bytes();
  if (bytes > 0 && bytes > room)
    return invalid_argument("all floors of memory come to " + std::to_string(bytes) + " bytes; of " +
                            std::to_string(info().cache_bytes()) + ", a request of the whole context needs " +
                            std::to_string(scheduler_.largest_bytes()) + ": lower the floors, or give the engine more");
  if (places > 0 && (places >= scheduler_.limits().max_running || tokens >= scheduler_.limits().step_tokens))
    return invalid_argument("all floors of steps come to " + std::to_string(places) + " of " +
                            std::to_string(scheduler_.limits().max_running) +
                            " places: one must be left for requests without a share");
  return {};
}

inline Result<ShareUsage> EngineImpl::share_usage(ShareOf of, const std::string& name) const {
  KAIJU_TRY(check_process());
  using Answer = Result<ShareUsage>;
  return guarded<Answer>([&] {
    return inbox_.locked([&](const Inbox& inbox) -> Answer {
      const auto found = inbox.share_usage.find({of, name});
      if (found == inbox.share_usage.end())
        return Status(StatusCode::kNotFound, "there is no share of that name: set_share makes one");
      return found->second;
    });
  });
}

inline void EngineImpl::count_shares() {
  if (!scheduler_.cache().shares().any()) return;
  inbox_.locked([&](Inbox& inbox) {
    for (auto& [name, usage] : inbox.share_usage)
      if (const ShareId id = scheduler_.cache().shares().find(name.first, name.second); id != kCommonShare)
        usage = scheduler_.usage(id);
  });
}

}  // namespace kaiju
