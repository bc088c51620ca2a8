/* The C interface: open models and predict, train from arrays in memory, save and export. C99 and C++.
 *
 *   bitgrad_model* m;
 *   if (bitgrad_model_open("runs/mnist/0001", &m) != BITGRAD_OK) return report(bitgrad_last_error());
 *   float scores[10];
 *   bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 3, (int64_t[]){1, 28, 28});
 *   bitgrad_model_predict_into(m, &x, BITGRAD_STORED, scores, 10);
 *   bitgrad_model_close(m);
 *
 * - Functions return BITGRAD_OK (0) or an error code, in which case bitgrad_last_error() has the message. They never
 *   throw.
 * - Handles are opaque. A function that creates one sets it to NULL on failure; closing NULL is a no-op. A handle that
 * is closed, or of another kind, is BITGRAD_E_USAGE. A handle may be closed while another thread uses it, or in a
 * callback: calls at work go on to their end, a run to its next step.
 * - Strings are NUL-terminated UTF-8. Returned strings stay valid as long as their function says.
 * - Different handles may be used from different threads. A model may be shared by threads, whose calls then run one
 *   after another; a trainer or learner is used by one thread at a time, and calls of others are BITGRAD_E_USAGE.
 * - Everything runs on the CPU, unless the configuration's device.kind says otherwise.
 */
#pragma once
#ifndef BITGRAD_C_H_
#define BITGRAD_C_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define BITGRAD_API __attribute__((visibility("default")))
#else
#define BITGRAD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Incremented by changes of this header that break callers; new functions do not count. */
#define BITGRAD_ABI_VERSION 1
BITGRAD_API int32_t bitgrad_abi_version(void); /* of the loaded library */
BITGRAD_API const char* bitgrad_version(void); /* e.g. "0.1.0 (3f2a1b0)" */

/* Return values; the same numbers as the program's exit codes (docs/configuration.md). */
enum {
  BITGRAD_OK = 0,
  BITGRAD_E_USAGE = 2,      /* bad argument, shape or configuration */
  BITGRAD_E_DATA = 3,       /* unusable file or data */
  BITGRAD_E_MEMORY = 4,     /* out of memory or disk space */
  BITGRAD_E_NON_FINITE = 5, /* unexpected NaN or Inf */
  BITGRAD_E_DEVICE = 6,
  BITGRAD_E_BUG = 70
};
/* Message of this thread's last failed call, valid until its next failed call. Never NULL. */
BITGRAD_API const char* bitgrad_last_error(void);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */
enum { BITGRAD_FLOAT32 = 0, BITGRAD_UINT8 = 1, BITGRAD_INT32 = 2, BITGRAD_INT64 = 3 };
enum { BITGRAD_MAX_RANK = 8 };
/* A row-major array in the caller's memory, aligned to its element size; axis 0 is the sample. Not copied as a whole
 * (except int64, which is converted to int32): only batches are. */
typedef struct bitgrad_array {
  const void* data;
  int32_t dtype;
  int32_t rank; /* 1 .. 8 */
  int64_t shape[BITGRAD_MAX_RANK];
} bitgrad_array;
BITGRAD_API bitgrad_array bitgrad_array_of(const void* data, int32_t dtype, int32_t rank, const int64_t* shape);
/* Views a DLPack tensor (github.com/dmlc/dlpack, dlpack.h) as an array. `tensor` is borrowed: its deleter is not
 * called, and it must outlive the array. BITGRAD_E_USAGE for other devices than the CPU, unsupported dtypes, and
 * strides that are not row-major. */
struct DLManagedTensor;
BITGRAD_API int bitgrad_array_of_dlpack(const struct DLManagedTensor* tensor, bitgrad_array* out);

/* Makes another tensor that shares the memory of one made by this library. Each has its own deleter. */
BITGRAD_API int bitgrad_dlpack_share(const struct DLManagedTensor* tensor, struct DLManagedTensor** out);

/* How the elements of samples are interpreted (parameter `reading`). */
enum {
  BITGRAD_AS_IS = 0, /* in the form the model takes: fp32 values, or int32 or int64 ids */
  BITGRAD_STORED = 1 /* as stored in data files: bytes and fp32 are transformed by data.affine or data.normalize */
};

/* ---- a model that predicts --------------------------------------------------------------------------------------- */
typedef struct bitgrad_model bitgrad_model;
typedef struct bitgrad_form {
  int32_t dtype; /* BITGRAD_FLOAT32, or BITGRAD_INT32 for ids */
  int32_t rank;
  int64_t shape[BITGRAD_MAX_RANK]; /* of one sample */
  int64_t ids;                     /* ids are in 0 .. ids - 1; 0: no ids, or unknown */
} bitgrad_form;
enum { BITGRAD_CLASSES = 0, BITGRAD_LABELS = 1, BITGRAD_VALUES = 2 };

/* Opens a run folder (its best checkpoint if data.valid chose it, else its last), a checkpoint or a model file; the
 * description names the file. BITGRAD_E_DATA for other files. */
BITGRAD_API int bitgrad_model_open(const char* path, bitgrad_model** out);
BITGRAD_API void bitgrad_model_close(bitgrad_model* model);
BITGRAD_API int bitgrad_model_input(const bitgrad_model* model, bitgrad_form* out);
/* out: form of one sample's outputs. task: BITGRAD_CLASSES, LABELS or VALUES. probabilities: 1 if the softmax (classes)
 * or sigmoid (labels) of the outputs are probabilities. task and probabilities may be NULL. */
BITGRAD_API int bitgrad_model_output(const bitgrad_model* model, bitgrad_form* out, int32_t* task,
                                     int32_t* probabilities);
/* Name of a class or label, or NULL if unknown. Valid as long as the model. */
BITGRAD_API const char* bitgrad_model_class_name(const bitgrad_model* model, int64_t index);
/* Description of the file as one line of JSON. Valid as long as the model. */
BITGRAD_API const char* bitgrad_model_describe(const bitgrad_model* model);
/* Runs x [n, sample...] and returns outputs [n, output...] fp32 as a new DLPack tensor. The caller must call its
 * deleter, which is also valid after the model was closed. */
BITGRAD_API int bitgrad_model_predict(bitgrad_model* model, const bitgrad_array* x, int32_t reading,
                                      struct DLManagedTensor** out);
/* The same into the caller's memory. `capacity` of `out` in elements; BITGRAD_E_USAGE if the outputs do not fit. */
BITGRAD_API int bitgrad_model_predict_into(bitgrad_model* model, const bitgrad_array* x, int32_t reading, float* out,
                                           int64_t capacity);
/* Outputs for the rows of a CSV file, plain or gzip, read as the table that the model was trained on: by the names of
 * its columns, with categories and missing values; the target may be there. A model of other data takes lines of
 * numbers. */
BITGRAD_API int bitgrad_model_predict_csv(bitgrad_model* model, const char* path, struct DLManagedTensor** out);
/* The same for CSV text in memory, of `length` bytes. A table of pandas, for example, by the names of its columns. */
BITGRAD_API int bitgrad_model_predict_table(bitgrad_model* model, const char* text, int64_t length,
                                            struct DLManagedTensor** out);
/* Converts one row of outputs (n = size of the last axis) to probabilities, or copies it if it has none. out [n]. */
BITGRAD_API int bitgrad_model_scores(const bitgrad_model* model, const float* outputs, int64_t n, double* out);
/* Writes the inference model (no masters, no optimizer state), like `bitgrad convert`. */
BITGRAD_API int bitgrad_model_save(bitgrad_model* model, const char* path);
/* Like `bitgrad export`. format NULL: chosen by the ending of the path. Overwrites an existing file. */
BITGRAD_API int bitgrad_model_export(bitgrad_model* model, const char* path, const char* format);
/* Like `bitgrad adapters`: writes the low-rank adapters of the file into a folder, over those that are there. */
BITGRAD_API int bitgrad_model_save_adapters(bitgrad_model* model, const char* folder);
/* Like `bitgrad merge`: adds the adapters of a checkpoint to its weights, into a model file. to_float not 0: weights
 * with adapters become fp32. */
BITGRAD_API int bitgrad_model_merge_adapters(bitgrad_model* model, const char* path, int32_t to_float);

/* ---- texts of a language model ----------------------------------------------------------------------------------- */
typedef struct bitgrad_generator bitgrad_generator;
typedef struct bitgrad_token {
  int64_t id;       /* -1: none; a piece of the prompt was read, or text that was held back follows */
  const char* text; /* what the id completed, whole characters; NULL: the text has ended */
  int64_t length;   /* bytes of text, which may hold NUL; it is valid until the next call with this generator */
} bitgrad_token;
/* Begins a text, as `bitgrad generate` with the same options. options: a JSON object with "prompt" (a text) or "ids" (a
 * list), and, where not as there by default, "tokens", "temperature", "top_k", "top_p", "min_p", "repetition_penalty",
 * "seed", "stop" (a list of texts), "kv" ("fp32", "bf16", "int8"; "none": no cache). The model may be closed. */
BITGRAD_API int bitgrad_generator_create(bitgrad_model* model, const char* options, bitgrad_generator** out);
BITGRAD_API void bitgrad_generator_close(bitgrad_generator* generator);
/* Draws one token, or reads one piece of the prompt (128 ids; without a cache all of it). Other calls with the model
 * take turns with it. Without a tokenizer texts are empty. */
BITGRAD_API int bitgrad_generator_next(bitgrad_generator* generator, bitgrad_token* out);
/* Begins the next text of the same prompt, as --samples does. */
BITGRAD_API int bitgrad_generator_again(bitgrad_generator* generator);
/* The text until now as one line of JSON: {"ids": [5, 7], "text": "ab", "stop": "tokens", "prompt_tokens": 3,
 * "dropped": 0}. stop: "tokens", "end_of_text", "stop", or null: it goes on. text: null without a tokenizer. dropped:
 * ids that no longer fit the context. NULL: an error. Valid until the next call with this generator. */
BITGRAD_API const char* bitgrad_generator_result(bitgrad_generator* generator);

/* ---- a run on arrays --------------------------------------------------------------------------------------------- */
typedef struct bitgrad_trainer bitgrad_trainer;
typedef struct bitgrad_event {
  int32_t kind; /* 0: optimizer step; 1: evaluation (only step, epoch, loss, accuracy are set) */
  int64_t step, epoch, steps_total, epochs_total;
  double loss, accuracy; /* accuracy in percent; -1: targets are values */
  double learning_rate, samples_per_second, seconds, eta_seconds;
} bitgrad_event;
/* Return nonzero to stop the run after the current step, with its state saved. */
typedef int (*bitgrad_progress)(const bitgrad_event* event, void* user);
typedef struct bitgrad_result {
  double loss, accuracy;   /* of the evaluation; NaN and -1 if there was none */
  int64_t samples;         /* evaluated */
  int64_t steps, epochs;   /* done */
  int64_t skipped_windows; /* windows of batch.global in which no target counts: without an update */
  double seconds;          /* training time */
  int32_t stopped;         /* 1: stopped by a callback, or bitgrad_trainer_stop */
  char state_hash[65];     /* SHA-256 of the run's state, in hexadecimal */
} bitgrad_result;

/* config: YAML of a run (docs/configuration.md). The arrays replace its data files; affine or normalize, augment and
 * transforms still apply. overrides: n_overrides strings "key=value". y: classes (uint8, int32, int64) [n] or
 * [n, positions], or fp32 values. x_test and y_test may both be NULL. The arrays must outlive the trainer. */
BITGRAD_API int bitgrad_trainer_create(const char* config, const char* const* overrides, int32_t n_overrides,
                                       const bitgrad_array* x, const bitgrad_array* y, const bitgrad_array* x_test,
                                       const bitgrad_array* y_test, bitgrad_trainer** out);
BITGRAD_API void bitgrad_trainer_close(bitgrad_trainer* trainer);
/* Continues a saved run, before bitgrad_trainer_run. from: a checkpoint, or a run folder, which bitgrad_trainer_run may
 * then continue. The arrays must hold the values of that run; use_data not 0: if they do not, that is a warning. */
BITGRAD_API int bitgrad_trainer_resume(bitgrad_trainer* trainer, const char* from, int32_t use_data);
/* Names the columns of x [n, n_features] and of y, before bitgrad_trainer_run: models read tables by these names
 * (bitgrad_model_predict_csv). n_targets 0: "target". */
BITGRAD_API int bitgrad_trainer_name_columns(bitgrad_trainer* trainer, const char* const* features, int32_t n_features,
                                             const char* const* targets, int32_t n_targets);
/* Trains until train.stop. folder: a new run folder, the one that was resumed, or NULL to write nothing. progress and
 * out may be NULL. */
BITGRAD_API int bitgrad_trainer_run(bitgrad_trainer* trainer, const char* folder, bitgrad_progress progress, void* user,
                                    bitgrad_result* out);
/* Ends the run that is at work in another thread after its current step, with its state saved; the result says
 * stopped. */
BITGRAD_API int bitgrad_trainer_stop(bitgrad_trainer* trainer);
/* `poll` is asked between the batches of an evaluation, which no event tells of. Nonzero cuts the evaluation short and
 * stops the run; a resumed run repeats it. NULL: nobody is asked. */
BITGRAD_API int bitgrad_trainer_set_poll(bitgrad_trainer* trainer, int (*poll)(void* user), void* user);
/* The rate of all following steps, instead of the schedule; in a callback too. Checkpoints do not hold it: set it again
 * after resuming. BITGRAD_E_USAGE with schedule plateau. */
BITGRAD_API int bitgrad_trainer_set_learning_rate(bitgrad_trainer* trainer, double rate);
/* The last evaluation as one line of JSON, in a callback that of the event: {"split": "test", "step": 40, "metrics":
 * {"loss": 0.1, "accuracy": 98.5, ...}}, also best and final in a callback. "null": there was none. Valid until the
 * next call with this trainer. */
BITGRAD_API const char* bitgrad_trainer_evaluation(const bitgrad_trainer* trainer);
/* Evaluates on x_test; without it on the part of x that data.valid takes, or on x. */
BITGRAD_API int bitgrad_trainer_evaluate(bitgrad_trainer* trainer, bitgrad_result* out);
/* Writes a checkpoint, which bitgrad_model_open and `bitgrad train` can open. */
BITGRAD_API int bitgrad_trainer_save(bitgrad_trainer* trainer, const char* path);

/* ---- a loop of one's own ----------------------------------------------------------------------------------------- */
typedef struct bitgrad_learner bitgrad_learner;
typedef struct bitgrad_step {
  double loss;     /* mean over the target elements that count */
  int64_t correct; /* correctly classified */
  int64_t samples;
  int64_t step;         /* completed optimizer steps */
  int32_t stepped;      /* 1: this microbatch completed a window and the optimizer ran */
  double learning_rate; /* of the next step */
} bitgrad_step;
/* input: form of one sample (fp32, or int32 with ids). outputs: size of the output's last axis; 0: as the layers
 * define. epoch_samples: samples per epoch, for lengths given in epochs, at least 1. */
BITGRAD_API int bitgrad_learner_create(const char* config, const char* const* overrides, int32_t n_overrides,
                                       const bitgrad_form* input, int64_t outputs, int64_t epoch_samples,
                                       bitgrad_learner** out);
BITGRAD_API void bitgrad_learner_close(bitgrad_learner* learner);
/* As bitgrad_trainer_set_learning_rate. */
BITGRAD_API int bitgrad_learner_set_learning_rate(bitgrad_learner* learner, double rate);
/* Runs forward and backward on one microbatch; at the end of a window (batch.global samples) the optimizer steps.
 * out may be NULL. */
BITGRAD_API int bitgrad_learner_step(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y,
                                     int32_t reading, bitgrad_step* out);
/* Loss and correct predictions, without training. out may be NULL. */
BITGRAD_API int bitgrad_learner_evaluate(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y,
                                         int32_t reading, bitgrad_step* out);
/* Outputs [n, output...] fp32, as bitgrad_model_predict. */
BITGRAD_API int bitgrad_learner_predict(bitgrad_learner* learner, const bitgrad_array* x, int32_t reading,
                                        struct DLManagedTensor** out);
BITGRAD_API int bitgrad_learner_save(bitgrad_learner* learner, const char* path);

/* ---- the process ------------------------------------------------------------------------------------------------- */
BITGRAD_API int bitgrad_set_threads(int32_t threads); /* 1 .. 1024, shared by all models and runs */
BITGRAD_API int32_t bitgrad_threads(void);
/* Receives the library's log lines; level 0 debug, 1 info, 2 warning, 3 error. `line` is valid during the call only.
 * A NULL sink drops them. */
typedef void (*bitgrad_log)(int32_t level, const char* line, void* user);
BITGRAD_API void bitgrad_set_log(bitgrad_log sink, void* user);
/* Loads a shared library that adds kinds (docs/adding.md). The program must export bitgrad's symbols. */
BITGRAD_API int bitgrad_load_plugin(const char* path);

#ifdef __cplusplus
}
#endif
#endif /* BITGRAD_C_H_ */
