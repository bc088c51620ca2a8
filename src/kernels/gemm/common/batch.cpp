#include "kernels/gemm/common/batch.h"

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "kernels/gemm/common/operands.h"

namespace bitgrad::kernels::gemm_detail {
namespace {

// From this many members on, threads run whole members, whatever their size. kSmallMember: multiply-adds up to which a
// member alone is not worth a parallel region. kPieceOfMembers: multiply-adds per task.
constexpr int64_t kManyMembers = 64;
constexpr double kSmallMember = 1 << 22, kPieceOfMembers = 1 << 18;

template <typename T>
void advance(const T*& array, int64_t entries) {
  if (array != nullptr) array += entries;
}

void advance(GemmOperand& x, int64_t bytes, int64_t entries) {
  if (x.data != nullptr) x.data = static_cast<const char*>(x.data) + bytes;
  advance(x.scale.scale, entries);
  advance(x.scale.zero, entries);
  advance(x.scale.offset, entries);
  if (bytes != 0) x.row_sums = nullptr;  // they belong to the first member
  if (bytes != 0 || entries != 0) x.panel_scales = nullptr;
}

// What steps of an operand must be multiples of. Words of codes are read whole.
int64_t step_unit(DType dtype) { return dtype.is_code() ? 8 : dtype.bits() / 8; }

void check_step(const char* where, const char* side, const GemmOperand& x, int64_t step) {
  const int64_t unit = step_unit(x.dtype);
  require(step % unit == 0, where, "batch: members of ", side, " (", x.dtype, ") are ", step,
          " bytes apart, expected a multiple of ", unit, ".");
}

// Number of elements from the first of C to one past the last.
int64_t extent_of_c(const GemmArgs& args) { return (args.m - 1) * args.ldc + args.n; }

}  // namespace

GemmArgs member_of(const GemmArgs& args, int64_t i) {
  const GemmBatch& batch = args.batch;
  GemmArgs member = args;
  member.batch = {};
  advance(member.a, i * batch.a, i * batch.a_scale);
  advance(member.b, i * batch.b, i * batch.b_scale);
  if (args.c != nullptr) member.c = static_cast<char*>(args.c) + i * batch.c * (args.c_dtype.bits() / 8);
  advance(member.bias, i * batch.bias);
  advance(member.row_minus, i * batch.row_minus);
  member.first_element = args.first_element + i * args.m * args.n;
  return member;
}

void run_members(const GemmArgs& args, void (*run)(const GemmArgs&)) {
  const int64_t count = args.batch.count;
  const double work = multiply_adds(args);
  if (count < kManyMembers && work > kSmallMember) {
    for (int64_t i = 0; i < count; ++i) run(member_of(args, i));
    return;
  }
  const int64_t piece = work >= kPieceOfMembers ? 1 : static_cast<int64_t>(kPieceOfMembers / std::max(work, 1.0));
  parallel_ranges(count, piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) run(member_of(args, i));
  });
}

void check_batch(const GemmArgs& args, const char* where) {
  const GemmBatch& batch = args.batch;
  require(batch.count >= 0, where, "batch: got ", batch.count, " members, expected 0 or more.");
  if (batch.count < 2) return;
  check_step(where, "A", args.a, batch.a);
  check_step(where, "B", args.b, batch.b);
  if (args.m <= 0 || args.n <= 0) return;
  const int64_t extent = extent_of_c(args);
  const bool behind = batch.c >= extent;
  const bool beside = batch.c >= args.n && (batch.count - 1) * batch.c + args.n <= args.ldc;
  require(behind || beside, where, "batch: members of C overlap: got ", batch.count, " of [", args.m, ',', args.n,
          "] whose rows are ", args.ldc, " elements apart, at steps of ", batch.c, ", expected steps of at least ",
          extent, ", or members side by side within a row.");
}

}  // namespace bitgrad::kernels::gemm_detail
