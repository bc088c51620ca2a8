// Windows over a sequence of ids: the base of all token data sets.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "bitgrad/data/dataset.h"
#include "bitgrad/data/tokenizer.h"
#include "data/token_source.h"

namespace bitgrad::data {

// Sample i is the `context` ids starting at i * stride.
struct TokenWindows {
  int64_t context = 1;
  int64_t stride = 1;
  bool overlap = false;  // with a tail: in all samples but the first, only the last `stride` targets count
  bool each = true;      // the target is the next id at every position [context]; else only the id after the sample []
  bool tail = false;     // the last sample may be shorter; padded with id 0 and kIgnoredClass
  EpochOrder::Kind order = EpochOrder::Kind::kShuffled;
  int64_t epoch_samples = 0;  // samples drawn per epoch; 0: every sample once
};

struct TokenTask {
  std::string_view where = {};  // prefix of messages
  std::string name = {};
  int64_t vocabulary = 0;
  double bytes_per_target = 0;  // mean bytes of text per target; 0 if not known
  int64_t document_end = -1;    // Dataset::document_end
  TokenWindows windows = {};
  std::shared_ptr<const Tokenizer> tokenizer = {};
  std::shared_ptr<const TokenSource> mask = {};  // for targets at each position: an id that is 0 here is no target
};

// `ids`: more than `context` ids; with a tail, at least 2.
std::unique_ptr<Dataset> token_dataset(std::unique_ptr<TokenSource> ids, TokenTask task);

}  // namespace bitgrad::data
