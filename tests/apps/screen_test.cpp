// What a terminal shows of a run: `bitgrad train` in a pseudo-terminal whose screen is kept here. The program's clock
// runs ahead (tests/faults/shim/), so that it draws after every step.
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "support/catch.h"
#include "support/failing_calls.h"
#include "support/paths.h"
#include "support/temp_dir.h"

using namespace bitgrad::test;

namespace {

// A screen without limit of rows: what a program writes by characters, \r, \n, ESC [ n A and ESC [ J. Lines that were
// wrapped are wrapped anew when the width changes, as terminals do.
class Screen {
 public:
  explicit Screen(int columns) : columns_(columns) {}

  void resize(int columns) {
    std::vector<std::string> lines;  // joined
    for (size_t r = 0; r < rows_.size(); ++r) {
      if (r > 0 && wrapped_[r - 1])
        lines.back() += rows_[r];
      else
        lines.push_back(rows_[r]);
    }
    columns_ = columns;
    rows_.clear();
    wrapped_.clear();
    for (std::string line : lines) {
      while (static_cast<int>(line.size()) > columns_) {
        rows_.push_back(line.substr(0, static_cast<size_t>(columns_)));
        wrapped_.push_back(true);
        line.erase(0, static_cast<size_t>(columns_));
      }
      rows_.push_back(line);
      wrapped_.push_back(false);
    }
    row_ = rows_.size() - 1;
    column_ = static_cast<int>(rows_.back().size());
  }

  void write(const std::string& text) {
    for (const char c : text) put(c);
  }

  // Rows that hold a line of progress, or the rest of one.
  std::vector<std::string> progress() const {
    std::vector<std::string> found;
    for (const std::string& row : rows_)
      if (row.find(" %  ") != std::string::npos && row.find("epoch ") != std::string::npos &&
          row.find("test") == std::string::npos)
        found.push_back(row);
    return found;
  }
  size_t longest() const {
    size_t n = 0;
    for (const std::string& row : rows_) n = std::max(n, row.size());
    return n;
  }
  bool wraps_progress() const {
    for (size_t r = 0; r < rows_.size(); ++r)
      if (wrapped_[r] && rows_[r].find(" %  ") != std::string::npos) return true;
    return false;
  }
  std::string text() const {
    std::string all;
    for (const std::string& row : rows_) all += row + '\n';
    return all;
  }

 private:
  void put(char c) {
    if (!escape_.empty()) {
      escape_ += c;
      if (c >= '@' && c <= '~' && c != '[') obey();
      return;
    }
    if (c == '\033') {
      escape_ = c;
    } else if (c == '\r') {
      column_ = 0;
    } else if (c == '\n') {
      if (++row_ == rows_.size()) add_row();
    } else {
      if (column_ == columns_) {
        wrapped_[row_] = true;
        if (++row_ == rows_.size()) add_row();
        column_ = 0;
      }
      std::string& row = rows_[row_];
      if (static_cast<int>(row.size()) <= column_) row.resize(static_cast<size_t>(column_) + 1, ' ');
      row[static_cast<size_t>(column_++)] = c;
    }
  }
  void obey() {
    if (escape_.back() == 'A') row_ -= std::min(row_, static_cast<size_t>(std::stoi(escape_.substr(2))));
    if (escape_.back() == 'J') {
      rows_.resize(row_ + 1);
      wrapped_.resize(row_ + 1);
      rows_[row_].resize(std::min(rows_[row_].size(), static_cast<size_t>(column_)));
      wrapped_[row_] = false;
    }
    escape_.clear();
  }
  void add_row() {
    rows_.emplace_back();
    wrapped_.push_back(false);
  }

  int columns_, column_ = 0;
  size_t row_ = 0;
  std::vector<std::string> rows_{""};
  std::vector<bool> wrapped_{false};
  std::string escape_;
};

// The program in a pseudo-terminal.
class Terminal {
 public:
  Terminal(const std::vector<std::string>& arguments, int columns, const Process::Environment& settings = {})
      : screen_(columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    pid_ = ::forkpty(&master_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    std::vector<char*> argv{const_cast<char*>(kProgram.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    termios line{};  // shows no ^C, which may wrap a line of progress
    ::tcgetattr(STDIN_FILENO, &line);
    line.c_lflag &= ~static_cast<tcflag_t>(ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &line);
    ::unsetenv("CI");
    ::setenv("BITGRAD_DATA", "", 1);
    ::setenv("FAULT_CLOCK", "100", 1);
    for (const auto& [name, value] : with_failing_calls(settings)) ::setenv(name.c_str(), value.c_str(), 1);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  ~Terminal() {
    ::close(master_);
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  // Reads until `done` of the screen, or the end; false: the end.
  template <typename Done>
  bool read_until(const Done& done) {
    while (read_some())
      if (done(screen_)) return true;
    return false;
  }
  // Reads all that is drawn until the program is held at a call on a file (FAULT_HOLD); false: it ended first.
  bool read_until_held(const std::string& file) {
    for (;;) {
      const bool held = std::filesystem::exists(file);
      pollfd drawn{master_, POLLIN, 0};
      while (::poll(&drawn, 1, held ? 0 : 1) > 0)
        if (!read_some()) return false;
      if (held) return true;
    }
  }
  void resize(int columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    ::ioctl(master_, TIOCSWINSZ, &size);
    screen_.resize(columns);
  }
  void press_interrupt() { REQUIRE(::write(master_, "\003", 1) == 1); }
  int wait() {
    read_until([](const Screen&) { return false; });
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  const Screen& screen() const { return screen_; }
  // The most lines of progress that the screen held at once; whether one was ever wrapped.
  size_t most() const { return most_; }
  bool wrapped() const { return wrapped_; }

 private:
  bool read_some() {
    char bytes[512];  // two or three lines of progress
    const ssize_t n = ::read(master_, bytes, sizeof bytes);
    if (n <= 0) return false;
    screen_.write(std::string(bytes, static_cast<size_t>(n)));
    most_ = std::max(most_, screen_.progress().size());
    wrapped_ = wrapped_ || screen_.wraps_progress();
    return true;
  }

  int master_ = -1;
  pid_t pid_ = -1;
  Screen screen_;
  size_t most_ = 0;
  bool wrapped_ = false;
};

// It ends when it is interrupted; a line of metrics.jsonl after every step.
std::vector<std::string> training(const std::string& folder) {
  return {"train",
          source_path("configs/digits_mlp_w1a1.yaml"),
          "--out",
          folder,
          "train.stop=1000000 steps",
          "log.every=1 steps",
          "data.train.size=2000",
          "data.test.size=100",
          "train.eval.every=1000000 steps",
          "checkpoint.every=1000000 steps"};
}

// A call on a file that writes a line of metrics.jsonl, and each later one, is held until the file `held` is removed.
Process::Environment held_at_steps(const std::string& held) { return {{"FAULT_HOLD", "100"}, {"FAULT_HELD", held}}; }

bool any_progress(const Screen& s) { return !s.progress().empty(); }

}  // namespace

TEST_CASE("a run has one line of progress on a terminal of any width") {
  for (const int columns : {200, 80, 40, 12}) {
    TempDir temp;
    INFO(columns);
    Terminal terminal(training(temp.file("run")), columns);
    REQUIRE(terminal.read_until(
        [&](const Screen& s) { return columns >= 40 ? any_progress(s) : s.text().find(" %\n") != std::string::npos; }));
    int more = 0;
    REQUIRE(terminal.read_until([&](const Screen&) { return ++more == 15; }));
    INFO(terminal.screen().text());
    CHECK(terminal.most() == (columns >= 40 ? 1 : 0));
    CHECK_FALSE(terminal.wrapped());
    terminal.press_interrupt();
    CHECK(terminal.wait() == 130);
    CHECK(terminal.screen().progress().empty());
  }
}

TEST_CASE("a terminal that becomes narrower or wider while a run goes on keeps one line of progress") {
  TempDir temp;
  const std::string held = temp.file("held");
  Terminal terminal(training(temp.file("run")), 120, held_at_steps(held));
  REQUIRE(terminal.read_until_held(held));
  for (const int columns : {60, 41, 150, 50}) {
    terminal.resize(columns);
    for (int call = 0; call < 12; ++call) {  // of six steps: a line of metrics.jsonl and one of metrics.csv each
      std::filesystem::remove(held);
      REQUIRE(terminal.read_until_held(held));
    }
    INFO(columns << ":\n" << terminal.screen().text());
    CHECK(terminal.screen().progress().size() == 1);
  }
  terminal.press_interrupt();
  do std::filesystem::remove(held);
  while (terminal.read_until_held(held));
  CHECK(terminal.wait() == 130);
  CHECK(terminal.screen().progress().empty());
}

TEST_CASE("Ctrl-C is acknowledged at once, and a second one reports what is lost") {
  TempDir temp;
  {
    Terminal terminal(training(temp.file("first")), 100);
    REQUIRE(terminal.read_until(any_progress));
    terminal.press_interrupt();
    CHECK(terminal.wait() == 130);
    const std::string text = terminal.screen().text();
    INFO(text);
    CHECK(text.find("stopping: the step or evaluation in progress is finished, ") != std::string::npos);
    CHECK(text.find("Resume with: bitgrad train --resume") != std::string::npos);
  }
  const std::string held = temp.file("held");
  Terminal terminal(training(temp.file("second")), 100, held_at_steps(held));
  REQUIRE(terminal.read_until_held(held));
  terminal.press_interrupt();
  REQUIRE(terminal.read_until([](const Screen& s) { return s.text().find("stopping") != std::string::npos; }));
  terminal.press_interrupt();
  CHECK(terminal.wait() == 128 + SIGINT);
  CHECK(terminal.screen().text().find("ended without saving: ") != std::string::npos);
}
