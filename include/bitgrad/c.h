/* The C interface: open a model and predict, train from arrays in memory, save and export. C99, and C++.
 *
 *   bitgrad_model* m;
 *   if (bitgrad_model_open("runs/mnist/0001", &m) != BITGRAD_OK) return report(bitgrad_last_error());
 *   float scores[10];
 *   bitgrad_array x = bitgrad_array_of(pixels, BITGRAD_UINT8, 3, (int64_t[]){1, 28, 28});
 *   bitgrad_model_predict_into(m, &x, BITGRAD_STORED, scores, 10);
 *   bitgrad_model_close(m);
 *
 * - Functions return BITGRAD_OK (0) or an error code; bitgrad_last_error() then has the text. No exception leaves them.
 * - Handles are opaque. A function that makes one sets it to NULL when it fails; closing NULL does nothing.
 * - Texts are UTF-8 and end with 0. Those that are returned live as long as their handle says.
 * - Different handles may be used by different threads. One model may too, calls then wait for each other; a trainer or
 *   learner is used by one thread at a time.
 * - Everything runs on the CPU, or where the configuration's device.kind says.
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

/* Raised when a function or struct of this header changes in a way that breaks callers. New functions do not raise it. */
#define BITGRAD_ABI_VERSION 1
BITGRAD_API int32_t bitgrad_abi_version(void); /* of the library that was loaded */
BITGRAD_API const char* bitgrad_version(void); /* "0.1.0 (3f2a1b0)" */

/* What functions return: the exit codes of the program (docs/configuration.md). */
enum {
  BITGRAD_OK = 0,
  BITGRAD_E_USAGE = 2,      /* an argument, a shape, a configuration */
  BITGRAD_E_DATA = 3,       /* a file that cannot be used */
  BITGRAD_E_MEMORY = 4,     /* memory or disk is full */
  BITGRAD_E_NON_FINITE = 5, /* NaN or Inf where none may be */
  BITGRAD_E_DEVICE = 6,
  BITGRAD_E_BUG = 70
};
/* The text of this thread's last call that failed; good until its next call that fails. Never NULL. */
BITGRAD_API const char* bitgrad_last_error(void);

/* ---- arrays ------------------------------------------------------------------------------------------------------ */
enum { BITGRAD_FLOAT32 = 0, BITGRAD_UINT8 = 1, BITGRAD_INT32 = 2, BITGRAD_INT64 = 3 };
enum { BITGRAD_MAX_RANK = 8 };
/* Row-major elements in memory of the caller, aligned to their size: nothing is copied but batches on their way. */
typedef struct bitgrad_array {
  const void* data;
  int32_t dtype;
  int32_t rank; /* 1 .. 8 */
  int64_t shape[BITGRAD_MAX_RANK];
} bitgrad_array;
BITGRAD_API bitgrad_array bitgrad_array_of(const void* data, int32_t dtype, int32_t rank, const int64_t* shape);
/* DLPack (github.com/dmlc/dlpack, dlpack.h). `tensor` is borrowed: its deleter is not called, and it must live as long
 * as the array. BITGRAD_E_USAGE for another device than the CPU, other dtypes, and strides that are not row-major. */
struct DLManagedTensor;
BITGRAD_API int bitgrad_array_of_dlpack(const struct DLManagedTensor* tensor, bitgrad_array* out);

/* One more tensor on the memory of one that this library made: each has its own deleter. */
BITGRAD_API int bitgrad_dlpack_share(const struct DLManagedTensor* tensor, struct DLManagedTensor** out);

/* How samples are read. */
enum {
  BITGRAD_AS_IS = 0, /* fp32 values as the model takes them, int32 or int64 ids */
  BITGRAD_STORED = 1 /* as data files hold them: bytes and fp32 become what data.affine or data.normalize makes */
};

/* ---- a model that predicts --------------------------------------------------------------------------------------- */
typedef struct bitgrad_model bitgrad_model;
typedef struct bitgrad_form {
  int32_t dtype; /* BITGRAD_FLOAT32, or BITGRAD_INT32 for ids */
  int32_t rank;
  int64_t shape[BITGRAD_MAX_RANK]; /* of one sample */
  int64_t ids;                     /* ids are 0 .. ids - 1; 0: none, or not known */
} bitgrad_form;
enum { BITGRAD_CLASSES = 0, BITGRAD_LABELS = 1, BITGRAD_VALUES = 2 };

/* A run folder (its last checkpoint), a checkpoint or a model file. */
BITGRAD_API int bitgrad_model_open(const char* path, bitgrad_model** out);
BITGRAD_API void bitgrad_model_close(bitgrad_model* model);
BITGRAD_API int bitgrad_model_input(const bitgrad_model* model, bitgrad_form* out);
/* task: what outputs are. probabilities: 1 where softmax (classes) or sigmoid (labels) of them are probabilities. */
BITGRAD_API int bitgrad_model_output(const bitgrad_model* model, bitgrad_form* out, int32_t* task,
                                     int32_t* probabilities);
/* NULL: not known. Lives as long as the model. */
BITGRAD_API const char* bitgrad_model_class_name(const bitgrad_model* model, int64_t index);
/* What the file says of itself, as one line of JSON; lives as long as the model. */
BITGRAD_API const char* bitgrad_model_describe(const bitgrad_model* model);
/* x [n, sample...]: outputs [n, output...] fp32. `out` is a new DLPack tensor, whose memory is not copied: the caller
 * calls its deleter, also after the model was closed. */
BITGRAD_API int bitgrad_model_predict(bitgrad_model* model, const bitgrad_array* x, int32_t reading,
                                      struct DLManagedTensor** out);
/* The same into memory of the caller; `capacity`: of out, in elements, at least those of the outputs. */
BITGRAD_API int bitgrad_model_predict_into(bitgrad_model* model, const bitgrad_array* x, int32_t reading, float* out,
                                           int64_t capacity);
/* Probabilities, or scores as they are, of one row of outputs: n = the last axis. */
BITGRAD_API int bitgrad_model_scores(const bitgrad_model* model, const float* outputs, int64_t n, double* out);
/* The model alone, without what trains it: `bitgrad convert`. */
BITGRAD_API int bitgrad_model_save(bitgrad_model* model, const char* path);
/* `bitgrad export`: format NULL: by the end of the path. An existing file is replaced. */
BITGRAD_API int bitgrad_model_export(bitgrad_model* model, const char* path, const char* format);

/* ---- a run on arrays --------------------------------------------------------------------------------------------- */
typedef struct bitgrad_trainer bitgrad_trainer;
typedef struct bitgrad_event {
  int32_t kind; /* 0: an optimizer step; 1: an evaluation */
  int64_t step, epoch, steps_total, epochs_total;
  double loss, accuracy; /* accuracy in percent; -1: targets are values */
  double learning_rate, samples_per_second, seconds, eta_seconds;
} bitgrad_event;
/* Not 0: the run stops after the open step, with its state saved. */
typedef int (*bitgrad_progress)(const bitgrad_event* event, void* user);
typedef struct bitgrad_result {
  double loss, accuracy;     /* of the evaluation; NaN, -1: there was none */
  int64_t samples;           /* that were evaluated */
  int64_t steps, epochs;     /* done */
  double seconds;            /* of training */
  int32_t stopped;           /* 1: the callback stopped it */
  char state_hash[65];       /* SHA-256 of everything that the run holds, in hexadecimal digits */
} bitgrad_result;

/* config: YAML of a run (docs/configuration.md). Its data sets are the arrays: what it says of files is not read; affine
 * or normalize, augment and transforms hold. overrides: n texts key=value. y: classes (uint8, int32, int64) [n] or
 * [n, positions], or fp32 values. x_test and y_test may be NULL. The arrays must live as long as the trainer. */
BITGRAD_API int bitgrad_trainer_create(const char* config, const char* const* overrides, int32_t n_overrides,
                                       const bitgrad_array* x, const bitgrad_array* y, const bitgrad_array* x_test,
                                       const bitgrad_array* y_test, bitgrad_trainer** out);
BITGRAD_API void bitgrad_trainer_close(bitgrad_trainer* trainer);
/* Trains to train.stop. folder: a new run folder, or NULL: nothing is written. progress may be NULL. */
BITGRAD_API int bitgrad_trainer_run(bitgrad_trainer* trainer, const char* folder, bitgrad_progress progress, void* user,
                                    bitgrad_result* out);
/* On x_test, or x where there is none. */
BITGRAD_API int bitgrad_trainer_evaluate(bitgrad_trainer* trainer, bitgrad_result* out);
/* A checkpoint, which bitgrad_model_open and `bitgrad train` open. */
BITGRAD_API int bitgrad_trainer_save(bitgrad_trainer* trainer, const char* path);

/* ---- a loop of one's own ----------------------------------------------------------------------------------------- */
typedef struct bitgrad_learner bitgrad_learner;
typedef struct bitgrad_step {
  double loss;        /* mean over what counts */
  int64_t correct;    /* of classes */
  int64_t samples;
  int64_t step;       /* optimizer steps done */
  int32_t stepped;    /* 1: this microbatch ended a window: the optimizer ran */
  double learning_rate; /* of the next step */
} bitgrad_step;
/* input: of one sample (fp32, or int32 with ids). outputs: along the last axis of the model's output, 0: as the layers
 * say. epoch_samples: of an epoch, for lengths that are given in epochs. */
BITGRAD_API int bitgrad_learner_create(const char* config, const char* const* overrides, int32_t n_overrides,
                                       const bitgrad_form* input, int64_t outputs, int64_t epoch_samples,
                                       bitgrad_learner** out);
BITGRAD_API void bitgrad_learner_close(bitgrad_learner* learner);
/* One microbatch: forward, backward; at the end of a window (batch.global samples) the optimizer steps. */
BITGRAD_API int bitgrad_learner_step(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y,
                                     int32_t reading, bitgrad_step* out);
/* Loss and hits without training. */
BITGRAD_API int bitgrad_learner_evaluate(bitgrad_learner* learner, const bitgrad_array* x, const bitgrad_array* y,
                                         int32_t reading, bitgrad_step* out);
/* Outputs [n, output...] fp32 as bitgrad_model_predict. */
BITGRAD_API int bitgrad_learner_predict(bitgrad_learner* learner, const bitgrad_array* x, int32_t reading,
                                        struct DLManagedTensor** out);
BITGRAD_API int bitgrad_learner_save(bitgrad_learner* learner, const char* path);

/* ---- the process --------------------------------------------------------------------------------------------------- */
BITGRAD_API int bitgrad_set_threads(int32_t threads); /* 1 .. 1024, of all models and runs */
BITGRAD_API int32_t bitgrad_threads(void);
/* Lines of the library's log; level 0 debug, 1 info, 2 warning, 3 error. NULL: they are dropped. Text lives during the
 * call. */
typedef void (*bitgrad_log)(int32_t level, const char* line, void* user);
BITGRAD_API void bitgrad_set_log(bitgrad_log sink, void* user);
/* A shared library that adds kinds (docs/adding.md): only where the program exports the library's symbols. */
BITGRAD_API int bitgrad_load_plugin(const char* path);

#ifdef __cplusplus
}
#endif
#endif /* BITGRAD_C_H_ */
