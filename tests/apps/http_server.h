// A server of HTTP on the loopback, in a thread of the test.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bitgrad::test {

// A socket on a free port of 127.0.0.1, listening or not.
class LoopbackSocket {
 public:
  explicit LoopbackSocket(bool listens) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (fd_ < 0 || ::bind(fd_, any, size) != 0 || (listens && ::listen(fd_, 16) != 0) ||
        ::getsockname(fd_, any, &size) != 0)
      throw std::runtime_error("cannot open a port of the loopback");
    port_ = ntohs(address.sin_port);
  }
  ~LoopbackSocket() { ::close(fd_); }
  LoopbackSocket(const LoopbackSocket&) = delete;
  LoopbackSocket& operator=(const LoopbackSocket&) = delete;
  int fd() const { return fd_; }
  // Bound and not listening, a port refuses connections as long as the socket lives.
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/"; }

 private:
  int fd_, port_ = 0;
};

struct HttpAnswer {
  std::string body = {};
  bool ranges = true;      // whether it gives parts
  size_t cut = SIZE_MAX;   // the connection ends after so many bytes of the answer's body
  std::string where = {};  // a redirection to this URL
};

class HttpServer {
 public:
  // By path, such as "/a.gz"; all others are 404.
  explicit HttpServer(std::map<std::string, HttpAnswer> answers)
      : answers_(std::move(answers)), socket_(true), thread_([this] { serve(); }) {}
  ~HttpServer() {
    stops_ = true;
    ::shutdown(socket_.fd(), SHUT_RDWR);
    thread_.join();
  }
  std::string url() const { return socket_.url(); }
  // "/a.gz", or "/a.gz 100-" for a part from byte 100 on, in the order in which they came.
  std::vector<std::string> requests() const {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  void serve() {
    while (!stops_) {
      const int client = ::accept(socket_.fd(), nullptr, nullptr);
      if (client < 0) continue;
      answer(client);
      ::close(client);
    }
  }
  void answer(int client) {
    std::string head;
    char piece[1024];
    while (head.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = ::recv(client, piece, sizeof piece, 0);
      if (got <= 0) return;
      head.append(piece, static_cast<size_t>(got));
    }
    const std::string path = between(head, " ", " "), from = between(head, "Range: bytes=", "-");
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(from.empty() ? path : path + ' ' + from + '-');
    }
    const auto found = answers_.find(path);
    if (found == answers_.end()) return send(client, "404 Not Found", "", "nothing here");
    const HttpAnswer& a = found->second;
    if (!a.where.empty()) return send(client, "302 Found", "Location: " + a.where + "\r\n", "");
    const size_t begin = from.empty() || !a.ranges ? 0 : static_cast<size_t>(std::stoll(from));
    if (begin == 0) return send(client, "200 OK", "", a.body, a.cut);
    if (begin >= a.body.size()) return send(client, "416 Range Not Satisfiable", "", "");
    const std::string range =
        std::to_string(begin) + '-' + std::to_string(a.body.size() - 1) + '/' + std::to_string(a.body.size());
    send(client, "206 Partial Content", "Content-Range: bytes " + range + "\r\n", a.body.substr(begin), a.cut);
  }
  static void send(int client, const std::string& status, const std::string& fields, const std::string& body,
                   size_t cut = SIZE_MAX) {
    const std::string all = "HTTP/1.1 " + status + "\r\nConnection: close\r\n" + fields +
                            "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body.substr(0, cut);
    for (size_t at = 0; at < all.size();) {
      const ssize_t sent = ::send(client, all.data() + at, all.size() - at, MSG_NOSIGNAL);
      if (sent <= 0) return;
      at += static_cast<size_t>(sent);
    }
  }
  static std::string between(const std::string& text, const std::string& before, const std::string& after) {
    const size_t begin = text.find(before);
    if (begin == std::string::npos) return {};
    const size_t first = begin + before.size();
    return text.substr(first, text.find(after, first) - first);
  }

  const std::map<std::string, HttpAnswer> answers_;
  const LoopbackSocket socket_;
  std::atomic<bool> stops_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace bitgrad::test
