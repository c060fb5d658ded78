// Replicas: the engines of one checkpoint, alike, each on devices of its own and with a cache of its own.
//
// A chat stays where its KV is. A new one goes to the replica of its character, which a digest of both names chooses;
// if that one has a quarter more to do than the mean, to the character's next. A replica whose engine has stopped gets
// nothing. Everything here lives on the I/O thread; each replica has a thread that steps it (driver.hpp).
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "driver.hpp"

namespace kaiju::server {

class Replicas {
 public:
  static constexpr size_t kMostChats = 65536;  // whose replica is known, twice over

  // `engines`: one or more. `turns`: null where they do not compute on the same cores.
  Replicas(const std::vector<std::shared_ptr<Engine>>& engines, boost::asio::io_context& io,
           const std::shared_ptr<StepTurns>& turns);

  // The replica of a name, such as a character's.
  Driver& home(std::string_view name) { return of(name, false); }
  // For the next request of a chat; both names may be empty.
  Driver& place(const std::string& character, const std::string& chat);

  Driver& first() { return drivers_.front(); }
  const Driver& first() const { return drivers_.front(); }
  auto begin() { return drivers_.begin(); }
  auto end() { return drivers_.end(); }
  auto begin() const { return drivers_.begin(); }
  auto end() const { return drivers_.end(); }
  Driver& operator[](size_t index) { return drivers_[index]; }
  size_t size() const { return drivers_.size(); }
  size_t index_of(const Driver& driver) const;

  size_t working() const;  // replicas whose engines have not stopped
  size_t unfinished() const;
  // Of the engine that stopped first in the list; ok where none did.
  Status status() const;

 private:
  Driver& of(std::string_view name, bool with_room);

  std::deque<Driver> drivers_;
  // The newer chats, and those before them.
  std::unordered_map<std::string, Driver*> newer_, older_;
};

}  // namespace kaiju::server
