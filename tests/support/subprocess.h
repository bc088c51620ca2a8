// Programs started by tests: their output and how they end.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"

namespace bitgrad::test {

inline std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

struct ProcessResult {
  int code = -1;  // exit code, or 128 + signal if a signal ended it
  std::string out, err;
};

// Streams with special treatment, by file descriptor. Their output is not part of the result.
struct ProcessStreams {
  std::vector<int> closed = {}, unread = {};  // unread: a pipe whose reader is gone
  std::vector<std::pair<int, std::string>> files = {};
};

// A started program. Its standard input is empty. Kill it or wait for it; the destructor does both.
class Process {
 public:
  using Environment = std::vector<std::pair<std::string, std::string>>;
  using Streams = ProcessStreams;

  explicit Process(const std::vector<std::string>& arguments, const Environment& environment = {},
                   const std::string& directory = "", const Streams& streams = {}) {
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    const std::string out = temp_.file("out"), err = temp_.file("err");
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    ::signal(SIGHUP, SIG_DFL);  // under nohup it is ignored, and programs keep that
    for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
    if (!directory.empty() && ::chdir(directory.c_str()) != 0) ::_exit(126);
    redirect("/dev/null", O_RDONLY, 0);
    redirect(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 1);
    redirect(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 2);
    for (const auto& [fd, path] : streams.files) redirect(path.c_str(), O_RDWR, fd);
    for (const int fd : streams.unread) make_unread(fd);
    for (const int fd : streams.closed) ::close(fd);
    ::signal(SIGPIPE, SIG_DFL);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ~Process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  pid_t id() const { return pid_; }
  bool ended() const {  // it can still be waited for
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
  }

  ProcessResult wait() {
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), slurp(temp_.file("out")),
            slurp(temp_.file("err"))};
  }

 private:
  static void redirect(const char* path, int flags, int target) {
    const int fd = ::open(path, flags, 0644);
    if (fd < 0 || ::dup2(fd, target) < 0) ::_exit(125);
    ::close(fd);
  }

  static void make_unread(int target) {
    int ends[2];
    if (::pipe(ends) != 0 || ::dup2(ends[1], target) < 0) ::_exit(125);
    ::close(ends[0]);
    ::close(ends[1]);
  }

  TempDir temp_;
  pid_t pid_ = -1;
};

inline ProcessResult run_program(const std::vector<std::string>& arguments,
                                 const Process::Environment& environment = {}, const std::string& directory = "",
                                 const Process::Streams& streams = {}) {
  return Process(arguments, environment, directory, streams).wait();
}

}  // namespace bitgrad::test
