/* bitgrad/c.h as a C99 program uses it: trains from arrays, saves, opens, predicts, meets errors.
 * Arguments: folder for its files. The last line says what the run came to, as JSON. */
#include "bitgrad/c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The structs of dlpack.h, as an application has them. */
typedef struct {
  int32_t device_type, device_id;
} dl_device;
typedef struct {
  uint8_t code, bits;
  uint16_t lanes;
} dl_type;
typedef struct {
  void* data;
  dl_device device;
  int32_t ndim;
  dl_type dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} dl_tensor;
struct DLManagedTensor {
  dl_tensor tensor;
  void* context;
  void (*deleter)(struct DLManagedTensor*);
};

#define CHECK(condition)                                                                            \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "line %d: %s; last error: %s\n", __LINE__, #condition, bitgrad_last_error()); \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)
#define FAILS(call, code, part)                                                                  \
  do {                                                                                           \
    const int got_ = (call);                                                                     \
    if (got_ != (code) || strstr(bitgrad_last_error(), part) == NULL) {                          \
      fprintf(stderr, "line %d: %s gave %d: %s\n", __LINE__, #call, got_, bitgrad_last_error()); \
      exit(1);                                                                                   \
    }                                                                                            \
  } while (0)

enum { kSamples = 40, kFeatures = 12, kClasses = 3, kMicro = 10 };

static const char* const kConfig =
    "version: 1\n"
    "run: {name: c, seed: 3}\n"
    "data: {train: {format: memory}, affine: [2, -1]}\n"
    "model: {layers: [{linear: {out: 8}}, {relu: {}}, {linear: {out: 3}}]}\n"
    "quant: {recipe: 8da4w, last: none}\n"
    "batch: {global: 10, micro: 10}\n"
    "optim: {name: adam, lr: 0.02}\n"
    "train: {stop: 3 epochs}\n";

static uint8_t pixels[kSamples * kFeatures];
static int64_t labels[kSamples];

static void make_samples(void) {
  uint32_t state = 7;
  for (int i = 0; i < kSamples; ++i) {
    labels[i] = i % kClasses;
    for (int k = 0; k < kFeatures; ++k) {
      state = state * 1664525u + 1013904223u;
      pixels[i * kFeatures + k] = (uint8_t)((state >> 24) / 2 + (k % kClasses == labels[i] ? 100 : 0));
    }
  }
}

static int ticks = 0, evaluations = 0;
static int count_events(const bitgrad_event* event, void* user) {
  CHECK(user == &ticks);
  if (event->kind == 0) ++ticks;
  if (event->kind == 1) ++evaluations;
  CHECK(event->step >= 1 && event->loss > 0);
  return 0;
}
static int stop_at_once(const bitgrad_event* event, void* user) {
  (void)user;
  return event->step >= 2;
}

static char* path_of(const char* folder, const char* name) {
  char* out = malloc(strlen(folder) + strlen(name) + 2);
  sprintf(out, "%s/%s", folder, name);
  return out;
}

/* A model of arrays whose columns have names reads text by them. */
static void read_table(const char* folder) {
  const int64_t shape[2] = {4, 2};
  const float x_values[8] = {1, 10, 2, 20, 3, 30, 4, 40}, y_values[4] = {1, 2, 3, 4};
  const int64_t n = 4, y_shape[2] = {4, 1};
  const bitgrad_array x = bitgrad_array_of(x_values, BITGRAD_FLOAT32, 2, shape);
  const bitgrad_array y = bitgrad_array_of(y_values, BITGRAD_FLOAT32, 2, y_shape);
  const char* net =
      "version: 1\nmodel: {layers: [linear: {out: 1}]}\nloss: mean_squared_error\nbatch: {global: 4}\n"
      "optim: {name: sgd, lr: 0.0001}\ntrain: {stop: 1 steps}\n";
  const char *names[2] = {"b", "a"}, *twice[2] = {"a", "a"}, *target[1] = {"sum"}, *odd[2] = {"a", "x\ny"};
  bitgrad_trainer* trainer = NULL;
  CHECK(bitgrad_trainer_create(net, NULL, 0, &x, &y, NULL, NULL, &trainer) == BITGRAD_OK);
  FAILS(bitgrad_trainer_name_columns(trainer, twice, 2, NULL, 0), BITGRAD_E_USAGE, "got 'a' twice");
  FAILS(bitgrad_trainer_name_columns(trainer, odd, 2, NULL, 0), BITGRAD_E_USAGE, "without control characters");
  FAILS(bitgrad_trainer_name_columns(trainer, names, 2, twice, 2), BITGRAD_E_USAGE, "got 2 names of targets, expected 1");
  FAILS(bitgrad_trainer_name_columns(trainer, NULL, 2, NULL, 0), BITGRAD_E_USAGE, "features: got NULL");
  FAILS(bitgrad_trainer_name_columns(trainer, names, -1, NULL, 0), BITGRAD_E_USAGE, "features: got a negative number");
  CHECK(bitgrad_trainer_name_columns(trainer, names, 2, target, 1) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, NULL, NULL, NULL, NULL) == BITGRAD_OK);
  char* saved = path_of(folder, "named.safetensors");
  CHECK(bitgrad_trainer_save(trainer, saved) == BITGRAD_OK);
  bitgrad_trainer_close(trainer);
  bitgrad_model* model = NULL;
  CHECK(bitgrad_model_open(saved, &model) == BITGRAD_OK);
  CHECK(strstr(bitgrad_model_describe(model), "\"table\":{") != NULL);
  float out[4] = {0};
  CHECK(bitgrad_model_predict_into(model, &x, BITGRAD_STORED, out, 4) == BITGRAD_OK);
  const char* text = "a,sum,b\n10,0,1\n20,0,2\n30,0,3\n40,0,4\n";
  struct DLManagedTensor* y_table = NULL;
  CHECK(bitgrad_model_predict_table(model, text, (int64_t)strlen(text), &y_table) == BITGRAD_OK);
  bitgrad_array view;
  CHECK(bitgrad_array_of_dlpack(y_table, &view) == BITGRAD_OK && view.shape[0] == n);
  CHECK(memcmp(view.data, out, sizeof out) == 0);
  y_table->deleter(y_table);
  FAILS(bitgrad_model_predict_table(model, "a\n1\n", 4, &y_table), BITGRAD_E_DATA, "got no column b");
  FAILS(bitgrad_model_predict_table(model, text, -1, &y_table), BITGRAD_E_USAGE, "length: got -1");
  bitgrad_model_close(model);
  free(saved);
}

static void train_run(const char* folder, char hash[65]) {
  const int64_t shape[2] = {kSamples, kFeatures};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, shape);
  const bitgrad_array y = bitgrad_array_of(labels, BITGRAD_INT64, 1, shape);
  bitgrad_trainer* trainer = NULL;
  CHECK(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, &x, &y, &trainer) == BITGRAD_OK);
  bitgrad_result result;
  char* run = path_of(folder, "run");
  CHECK(bitgrad_trainer_run(trainer, run, count_events, &ticks, &result) == BITGRAD_OK);
  CHECK(ticks == 12 && evaluations == 3 && result.steps == 12 && result.epochs == 3 && result.stopped == 0);
  CHECK(result.samples == kSamples && result.accuracy > 60 && strlen(result.state_hash) == 64);
  strcpy(hash, result.state_hash);
  bitgrad_result again;
  CHECK(bitgrad_trainer_evaluate(trainer, &again) == BITGRAD_OK);
  CHECK(again.loss == result.loss && again.accuracy == result.accuracy);
  CHECK(strcmp(again.state_hash, hash) == 0);
  char* saved = path_of(folder, "saved.safetensors");
  CHECK(bitgrad_trainer_save(trainer, saved) == BITGRAD_OK);
  const char* few[1] = {"a"};
  FAILS(bitgrad_trainer_name_columns(trainer, few, 1, NULL, 0), BITGRAD_E_USAGE, "got 1 names of features for samples");
  read_table(folder);
  bitgrad_trainer_close(trainer);

  /* Another trainer on the same arrays continues the run in its folder; on other arrays it does not. */
  CHECK(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, &x, &y, &trainer) == BITGRAD_OK);
  CHECK(bitgrad_trainer_resume(trainer, run, 0) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, run, NULL, NULL, &again) == BITGRAD_OK);
  CHECK(strcmp(again.state_hash, result.state_hash) == 0);
  bitgrad_trainer_close(trainer);
  CHECK(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, NULL, NULL, &trainer) == BITGRAD_OK);
  FAILS(bitgrad_trainer_resume(trainer, run, 0), BITGRAD_E_DATA, "data.test: got none, the run has");
  bitgrad_trainer_close(trainer);

  /* The same run, stopped after two steps. */
  CHECK(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, NULL, NULL, &trainer) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, NULL, stop_at_once, NULL, &result) == BITGRAD_OK);
  CHECK(result.stopped == 1 && result.steps >= 2 && result.steps < 12);
  bitgrad_trainer_close(trainer);
  free(saved);
  free(run);
}

/* Stopped in its folder and resumed on the same arrays, a run ends as one that nothing stopped; not from an average. */
static void resume_run(const char* folder, const char hash[65]) {
  const int64_t shape[2] = {kSamples, kFeatures};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, shape);
  const bitgrad_array y = bitgrad_array_of(labels, BITGRAD_INT64, 1, shape);
  char *run = path_of(folder, "stopped"), *average = path_of(folder, "stopped/average.safetensors");
  const char* overrides[1] = {"train.ema=0.9"};
  bitgrad_trainer* trainer = NULL;
  bitgrad_result result;
  CHECK(bitgrad_trainer_create(kConfig, overrides, 1, &x, &y, &x, &y, &trainer) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, run, stop_at_once, NULL, &result) == BITGRAD_OK);
  CHECK(result.stopped == 1 && result.steps < 12);
  bitgrad_trainer_close(trainer);
  bitgrad_trainer* other = NULL;
  CHECK(bitgrad_trainer_create(kConfig, overrides, 1, &x, &y, NULL, NULL, &other) == BITGRAD_OK);
  FAILS(bitgrad_trainer_resume(other, run, 0), BITGRAD_E_DATA, "data.test: got none"); /* and leaves it unlocked */
  CHECK(bitgrad_trainer_create(kConfig, overrides, 1, &x, &y, &x, &y, &trainer) == BITGRAD_OK);
  FAILS(bitgrad_trainer_resume(trainer, average, 0), BITGRAD_E_DATA, "holds the average of a run's weights");
  CHECK(bitgrad_trainer_resume(trainer, run, 0) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, run, NULL, NULL, &result) == BITGRAD_OK);
  CHECK(result.stopped == 0 && result.steps == 12);
  bitgrad_trainer_close(other);
  bitgrad_trainer_close(trainer);
  char whole[65];
  strcpy(whole, result.state_hash);
  CHECK(bitgrad_trainer_create(kConfig, overrides, 1, &x, &y, &x, &y, &trainer) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, NULL, NULL, NULL, &result) == BITGRAD_OK);
  CHECK(strcmp(whole, result.state_hash) == 0 && strcmp(whole, hash) != 0); /* the average is part of the state */
  bitgrad_trainer_close(trainer);
  free(average);
  free(run);
}

/* Windows in which no target counts are skipped and counted; weights that grow without bound end a run. */
static void unusual_runs(void) {
  const int64_t shape[2] = {kSamples, kFeatures};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, shape);
  const bitgrad_array y = bitgrad_array_of(labels, BITGRAD_INT64, 1, shape);
  const char* skips[2] = {"batch={global: 1, micro: 1}", "loss={softmax_cross_entropy: {weights: [0, 1, 1]}}"};
  bitgrad_trainer* trainer = NULL;
  bitgrad_result result;
  CHECK(bitgrad_trainer_create(kConfig, skips, 2, &x, &y, NULL, NULL, &trainer) == BITGRAD_OK);
  CHECK(bitgrad_trainer_run(trainer, NULL, NULL, NULL, &result) == BITGRAD_OK);
  const int64_t first = (kSamples + kClasses - 1) / kClasses; /* samples of class 0 */
  CHECK(result.skipped_windows == 3 * first && result.steps == 3 * (kSamples - first));
  bitgrad_trainer_close(trainer);

  const char* grows[4] = {"~quant", "model.layers.0={linear: {out: 8, weights: {dtype: bint1, scheme: binary}}}",
                          "model.layers.1={hardtanh: {}}", "optim={name: sgd, lr: 1000, weight_decay: 1000}"};
  CHECK(bitgrad_trainer_create(kConfig, grows, 4, &x, &y, NULL, NULL, &trainer) == BITGRAD_OK);
  FAILS(bitgrad_trainer_run(trainer, NULL, NULL, NULL, &result), BITGRAD_E_NON_FINITE, "optimizer step");
  bitgrad_trainer_close(trainer);
}

/* A loop of one's own over the same samples; its outputs are those of the model that it saved. */
static void own_loop(const char* folder) {
  bitgrad_form input;
  memset(&input, 0, sizeof input);
  input.dtype = BITGRAD_FLOAT32;
  input.rank = 1;
  input.shape[0] = kFeatures;
  const char* overrides[1] = {"optim.lr=0.05"};
  bitgrad_learner* learner = NULL;
  CHECK(bitgrad_learner_create(kConfig, overrides, 1, &input, kClasses, kSamples, &learner) == BITGRAD_OK);
  double first = 0, last = 0;
  const int64_t shape[2] = {kMicro, kFeatures};
  for (int step = 0; step < 40; ++step) {
    const int at = step % (kSamples / kMicro) * kMicro;
    const bitgrad_array x = bitgrad_array_of(pixels + at * kFeatures, BITGRAD_UINT8, 2, shape);
    const bitgrad_array y = bitgrad_array_of(labels + at, BITGRAD_INT64, 1, shape);
    bitgrad_step result;
    CHECK(bitgrad_learner_step(learner, &x, &y, BITGRAD_STORED, &result) == BITGRAD_OK);
    CHECK(result.samples == kMicro && result.stepped == 1 && result.step == step + 1);
    if (step == 0) first = result.loss;
    last = result.loss;
  }
  CHECK(last < first);
  const int64_t all[2] = {kSamples, kFeatures};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, all);
  const bitgrad_array y = bitgrad_array_of(labels, BITGRAD_INT64, 1, all);
  bitgrad_step evaluation;
  CHECK(bitgrad_learner_evaluate(learner, &x, &y, BITGRAD_STORED, &evaluation) == BITGRAD_OK);
  CHECK(evaluation.correct > kSamples / 2);
  struct DLManagedTensor* outputs = NULL;
  CHECK(bitgrad_learner_predict(learner, &x, BITGRAD_STORED, &outputs) == BITGRAD_OK);
  char* saved = path_of(folder, "loop.safetensors");
  CHECK(bitgrad_learner_save(learner, saved) == BITGRAD_OK);

  labels[3] = kClasses; /* no class */
  FAILS(bitgrad_learner_step(learner, &x, &y, BITGRAD_STORED, NULL), BITGRAD_E_USAGE, "y: element 3: got class 3");
  labels[3] = 3 % kClasses;
  FAILS(bitgrad_learner_step(learner, &x, &y, BITGRAD_AS_IS, NULL), BITGRAD_E_USAGE, "BITGRAD_STORED");
  bitgrad_learner_close(learner);

  bitgrad_model* model = NULL;
  CHECK(bitgrad_model_open(saved, &model) == BITGRAD_OK);
  struct DLManagedTensor* predicted = NULL;
  CHECK(bitgrad_model_predict(model, &x, BITGRAD_STORED, &predicted) == BITGRAD_OK);
  bitgrad_model_close(model);
  CHECK(predicted->tensor.ndim == 2 && predicted->tensor.shape[0] == kSamples);
  CHECK(predicted->tensor.dtype.code == 2 && predicted->tensor.dtype.bits == 32);
  /* The tensor outlives the model. */
  const float *a = predicted->tensor.data, *b = outputs->tensor.data;
  for (int i = 0; i < kSamples * kClasses; ++i) CHECK(fabs((double)a[i] - (double)b[i]) < 1e-5); /* other batches */
  predicted->deleter(predicted);
  outputs->deleter(outputs);
  free(saved);
}

static void predict(const char* folder) {
  char* run = path_of(folder, "run");
  bitgrad_model* model = NULL;
  CHECK(bitgrad_model_open(run, &model) == BITGRAD_OK);
  CHECK(strstr(bitgrad_model_describe(model), "\"task\":\"classes\"") != NULL);
  bitgrad_form form;
  int32_t task = -1, probabilities = -1;
  CHECK(bitgrad_model_input(model, &form) == BITGRAD_OK);
  CHECK(form.dtype == BITGRAD_FLOAT32 && form.rank == 1 && form.shape[0] == kFeatures);
  CHECK(bitgrad_model_output(model, &form, &task, &probabilities) == BITGRAD_OK);
  CHECK(form.rank == 1 && form.shape[0] == kClasses && task == BITGRAD_CLASSES && probabilities == 1);
  CHECK(bitgrad_model_class_name(model, 0) == NULL);

  const int64_t shape[2] = {kSamples, kFeatures};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, shape);
  float outputs[kSamples * kClasses], from_values[kSamples * kClasses], values[kSamples * kFeatures];
  CHECK(bitgrad_model_predict_into(model, &x, BITGRAD_STORED, outputs, kSamples * kClasses) == BITGRAD_OK);
  double p[kClasses], sum = 0;
  CHECK(bitgrad_model_scores(model, outputs, kClasses, p) == BITGRAD_OK);
  for (int c = 0; c < kClasses; ++c) sum += p[c];
  CHECK(fabs(sum - 1) < 1e-12);

  /* The same values, normalized by hand, through a DLPack tensor of the application. */
  for (int i = 0; i < kSamples * kFeatures; ++i) {
    const float unit = (float)pixels[i] / 255.0f, scaled = 2.0f * unit;
    values[i] = scaled + -1.0f;
  }
  int64_t dims[2] = {kSamples, kFeatures}, strides[2] = {kFeatures, 1};
  struct DLManagedTensor dl;
  memset(&dl, 0, sizeof dl);
  dl.tensor.data = values;
  dl.tensor.device.device_type = 1;
  dl.tensor.ndim = 2;
  dl.tensor.dtype.code = 2;
  dl.tensor.dtype.bits = 32;
  dl.tensor.dtype.lanes = 1;
  dl.tensor.shape = dims;
  dl.tensor.strides = strides;
  bitgrad_array array;
  CHECK(bitgrad_array_of_dlpack(&dl, &array) == BITGRAD_OK);
  CHECK(array.data == values);
  CHECK(bitgrad_model_predict_into(model, &array, BITGRAD_AS_IS, from_values, kSamples * kClasses) == BITGRAD_OK);
  CHECK(memcmp(outputs, from_values, sizeof outputs) == 0);

  FAILS(bitgrad_model_predict_into(model, &x, BITGRAD_STORED, outputs, 5), BITGRAD_E_USAGE, "got room for 5 outputs");
  FAILS(bitgrad_model_predict_into(model, &x, BITGRAD_AS_IS, outputs, 1000), BITGRAD_E_USAGE, "unnormalized bytes");
  strides[0] = 1;
  FAILS(bitgrad_array_of_dlpack(&dl, &array), BITGRAD_E_USAGE, "axis 0 has stride 1, expected 12: row-major");
  dl.tensor.device.device_type = 2;
  FAILS(bitgrad_array_of_dlpack(&dl, &array), BITGRAD_E_USAGE, "device type 2, expected the CPU");

  char* saved = path_of(folder, "model.safetensors");
  CHECK(bitgrad_model_save(model, saved) == BITGRAD_OK);
  char* exported = path_of(folder, "model.onnx");
  CHECK(bitgrad_model_export(model, exported, NULL) == BITGRAD_OK);
  FAILS(bitgrad_model_export(model, exported, "nonsense"), BITGRAD_E_USAGE, "nonsense");
  bitgrad_model_close(model);
  CHECK(bitgrad_model_open(saved, &model) == BITGRAD_OK);
  CHECK(bitgrad_model_predict_into(model, &x, BITGRAD_STORED, from_values, kSamples * kClasses) == BITGRAD_OK);
  CHECK(memcmp(outputs, from_values, sizeof outputs) == 0);
  FAILS(bitgrad_model_save(model, saved), BITGRAD_E_USAGE, "the file that the model was opened from");
  bitgrad_model_close(model);
  free(exported);
  free(saved);
  free(run);
}

/* A model of ids writes texts of ids, token by token. */
static void write_texts(const char* folder) {
  const char* const config =
      "version: 1\n"
      "model: {layers: [{embedding: {num: 5, dim: 4, flat: false}}, {linear: {out: 5}}]}\n"
      "optim: {name: sgd, lr: 0.1}\n"
      "train: {stop: 1 steps}\n";
  bitgrad_form input;
  memset(&input, 0, sizeof input);
  input.dtype = BITGRAD_INT32;
  input.rank = 1;
  input.shape[0] = 6;
  bitgrad_learner* learner = NULL;
  CHECK(bitgrad_learner_create(config, NULL, 0, &input, 5, 1, &learner) == BITGRAD_OK);
  char* saved = path_of(folder, "ids.safetensors");
  CHECK(bitgrad_learner_save(learner, saved) == BITGRAD_OK);
  bitgrad_learner_close(learner);
  bitgrad_model* model = NULL;
  CHECK(bitgrad_model_open(saved, &model) == BITGRAD_OK);
  bitgrad_generator* generator = NULL;
  FAILS(bitgrad_generator_create(model, NULL, &generator), BITGRAD_E_USAGE, "either a prompt or ids");
  FAILS(bitgrad_generator_create(model, "{\"ids\": [1], \"top_q\": 3}", &generator), BITGRAD_E_USAGE,
        "unknown option 'top_q'");
  FAILS(bitgrad_generator_create(model, "{\"prompt\": \"a\"}", &generator), BITGRAD_E_USAGE, "has no tokenizer");
  FAILS(bitgrad_generator_create(model, "{", &generator), BITGRAD_E_USAGE, "options");
  CHECK(generator == NULL);
  CHECK(bitgrad_generator_create(model, "{\"ids\": [1, 2], \"tokens\": 3, \"seed\": 5}", &generator) == BITGRAD_OK);
  FAILS(bitgrad_model_save_adapters(model, saved), BITGRAD_E_USAGE, "no adapters");
  FAILS(bitgrad_model_merge_adapters(model, folder, 0), BITGRAD_E_USAGE, "no adapters");
  bitgrad_model_close(model);
  for (int text = 0; text < 2; ++text) {
    int drawn = 0;
    bitgrad_token token;
    do {
      CHECK(bitgrad_generator_next(generator, &token) == BITGRAD_OK);
      if (token.id >= 0) ++drawn;
      CHECK(token.id < 5 && token.length == 0);
    } while (token.text != NULL);
    const char* result = bitgrad_generator_result(generator);
    CHECK(drawn == 3 && strstr(result, "\"stop\":\"tokens\",\"prompt_tokens\":2,\"dropped\":0") != NULL);
    CHECK(bitgrad_generator_again(generator) == BITGRAD_OK);
  }
  bitgrad_generator_close(generator);
  CHECK(bitgrad_generator_result(generator) == NULL && strstr(bitgrad_last_error(), "closed") != NULL);
  free(saved);
}

static void meet_errors(void) {
  bitgrad_model* model = (bitgrad_model*)&model;
  FAILS(bitgrad_model_open("/no/such/file.safetensors", &model), BITGRAD_E_DATA, "/no/such/file.safetensors");
  CHECK(model == NULL);
  FAILS(bitgrad_model_open(NULL, &model), BITGRAD_E_USAGE, "path: got NULL");
  FAILS(bitgrad_model_open("x", NULL), BITGRAD_E_USAGE, "out: got NULL");
  bitgrad_model_close(NULL);
  bitgrad_trainer_close(NULL);
  bitgrad_learner_close(NULL);
  bitgrad_trainer* trainer = NULL;
  int64_t shape[2] = {kSamples, kFeatures}, odd[1] = {kSamples - 1};
  const bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 2, shape);
  bitgrad_array y = bitgrad_array_of(labels, BITGRAD_INT64, 1, odd);
  FAILS(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, NULL, NULL, &trainer), BITGRAD_E_USAGE,
        "got 40 samples and 39 targets");
  FAILS(bitgrad_trainer_create("version: 1\nmodell: {}\n", NULL, 0, &x, &y, NULL, NULL, &trainer), BITGRAD_E_USAGE,
        "modell");
  y.dtype = 9;
  FAILS(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, NULL, NULL, &trainer), BITGRAD_E_USAGE, "y: dtype: got 9");
  y.dtype = BITGRAD_INT64;
  y.data = (const char*)labels + 1;
  FAILS(bitgrad_trainer_create(kConfig, NULL, 0, &x, &y, NULL, NULL, &trainer), BITGRAD_E_USAGE, "not a multiple of 8");
  CHECK(trainer == NULL);
  FAILS(bitgrad_set_threads(0), BITGRAD_E_USAGE, "threads");
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  CHECK(bitgrad_abi_version() == BITGRAD_ABI_VERSION);
  CHECK(strlen(bitgrad_version()) > 4 && bitgrad_last_error()[0] == 0);
  CHECK(bitgrad_set_threads(2) == BITGRAD_OK && bitgrad_threads() == 2);
  make_samples();
  char hash[65] = "";
  train_run(argv[1], hash);
  resume_run(argv[1], hash);
  unusual_runs();
  predict(argv[1]);
  own_loop(argv[1]);
  write_texts(argv[1]);
  meet_errors();
  printf("%s\n", hash);
  return 0;
}
