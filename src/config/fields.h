// Which field holds which key: one function per group of keys.inc, called with a reader or a writer as v(key, field). A
// test compares these names with keys.inc.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "bitgrad/config/config.h"

namespace bitgrad::config {

template <typename V, typename C>
void visit_run(V&& v, C& c) {
  v("name", c.name);
  v("dir", c.dir);
  v("seed", c.seed);
  v("bits", c.bits);
}

template <typename V, typename C>
void visit_device(V&& v, C& c) {
  v("kind", c.kind);
  v("index", c.index);
  v("graph", c.graph);
  v("resident_data", c.resident_data);
  v("threads", c.threads);
}

template <typename V, typename C>
void visit_dataset(V&& v, C& c) {
  v("format", c.format);
  v("fraction", c.fraction);
  v("images", c.images);
  v("labels", c.labels);
  v("targets", c.targets);
  v("classes", c.classes);
  v("size", c.size);
  v("seed", c.seed);
  v("file", c.file);
  v("path", c.path);
  v("context", c.context);
  v("test_fraction", c.test_fraction);
  v("split", c.split);
  v("limit", c.limit);
  v("augment", c.augment);
  v("transforms", c.transforms);
}

template <typename V, typename C>
void visit_augment(V&& v, C& c) {
  v("crop_pad", c.crop_pad);
  v("flip", c.flip);
}

template <typename V, typename C>
void visit_normalize(V&& v, C& c) {
  v("mean", c.mean);
  v("std", c.std);
}

// What is quantized; this determines which keys a quantizer has.
enum class Role : uint8_t { kWeights, kActivations, kGradients };
constexpr std::string_view group_of(Role role) {
  return role == Role::kWeights ? "weights" : role == Role::kActivations ? "activations" : "quantize_gradient";
}

template <typename V, typename C>
void visit_learned(V&& v, C& c) {
  v("lr_factor", c.lr_factor);
  v("weight_decay", c.weight_decay);
}

template <typename V, typename C>
void visit_observer(V&& v, C& c) {
  v("name", c.name);
  v("momentum", c.momentum);
  v("percentile", c.percentile);
}

template <typename V, typename C>
void visit_backward(V&& v, C& c) {
  v("gx", c.gx);
  v("gw", c.gw);
  v("rounding", c.rounding);
  v("per_group", c.per_group);
}

template <typename V, typename C>
void visit_bop(V&& v, C& c) {
  v("gamma", c.gamma);
  v("threshold", c.threshold);
}

// Of weights, beside the keys of their codes and `learned`.
template <typename V, typename C>
void visit_weights(V&& v, C& c) {
  v("init", c.init);
  v("latent_clamp", c.latent_clamp);
  v("master", c.master);
  v("moments", c.moments);
  v("optimizer", c.optimizer);
  v("lr_factor", c.lr_factor);
  v("weight_decay", c.weight_decay);
  v("frozen", c.frozen);
  v("grad", c.grad);
}

// quant.phases, without the keys of prepare.
template <typename V, typename C>
void visit_phase(V&& v, C& c) {
  v("from", c.from);
  v("quantization", c.mode.quantization);
  v("observers", c.mode.observers);
  v("norm_statistics", c.mode.norm_statistics);
}

template <typename V, typename C>
void visit_budget(V&& v, C& c) {
  v("bytes", c.bytes);
  v("bits", c.bits);
  v("samples", c.samples);
  v("batch_norm", c.batch_norm);
}

template <typename V, typename C>
void visit_adapters(V&& v, C& c) {
  v("layers", c.layers);
  v("rank", c.rank);
  v("alpha", c.alpha);
  v("dropout", c.dropout);
  v("train", c.train);
  v("init_from", c.init_from);
}

template <typename V, typename C>
void visit_log(V&& v, C& c) {
  v("every", c.log_every);
  v("quantization", c.log_quantization);
  v("report", c.log_report);
  v("tensorboard", c.log_tensorboard);
  v("gradient_norm", c.log_gradient_norm);
  v("peak", c.log_peak);
}

template <typename V, typename C>
void visit_batch(V&& v, C& c) {
  v("global", c.global);
  v("micro", c.micro);
  v("last", c.last);
  v("sum", c.sum);
}

// A member in the form of its key: v(key, form), after which a reader's form is the member's value.
template <typename V, typename T, typename Form, typename Back>
void visit_as(V&& v, std::string_view key, T& member, Form form, Back back) {
  v(key, form);
  if constexpr (!std::is_const_v<T>) member = back(form);
}
// "auto" or "all" for true, another word for false.
template <typename V, typename T>
void visit_words(V&& v, std::string_view key, T& member, const char* yes, const char* no) {
  visit_as(v, key, member, std::string(member ? yes : no), [&](const std::string& word) { return word == yes; });
}
// 0 is "none".
template <typename V, typename T>
void visit_limit(V&& v, std::string_view key, T& member) {
  visit_as(v, key, member, member > 0 ? std::optional<float>(member) : std::nullopt,
           [](const std::optional<float>& limit) { return limit.value_or(0); });
}

template <typename V, typename C>
void visit_optim(V&& v, C& c) {
  auto& spec = c.spec;
  v("name", spec.name);
  v("lr", spec.base_lr);
  std::array<double, 2> betas{spec.beta1, spec.beta2};
  v("betas", betas);
  if constexpr (!std::is_const_v<C>) spec.beta1 = betas[0], spec.beta2 = betas[1];
#define BITGRAD_OPTIM_FIELD(member, ...) v(#member, spec.member);
#include "bitgrad/optim/optimizer_fields.inc"
#undef BITGRAD_OPTIM_FIELD
  visit_words(v, "decay", spec.decay_vectors, "all", "matrices");
  v("decay_schedule", c.decay_schedule);
  visit_limit(v, "clip_value", spec.clip_value);
  visit_limit(v, "clip_norm", spec.clip_norm);
  visit_words(v, "fused", spec.fused, "auto", "off");
}

template <typename V, typename C>
void visit_schedule(V&& v, C& c) {
  v("name", c.name);
  v("warmup", c.warmup);
  v("every", c.every);
  v("at", c.at);
  v("factor", c.factor);
  v("factors", c.factors);
  v("gamma", c.gamma);
  v("final", c.final);
  v("cooldown", c.cooldown);
  v("shape", c.shape);
  v("rise", c.rise);
  v("div", c.div);
  v("final_div", c.final_div);
  v("metric", c.metric);
  v("mode", c.mode);
  v("patience", c.patience);
  v("min_delta", c.min_delta);
}

template <typename V, typename C>
void visit_best(V&& v, C& c) {
  v("metric", c.metric);
  v("mode", c.mode);
}

template <typename V, typename C>
void visit_early_stop(V&& v, C& c) {
  v("metric", c.metric);
  v("mode", c.mode);
  v("patience", c.patience);
  v("min_delta", c.min_delta);
}

template <typename V, typename C>
void visit_eval(V&& v, C& c) {
  v("every", c.every);
  v("batch", c.batch);
}

}  // namespace bitgrad::config
