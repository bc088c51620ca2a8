// A plugin that adds six things to bitgrad, which a configuration uses like built-in ones. rings.yaml trains with all
// of them.
//
//   build/release/bin/bitgrad train build/release/bin/rings.yaml --out /tmp/rings
#include "bitgrad/config/plugin.h"

#include "parts.h"

namespace {

void register_all() {
  rings::register_layer_kind();
  rings::register_the_loss();
  rings::register_the_metric();
  rings::register_data();
  rings::register_the_transform();
  rings::register_scheme();
}

}  // namespace

BITGRAD_PLUGIN(register_all)
