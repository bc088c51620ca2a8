// bitgrad data info FILE_OR_FOLDER [--json]
// bitgrad data pack FOLDER -o NAME [--size HxW] [--channels 1|3] [--classes FILE] [--skip-bad] [--force]: packs folders
// of PNG and JPEG files, one subfolder per class, into NAME.images.npy, NAME.labels.npy and NAME.classes.txt.
// bitgrad data fetch NAME... [-o DIR] [--mirrors FILE] [--force]: downloads known data sets.
#include <iostream>

#include "bitgrad/base/error.h"
#include "bitgrad/base/file.h"
#include "bitgrad/data/samples.h"
#include "command.h"
#include "data_fetch.h"
#include "data_pack.h"

namespace bitgrad::cli {
namespace {

struct DataOptions {
  std::string action;
  std::vector<std::string> names;
  PackOptions pack;
  std::string mirrors;
  bool json = false;
};

const std::string& only_name(const DataOptions& o) {
  require(o.names.size() == 1, concat("data ", o.action), "got ", o.names.size(), " names, expected one ",
          o.action == "info" ? "file or folder" : "folder");
  return o.names[0];
}

// An option without effect on this action is most likely meant for another one.
void require_of(const DataOptions& o, bool given, std::string_view option, std::string_view action) {
  require(!given || o.action == action, concat("data ", o.action), option, " is of bitgrad data ", std::string(action));
}

int run_data(const DataOptions& o) {
  require_of(o, o.json, "--json", "info");
  require_of(o, !o.mirrors.empty(), "--mirrors", "fetch");
  if (o.action == "info") {
    const std::string& name = only_name(o);
    std::cout << (o.json ? describe_data_json(name) + '\n' : describe_data_file(name));
    return 0;
  }
  if (o.action == "fetch") return run_fetch({o.names, o.pack.out, o.mirrors, o.pack.force});
  constexpr std::string_view kPack = "data pack";
  PackOptions pack = o.pack;
  pack.folder = only_name(o);
  require(!pack.out.empty(), kPack, "got no --out, expected --out NAME, for NAME.images.npy and the other files");
  require(pack.channels != 2, kPack, "--channels: got 2, expected 1 (gray) or 3 (color)");
  return run_pack(pack);
}

}  // namespace

Run setup_data(Arguments& args) {
  auto o = std::make_shared<DataOptions>();
  args.option("action", o->action,
              "info: what a file (idx, npy, npz, csv) or folder holds; pack: convert folders of images to arrays for "
              "format npy; fetch: download mnist, fashion_mnist or cifar10")
      .required()
      .one_of({"info", "pack", "fetch"});
  args.option("name", o->names,
              "info: a file or folder; pack: a folder with a sub-folder of PNG and JPEG files for each class; fetch: "
              "names of data sets")
      .required()
      .suggest([] {
        return std::vector<std::string>{"mnist", "fashion_mnist", "cifar10"};
      });
  args.option("-o,--out", o->pack.out,
              "pack: NAME of NAME.images.npy, NAME.labels.npy and NAME.classes.txt; fetch: the folder (default: "
              "$BITGRAD_DATA, else the current one)");
  args.option("--size", o->pack.size,
              "pack: rows x columns to resize to, such as 32x48, or 32 for 32x32; default: all images have one size");
  args.option("--channels", o->pack.channels, "pack: 3 (color) or 1 (gray)").range<int64_t>(1, 3);
  args.option("--classes", o->pack.classes,
              "pack: text file with one class name per line, such as NAME.classes.txt of the training data");
  args.flag("--skip-bad", o->pack.skip_bad, "pack: skip files that cannot be packed");
  args.option("--mirrors", o->mirrors, "fetch: JSON file of data sets, instead of the built-in list");
  args.flag("--json", o->json, "info: one JSON object on standard output");
  args.flag("--force", o->pack.force, "overwrite existing files");
  return [o] { return run_data(*o); };
}

}  // namespace bitgrad::cli
