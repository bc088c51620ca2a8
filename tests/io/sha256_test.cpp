#include "bitgrad/io/sha256.h"

#include <string>

#include "support/catch.h"

namespace bitgrad {
namespace {

std::string hash(const std::string& text) { return sha256_hex(text.data(), text.size()); }

TEST_CASE("SHA-256 gives the known answers of FIPS 180-4") {
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1000000, 'a')) == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST_CASE("SHA-256 pads right at every length around a block") {
  // The hash of the hashes of 0 to 130 letters 'x' (value from Python's hashlib).
  Sha256 all;
  for (size_t n = 0; n <= 130; ++n) all.update(hash(std::string(n, 'x')));
  CHECK(all.hex() == "87aca1c44bc7ba8897768170211f0a02063de70801131ff86c7edb9ce32c6a50");
}

TEST_CASE("SHA-256 of parts equals that of the whole, and asking in between changes nothing") {
  std::string text;
  for (int i = 0; i < 200; ++i) text.push_back(static_cast<char>(i * 31));
  for (size_t a = 0; a <= text.size(); a += 7) {
    for (size_t b = a; b <= text.size(); b += 13) {
      Sha256 parts;
      parts.update(text.data(), a);
      parts.update(text.substr(a, b - a));
      (void)parts.digest();
      parts.update(nullptr, 0);
      parts.update(text.substr(b));
      REQUIRE(parts.hex() == hash(text));
    }
  }
}

}  // namespace
}  // namespace bitgrad
