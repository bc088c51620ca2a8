// A PNG or JPEG file, as decode_picture takes it. What is accepted has the bytes that its size says, and is resized.
#include "bitgrad/data/picture.h"

#include "fuzz/fuzz.h"

using namespace bitgrad;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Picture picture;
  if (!fuzz::takes([&] { picture = decode_picture({data, data + size}); })) return 0;
  fuzz::expect(picture.rows > 0 && picture.columns > 0 && picture.rows * picture.columns <= kMostPixels,
               "a picture has pixels, and not too many");
  fuzz::expect(picture.channels == 1 || picture.channels == 3, "gray or color");
  fuzz::expect(static_cast<int64_t>(picture.bytes.size()) == picture.rows * picture.columns * picture.channels,
               "as many bytes as pixels");
  const Picture small = resized(with_channels(picture, 4 - picture.channels), 8, 5);
  fuzz::expect(small.bytes.size() == static_cast<size_t>(8 * 5 * small.channels), "a resized picture is whole");
  return 0;
}
