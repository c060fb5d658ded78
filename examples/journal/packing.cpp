// See packing.hpp.
#include "packing.hpp"

#include <zstd.h>

#include <memory>

namespace kaiju::journal {
namespace {

constexpr int kLevel = 3;
constexpr int kWindowLog = 27;  // as far back as a decoder looks without being asked: 128 MiB

struct Free {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

std::string pack(std::string_view record, std::string_view before) {
  const std::unique_ptr<ZSTD_CCtx, Free> context(ZSTD_createCCtx());
  if (!context) return {};
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel);
  ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, 1);
  if (!before.empty()) ZSTD_CCtx_refPrefix(context.get(), before.data(), before.size());
  std::string packed(ZSTD_compressBound(record.size()), '\0');
  const size_t size = ZSTD_compress2(context.get(), packed.data(), packed.size(), record.data(), record.size());
  if (ZSTD_isError(size)) return {};
  packed.resize(size);
  return packed;
}

std::optional<std::string> unpack(std::string_view packed, std::string_view before) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size > kMostRecordBytes) return {};  // unknown and wrong are larger
  const std::unique_ptr<ZSTD_DCtx, Free> context(ZSTD_createDCtx());
  if (!context) return {};
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, kWindowLog);
  if (!before.empty()) ZSTD_DCtx_refPrefix(context.get(), before.data(), before.size());
  std::string record(size, '\0');
  const size_t found = ZSTD_decompressDCtx(context.get(), record.data(), record.size(), packed.data(), packed.size());
  if (ZSTD_isError(found) || found != size) return {};
  return record;
}

}  // namespace kaiju::journal
