// Format digits: the glyphs, and how images are drawn of them.
//
// A writer (with its own stream; train and test writers use different streams, test writers with wider ranges) fixes
// slant, proportions, pen, habit (which glyph of a class) and a displacement of every control point. Each image adds
// its own displacement, rotation, size and position. The control points are joined by Catmull-Rom curves (Catmull and
// Rom, 1974), bent by an elastic field (Simard et al., ICDAR 2003; here a coarse random grid, smoothly interpolated),
// and drawn with a round pen of varying radius by the distance to each segment, with one pixel of antialiasing. Ink
// gaps, blur, contrast and noise follow.
#include "data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "bitgrad/base/error.h"
#include "bitgrad/base/parallel.h"
#include "bitgrad/base/rng.h"
#include "data/formats.h"
#include "data/image_dataset.h"

namespace bitgrad::data {

namespace {

Glyph parse_glyph(const std::string& text) {
  Glyph glyph;
  TextReader strokes(text);
  for (std::string part; std::getline(strokes, part, ';');) {
    Stroke stroke;
    TextReader points(part);
    int x = 0;
    int y = 0;
    char comma = 0;
    while (points >> x >> comma >> y) {
      stroke.push_back({static_cast<float>(x - 50) / 100.0f, static_cast<float>(y - 50) / 100.0f});
    }
    glyph.push_back(std::move(stroke));
  }
  return glyph;
}

using Table = std::array<std::vector<Glyph>, kDigitClasses>;

Table parse_all() {
  Table table;
#define BITGRAD_DIGIT(label, strokes) table[label].push_back(parse_glyph(strokes));
#include "data/digit_strokes.inc"
#undef BITGRAD_DIGIT
  return table;
}

}  // namespace

const std::vector<Glyph>& digit_glyphs(int label) {
  static const Table table = parse_all();
  return table[static_cast<size_t>(label)];
}

namespace {

constexpr int64_t kMostImages = int64_t{1} << 31;
constexpr int64_t kGrain = 64;  // images per parallel chunk

// Random draws of one site, in a fixed sequence starting at block `first`.
class Draws {
 public:
  Draws(const RandomStream& stream, uint64_t first) : stream_(stream), next_(first) {}
  uint32_t bits() {
    if (word_ == 4) {
      block_ = stream_.block(next_++);
      word_ = 0;
    }
    return block_[word_++];
  }
  // Uniform in [lo, hi).
  float uniform(float lo, float hi) { return lo + (hi - lo) * (static_cast<float>(bits() >> 8) * 0x1p-24f); }
  // Uniform in 0 .. n-1.
  int below(int n) { return static_cast<int>((uint64_t{bits()} * static_cast<uint64_t>(n)) >> 32); }
  bool chance(float p) { return uniform(0.0f, 1.0f) < p; }
  // Bell-shaped with mean 0 and variance 1, within +-3.47: a sum of four uniforms, which needs no logarithm.
  float bell() {
    const float sum = uniform(-0.5f, 0.5f) + uniform(-0.5f, 0.5f);
    return (sum + (uniform(-0.5f, 0.5f) + uniform(-0.5f, 0.5f))) * 1.7320508f;
  }

 private:
  RandomStream stream_;
  uint64_t next_;
  PhiloxBlock block_{};
  size_t word_ = 4;
};

// Blocks of the stream: image i owns [i * 512, (i + 1) * 512); writers use blocks above all images.
constexpr uint64_t kBlocksPerImage = 512;
constexpr uint64_t kWriterBlocks = uint64_t{1} << 48;
constexpr uint64_t kBlocksPerWriter = 4096;
constexpr uint64_t kBlocksPerHabit = 128;

struct SplitStyle {
  int writers;
  float slant;    // spread of the shear over writers
  float shape;    // spread of the writers' control points, in units of the box
  float min_pen;  // radius in pixels
  float max_pen;
};
constexpr std::array<SplitStyle, 2> kSplitStyles{
    {{600, 0.20f, 0.024f, 0.85f, 1.50f}, {200, 0.22f, 0.026f, 0.80f, 1.55f}}};

constexpr float kJitter = 0.017f;    // spread of an image's control points, in units of the box
constexpr float kRotation = 0.075f;  // spread of tan(angle / 2)
constexpr float kElastic = 0.75f;    // spread of the field, in pixels
constexpr float kShift = 2.25f;      // largest shift of the center, in pixels
constexpr int kSteps = 6;            // segments between two control points
constexpr int kGrid = 5;             // nodes of the field per axis

struct Writer {
  float slant, aspect, size, pen, pressure, jitter, ink;
};

struct Disc {
  Point at;
  float radius;
};
using Trace = std::vector<Disc>;

Writer make_writer(Draws draws, const SplitStyle& split) {
  Writer w;
  w.slant = 0.10f + split.slant * draws.bell();
  w.aspect = draws.uniform(0.72f, 1.12f);
  w.size = draws.uniform(17.5f, 21.5f);
  w.pen = draws.uniform(split.min_pen, split.max_pen);
  w.pressure = draws.uniform(0.05f, 0.30f);
  w.jitter = draws.uniform(0.6f, 1.4f);
  w.ink = draws.uniform(0.85f, 1.0f);
  return w;
}

void displace(Glyph& glyph, Draws& draws, float spread) {
  for (Stroke& stroke : glyph) {
    const Point full{0.5f * spread * draws.bell(), 0.5f * spread * draws.bell()};
    Point last{9.0f, 9.0f};
    Point move{0.0f, 0.0f};
    for (Point& p : stroke) {
      const bool corner = p.x == last.x && p.y == last.y;
      last = p;
      // Carry over half of the previous move, so that round digits do not become polygons.
      if (!corner) move = {0.5f * move.x + spread * draws.bell(), 0.5f * move.y + spread * draws.bell()};
      p = {p.x + full.x + move.x, p.y + full.y + move.y};
    }
  }
}

// Random displacement field: bilinear between the nodes with weights t*t*(3 - 2t), so it has no kinks.
class ElasticField {
 public:
  explicit ElasticField(Draws& draws) {
    for (Point& node : nodes_) node = {kElastic * draws.bell(), kElastic * draws.bell()};
  }
  Point at(Point p) const {
    const float scale = static_cast<float>(kGrid - 1) / static_cast<float>(kDigitSide);
    const float gx = std::clamp(p.x * scale, 0.0f, static_cast<float>(kGrid - 1) - 0.001f);
    const float gy = std::clamp(p.y * scale, 0.0f, static_cast<float>(kGrid - 1) - 0.001f);
    const int ix = static_cast<int>(gx);
    const int iy = static_cast<int>(gy);
    const float tx = smooth(gx - static_cast<float>(ix));
    const float ty = smooth(gy - static_cast<float>(iy));
    const Point* row = &nodes_[static_cast<size_t>(iy * kGrid + ix)];
    const Point top = mix(row[0], row[1], tx);
    const Point bottom = mix(row[kGrid], row[kGrid + 1], tx);
    return mix(top, bottom, ty);
  }

 private:
  static float smooth(float t) { return t * t * (3.0f - 2.0f * t); }
  static Point mix(Point a, Point b, float t) { return {a.x + (b.x - a.x) * t, a.y + (b.y - a.y) * t}; }
  std::array<Point, kGrid * kGrid> nodes_;
};

float catmull_rom(float a, float b, float c, float d, float t) {
  return 0.5f * ((2.0f * b + (c - a) * t) + ((2.0f * a - 5.0f * b) + (4.0f * c - d)) * (t * t) +
                 ((3.0f * b - a) + (d - 3.0f * c)) * (t * t * t));
}

std::vector<Point> curve(const Stroke& stroke) {
  std::vector<Point> points;
  const size_t n = stroke.size();
  for (size_t i = 0; i + 1 < n; ++i) {
    const Point a = stroke[i == 0 ? 0 : i - 1];
    const Point b = stroke[i];
    const Point c = stroke[i + 1];
    const Point d = stroke[i + 2 < n ? i + 2 : n - 1];
    for (int s = 0; s < kSteps; ++s) {
      const float t = static_cast<float>(s) / static_cast<float>(kSteps);
      points.push_back({catmull_rom(a.x, b.x, c.x, d.x, t), catmull_rom(a.y, b.y, c.y, d.y, t)});
    }
  }
  points.push_back(stroke.back());
  return points;
}

// Applies shear, proportions, rotation (by the rational form of cos and sin) and size, then picks a position where the
// whole digit fits.
void place(std::vector<std::vector<Point>>& lines, const Writer& writer, Draws& draws) {
  const float h = kRotation * draws.bell();
  const float cosine = (1.0f - h * h) / (1.0f + h * h);
  const float sine = 2.0f * h / (1.0f + h * h);
  const float slant = writer.slant + 0.05f * draws.bell();
  const float high = writer.size * draws.uniform(0.90f, 1.08f);
  const float wide = high * writer.aspect * draws.uniform(0.90f, 1.10f);
  Point low{1e9f, 1e9f};
  Point top{-1e9f, -1e9f};
  for (std::vector<Point>& line : lines) {
    for (Point& p : line) {
      const float x = (p.x - slant * p.y) * wide;
      const float y = p.y * high;
      p = {cosine * x - sine * y, sine * x + cosine * y};
      low = {std::min(low.x, p.x), std::min(low.y, p.y)};
      top = {std::max(top.x, p.x), std::max(top.y, p.y)};
    }
  }
  const float margin = writer.pen + 0.5f;
  const float side = static_cast<float>(kDigitSide);
  const auto origin = [&](float lo, float hi, float shift) {
    const float room = std::max(0.0f, (side - (hi - lo)) * 0.5f - margin);
    return side * 0.5f - (lo + hi) * 0.5f + std::clamp(shift, -room, room);
  };
  const float dx = origin(low.x, top.x, draws.uniform(-kShift, kShift));
  const float dy = origin(low.y, top.y, draws.uniform(-kShift, kShift));
  for (std::vector<Point>& line : lines) {
    for (Point& p : line) p = {p.x + dx, p.y + dy};
  }
}

void draw_segment(const Disc& a, const Disc& b, float* canvas) {
  const float reach = std::max(a.radius, b.radius) + 0.5f;
  const auto pixel = [](float v) { return std::clamp(static_cast<int>(v), 0, kDigitSide - 1); };
  const int x0 = pixel(std::min(a.at.x, b.at.x) - reach);
  const int x1 = pixel(std::max(a.at.x, b.at.x) + reach);
  const int y0 = pixel(std::min(a.at.y, b.at.y) - reach);
  const int y1 = pixel(std::max(a.at.y, b.at.y) + reach);
  const float ux = b.at.x - a.at.x;
  const float uy = b.at.y - a.at.y;
  const float scale = 1.0f / std::max(ux * ux + uy * uy, 1e-12f);
  for (int y = y0; y <= y1; ++y) {
    const float py = static_cast<float>(y) + 0.5f - a.at.y;
    for (int x = x0; x <= x1; ++x) {
      const float px = static_cast<float>(x) + 0.5f - a.at.x;
      const float t = std::clamp((px * ux + py * uy) * scale, 0.0f, 1.0f);
      const float ex = px - t * ux;
      const float ey = py - t * uy;
      const float radius = a.radius + (b.radius - a.radius) * t;
      const float cover = std::clamp(radius + 0.5f - std::sqrt(ex * ex + ey * ey), 0.0f, 1.0f);
      float& at = canvas[y * kDigitSide + x];
      at = std::max(at, cover);
    }
  }
}

void draw_line(const std::vector<Point>& line, const Writer& writer, const ElasticField& field, Draws& draws,
               float* canvas) {
  const float begin = draws.uniform(1.0f - writer.pressure, 1.0f);
  const float end = draws.uniform(1.0f - writer.pressure, 1.0f + 0.5f * writer.pressure);
  const int last = static_cast<int>(line.size()) - 1;
  // A gap where the pen lost contact with the paper.
  const bool broken = draws.chance(0.10f);
  const int gap = broken ? draws.below(last + 1) : last + 1;
  const int length = 1 + draws.below(3);
  const auto disc = [&](int i) {
    const Point p = line[static_cast<size_t>(i)];
    const Point bend = field.at(p);
    const float t = static_cast<float>(i) / static_cast<float>(last);
    return Disc{{p.x + bend.x, p.y + bend.y}, writer.pen * (begin + (end - begin) * t)};
  };
  Disc a = disc(0);
  for (int i = 1; i <= last; ++i) {
    const Disc b = disc(i);
    if (i <= gap || i > gap + length) draw_segment(a, b, canvas);
    a = b;
  }
}

// Applies blur (a 3x3 mean with weight `blur`), contrast and noise from 16-bit draws, then rounds to bytes.
void develop(const float* canvas, const Writer& writer, Draws& draws, uint8_t* pixels) {
  const float blur = draws.uniform(0.0f, 0.35f);
  const float ink = 255.0f * std::min(1.0f, writer.ink * draws.uniform(0.92f, 1.08f));
  const float noise = draws.uniform(0.0f, 26.0f);
  for (int y = 0; y < kDigitSide; ++y) {
    for (int x = 0; x < kDigitSide; ++x) {
      float sum = 0.0f;
      for (int v = std::max(0, y - 1); v <= std::min(kDigitSide - 1, y + 1); ++v) {
        for (int u = std::max(0, x - 1); u <= std::min(kDigitSide - 1, x + 1); ++u) sum += canvas[v * kDigitSide + u];
      }
      const float clear = canvas[y * kDigitSide + x];
      const float value = clear + blur * (sum * (1.0f / 9.0f) - clear);
      const float grain = draws.uniform(-1.0f, 1.0f);
      const float shade = value * ink + noise * grain * (grain > 0.0f ? grain : -grain);
      pixels[y * kDigitSide + x] = static_cast<uint8_t>(std::clamp(shade, 0.0f, 255.0f) + 0.5f);
    }
  }
}

}  // namespace

int draw_digit(uint64_t seed, uint32_t split, int64_t index, uint8_t* pixels) {
  const RandomStream stream{seed, Purpose::kDataset, site_id("digits"), split};
  const SplitStyle& style = kSplitStyles[split];
  Draws draws(stream, static_cast<uint64_t>(index) * kBlocksPerImage);
  const int label = draws.below(kDigitClasses);
  const uint64_t hand = kWriterBlocks + static_cast<uint64_t>(draws.below(style.writers)) * kBlocksPerWriter;

  const Writer writer = make_writer(Draws(stream, hand), style);
  Draws habit(stream, hand + kBlocksPerHabit * (1 + static_cast<uint64_t>(label)));
  const std::vector<Glyph>& glyphs = digit_glyphs(label);
  const int usual = habit.below(static_cast<int>(glyphs.size()));
  const int other = draws.below(static_cast<int>(glyphs.size()));
  Glyph glyph = glyphs[static_cast<size_t>(draws.chance(0.85f) ? usual : other)];
  displace(glyph, habit, style.shape);
  displace(glyph, draws, kJitter * writer.jitter);

  std::vector<std::vector<Point>> lines;
  for (const Stroke& stroke : glyph) lines.push_back(curve(stroke));
  place(lines, writer, draws);
  const ElasticField field(draws);
  std::array<float, kDigitPixels> canvas{};
  for (const std::vector<Point>& line : lines) draw_line(line, writer, field, draws, canvas.data());
  develop(canvas.data(), writer, draws, pixels);
  return label;
}

std::unique_ptr<Dataset> make_digits_dataset(const DatasetSpec& spec) {
  require(spec.size >= 1 && spec.size <= kMostImages, "data.digits", "size: got ", spec.size, ", expected 1 .. ",
          kMostImages, ".");
  require(spec.split == "train" || spec.split == "test", "data.digits", "split: got '", spec.split,
          "', expected train or test.");
  require(spec.classes == 0 || spec.classes == kDigitClasses, "data.digits", "classes: got ", spec.classes,
          ", expected ", kDigitClasses, ".");
  PixelValues(spec).check(1);
  const uint32_t split = spec.split == "train" ? 0 : 1;
  TrackedBytes pixels(spec.size * kDigitPixels, MemoryKind::kDataset);
  TrackedBytes labels(spec.size, MemoryKind::kDataset);
  parallel_ranges(spec.size, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      labels.data()[i] = static_cast<uint8_t>(draw_digit(spec.seed, split, i, pixels.data() + i * kDigitPixels));
    }
  });
  return std::make_unique<ImageDataset>(concat("digits (", spec.split, ")"),
                                        std::vector<int64_t>{kDigitSide, kDigitSide}, kDigitClasses, PixelValues(spec),
                                        std::move(pixels), std::move(labels));
}

}  // namespace bitgrad::data
