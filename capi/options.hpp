// The options bag: numbered keys with typed values, and their conversion to the structs of the
// library.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "handles.hpp"

struct kaiju_options {
  using Value = std::variant<int64_t, double, std::string>;
  std::map<kaiju_option, std::vector<Value>>
      values;  // one element each, more for repeatable options
  std::vector<std::pair<int32_t, float>> logit_bias;
  std::vector<kaiju::Sampler> samplers;  // in their order
  kaiju_logits_fn hook = nullptr;
  void* hook_data = nullptr;
  kaiju_clock_fn clock = nullptr;
  void* clock_data = nullptr;
  kaiju::HostThreads host_threads;
};

namespace kaiju::capi {

// The options that a call may be given, as a sum of these.
enum Group : uint32_t {
  kOfModel = 1,
  kOfEngine = 2,
  kOfRequest = 4,
  kOfSharing = 8,
  kOfKey = 16,
  kOfSavedKv = 32
};

// Refuses an option of a group that `call` does not read: it would be set and do nothing.
Status check_groups(const kaiju_options* options, uint32_t groups, const char* call);

// All take NULL for the defaults.
ModelOptions model_options(const kaiju_options* options);
RunOptions run_options(const kaiju_options* options);
// No key: an empty one.
Result<Sealer> session_key(const kaiju_options* options);
bool session_kv(const kaiju_options* options);
Scope scope_of(const kaiju_options* options);
// Refuses options that say nothing of sharing.
Result<PrefetchOptions> prefetch_options(const kaiju_options* options, int64_t at, void* user_data,
                                         const char* call);
Result<RequestOptions> request_options(const kaiju_options* options);

}  // namespace kaiju::capi
