// Event files of TensorBoard, byte by byte as its own Python package writes them (tensorboard 2.21).
#include "io/event_file.h"
#include "bitgrad/base/file.h"
#include "support/catch.h"
#include "support/temp_dir.h"

using namespace bitgrad;
using namespace bitgrad::test;

namespace {

std::string hex(const std::vector<uint8_t>& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : bytes) {
    text += kDigits[b >> 4];
    text += kDigits[b & 15];
  }
  return text;
}

}  // namespace

TEST_CASE("records of event files have the bytes that TensorBoard writes") {
  CHECK(hex(io::tf_record(io::version_event(1.5))) ==
        "1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c");
  CHECK(hex(io::tf_record(io::start_event(2.25, 301))) ==
        "100000000000000095fbfe1809000000000000024010ad023a020801518d2ae0");
  CHECK(
      hex(io::tf_record(io::scalars_event(2.25, 300, {{"train/loss", 0.75f}, {"test/accuracy", 90.25f}}))) ==
      "3700000000000000e7e8ca5909000000000000024010ac022a290a110a0a747261696e2f6c6f7373150000403f0a140a0d746573742f616"
      "3637572616379150080b4423a28578a");
}

TEST_CASE("a second event file of a folder sorts after the first one for any clock") {
  TempDir temp;
  write_file_atomically(temp.file("events.out.tfevents.9999999999.host"), "x");
  {
    io::EventFile file(temp.path(), 5);
    CHECK_FALSE(file.first());
    file.write(5, {{"a", 1.0f}});
    file.write(6, {});
  }
  const std::vector<std::string> names = file_system().list(temp.path());
  REQUIRE(names.size() == 2);
  const std::string made = names[0].ends_with("bitgrad") ? names[0] : names[1];
  CHECK(made == "events.out.tfevents.10000000000.bitgrad");
  // Version, start at step 5, one record of scalars.
  CHECK(file_system().read(temp.file(made)).size() == 40 + 31 + (16 + 11 + 2 + 10));
}
