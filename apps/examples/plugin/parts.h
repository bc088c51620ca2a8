// The parts of this plugin, one per file.
#pragma once

namespace rings {

void register_layer_kind();     // squares
void register_the_loss();       // smoothed_cross_entropy
void register_the_metric();     // sure_accuracy
void register_data();           // rings
void register_the_transform();  // turn
void register_scheme();         // quantile_clip

}  // namespace rings
