// What arrays of numpy are warned of.
#include <cstdint>
#include <fstream>
#include <string>

#include "bitgrad/data/dataset.h"
#include "support/catch.h"
#include "support/expect_error.h"
#include "support/log_lines.h"
#include "support/npy_bytes.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string warnings_of(const NpyBytes& images, const NpyBytes& labels) {
  const TempDir folder;
  const auto write = [&](const char* name, const NpyBytes& bytes) {
    std::ofstream(folder.file(name), std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  };
  write("i.npy", images);
  write("l.npy", labels);
  DatasetSpec spec;
  spec.format = "npy";
  spec.root = folder.path();
  spec.images = "i.npy";
  spec.labels = "l.npy";
  const LogLines log;
  make_dataset(spec);
  std::string all;
  for (const std::string& line : log.warnings) all += line + '\n';
  return all;
}

}  // namespace

TEST_CASE("npy whole numbers that are one in fp32 and labels without 0 are warned of") {
  const NpyBytes labels = npy("|u1", "(3,)", {0, 1, 0});
  const std::string merged =
      "i.npy: value 1 of each sample: 1 of 3 different values are equal to their neighbor in fp32";
  const auto with = [&](const std::string& descr, const NpyBytes& elements) {
    return warnings_of(npy(descr, "(3, 2)", elements), labels);
  };
  CHECK(contains(with("<i8", bytes_of<int64_t>({5, 16777216, 6, 16777217, 7, 20000001})), merged));
  CHECK(contains(with("<u4", bytes_of<uint32_t>({5, 16777216, 6, 16777217, 7, 9})), "such as 16777216 and 16777217"));
  CHECK(contains(with("<f8", bytes_of<double>({0.5, 16777216, 6, 16777217, 7, 20000001})), merged));
  // Different as int64, one as double.
  CHECK(contains(with("<i8", bytes_of<int64_t>({5, int64_t{1} << 60, 6, (int64_t{1} << 60) + 1, 7, 9})), merged));
  CHECK(with("<i4", bytes_of<int32_t>({5, 16777216, 6, 16777218, 7, 16777216})).empty());
  CHECK(with("<f8", bytes_of<double>({0.1, 0.2, 0.3, 1e300 * 0, 7.7, 9.1})).empty());
  const NpyBytes values = npy("<f4", "(3, 1)", bytes_of<float>({0.5f, 1, 2}));
  CHECK(contains(warnings_of(values, npy("|u1", "(3,)", {1, 2, 1})), "l.npy: no sample has class 0: classes are"));
  CHECK(warnings_of(values, labels).empty());
  CHECK(contains(warnings_of(values, npy("|u1", "(3,)", {0, 3, 0})),
                 "l.npy: no sample has the classes 1, 2: classes are"));
  CHECK(contains(with("<f8", bytes_of<double>({0.5, 1e-50, 6, 2e-50, 0, 1})),
                 "i.npy: 2 of 6 values are too small for fp32 and become 0, such as 1e-50"));
}
