// A plugin of a later interface: nothing of its entry but the version may be read.
namespace {
struct Entry {
  unsigned interface;
  void* rest;
};
}  // namespace
extern "C" const void* bitgrad_plugin() {
  static const Entry entry{99, nullptr};
  return &entry;
}
