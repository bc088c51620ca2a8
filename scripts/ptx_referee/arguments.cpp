// Writes the arguments of a kernel as bytes, from named numbers, for scripts/ptx_referee:
//
//   arguments mma|float|wgmma|orders NAME=NUMBER...     the bytes, to stdout
//   arguments sizes                                     NAME NUMBER lines: threads and bytes of shared memory
//
// Addresses are numbers here: nothing is read through them. Bytes of padding are 0.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "bitgrad/base/rng.h"
#include "cuda/kernels/gemm/mma/args.h"
#include "cuda/kernels/gemm/mma/float_args.h"
#include "cuda/kernels/gemm/wgmma/args.h"
#include "cuda/kernels/gemm/wgmma/context.h"

using namespace bitgrad;
using namespace bitgrad::cuda;
using namespace bitgrad::cuda::gemm;

namespace bitgrad::cuda {
#include "orders_call.inc"  // made by build.py: structs of cuda/kernels/quantize/int8_orders.cu
}  // namespace bitgrad::cuda

namespace {

std::map<std::string, long long> values;

// A number by its name; those that are not given are 0.
template <typename T = long long>
T get(const std::string& name, T otherwise = T{}) {
  const auto found = values.find(name);
  return found == values.end() ? otherwise : static_cast<T>(found->second);
}
template <typename T>
T* pointer(const std::string& name) {
  return reinterpret_cast<T*>(static_cast<uintptr_t>(get(name)));
}

template <typename T>
void clear(T& args) {
  std::memset(static_cast<void*>(&args), 0, sizeof args);
}
template <typename T>
int emit(const T& args) {
  return std::fwrite(&args, sizeof args, 1, stdout) == 1 ? 0 : 1;
}

Output output() {
  Output out{};
  out.c = pointer<void>("c");
  out.m = get("m");
  out.n = get("n");
  out.k = get("k");
  out.ldc = get("ldc");
  out.bias = pointer<const float>("bias");
  out.form = get<bool>("bf16") ? OutputForm::kBf16 : OutputForm::kFp32;
  return out;
}

// Codes: 0 signed, 1 unsigned, 2 signs.
NumberForm form(long long codes) {
  return codes == 0 ? NumberForm::kSigned : codes == 1 ? NumberForm::kUnsigned : NumberForm::kSign;
}

MmaSide mma_side(const std::string& side, int64_t rows) {
  MmaSide out{};
  out.data = pointer<const uint8_t>(side);
  out.stride = get(side + ".stride");
  out.free = rows;
  out.plane_stride = rows * out.stride;
  out.row_bytes = get(side + ".row_bytes");
  out.shift = get<int32_t>(side + ".shift");
  out.bits = get<int32_t>(side + ".bits");
  out.form = form(get(side + ".codes"));
  out.aligned16 = out.stride % 16 == 0;
  out.expand = out.k_major = get<bool>(side + ".k_major");
  out.words = get<bool>(side + ".words");
  return out;
}

int emit_mma() {
  MmaArgs args;
  clear(args);
  args.a = mma_side("a", get("m"));
  args.b = mma_side("b", get("n"));
  args.pa = {pointer<const float>("a.scale"), nullptr, nullptr, 1};
  args.pb = {pointer<const float>("b.scale"), nullptr, nullptr, 1};
  args.out = output();
  args.pairs = 1;
  args.last_weight = get<int32_t>("last_weight", 1);
  args.pair[0] = {0, 0, 1, get<int32_t>("a.weight", 1), get<int32_t>("b.weight", 1)};
  args.sum_a = args.b.shift != 0;
  args.sum_b = args.a.shift != 0;
  args.simple = true;
  return emit(args);
}

FloatRows float_rows(const std::string& side, int64_t rows) {
  const int64_t stride = get(side + ".stride");
  return {pointer<const uint8_t>(side), stride, rows, get(side + ".row_bytes"), stride % 16 == 0 ? 16 : 4};
}

int emit_float_mma() {
  FloatMmaArgs args;
  clear(args);
  args.a = float_rows("a", get("m"));
  args.b = float_rows("b", get("n"));
  args.form = form(get("b.codes"));
  args.narrow = get<bool>("narrow");
  args.scale.scale = pointer<const float>("b.scale");
  args.scale.row_step = args.scale.row_group = args.scale.col_group = 1;
  args.on_sum = true;
  args.group_steps = static_cast<int32_t>((get("k") + kFloatStep - 1) / kFloatStep);
  args.out = output();
  return emit(args);
}

// The referee's record in place of the driver's (machine.py, tensor_map).
TensorMap tensor_map(long long data, int64_t columns, int64_t rows, int64_t stride, int64_t box_rows) {
  TensorMap map;
  const int64_t words[] = {data, columns, rows, stride, box_rows};
  std::memcpy(map.words, words, sizeof words);
  return map;
}

FragmentOperand fragments(int64_t rows, bool signs) {
  FragmentOperand out;
  out.data = pointer<const uint8_t>("a");
  out.row_blocks = static_cast<int32_t>((rows + 63) / 64);
  if (signs) {
    out.down = 7;
    out.mask = 0x01010101u;
    out.times = 254;
    out.flip = ~0u;
  }
  return out;
}

// A side of C: "x" are its rows and "y" its columns. "a" and "b" are the operands of the tile's rows and columns, which
// frag64 exchanges.
StoreSide store_side(const std::string& side, int64_t count) {
  StoreSide out{};
  out.scale = pointer<const float>(side + ".scale");
  out.sum = pointer<const int32_t>(side + ".sums");
  out.step = 1;
  out.times = get<int32_t>(side + ".times");
  out.base = get<int32_t>(side + ".base");
  out.count = static_cast<int32_t>(count);
  return out;
}

int emit_wgmma() {
  WgmmaArgs args;
  clear(args);
  const bool frag64 = get<bool>("frag64");
  const int64_t rows = get("tile_rows"), columns = get("tile_columns"), cluster = get("cluster");
  const int64_t a_rows = frag64 ? get("n") : get("m"), b_rows = frag64 ? get("m") : get("n");
  const int64_t k_bytes = get("k_bytes"), size = get<bool>("bf16") ? 2 : 4;
  args.rule = SumRule{};
  args.rule.shift = get<int32_t>("shift");
  args.rule.plain = get<bool>("plain");
  args.k_blocks = static_cast<int32_t>((k_bytes + 127) / 128);
  if (frag64)
    args.fragments = fragments(a_rows, get<bool>("signs"));
  else
    args.rows = tensor_map(get("a"), k_bytes, a_rows, get("a.stride"), rows);
  args.columns = tensor_map(get("b"), k_bytes, b_rows, get("b.stride"), columns / cluster);
  args.schedule.rows = static_cast<int32_t>((a_rows + rows * cluster - 1) / (rows * cluster));
  args.schedule.columns = static_cast<int32_t>((b_rows + columns - 1) / columns);
  args.schedule.band = static_cast<int32_t>(8 / cluster);
  args.out = output();
  args.a = {pointer<const float>("x.scale"), nullptr, nullptr, 1};
  args.b = {pointer<const float>("y.scale"), nullptr, nullptr, 1};
  const StoreSide x = store_side("x", get("m"));
  StoreSide y = store_side("y", get("n"));
  y.bias = args.out.bias;
  args.store.c = tensor_map(get("c"), get("n") * size, get("m"), get("ldc") * size, kBoxRows);
  args.store.rows = frag64 ? y : x;
  args.store.columns = frag64 ? x : y;
  args.store.factor = get<int32_t>("factor", 1);
  args.store.bias = y.bias != nullptr;
  args.split = {get<int32_t>("parts", 1), pointer<int32_t>("sums")};
  return emit(args);
}

OrderCall order(const std::string& side) {
  OrderCall out;
  clear(out);
  out.fold = pointer<const float>(side + ".fold");
  out.scales = pointer<float>(side + ".scales");
  out.codes = pointer<uint8_t>(side + ".codes");
  out.stride = get(side + ".stride");
  return out;
}

int emit_orders() {
  // Parameters follow each other on their alignment, as the members of a struct do.
  struct Both {
    OrdersCall call;
    int64_t octets;
  } args;
  clear(args);
  args.call.rows = get("rows");
  args.call.cols = get("columns");
  args.call.x = pointer<const void>("x");
  args.call.wide = get<bool>("wide");
  args.call.by_row = order("by_row");
  args.call.by_column = order("by_column");
  args.call.flags = pointer<uint32_t>("flags");
  args.octets = get("octets");
  return get<bool>("with_octets") ? emit(args) : emit(args.call);
}

template <int kColumns, int kBits, int kRows>
void print_tile() {
  std::printf("wgmma.%d.%d.%d %d\n", kColumns, kBits, kRows, TileMemory<kColumns, kBits, kRows>::kBytes);
}

int print_sizes() {
  std::printf("mma.threads %d\nmma %d\n", kMmaThreads, kMmaSharedBytes);
  std::printf("float.threads %d\nfloat %d\n", kFloatThreads, kFloatSharedBytes);
  std::printf("wgmma.threads %d\n", kWgmmaThreads);
  print_tile<256, 8, 64>();
  print_tile<256, 8, 128>();
  print_tile<128, 8, 128>();
#define BITGRAD_WEIGHT_BITS(bits) \
  print_tile<256, bits, 128>();   \
  print_tile<128, bits, 128>();
#include "cuda/kernels/gemm/weight_bits.inc"
#undef BITGRAD_WEIGHT_BITS
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc > 1 ? argv[1] : "";
  for (int i = 2; i < argc; ++i) {
    const std::string given = argv[i];
    const size_t equals = given.find('=');
    values[given.substr(0, equals)] = std::atoll(given.c_str() + equals + 1);
  }
  if (kind == "mma") return emit_mma();
  if (kind == "float") return emit_float_mma();
  if (kind == "wgmma") return emit_wgmma();
  if (kind == "orders") return emit_orders();
  if (kind == "sizes") return print_sizes();
  std::fprintf(stderr, "arguments: unknown kind %s\n", kind.c_str());
  return 2;
}
