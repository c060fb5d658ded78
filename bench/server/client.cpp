#include "client.hpp"

#include <fmt/format.h>

#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <charconv>

namespace kaiju::bench {

std::string request_text(std::string_view method, std::string_view path, std::string_view body) {
  return fmt::format(
      "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", method,
      path, body.size(), body);
}

asio::awaitable<void> Client::connect() {
  socket_ = asio::ip::tcp::socket(socket_.get_executor());
  raw_.clear();
  co_await socket_.async_connect(server_, asio::use_awaitable);
  socket_.set_option(asio::ip::tcp::no_delay(true));
}

void Client::close() {
  boost::system::error_code ignored;
  socket_.close(ignored);
}

asio::awaitable<void> Client::send(std::string text) {
  co_await asio::async_write(socket_, asio::buffer(text), asio::use_awaitable);
}

asio::awaitable<void> Client::fill() {
  const size_t held = raw_.size();
  raw_.resize(held + read_bytes);
  size_t got = 0;
  try {
    got = co_await socket_.async_read_some(asio::buffer(raw_.data() + held, read_bytes), asio::use_awaitable);
  } catch (...) {
    raw_.resize(held);
    throw;
  }
  raw_.resize(held + got);
}

asio::awaitable<int> Client::head() {
  size_t end = 0;
  while ((end = raw_.find("\r\n\r\n")) == std::string::npos) co_await fill();
  std::string text = raw_.substr(0, end + 2);
  raw_.erase(0, end + 4);
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (!text.starts_with("http/1.1 ")) throw BadAnswer("no HTTP answer: " + text.substr(0, 40));
  const int status = std::atoi(text.c_str() + 9);
  chunked_ = text.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  closes_ = text.find("\r\nconnection: close") != std::string::npos;
  const size_t length = text.find("\r\ncontent-length: ");
  left_ = length == std::string::npos ? 0 : static_cast<size_t>(std::atoll(text.c_str() + length + 18));
  over_ = !chunked_ && left_ == 0;
  in_chunk_ = false;
  text_.clear();
  decode();
  co_return status;
}

void Client::decode() {
  while (!over_ && !raw_.empty()) {
    if (chunked_ && !in_chunk_) {
      const size_t line = raw_.find("\r\n");
      if (line == std::string::npos) return;
      const auto read = std::from_chars(raw_.data(), raw_.data() + line, left_, 16);
      if (read.ptr != raw_.data() + line) throw BadAnswer("a chunk has no size");
      if (raw_.size() < line + 4 && left_ == 0) return;  // the end of the last chunk
      raw_.erase(0, line + 2);
      if (left_ == 0) {
        raw_.erase(0, 2);
        over_ = true;
        return;
      }
      in_chunk_ = true;
    }
    if (chunked_ && raw_.size() < left_ + 2) return;
    const size_t take = std::min(left_, raw_.size());
    text_.append(raw_, 0, take);
    left_ -= take;
    raw_.erase(0, take + (chunked_ ? 2 : 0));
    in_chunk_ = false;
    over_ = !chunked_ && left_ == 0;
  }
}

asio::awaitable<std::string> Client::body() {
  while (!over_) {
    co_await fill();
    decode();
  }
  if (closes_) close();
  co_return std::move(text_);
}

asio::awaitable<Answer> Client::receive() {
  Answer answer;
  answer.status = co_await head();
  answer.body = co_await body();
  co_return answer;
}

asio::awaitable<std::optional<std::string>> Client::event() {
  size_t end = 0;
  while ((end = text_.find("\n\n")) == std::string::npos) {
    if (over_) co_return std::nullopt;
    co_await fill();
    decode();
  }
  if (!text_.starts_with("data: ")) throw BadAnswer("no event: " + text_.substr(0, 40));
  std::optional<std::string> data = text_.substr(6, end - 6);
  text_.erase(0, end + 2);
  co_return data;
}

}  // namespace kaiju::bench
