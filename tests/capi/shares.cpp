// Shares of memory and steps in the C interface.
#include "catch.hpp"
#include "tests/capi/host.hpp"

using namespace kaiju::tests;

TEST_CASE("a tenant has a share, and is told what it has of it") {
  Host host;
  const auto set = [&](int32_t of, const char* name, const kaiju_share& share) {
    return ask([&](kaiju_error** e) { return kaiju_engine_set_share(host.engine, of, name, &share, e); });
  };
  kaiju_share share{};
  share.struct_size = sizeof share;
  share.cache_ceiling_bytes = 1 << 30;
  share.step_floor = 0.25;
  Host::check(set(KAIJU_SHARE_TENANT, "ann", share));
  CHECK(set(3, "ann", share).says("tenant's (1) or a character's (2)"));
  CHECK(set(KAIJU_SHARE_TENANT, "", share).says("needs the name"));
  share.cache_floor_bytes = UINT64_MAX;
  CHECK(set(KAIJU_SHARE_TENANT, "bob", share).says("above its ceiling"));
  share.cache_ceiling_bytes = 0;
  CHECK(set(KAIJU_SHARE_CHARACTER, "bob", share).says("lower the floors"));
  share.struct_size = 8;
  CHECK(set(KAIJU_SHARE_TENANT, "ann", share).says("struct_size"));
  CHECK(ask([&](kaiju_error** e) {
          return kaiju_engine_set_share(host.engine, KAIJU_SHARE_TENANT, "ann", nullptr, e);
        }).says("share is NULL"));

  kaiju_options_set_string(host.options, KAIJU_SESSION_TENANT, "ann", 3, nullptr);
  host.submit({1, 20, 21, 22});
  host.drain();
  kaiju_share_usage usage{};
  usage.struct_size = sizeof usage;
  REQUIRE(kaiju_engine_share_usage(host.engine, KAIJU_SHARE_TENANT, "ann", &usage) == KAIJU_OK);
  CHECK(usage.cache_bytes > 0);
  CHECK(usage.running == 0);
  CHECK(usage.tokens_computed == 11);  // four and the reply's eight, of which the last is not computed
  CHECK(kaiju_engine_share_usage(host.engine, KAIJU_SHARE_TENANT, "eve", &usage) == KAIJU_NOT_FOUND);
  CHECK(kaiju_engine_share_usage(host.engine, KAIJU_SHARE_TENANT, "ann", nullptr) == KAIJU_INVALID_ARGUMENT);
  kaiju_metrics metrics{};
  metrics.struct_size = sizeof metrics;
  REQUIRE(kaiju_engine_metrics(host.engine, &metrics) == KAIJU_OK);
  CHECK(metrics.cache_blocks_over_floors == 0);
}
