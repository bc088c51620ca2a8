// The launch of the sweep update_rows (contract: kernels/update_rows.h): how rows are distributed over blocks.
#include "cuda/kernels/elementwise/update_rows.h"

#include <algorithm>

#include "bitgrad/base/error.h"
#include "bitgrad/base/memory.h"
#include "bitgrad/dtype/codec.h"
#include "bitgrad/dtype/layout.h"
#include "cuda/kernels/contracts.h"
#include "cuda/kernels/launch.h"
#include "cuda/kernels/reduce/sums.h"
#include "dtype/layouts/frag64.h"

namespace bitgrad::cuda {
namespace {

constexpr int64_t kPiece = 4096;       // columns per block if pieces of a row are independent
constexpr int64_t kMostOfWarp = 1024;  // longest row, in columns, for a single warp
constexpr int64_t kMostKept = 65536;   // bytes of new values in shared memory

int64_t rounded_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }

// Rows covered by the blocks: layouts that mix rows are padded to 64.
int64_t rows_covered(const SweepCall& call) {
  return call.transposed.data != nullptr || call.frag64.out != nullptr ? rounded_up(call.rows, 64) : call.rows;
}

void set_gradient(const UpdateRowsArgs& args, SweepCall& call) {
  const RowGradient& from = args.gradient;
  call.sums = from.sums;
  call.bf16 = from.bf16;
  call.divisor = from.divisor;
  call.clip_value = from.clip_value;
  call.factor = from.factor;
  call.live = from.live;
  call.ste = from.ste;
  call.times_scale = from.times_scale;
  if (from.ste != SteRule::kClip && !from.times_scale) return;
  QuantizeArgs before;
  before.dtype = from.dtype;
  before.rule = call.rule = from.rule;
  before.lo = from.lo;
  before.hi = from.hi;
  before.scale = from.scale;
  call.before = quantize_call(before);
  call.knows_codes = true;
}

// Sets what concerns the codes; cut() adds what follows from the shape.
void set_codes(const UpdateRowsArgs& args, SweepCall& call) {
  const RowCodes& to = *args.codes;
  ensure(!call.knows_codes || call.rule == to.codes.rule, "update_rows", "codes by rule ",
         static_cast<int>(to.codes.rule), ", gradients by rule ", static_cast<int>(call.rule));
  QuantizeArgs codes = to.codes;
  codes.rows = args.rows;
  codes.cols = codes.ldx = args.cols;
  codes.mask = nullptr;
  if (to.fit) codes.scale = row_scales(to);
  call.codes = quantize_call(codes);
  call.rule = codes.rule;
  call.knows_codes = call.coded = true;
  call.fitted = to.fit.has_value();
  if (to.fit) call.fit = *to.fit;
  call.scale = to.scale;
  call.zero = to.zero;
  const int bits = codes.dtype.bits();
  if (to.transposed != nullptr)
    call.transposed = code_rows(to.transposed, row_bytes_memory(codes.dtype, args.rows), bits, args.rows);
  if (to.frag64 != nullptr)
    call.frag64 = {static_cast<const uint8_t*>(codes.codes), codes.stride, args.rows, args.cols, bits, 0,
                   static_cast<uint32_t*>(to.frag64)};
}

// Clears the padding after the last row of layout transposed.
void clear_behind(const UpdateRowsArgs& args) {
  if (!args.codes || args.codes->transposed == nullptr) return;
  const DType dtype = args.codes->codes.dtype;
  const int64_t used = args.cols * row_bytes_memory(dtype, args.rows);
  fill_async(static_cast<char*>(args.codes->transposed) + used, 0,
             layouts::transposed.info().bytes(dtype, args.rows, args.cols) - used, current_stream());
}

void set_state(const RowUpdate& update, SweepCall& call) {
  if (const auto* sgd = std::get_if<SgdArgs>(&update)) call.state[0] = sgd->momentum_buffer;
  if (const auto* adam = std::get_if<AdamArgs>(&update)) {
    call.state[0] = adam->m;
    call.state[1] = adam->v;
  }
}

bool is_vec4_aligned(const SweepCall& call) {
  const bool sums = call.bf16 ? lies_on<4>(static_cast<const uint16_t*>(call.sums))
                              : lies_on<4>(static_cast<const float*>(call.sums));
  return (call.rows == 1 || call.cols % 4 == 0) && sums && lies_on<4>(call.w) && lies_on<4>(call.state[0]) &&
         lies_on<4>(call.state[1]);
}

// Chooses teams, rows per block and pieces from the shape alone.
LaunchShape cut(SweepCall& call) {
  call.by_four = is_vec4_aligned(call);
  call.piece = call.fitted ? std::max<int64_t>(call.cols, 1) : kPiece;
  call.pieces = std::max<int64_t>(ceil_div(call.cols, call.piece), 1);
  const int64_t width = std::min(call.piece, call.cols);
  call.team = width <= kMostOfWarp ? 32 : kSweepThreads;
  const int teams = kSweepThreads / call.team,
            unit = call.frag64.out != nullptr ? 16 : (call.transposed.data != nullptr ? 8 : 1);
  call.block_rows = std::max(teams, unit);
  const int64_t kept = teams * rounded_up(width, 4) * static_cast<int64_t>(sizeof(float));
  LaunchShape shape;
  if (call.coded && kept <= kMostKept) {
    call.room = rounded_up(width, 4);
    shape.shared_bytes = static_cast<int>(kept);
  }
  shape.grid.x = static_cast<unsigned>(ceil_div(rows_covered(call), call.block_rows) * call.pieces);
  shape.block.x = kSweepThreads;
  shape.name = "update_rows_cuda";
  return shape;
}

}  // namespace

void update_rows_cuda(const UpdateRowsArgs& args) {
  SweepCall call;
  call.rows = args.rows;
  call.cols = args.cols;
  call.w = args.w;
  set_gradient(args, call);
  set_state(args.update, call);
  if (args.codes) set_codes(args, call);
  if (!call.knows_codes) {  // treat the tensor as a single row
    call.rows = args.rows * args.cols > 0 ? 1 : 0;
    call.cols = args.rows * args.cols;
  }
  ensure(!call.knows_codes || sweeps_codes(call.rule), "update_rows", "there is no sweep for codes by rule ",
         static_cast<int>(call.rule));
  call.clamps = args.latent_clamp.has_value();
  call.clamp = args.latent_clamp.value_or(0);
  call.floors = args.floor.has_value();
  call.floor = args.floor.value_or(0);
  const LaunchShape shape = cut(call);
  const bool sums = call.fitted && call.fit.rule >= RowFit::kMeanAbs;
  call.chunks = sums ? std::max<int64_t>(ceil_div(call.cols, sums::kChunk), 1) : 0;
  const Workspace partial(call.rows * call.chunks * static_cast<int64_t>(sizeof(float)));
  call.partial = partial.as<float>();
  if (const auto* sgd = std::get_if<SgdArgs>(&args.update)) launch_sgd_rows(*sgd, call, shape);
  if (const auto* adam = std::get_if<AdamArgs>(&args.update)) launch_adam_rows(*adam, call, shape);
  clear_behind(args);
}

}  // namespace bitgrad::cuda
