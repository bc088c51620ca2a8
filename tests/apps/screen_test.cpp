// What a terminal shows of a run: `bitgrad train` in a pseudo-terminal whose screen is kept here.
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "apps/cli.h"
#include "support/catch.h"
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
  Terminal(const std::vector<std::string>& arguments, int columns) : screen_(columns) {
    winsize size{};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    pid_ = ::forkpty(&master_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    std::vector<char*> argv{const_cast<char*>(kProgram.c_str())};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    ::unsetenv("CI");
    ::setenv("BITGRAD_DATA", "", 1);
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
    char bytes[4096];
    for (;;) {
      const ssize_t n = ::read(master_, bytes, sizeof bytes);
      if (n <= 0) return false;
      screen_.write(std::string(bytes, static_cast<size_t>(n)));
      most_ = std::max(most_, screen_.progress().size());
      wrapped_ = wrapped_ || screen_.wraps_progress();
      if (done(screen_)) return true;
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
  int master_ = -1;
  pid_t pid_ = -1;
  Screen screen_;
  size_t most_ = 0;
  bool wrapped_ = false;
};

std::vector<std::string> training(const std::string& folder, const std::string& stop) {
  return {"train",
          source_path("configs/digits_mlp_w1a1.yaml"),
          "--out",
          folder,
          "train.stop=" + stop,
          "data.train.size=2000",
          "data.test.size=100",
          "train.eval.every=1000000 steps",
          "checkpoint.every=1000000 steps"};
}

bool any_progress(const Screen& s) { return !s.progress().empty(); }

}  // namespace

TEST_CASE("a run has one line of progress on a terminal of any width") {
  for (const int columns : {200, 80, 40, 12}) {
    TempDir temp;
    INFO(columns);
    Terminal terminal(training(temp.file("run"), "1000000 steps"), columns);
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
  Terminal terminal(training(temp.file("run"), "1000000 steps"), 120);
  REQUIRE(terminal.read_until(any_progress));
  for (const int columns : {60, 41, 150, 50}) {
    terminal.resize(columns);
    int more = 0;
    REQUIRE(terminal.read_until([&](const Screen&) { return ++more == 6; }));
    INFO(columns << ":\n" << terminal.screen().text());
    CHECK(terminal.screen().progress().size() == 1);
  }
  terminal.press_interrupt();
  CHECK(terminal.wait() == 130);
  CHECK(terminal.screen().progress().empty());
}

TEST_CASE("Ctrl-C is acknowledged at once, and a second one says what is lost") {
  TempDir temp;
  {
    Terminal terminal(training(temp.file("first"), "1000000 steps"), 100);
    REQUIRE(terminal.read_until(any_progress));
    terminal.press_interrupt();
    CHECK(terminal.wait() == 130);
    const std::string text = terminal.screen().text();
    INFO(text);
    CHECK(text.find("stopping: the step or evaluation in progress is finished, ") != std::string::npos);
    CHECK(text.find("Resume with: bitgrad train --resume") != std::string::npos);
  }
  // One step is long; yet it may end before the second signal comes.
  bool lost = false;
  for (int attempt = 0; attempt < 5 && !lost; ++attempt) {
    std::vector<std::string> arguments = training(temp.file("second" + std::to_string(attempt)), "1000000 steps");
    arguments.insert(arguments.end(), {"data.train.size=100000", "batch={global: 100000, micro: 100000}"});
    Terminal terminal(arguments, 100);
    REQUIRE(terminal.read_until([](const Screen& s) { return s.text().find("total") != std::string::npos; }));
    ::usleep(100000);
    terminal.press_interrupt();
    REQUIRE(terminal.read_until([](const Screen& s) { return s.text().find("stopping") != std::string::npos; }));
    terminal.press_interrupt();
    CHECK(terminal.wait() == 128 + SIGINT);
    lost = terminal.screen().text().find("ended without saving: ") != std::string::npos;
  }
  CHECK(lost);
}
