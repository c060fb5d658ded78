// Parses lines of the Mooncake format and builds a trace of them.
#include "bench/replay/mooncake.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>
#include <utility>

#include "examples/tools/text_input.hpp"

namespace kaiju::replay {
namespace {

constexpr int64_t kMostTokens = 1 << 24;

struct Row {
  double milliseconds = 0;
  int64_t input = 0, output = 0;
  std::vector<int64_t> ids;
};

// Empty: all is well.
std::string parse(const std::string& line, Row& row) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return "is not a JSON object";
  for (const char* name : {"timestamp", "input_length", "output_length", "hash_ids"})
    if (!json.contains(name)) return std::string("lacks ") + name;
  if (!json["timestamp"].is_number() || json["timestamp"].get<double>() < 0)
    return "has a timestamp that is not a number of milliseconds";
  row.milliseconds = json["timestamp"].get<double>();
  for (const auto& [name, value, least] :
       {std::tuple<const char*, int64_t*, int64_t>{"input_length", &row.input, 1}, {"output_length", &row.output, 0}}) {
    if (!json[name].is_number_integer()) return std::string("has an ") + name + " that is not a whole number";
    *value = json[name].get<int64_t>();
    if (*value < least || *value > kMostTokens)
      return std::string("has an ") + name + " of " + std::to_string(*value) + "; it must be from " +
             std::to_string(least) + " to " + std::to_string(kMostTokens);
  }
  if (!json["hash_ids"].is_array()) return "has hash_ids that are not a list";
  row.ids.clear();
  for (const nlohmann::json& id : json["hash_ids"]) {
    if (!id.is_number_integer()) return "has a hash id that is not a whole number";
    row.ids.push_back(id.get<int64_t>());
  }
  const int64_t blocks = (row.input + kMooncakeBlock - 1) / kMooncakeBlock;
  if (std::ssize(row.ids) != blocks)
    return "has " + std::to_string(row.ids.size()) + " hash ids; " + std::to_string(row.input) + " tokens are " +
           std::to_string(blocks) + " blocks of " + std::to_string(kMooncakeBlock);
  return {};
}

class Reader {
 public:
  void add(const Row& row) {
    int32_t text = kNone, tokens = 0;
    for (const int64_t id : row.ids) {
      const auto count = static_cast<int32_t>(std::min<int64_t>(kMooncakeBlock, row.input - tokens));
      tokens += count;
      const auto [place, added] = texts_.try_emplace({text, id, count}, kNone);
      if (added) place->second = trace_.add(text, count, content(id));
      text = place->second;
    }
    Request request;
    request.seconds = row.milliseconds / 1000;
    request.prompt = text;
    if (row.output > 0)
      request.reply = trace_.add(text, static_cast<int32_t>(row.output), ++contents_, static_cast<int32_t>(row.input));
    request.conversation = trace_.conversation_count++;
    request.leaves = true;
    trace_.requests.push_back(request);
  }
  Trace finish() {
    std::stable_sort(trace_.requests.begin(), trace_.requests.end(),
                     [](const Request& a, const Request& b) { return a.seconds < b.seconds; });
    return std::move(trace_);
  }

 private:
  int32_t content(int64_t id) {
    const auto [place, added] = content_of_.try_emplace(id, 0);
    if (added) place->second = ++contents_;
    return place->second;
  }
  Trace trace_;
  std::map<std::tuple<int32_t, int64_t, int32_t>, int32_t> texts_;  // behind which text, id, tokens
  std::unordered_map<int64_t, int32_t> content_of_;
  int32_t contents_ = 0;
};

}  // namespace

Result<Trace> read_mooncake(std::istream& in, size_t most_bytes) {
  Reader reader;
  Row row;
  std::string line;
  size_t bytes = 0;
  for (int64_t number = 1;; ++number) {
    const tools::LineRead read = tools::read_line(in, line, kMostTraceLineBytes);
    if (read == tools::LineRead::kEnd) break;
    const auto refused = [&](const std::string& why) {
      return invalid_argument("line " + std::to_string(number) + " " + why);
    };
    if (read == tools::LineRead::kTooLong)
      return refused("is longer than " + std::to_string(kMostTraceLineBytes) + " bytes, the most that a line may have");
    bytes += line.size() + 1;
    if (bytes > most_bytes)
      return refused("is beyond the first " + std::to_string(most_bytes) + " bytes, the most that is read of a trace");
    if (number == 1) tools::skip_byte_order_mark(line);
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string wrong = parse(line, row);
    if (!wrong.empty()) return refused(wrong);
    reader.add(row);
  }
  if (in.bad()) return Status(StatusCode::kIo, "the trace could not be read to its end");
  return reader.finish();
}

}  // namespace kaiju::replay
