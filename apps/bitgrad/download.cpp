// The only file that uses libcurl.
#include "data_fetch.h"

#include <exception>
#include <memory>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"

#if BITGRAD_WITH_CURL
#include <curl/curl.h>
#endif

namespace bitgrad::cli {

#if BITGRAD_WITH_CURL
namespace {

constexpr long kMostRedirections = 10, kConnectSeconds = 20, kSlowSeconds = 60, kSlowBytes = 100;

// One request. libcurl is C, so an exception of the file system is kept here until libcurl has returned.
class Transfer {
 public:
  Transfer(const std::string& url, const std::string& part, int64_t bytes, const std::function<void(int64_t)>& on_bytes)
      : bytes_(bytes), on_bytes_(on_bytes), curl_(curl_easy_init(), curl_easy_cleanup) {
    begin_ = file_system().exists(part) ? file_system().open_read(part)->size() : 0;
    at_ = begin_;
    file_ = begin_ > 0 ? file_system().open_append(part) : file_system().create(part);
    ensure(curl_ != nullptr, "data fetch", "curl_easy_init");
    CURL* const c = curl_.get();
    curl_easy_setopt(c, CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(c, CURLOPT_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
    curl_easy_setopt(c, CURLOPT_REDIR_PROTOCOLS, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    curl_easy_setopt(c, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(c, CURLOPT_MAXREDIRS, kMostRedirections);
    curl_easy_setopt(c, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME, kSlowSeconds);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, kSlowBytes);
    curl_easy_setopt(c, CURLOPT_USERAGENT, "bitgrad");
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, message_);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, this);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, &Transfer::write);
    if (begin_ > 0) curl_easy_setopt(c, CURLOPT_RESUME_FROM_LARGE, static_cast<curl_off_t>(begin_));
  }

  // Returns an empty text, or why the server sent nothing or not everything.
  std::string run() {
    code_ = curl_easy_perform(curl_.get());
    if (thrown_) std::rethrow_exception(thrown_);
    file_->flush_to_disk();
    file_->close();
    if (too_long_) return concat("got more than ", bytes_, " bytes, expected as many");
    if (code_ != CURLE_OK) return message_[0] != '\0' ? message_ : curl_easy_strerror(code_);
    return at_ == bytes_ ? std::string() : concat("got ", at_, " bytes, expected ", bytes_);
  }
  int64_t begin() const { return begin_; }
  // The server does not support ranges, or has no data at that offset.
  bool no_parts() const {
    constexpr long kNotSatisfiable = 416;
    long status = 0;
    curl_easy_getinfo(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return code_ == CURLE_RANGE_ERROR || (code_ == CURLE_HTTP_RETURNED_ERROR && status == kNotSatisfiable);
  }
  // The connection ended early, so the data received so far are a valid beginning.
  bool was_cut() const { return code_ != CURLE_OK && !too_long_; }

 private:
  static size_t write(char* data, size_t size, size_t count, void* self) {
    return static_cast<Transfer*>(self)->take(data, size * count);
  }
  size_t take(const char* data, size_t n) {
    too_long_ = at_ + static_cast<int64_t>(n) > bytes_;
    if (too_long_) return 0;
    try {
      file_->write(data, n);
      at_ += static_cast<int64_t>(n);
      on_bytes_(at_);
      return n;
    } catch (...) {
      thrown_ = std::current_exception();
      return 0;
    }
  }

  const int64_t bytes_;
  const std::function<void(int64_t)>& on_bytes_;
  std::unique_ptr<CURL, void (*)(CURL*)> curl_;
  std::unique_ptr<OutputFile> file_;
  CURLcode code_ = CURLE_OK;
  int64_t begin_ = 0, at_ = 0;
  bool too_long_ = false;
  std::exception_ptr thrown_;
  char message_[CURL_ERROR_SIZE] = {};
};

void init_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  ensure(code == CURLE_OK, "data fetch", "curl_global_init: ", curl_easy_strerror(code));
}

}  // namespace

std::string download(const std::string& url, const std::string& part, int64_t bytes,
                     const std::function<void(int64_t)>& on_bytes) {
  init_curl();
  auto transfer = std::make_unique<Transfer>(url, part, bytes, on_bytes);
  std::string why = transfer->run();
  if (transfer->begin() > 0 && (transfer->no_parts() || !transfer->was_cut()) && !why.empty()) {
    file_system().remove(part);
    transfer = std::make_unique<Transfer>(url, part, bytes, on_bytes);
    why = transfer->run();
  }
  if (!why.empty() && (!transfer->was_cut() || file_system().open_read(part)->size() == 0)) file_system().remove(part);
  return why;
}

#else

std::string download(const std::string&, const std::string&, int64_t, const std::function<void(int64_t)>&) {
  return "this program was built without libcurl (Debian: libcurl4-openssl-dev)";
}

#endif

}  // namespace bitgrad::cli
