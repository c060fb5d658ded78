// Computes the bounds of bounds.hpp.
#include "bench/replay/bounds.hpp"

#include <algorithm>
#include <queue>

namespace kaiju::replay {

double whole_footprint(const Trace& trace, const KvSizes& sizes) {
  const auto resume_point = [&](double tokens) { return std::min<double>(tokens, sizes.window) * sizes.window_bytes; };
  std::vector<int32_t> last(static_cast<size_t>(trace.conversation_count), kNone);
  for (const Request& request : trace.requests)
    last[static_cast<size_t>(request.conversation)] = request.reply == kNone ? request.prompt : request.reply;
  std::vector<bool> seen(trace.texts.size(), false);
  double bytes = 0;
  for (const int32_t leaf : last) {
    bool own = false;
    for (int32_t text = leaf; text != kNone && !seen[static_cast<size_t>(text)];
         text = trace.texts[static_cast<size_t>(text)].before) {
      seen[static_cast<size_t>(text)] = true;
      const int32_t count = trace.token_count(text);
      const bool root = trace.texts[static_cast<size_t>(text)].before == kNone;
      bytes += count * sizes.global_bytes;
      if (root && trace.characters)
        bytes += resume_point(count);
      else
        own = true;
    }
    if (own) bytes += resume_point(trace.texts[static_cast<size_t>(leaf)].end);
  }
  return bytes;
}

Bounds::Bounds(const Trace& trace) : measured_from_(trace.measured_from) {
  uses_.reserve(trace.requests.size());
  for (const Request& request : trace.requests)
    uses_.push_back({request.seconds, trace.prompt_tokens(request), 0, trace.measured(request)});
  find_reuses(trace);
  for (const Use& use : uses_) {
    if (!use.measured) continue;
    prompt_tokens_ += static_cast<uint64_t>(use.prompt_tokens);
    infinite_ += static_cast<uint64_t>(std::min(use.found, use.prompt_tokens - 1));
  }
}

// Backwards through time: who uses a text next is known when its own use is reached.
void Bounds::find_reuses(const Trace& trace) {
  std::vector<int32_t> next_use(trace.texts.size(), kNone);
  for (auto r = static_cast<int32_t>(trace.requests.size()) - 1; r >= 0; --r) {
    const Request& request = trace.requests[static_cast<size_t>(r)];
    Reuse reuse{r, kNone, 0, false};
    const auto close = [&] {
      if (reuse.to != kNone) {
        reuses_.push_back(reuse);
        uses_[static_cast<size_t>(reuse.to)].found += reuse.tokens;
      }
      reuse.tokens = 0;
    };
    // From the deepest text up: the nearer the root, the sooner the next use.
    for (int32_t text = request.reply == kNone ? request.prompt : request.reply; text != kNone;
         text = trace.texts[static_cast<size_t>(text)].before) {
      int32_t& next = next_use[static_cast<size_t>(text)];
      if (next != reuse.to) {
        close();
        reuse.to = next;
      }
      reuse.tokens += trace.token_count(text);
      next = r;
    }
    close();
  }
  std::reverse(reuses_.begin(), reuses_.end());
  // The deeper a text, the longer ago its last use: of what a request finds, the piece used longest ago is the deepest.
  std::vector<uint8_t> has_deepest(uses_.size(), 0);
  for (Reuse& reuse : reuses_) {
    uint8_t& has = has_deepest[static_cast<size_t>(reuse.to)];
    reuse.deepest = has == 0;
    has = 1;
  }
}

uint64_t Bounds::farthest_next_use(double memory_bytes, const KvSizes& sizes) const {
  const double capacity = memory_bytes / sizes.global_bytes;  // tokens
  std::vector<double> kept(uses_.size(), 0);                  // tokens whose next use is request i
  std::priority_queue<int32_t> latest;                        // requests for which something is kept, or was
  double total = 0, found = 0;
  size_t at = 0;
  for (size_t r = 0; r < uses_.size(); ++r) {
    const Use& use = uses_[r];
    if (use.measured) found += std::min<double>(kept[r], use.prompt_tokens - 1);
    total -= kept[r];
    kept[r] = 0;
    for (; at < reuses_.size() && reuses_[at].from == static_cast<int32_t>(r); ++at) {
      kept[static_cast<size_t>(reuses_[at].to)] += reuses_[at].tokens;
      total += reuses_[at].tokens;
      latest.push(reuses_[at].to);
    }
    while (total > capacity) {
      double& victim = kept[static_cast<size_t>(latest.top())];
      const double gone = std::min(victim, total - capacity);
      victim -= gone;
      total -= gone;
      if (victim == 0) latest.pop();
    }
  }
  return static_cast<uint64_t>(found);
}

uint64_t Bounds::priced(double memory_bytes, const KvSizes& sizes) const {
  struct Offer {
    double tokens, byte_seconds;
  };
  std::vector<Offer> offers;
  for (const Reuse& reuse : reuses_) {
    const Use& from = uses_[static_cast<size_t>(reuse.from)];
    const Use& to = uses_[static_cast<size_t>(reuse.to)];
    if (!to.measured) continue;
    const bool whole = reuse.deepest && to.found == to.prompt_tokens;
    double bytes = reuse.tokens * sizes.global_bytes;
    if (reuse.deepest) bytes += std::min(reuse.tokens, sizes.window) * sizes.window_bytes;
    offers.push_back({static_cast<double>(reuse.tokens - (whole ? 1 : 0)),
                      bytes * (to.seconds - std::max(from.seconds, measured_from_))});
  }
  std::sort(offers.begin(), offers.end(),
            [](const Offer& a, const Offer& b) { return a.tokens * b.byte_seconds > b.tokens * a.byte_seconds; });
  double budget = uses_.empty() ? 0 : memory_bytes * (uses_.back().seconds - measured_from_), found = 0;
  for (const Offer& offer : offers) {
    const double part = offer.byte_seconds <= budget ? 1 : budget / offer.byte_seconds;
    found += part * offer.tokens;
    budget -= part * offer.byte_seconds;
    if (part < 1) break;
  }
  return static_cast<uint64_t>(found);
}

uint64_t Bounds::belady(double memory_bytes, const KvSizes& sizes) const {
  return std::min({farthest_next_use(memory_bytes, sizes), priced(memory_bytes, sizes), infinite_});
}

}  // namespace kaiju::replay
