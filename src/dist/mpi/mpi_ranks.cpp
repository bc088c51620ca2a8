// Messages by MPI: the module bitgrad_mpi.so. The only file that knows MPI. Its functions are called by one thread,
// from MPI_Init_thread to MPI_Finalize, which MPI_THREAD_FUNNELED asks for.
// The C++ interface, which MPI has dropped, is not wanted.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "bitgrad/base/commit.h"
#include "bitgrad/base/version.h"
#include "dist/wire.h"

namespace bitgrad::detail {
namespace {

void check(int result, const char* call) {
  if (result == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(result, text, &length);
  throw std::runtime_error(std::string(call) + ": " + std::string(text, static_cast<size_t>(length)));
}
#define BITGRAD_MPI(call, arguments) check(call arguments, #call)

int int_of(int64_t value) { return static_cast<int>(value); }

class MpiWire final : public Wire {
 public:
  MpiWire() {
    int initialized = 0, provided = 0;
    BITGRAD_MPI(MPI_Initialized, (&initialized));
    if (initialized != 0) throw std::runtime_error("the program has called MPI_Init itself, which is not supported");
    BITGRAD_MPI(MPI_Init_thread, (nullptr, nullptr, MPI_THREAD_FUNNELED, &provided));
    if (provided < MPI_THREAD_FUNNELED)
      throw std::runtime_error("got a library without threads, expected MPI_THREAD_FUNNELED");
    BITGRAD_MPI(MPI_Comm_set_errhandler, (MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    BITGRAD_MPI(MPI_Comm_rank, (MPI_COMM_WORLD, &rank_));
    BITGRAD_MPI(MPI_Comm_size, (MPI_COMM_WORLD, &size_));
    MPI_Comm machine = MPI_COMM_NULL;
    BITGRAD_MPI(MPI_Comm_split_type, (MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine));
    BITGRAD_MPI(MPI_Comm_rank, (machine, &local_rank_));
    BITGRAD_MPI(MPI_Comm_size, (machine, &local_size_));
    BITGRAD_MPI(MPI_Comm_free, (&machine));
    void* most = nullptr;
    int found = 0;
    BITGRAD_MPI(MPI_Comm_get_attr, (MPI_COMM_WORLD, MPI_TAG_UB, &most, &found));
    if (found != 0) max_tag_ = *static_cast<int*>(most);
  }

  int64_t rank() const override { return rank_; }
  int64_t size() const override { return size_; }
  int64_t local_rank() const override { return local_rank_; }
  int64_t local_size() const override { return local_size_; }
  int max_tag() const override { return max_tag_; }

  void send(int64_t to, int tag, std::span<const std::byte> bytes, int64_t id) override {
    MPI_Request& request = add(id);
    BITGRAD_MPI(MPI_Isend,
                (bytes.data(), int_of(std::ssize(bytes)), MPI_BYTE, int_of(to), tag, MPI_COMM_WORLD, &request));
  }
  void receive(int64_t from, int tag, std::span<std::byte> bytes, int64_t id) override {
    MPI_Request& request = add(id);
    BITGRAD_MPI(MPI_Irecv,
                (bytes.data(), int_of(std::ssize(bytes)), MPI_BYTE, int_of(from), tag, MPI_COMM_WORLD, &request));
  }
  void poll(std::vector<Ended>& ended) override {
    if (requests_.empty()) return;
    int count = 0;
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    const int result =
        MPI_Testsome(int_of(std::ssize(requests_)), requests_.data(), &count, indices_.data(), statuses_.data());
    if (result == MPI_ERR_IN_STATUS)
      for (int i = 0; i < count; ++i) check(statuses_[static_cast<size_t>(i)].MPI_ERROR, "MPI_Testsome");
    check(result, "MPI_Testsome");
    for (int i = 0; i < count; ++i) {
      int bytes = 0;
      BITGRAD_MPI(MPI_Get_count, (&statuses_[static_cast<size_t>(i)], MPI_BYTE, &bytes));
      ended.push_back(
          {ids_[static_cast<size_t>(indices_[static_cast<size_t>(i)])], static_cast<size_t>(std::max(bytes, 0))});
    }
    if (count > 0) remove_ended();
  }

  bool may_close() override {
    if (barrier_ == MPI_REQUEST_NULL && !closing_) {
      closing_ = true;
      BITGRAD_MPI(MPI_Ibarrier, (MPI_COMM_WORLD, &barrier_));
    }
    int all = 0;
    BITGRAD_MPI(MPI_Test, (&barrier_, &all, MPI_STATUS_IGNORE));
    return all != 0;
  }
  void close() override { BITGRAD_MPI(MPI_Finalize, ()); }
  void end_all(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }

 private:
  MPI_Request& add(int64_t id) {
    ids_.push_back(id);
    return requests_.emplace_back(MPI_REQUEST_NULL);
  }
  void remove_ended() {
    size_t kept = 0;
    for (size_t i = 0; i < requests_.size(); ++i) {
      if (requests_[i] == MPI_REQUEST_NULL) continue;
      requests_[kept] = requests_[i];
      ids_[kept++] = ids_[i];
    }
    requests_.resize(kept);
    ids_.resize(kept);
  }

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, max_tag_ = 32767;
  bool closing_ = false;
  MPI_Request barrier_ = MPI_REQUEST_NULL;
  std::vector<MPI_Request> requests_;  // open, or those that could not be started
  std::vector<int64_t> ids_;           // of the requests
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace
}  // namespace bitgrad::detail

extern "C" __attribute__((visibility("default"))) const bitgrad::detail::WireModule* bitgrad_wire() {
  using bitgrad::detail::kWireInterface;
#define BITGRAD_TEXT_(x) #x
#define BITGRAD_NUMBER_(x) BITGRAD_TEXT_(x)
#if defined(OPEN_MPI)
  constexpr const char *kKind = "openmpi",
                       *kVersion = "Open MPI " BITGRAD_NUMBER_(OMPI_MAJOR_VERSION) "." BITGRAD_NUMBER_(
                           OMPI_MINOR_VERSION) "." BITGRAD_NUMBER_(OMPI_RELEASE_VERSION);
#elif defined(MPICH_VERSION)
  constexpr const char *kKind = "mpich", *kVersion = "MPICH " MPICH_VERSION;
#else
#error "expected the mpi.h of Open MPI, of MPICH, or of a library with the interface of MPICH"
#endif
  static const bitgrad::detail::WireModule module{
      kWireInterface,
      BITGRAD_WIRE_BUILD(BITGRAD_VERSION, BITGRAD_GIT),
      kKind,
      kVersion,
      []() -> std::unique_ptr<bitgrad::detail::Wire> { return std::make_unique<bitgrad::detail::MpiWire>(); },
      [](int code) { _exit(code); }};
  return &module;
}
