// World: a tree and a few leases, driven by hand, beside a naive cache. Every word of KV says which tokens come before
// it, which characters and salts may read it, and in which epoch it was computed. Every read and write is checked, and
// every hit is compared with a search of all that is known. With tiers, words move to places in host memory and in a
// file; some copies fail, and a promotion may take several operations. Salts are tenants: every eviction is compared
// with a count of what its tenant has and was promised.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kaiju/cache/detail/invariants.hpp"

namespace kaiju::test {

struct Difference : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class World {
 public:
  struct Line {  // a running sequence
    bool running = false;
    bool computed = false;  // its slot knows something
    std::vector<int32_t> tokens;
    int32_t prompt_count = 0, most = 0;
    std::string character, own;
    Regions regions;
    ShareId share = kCommonShare;
    Lease lease;
    std::vector<uint64_t> words;  // what each position must hold
    StepPlan plan;
    Promotion promotion;  // while waiting: its copies have run, and it does not know yet
    bool waiting = false;
    std::set<size_t> failed;  // of its transfers
    uint64_t began = 0;       // the operation it was
  };

  World(const ExecutorInfo& info, const CacheOptions& options, int32_t chunk, size_t lines)
      : info_(info), chunk_(chunk), tree_(std::make_unique<PrefixTree>(info, options)), lines_(lines) {
    for (const BlockKind kind : kBothKinds)
      memory_[kind].resize(static_cast<size_t>(info.block_count[kind]) * kBlockTokens);
    if (options.host_bytes == 0) {
      watch_evictions();
      return;
    }
    CacheOptions with_file = options;
    if (options.file_bytes > 0) with_file.file = std::make_shared<WordFile>(*this);
    tree_ = std::make_unique<PrefixTree>(info, with_file);
    if (const Status status = tree_->add_tiers(info); !status.ok()) differ(status.message());
    watch_evictions();
  }
  ~World() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].waiting) give_up(i);
      if (lines_[i].running) lines_[i].lease.finish(*tree_, lines_[i].tokens);
    }
  }

  PrefixTree& tree() { return *tree_; }
  Line& line(size_t i) { return lines_[i]; }
  size_t line_count() const { return lines_.size(); }
  uint64_t hits() const { return hits_; }
  uint64_t hits_below() const { return hits_below_; }

  // False: no room, or it waits for blocks from below: arrive.
  bool start(size_t i, const std::vector<int32_t>& prompt, int32_t generate, const std::string& character,
             int32_t shared, const std::string& own) {
    Line& line = lines_[i];
    ++operations_;
    line.tokens = prompt;
    line.prompt_count = static_cast<int32_t>(prompt.size());
    line.most = line.prompt_count + generate;
    line.character = "c" + character;
    line.own = "s" + own;
    line.regions.shared = tree_->domains().hold(DomainKind::kShared, character, tree_->namer(),
                                                tree_->shares().find(ShareOf::kCharacter, character));
    line.share = tree_->shares().find(ShareOf::kTenant, own);
    line.regions.own = tree_->domains().hold(DomainKind::kSalt, own, tree_->namer(), line.share);
    line.share = tree_->domains().at(line.regions.own).share;  // that of when its first block came
    line.regions.shared_tokens = shared;
    line.words = words_of(line.tokens);
    line.promotion = Promotion();
    BlockNeed promised;
    claimant_ = line.share;
    const Promotion::Outcome outcome = line.promotion.begin(*tree_, request_of(i), promised);
    run_transfers(outcome == Promotion::Outcome::kBegun ? &line : nullptr);
    if (outcome == Promotion::Outcome::kNothing) return start_lease(i);
    line.began = operations_;
    if (outcome == Promotion::Outcome::kBegun)
      line.waiting = true;
    else
      release(line);
    return false;
  }
  // The promotion has ended: the lease starts with what it brought.
  bool arrive(size_t i) {
    Line& line = lines_[i];
    line.waiting = false;
    line.promotion.ran(*tree_, [&](size_t transfer) { return line.failed.count(transfer) > 0; });
    const bool started = start_lease(i);
    if (started && all_reused_ && line.began == operations_ && line.failed.empty() &&
        line.lease.next() < line.promotion.resident() + Promotion::kLeastGain)
      differ("what came from below is of no use: starts at " + std::to_string(line.lease.next()) + ", without at " +
             std::to_string(line.promotion.resident()) + ", promoted for " + std::to_string(line.promotion.position()) +
             " window " + std::to_string(info_.window) + " prompt " + std::to_string(line.prompt_count) + " shared " +
             std::to_string(line.regions.shared_tokens));
    if (started) hits_below_ += static_cast<uint64_t>(std::max(0, line.lease.next() - line.promotion.resident()));
    line.promotion.release(*tree_);
    return started;
  }
  // The request leaves while its promotion is under way.
  void give_up(size_t i) {
    Line& line = lines_[i];
    line.waiting = false;
    line.promotion.ran(*tree_, [&](size_t transfer) { return line.failed.count(transfer) > 0; });
    line.promotion.release(*tree_);
    release(line);
  }
  bool start_lease(size_t i) {
    Line& line = lines_[i];
    LeaseRequest request = request_of(i);
    const auto [least, most] = best_resume(line);
    line.lease = Lease();
    line.plan.clear();
    bool started = false;
    bool alone = true;
    for (const Line& other : lines_) alone = alone && !other.running && !other.waiting;
    claimant_ = line.share;
    constexpr Reuse kReuses[] = {Reuse::kAll, Reuse::kWholeBlocks, Reuse::kGlobalOnly, Reuse::kNothing};
    for (size_t tries = 0; tries < 8 && !started; ++tries) {
      const Reuse reuse = kReuses[tries % 4];
      if (reuse >= Reuse::kGlobalOnly && (!alone || pinned_)) continue;
      request.claimant.over_floors = tries >= 4;
      if (request.claimant.over_floors && (!alone || pinned_)) break;
      started =
          line.lease.start(*tree_, request, reuse, {&line.plan, static_cast<int32_t>(i)}) == Lease::Outcome::kStarted;
      if (!started) continue;
      check_ceiling(line.share);
      all_reused_ = reuse == Reuse::kAll;
      const int32_t found = line.lease.next();
      if (found > most) differ("a hit of " + std::to_string(found) + " where " + std::to_string(most) + " is known");
      if (reuse == Reuse::kAll && found < least)
        differ("a hit of " + std::to_string(found) + " where " + std::to_string(least) + " is known");
      hits_ += static_cast<uint64_t>(found);
    }
    if (!started) {
      if (alone && !pinned_ && tree_->pool().could_ever_hold(Lease::need_alone(line.most, chunk_, info_)))
        differ("a request that fits an empty cache does not fit one that nobody uses");
      release(line);
      return false;
    }
    line.running = true;
    run_transfers(nullptr);
    run_copies(line);
    check_reads(line);
    return true;
  }

  // Computes up to `wanted` tokens; how many it was.
  int32_t step(size_t i, int32_t wanted, int32_t next_token) {
    Line& line = lines_[i];
    ++operations_;
    claimant_ = line.share;
    line.plan.clear();
    const EditSink sink{&line.plan, static_cast<int32_t>(i)};
    line.lease.prepare(*tree_, sink);
    run_transfers(nullptr);
    run_copies(line);
    line.plan.copies.clear();
    const int32_t next = line.lease.next();
    wanted = std::min({wanted, chunk_, static_cast<int32_t>(line.tokens.size()) - next});
    const int32_t count = line.lease.room(*tree_, wanted);
    if (count == 0) return 0;
    if (!line.lease.extend(*tree_, next + count, sink)) differ("promised blocks are missing");
    run_transfers(nullptr);
    check_reads(line);
    for (int32_t position = next; position < next + count; ++position)
      for (const BlockKind kind : kBothKinds)
        if (tree_->uses(kind) && (kind == BlockKind::kWindow || position >= line.lease.write_from()))
          write(line, kind, position);
    line.lease.commit(*tree_, line.tokens, count);
    if (line.lease.next() == static_cast<int32_t>(line.tokens.size()) && line.lease.next() < line.most) {
      line.tokens.push_back(next_token);
      line.words = words_of(line.tokens);
    }
    check_reads(line);
    return count;
  }
  void finish(size_t i) {
    Line& line = lines_[i];
    ++operations_;
    check_reads(line);
    for (const NodeRef& point : line.lease.finish(*tree_, line.tokens)) points_.push_back(point);
    release(line);
    line.running = false;
  }
  void drop_points() {
    for (const NodeRef& point : points_) tree_->drop_point(point);
    points_.clear();
  }
  void pin(NodeId node) {
    tree_->pin(node);
    pins_.push_back(node);
    pinned_ = true;
  }
  void unpin_all() {
    for (const NodeId node : pins_) tree_->unpin(node);
    pins_.clear();
    pinned_ = false;
  }
  // Only while nothing runs.
  void next_epoch() {
    unpin_all();
    tree_->set_epoch(++epoch_);
  }

  // Of tenant or character `name`.
  void set_share(ShareOf of, const std::string& name, int64_t floor, int64_t ceiling) {
    tree_->set_share(of, name, {.cache_floor_bytes = floor, .cache_ceiling_bytes = ceiling});
  }
  uint64_t kept_promises() const { return kept_promises_; }

  void check() const {
    if (broken_promises_ > tree_->stats().blocks_over_floors)
      differ(std::to_string(broken_promises_) + " blocks were evicted that another share was promised, and " +
             std::to_string(tree_->stats().blocks_over_floors) + " were counted");
    if (const Status status = check_tree(*tree_); !status.ok()) differ(status.message());
    std::vector<const Lease*> leases;
    std::vector<const Promotion*> promotions;
    // A node's holders are the leases and promotions whose path it is on.
    std::map<NodeId, int32_t> refs;
    for (const Line& line : lines_) {
      if (line.waiting) {
        promotions.push_back(&line.promotion);
        for (const NodeId node : line.promotion.path()) ++refs[node];
      }
      if (!line.running) continue;
      leases.push_back(&line.lease);
      for (const NodeId node : line.lease.path()) ++refs[node];
      if (line.lease.shared_tail() != kNoNode) ++refs[line.lease.shared_tail()];
    }
    if (const Status status = check_holders(*tree_, leases, promotions); !status.ok()) differ(status.message());
    for_nodes([&](NodeId id) {
      if (tree_->at(id).refs != (refs.count(id) ? refs[id] : 0))
        differ("node " + std::to_string(id) + " miscounts its holders");
    });
  }

 private:
  // What a share has, counted block by block.
  int64_t bytes_of(ShareId share) const {
    int64_t bytes = 0;
    for_nodes([&](NodeId id) {
      for (const BlockKind kind : kBothKinds)
        if (tree_->share_of(id) == share && tree_->at(id).has(kind)) bytes += info_.block_bytes[kind];
    });
    return bytes;
  }
  void watch_evictions() {
    tree_->on_evict = [this](const EvictedBlock& evicted) {
      const ShareId share = tree_->domains().at(evicted.node->domain).share;
      const int64_t floor = tree_->shares().at(share).limits.cache_floor_bytes;
      if (floor == 0 || share == claimant_) return;
      const bool broken = bytes_of(share) - info_.block_bytes[evicted.kind] < floor;
      ++(broken ? broken_promises_ : kept_promises_);
    };
  }
  // A request that has just started left its share below its ceiling, or nothing more of it could go.
  void check_ceiling(ShareId share) const {
    const CacheShare& of = tree_->shares().at(share);
    if (of.limits.cache_ceiling_bytes == 0 || bytes_of(share) <= of.limits.cache_ceiling_bytes) return;
    int32_t listed = 0;
    for_nodes([&](NodeId id) {
      if (tree_->share_of(id) == share) listed += tree_->at(id).listed || tree_->at(id).window_listed ? 1 : 0;
    });
    if (listed > 1) differ("a share is above its ceiling, and " + std::to_string(listed) + " of its nodes could go");
  }

  struct Word {
    uint64_t word = 0;
    std::set<std::string> readers;  // characters and salts that may know it
  };

  // The file: words at offsets.
  class WordFile final : public BlockFile {
   public:
    explicit WordFile(World& world) : world_(world) {}
    Status write(int64_t offset, std::span<const std::byte> bytes, BlockName&) override {
      words_[offset] = world_.below_[bytes.data()];
      return {};
    }
    Status read(int64_t offset, std::span<std::byte> bytes, const BlockName&) override {
      if (++world_.transfers_ % 7 == 0) return bad_model("spoilt");
      world_.below_[bytes.data()] = words_[offset];
      return {};
    }

   private:
    World& world_;
    std::map<int64_t, std::vector<Word>> words_;
  };

  LeaseRequest request_of(size_t i) {
    const Line& line = lines_[i];
    LeaseRequest request{line.tokens, line.most, chunk_, line.regions, i + 1, ++ticket_};
    request.claimant.share = line.share;
    return request;
  }
  // Runs the copies that are due, before any lease writes. Every thirteenth fails.
  void run_transfers(Line* line) {
    if (!tree_->tiers()) return;
    StepPlan plan;
    std::set<size_t> failed;
    tree_->tiers()->write_downs(plan);
    if (line) line->promotion.write(plan);
    for (size_t i = 0; i < plan.transfers.size(); ++i) {
      const BlockTransfer& transfer = plan.transfers[i];
      const auto block = memory_[transfer.kind].begin() + transfer.block * kBlockTokens;
      const bool fails = ++transfers_ % 13 == 0;
      if (fails) failed.insert(i);
      if (transfer.way == BlockTransfer::Way::kDown)
        below_[transfer.host].assign(block, block + kBlockTokens);
      else
        std::copy_n((fails ? nothing_ : below_[transfer.host]).begin(), kBlockTokens, block);
      if (fails && transfer.way == BlockTransfer::Way::kDown) below_[transfer.host].assign(kBlockTokens, Word());
    }
    tree_->tiers()->downs_ran([&](size_t i) { return failed.count(i) > 0; });
    if (line) line->failed = std::move(failed);
  }
  [[noreturn]] static void differ(const std::string& what) { throw Difference(what); }
  static uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
  std::vector<uint64_t> words_of(const std::vector<int32_t>& tokens) const {
    std::vector<uint64_t> words;
    uint64_t word = mix(epoch_);
    for (const int32_t token : tokens) words.push_back(word = mix(word ^ static_cast<uint64_t>(token)));
    return words;
  }
  Word& word(BlockKind kind, BlockId block, int32_t offset) {
    return memory_[kind][static_cast<size_t>(block) * kBlockTokens + static_cast<size_t>(offset)];
  }
  bool known(BlockKind kind, BlockId block) const {
    const NodeId node = tree_->node_of(kind, block);
    return node != kNoNode && tree_->at(node).ready();
  }
  void run_copies(Line& line) {
    for (const BlockCopy& copy : line.plan.copies) {
      if (copy.from == copy.to || known(copy.kind, copy.to)) differ("a copy into a block that others know");
      const int32_t first = line.lease.next() / kBlockTokens * kBlockTokens;
      for (int32_t i = 0; i < copy.token_count; ++i) {
        read(line, copy.kind, copy.from, first + i);
        word(copy.kind, copy.to, i) = word(copy.kind, copy.from, i);
        admit(word(copy.kind, copy.to, i), line, first + i);
      }
    }
  }
  void write(Line& line, BlockKind kind, int32_t position) {
    const BlockId block = line.lease.blocks(kind)[static_cast<size_t>(position / kBlockTokens)];
    if (known(kind, block)) differ("a write into a block that others know");
    for (const Line& other : lines_)
      if (&other != &line && other.running) {
        const auto& stash = other.lease.stash(kind);
        if (std::find(stash.begin(), stash.end(), block) != stash.end()) differ("a write into another's block");
      }
    Word& to = word(kind, block, position % kBlockTokens);
    to.word = line.words[static_cast<size_t>(position)];
    to.readers.clear();
    admit(to, line, position);
  }
  // A line that writes a word, or copies one that it may read, shares it as its request says.
  static void admit(Word& word, const Line& line, int32_t position) {
    word.readers.insert(line.own);
    if (position < line.regions.shared_tokens) word.readers.insert(line.character);
  }
  void read(Line& line, BlockKind kind, BlockId block, int32_t position) {
    Word& from = word(kind, block, position % kBlockTokens);
    if (from.word != line.words[static_cast<size_t>(position)])
      differ(std::string("a ") + name_of(kind) + " word at " + std::to_string(position) + " is another's");
    const bool shared = position < line.regions.shared_tokens && from.readers.count(line.character);
    if (!shared && !from.readers.count(line.own))
      differ("a word at " + std::to_string(position) + " is behind another salt");
  }
  void check_reads(Line& line) {
    const int32_t next = line.lease.next();
    for (const BlockKind kind : kBothKinds) {
      if (!tree_->uses(kind)) continue;
      for (int32_t position = kind == BlockKind::kWindow ? std::max(0, next - info_.window + 1) : 0; position < next;
           ++position) {
        const BlockId block = line.lease.blocks(kind)[static_cast<size_t>(position / kBlockTokens)];
        if (block == kNoBlock) differ("a read without a block");
        read(line, kind, block, position);
      }
    }
  }
  template <class Visit>
  void for_nodes(Visit visit) const {
    for (size_t d = 0; d < tree_->domains().end(); ++d)
      for (NodeId id = tree_->domains().at(static_cast<DomainId>(d)).first; id != kNoNode;
           id = tree_->at(id).domain_next)
        visit(id);
  }
  void release(Line& line) {
    tree_->release_domain(line.regions.shared);
    tree_->release_domain(line.regions.own);
  }

  // The best resume point that a search of everything finds: the least that the cache must find, looking at the newest
  // children, and the most that it may find.
  std::pair<int32_t, int32_t> best_resume(const Line& line) const {
    std::vector<NodeId> path;
    const int32_t limit = line.prompt_count - 1;
    NodeId parent = kRoot;
    const auto same = [&](const Node& node, int32_t index) {
      int32_t count = 0;
      while (count < node.count && index * kBlockTokens + count < line.prompt_count &&
             node.tokens[count] == line.tokens[static_cast<size_t>(index * kBlockTokens + count)])
        ++count;
      return count;
    };
    const auto children = [&](NodeId of) {
      std::vector<NodeId> all;
      for_nodes([&](NodeId id) {
        if (tree_->at(id).parent == of) all.push_back(id);
      });
      return all;
    };
    const auto key = [&](const Node& node) {
      const Domain& domain = tree_->domains().at(node.domain);
      return domain.dead ? std::string() : domain.key;
    };
    for (int32_t index = 0; (index + 1) * kBlockTokens <= line.prompt_count; ++index) {
      const std::string& wanted = (index + 1) * kBlockTokens <= line.regions.shared_tokens ? line.character : line.own;
      NodeId next = kNoNode;
      for (const NodeId id : children(parent))
        if (key(tree_->at(id)) == wanted && tree_->at(id).ready() && tree_->at(id).count == kBlockTokens &&
            same(tree_->at(id), index) == kBlockTokens)
          next = id;
      if (next == kNoNode) break;
      path.push_back(parent = next);
    }
    const auto whole = static_cast<int32_t>(path.size());
    const auto resume_with = [&](NodeId tail, int32_t tail_tokens) {
      for (int32_t position = std::min(limit, whole * kBlockTokens + tail_tokens); position > 0; --position) {
        bool here = true;
        for (int32_t p = std::max(0, position - info_.window + 1) / kBlockTokens;
             info_.window > 0 && p < blocks_for(position); ++p)
          here = here && tree_->at(p < whole ? path[static_cast<size_t>(p)] : tail).has(BlockKind::kWindow);
        if (here) return position;
      }
      return 0;
    };
    int32_t best = resume_with(kNoNode, 0);
    const std::vector<NodeId> tails = children(parent);
    for (const NodeId id : tails) {
      const Node& node = tree_->at(id);
      if (!node.ready()) continue;
      int32_t count = std::min(same(node, whole), kBlockTokens - 1);
      if (key(node) == line.character)
        count = std::min(count, line.regions.shared_tokens - whole * kBlockTokens);
      else if (key(node) != line.own)
        count = 0;
      if (count > 0) best = std::max(best, resume_with(id, count));
    }
    // The tree looks at the longest of the newest eight only, so a window that it lacks may cost it the tail.
    return {tails.size() <= 8 ? std::min(best, resume_with(kNoNode, 0)) : 0, best};
  }

  ExecutorInfo info_;
  int32_t chunk_;
  std::unique_ptr<PrefixTree> tree_;
  std::vector<Line> lines_;
  PerKind<std::vector<Word>> memory_;
  std::map<const std::byte*, std::vector<Word>> below_;  // host memory, by place
  const std::vector<Word> nothing_ = std::vector<Word>(kBlockTokens);
  uint64_t transfers_ = 0, hits_below_ = 0, operations_ = 0;
  ShareId claimant_ = kCommonShare;  // of the operation that runs
  uint64_t broken_promises_ = 0, kept_promises_ = 0;
  std::vector<NodeRef> points_;
  std::vector<NodeId> pins_;
  bool pinned_ = false;
  bool all_reused_ = false;  // by the lease started last
  int32_t ticket_ = 0;
  uint64_t epoch_ = 0, hits_ = 0;
};

}  // namespace kaiju::test
