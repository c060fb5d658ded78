// A sanitizer is to answer a request that cannot be met as malloc does, not to end the process.
extern "C" {
[[gnu::visibility("default")]] const char* __asan_default_options() { return "allocator_may_return_null=1"; }
[[gnu::visibility("default")]] const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
}
