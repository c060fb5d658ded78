// Tiers: moves blocks between host memory and the file. Part of tiers.hpp, which states the contract.
#pragma once

#include "kaiju/cache/tiers.hpp"

namespace kaiju {

// A block at rest in host memory makes room: it goes into the file, or is dropped where there is none.
inline void Tiers::leave_host(BlockKind kind, BlockId place) {
  const StoredId id = host_pool_.at(kind, place);
  if (write_file(id, kind, place)) return host_pool_.free(kind, place);
  ++host_stats_.blocks_dropped;
  forget(id, kind);
}

inline bool Tiers::write_file(StoredId id, BlockKind kind, BlockId from) {
  if (!file_) return false;
  const BlockId to = file_pool_.take(kind, id, [&](BlockKind k, BlockId p) {
    ++file_stats_.blocks_dropped;
    forget(file_pool_.at(k, p), k);
  });
  if (to == kNoBlock) return false;
  const Status written = file_->write(file_pool_.offset(kind, to), host_span(kind, from), entry(id).digest[kind]);
  if (!written.ok()) {
    file_pool_.free(kind, to);
    end_file(written);
    return false;
  }
  file_pool_.rest(kind, to);
  count_move(file_stats_.blocks_in, file_stats_.bytes_in, kind);
  publish(CacheEventKind::kRemoved, at(id), kind, CacheTier::kHost);
  publish(CacheEventKind::kStored, at(id), kind, CacheTier::kFile);
  entry(id).tier[kind] = CacheTier::kFile;
  entry(id).place[kind] = to;
  return true;
}

// Moves a kept block back into host memory, where it is kept. Where that fails it is kept in the file as before.
inline Staged Tiers::read_file(StoredId id, BlockKind kind) {
  const BlockId from = at(id).place[kind];
  const BlockId to = host_pool_.take(kind, id, [&](BlockKind k, BlockId p) { leave_host(k, p); });
  if (to == kNoBlock) return Staged::kNoRoom;
  const Status read =
      file_ ? file_->read(file_pool_.offset(kind, from), host_span(kind, to), at(id).digest[kind]) : file_status_;
  if (!read.ok()) {
    host_pool_.free(kind, to);
    if (file_ && read.code() != StatusCode::kBadModel) end_file(read);
    return Staged::kLost;
  }
  count_move(file_stats_.blocks_out, file_stats_.bytes_out, kind);
  publish(CacheEventKind::kRemoved, at(id), kind, CacheTier::kFile);
  publish(CacheEventKind::kStored, at(id), kind, CacheTier::kHost);
  file_pool_.free(kind, from);
  entry(id).tier[kind] = CacheTier::kHost;
  entry(id).place[kind] = to;
  host_pool_.use(kind, to);
  return Staged::kReady;
}

// The file is used no more; the blocks at rest in it are lost.
inline void Tiers::end_file(const Status& why) {
  file_status_ = why;
  file_.reset();
  for (const BlockKind kind : kBothKinds)
    for (BlockId place = 0; place < file_pool_.places().total(kind); ++place)
      if (file_pool_.places().state(kind, place) == BlockState::kCached) {
        ++file_stats_.blocks_lost;
        forget(file_pool_.at(kind, place), kind);
      }
}

}  // namespace kaiju
