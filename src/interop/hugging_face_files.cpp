#include "interop/hugging_face.h"

#include <cmath>
#include <cstring>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/base/json.h"
#include "bitgrad/base/text.h"
#include "bitgrad/dtype/bf16.h"

namespace bitgrad::interop {
namespace {

constexpr std::string_view kFolder = "import";
constexpr int64_t kMostIndexBytes = int64_t{1} << 26;
constexpr size_t kMostFiles = 4096;

template <typename... Parts>
[[noreturn]] void bad_folder(const Parts&... parts) {
  fail_with(ErrorCode::kData, kFolder, printable(concat(parts...)));
}

// Accepts only files directly in the folder, whatever the index says.
void check_name(const std::string& name, const std::string& where) {
  const bool inside = !name.empty() && name[0] != '.' && name.find_first_of("/\\:") == std::string::npos &&
                      name.find('\0') == std::string::npos && name.size() <= 255;
  if (!inside || !name.ends_with(".safetensors"))
    bad_folder("'", where, "': weight_map: got file '", name.substr(0, 80),
               "', expected a .safetensors file of the folder.");
}

template <typename T>
T number_at(const uint8_t* bytes, int64_t i) {
  T x;
  std::memcpy(&x, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return x;
}

float float_at(const std::string& dtype, const uint8_t* bytes, int64_t i) {
  if (dtype == "F32") return number_at<float>(bytes, i);
  if (dtype == "F64") return static_cast<float>(number_at<double>(bytes, i));
  const auto bits = number_at<uint16_t>(bytes, i);
  return dtype == "BF16" ? bf16_to_float(bits) : fp16_to_float(bits);
}

}  // namespace

bool is_float_type(const std::string& dtype) {
  return dtype == "F32" || dtype == "F16" || dtype == "BF16" || dtype == "F64";
}

std::map<std::string, std::string> parse_safetensors_index(const std::string& text, const std::string& where) {
  try {
    const Json j = Json::parse(text, {.depth = 8, .unique_names = true});
    std::map<std::string, std::string> files;
    for (const auto& [tensor, file] : j.at("weight_map").members()) {
      check_name(file.text(), where);
      files[tensor] = file.text();
    }
    if (files.empty()) bad_folder("'", where, "': weight_map: got no tensors.");
    return files;
  } catch (const JsonError& e) {
    bad_folder("'", where, "': ", e.what());
  }
}

namespace {

// Names the files of weights that the folder has instead.
[[noreturn]] void no_weights(const std::string& folder) {
  std::string others;
  bool torch = false;
  for (const std::string& name : file_system().list(folder))
    for (const std::string_view end : {".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".safetensors", ".gguf"})
      if (name.ends_with(end) && name != "training_args.bin" && name != "optimizer.pt" && name != "scheduler.pt") {
        others += concat(others.empty() ? "" : ", ", printable(name));
        torch = torch || end == ".bin" || end == ".pt" || end == ".pth" || end == ".ckpt";
      }
  bad_folder("'", folder, "' has neither model.safetensors nor its index.json", others.empty() ? "" : ", but ", others,
             torch ? concat(". Checkpoints of PyTorch are pickles, which are never run. In Python: ", kFromTorch) : "",
             '.');
}

}  // namespace

HuggingFaceFiles::HuggingFaceFiles(const std::string& path) {
  const bool is_folder = file_system().is_directory(path), is_index = !is_folder && path.ends_with(".index.json");
  const size_t slash = path.rfind('/');
  const std::string folder = is_folder ? path : slash == std::string::npos ? "." : path.substr(0, slash);
  const std::string one = is_folder ? folder + "/model.safetensors" : path;
  const std::string index = is_index ? path : one + ".index.json";
  // As transformers: model.safetensors first. The index may be of shards that were saved there before.
  if (!is_index && (!is_folder || file_system().exists(one) || !file_system().exists(index))) {
    if (is_folder && !file_system().exists(one)) no_weights(folder);
    read_.push_back(is_folder ? "model.safetensors" : one);
    if (is_folder && file_system().exists(index)) unused_.push_back("model.safetensors.index.json");
    files_.push_back(SafetensorsFile::read(one));
    for (const SafetensorsEntry& e : files_[0].entries()) place_[e.name] = 0;
    return;
  }
  const std::vector<uint8_t> bytes = read_file(index, kMostIndexBytes);
  const auto map = parse_safetensors_index({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, index);
  std::map<std::string, size_t> number;
  for (const auto& [tensor, file] : map) number.emplace(file, number.size());
  if (number.size() > kMostFiles) bad_folder("'", index, "': got ", number.size(), " files, at most ", kMostFiles, '.');
  std::vector<std::string> order(number.size());
  for (const auto& [file, n] : number) order[n] = file;
  read_.push_back(index.substr(index.rfind('/') + 1));
  for (const std::string& file : order) {
    read_.push_back(file);
    files_.push_back(SafetensorsFile::read(concat(folder, '/', file)));
    for (const SafetensorsEntry& e : files_.back().entries())
      if (!place_.emplace(e.name, files_.size() - 1).second)
        bad_folder("'", files_.back().path(), "': tensor '", e.name, "' is in another file too.");
  }
  for (const auto& [tensor, file] : map)
    if (!contains(tensor) || place_.at(tensor) != number.at(file))
      bad_folder("'", index, "': tensor '", tensor, "' is not in ", file, ", where the index says.");
}

std::vector<std::string> HuggingFaceFiles::names() const {
  std::vector<std::string> all;
  for (const auto& [name, file] : place_) all.push_back(name);
  return all;
}

Tensor HuggingFaceFiles::floats(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  if (!is_float_type(e.dtype)) bad_folder(name, ": got dtype ", e.dtype, ", expected F32, F16, BF16 or F64.");
  const uint8_t* const bytes = file_of(name).data(name);
  const Tensor t = Tensor::zeros(Shape(e.shape), dtypes::fp32, MemoryKind::kBuffer, Device::cpu());
  for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = number(e, bytes, i);
  return t;
}

Tensor HuggingFaceFiles::stored_floats(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  if (e.dtype != "F16" && e.dtype != "BF16") return floats(name);
  const uint8_t* const bytes = file_of(name).data(name);
  const DType dtype = e.dtype == "F16" ? dtypes::fp16 : dtypes::bf16;
  Tensor t = Tensor::empty(Shape(e.shape), dtype, MemoryKind::kBuffer, Device::cpu());
  for (int64_t i = 0; i < t.numel(); ++i) number(e, bytes, i);
  std::memcpy(t.data(), bytes, static_cast<size_t>(t.bytes()));
  return t;
}

float HuggingFaceFiles::number(const SafetensorsEntry& e, const uint8_t* bytes, int64_t i) const {
  const float x = float_at(e.dtype, bytes, i);
  if (!std::isfinite(x))
    fail_with(ErrorCode::kNonFinite, kFolder, "'", file_of(e.name).path(), "': tensor '", e.name, "', element ", i,
              ": got ", x, ", expected a finite fp32 number.");
  return x;
}

Tensor HuggingFaceFiles::ternary(const std::string& name) const {
  const SafetensorsEntry& e = entry(name);
  if (e.dtype != "U8" || e.shape.size() != 2)
    bad_folder(name, ": got ", Shape(e.shape), ' ', e.dtype, ", expected U8 codes.");
  const int64_t quarter = e.shape[0], cols = e.shape[1];
  const uint8_t* const bytes = file_of(name).data(name);
  std::vector<double> codes(static_cast<size_t>(4 * quarter * cols));
  for (int64_t part = 0; part < 4; ++part)
    for (int64_t i = 0; i < quarter * cols; ++i) {
      const int code = ((bytes[i] >> (2 * part)) & 3) - 1;
      if (code > 1) bad_folder(name, ", row ", part * quarter + i / cols, ": got code 3, expected 0, 1 or 2.");
      codes[static_cast<size_t>(part * quarter * cols + i)] = code;
    }
  return Tensor::from_elements({4 * quarter, cols}, dtypes::ternary, codes, MemoryKind::kBuffer);
}

std::vector<uint8_t> packed_ternary(const Tensor& codes) {
  const std::vector<double> numbers = codes.without_quant().elements();
  const size_t quarter = numbers.size() / 4;
  std::vector<uint8_t> out(quarter);
  for (size_t i = 0; i < numbers.size(); ++i)
    out[i % quarter] =
        static_cast<uint8_t>(out[i % quarter] | (static_cast<int>(numbers[i]) + 1) << (2 * (i / quarter)));
  return out;
}

}  // namespace bitgrad::interop
