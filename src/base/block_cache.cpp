#include "base/block_cache.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

// gcc defines macros; clang has __has_feature.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BITGRAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define BITGRAD_SANITIZED 1
#endif
#endif

namespace bitgrad::detail {

#if defined(BITGRAD_SANITIZED)
const bool BlockCache::kKeeps = false;
#undef BITGRAD_SANITIZED
#else
const bool BlockCache::kKeeps = true;
#endif

namespace {

constexpr int64_t kSmallUnits = 16;  // up to here, every multiple of kAlignment is a class
constexpr int64_t kHugePage = int64_t{2} << 20;

// Log2 of the distance between classes at `units` > kSmallUnits.
int step_of(int64_t units) { return std::bit_width(static_cast<uint64_t>(units - 1)) - 4; }

int64_t class_units(int64_t bytes) {
  const int64_t units = std::max<int64_t>(1, (bytes + BlockCache::kAlignment - 1) / BlockCache::kAlignment);
  if (units <= kSmallUnits) return units;
  const int step = step_of(units);
  return ((units - 1) >> step << step) + (int64_t{1} << step);
}

void* system_block(int64_t size) {
  const bool huge = size >= BlockCache::kHugeBytes;
  void* data = std::aligned_alloc(static_cast<size_t>(huge ? kHugePage : BlockCache::kAlignment),
                                  static_cast<size_t>(huge ? (size + kHugePage - 1) / kHugePage * kHugePage : size));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // Only a hint: the block works without huge pages too. A partial page at the end stays small.
  if (huge && data != nullptr) madvise(data, static_cast<size_t>(size / kHugePage * kHugePage), MADV_HUGEPAGE);
#endif
  return data;
}

}  // namespace

int64_t BlockCache::class_bytes(int64_t bytes) { return class_units(bytes) * kAlignment; }

int BlockCache::class_of(int64_t units) {
  if (units <= kSmallUnits) return static_cast<int>(units) - 1;
  const int step = step_of(units);
  return static_cast<int>(kSmallUnits) + 8 * (step - 1) + static_cast<int>((units - 1) >> step) - 8;
}

// The largest class whose size is at most `size`.
int BlockCache::class_below(int64_t size) {
  const int64_t units = size / kAlignment;
  return class_units(size) == units ? class_of(units) : class_of(units) - 1;
}

BlockCache::Piece* BlockCache::new_piece(void* data, int64_t size) {
  try {
    Piece& piece = known_[data];
    piece.data = data;
    piece.size = size;
    return &piece;
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void BlockCache::link(Piece& piece) noexcept {
  Piece*& head = pieces_[static_cast<size_t>(class_below(piece.size))];
  piece.free = true;
  piece.previous = nullptr;
  piece.next = head;
  if (head != nullptr) head->previous = &piece;
  head = &piece;
  kept_ += piece.size;
}

void BlockCache::unlink(Piece& piece) noexcept {
  Piece*& from =
      piece.previous != nullptr ? piece.previous->next : pieces_[static_cast<size_t>(class_below(piece.size))];
  from = piece.next;
  if (piece.next != nullptr) piece.next->previous = piece.previous;
  piece.free = false;
  kept_ -= piece.size;
}

// Splits off the part of a used piece beyond `size` as a free piece, if it is large enough to be one.
void BlockCache::split(Piece& piece, int64_t size) {
  if (piece.size - size < kPieceBytes) return;
  Piece* const rest = new_piece(static_cast<char*>(piece.data) + size, piece.size - size);
  if (rest == nullptr) return;
  piece.size = size;
  rest->before = &piece;
  rest->after = piece.after;
  if (rest->after != nullptr) rest->after->before = rest;
  piece.after = rest;
  link(*rest);
}

// Merges `after` into `piece`. Neither may be in a free list.
void BlockCache::join(Piece& piece, Piece& after) noexcept {
  piece.size += after.size;
  piece.after = after.after;
  if (piece.after != nullptr) piece.after->before = &piece;
  known_.erase(after.data);
}

void* BlockCache::take_kept(int64_t size) {
  const auto begin = static_cast<size_t>(class_of(size / kAlignment));
  if (size < kPieceBytes) {
    Free*& head = free_[begin];
    Free* const block = head;
    if (block == nullptr) return nullptr;
    head = block->next;
    kept_ -= size;
    small_kept_ -= size;
    used_ += size;
    return block;
  }
  for (size_t k = begin; k < pieces_.size(); ++k) {
    if (pieces_[k] == nullptr) continue;
    Piece* best = pieces_[k];  // sizes within one list differ by less than a class
    for (Piece* other = best->next; other != nullptr; other = other->next)
      if (other->size < best->size) best = other;
    Piece& piece = *best;
    unlink(piece);
    split(piece, size);
    used_ += piece.size;
    return piece.data;
  }
  return nullptr;
}

void* BlockCache::acquire(int64_t bytes) {
  const int64_t size = class_bytes(bytes);
  int64_t whole = size;
  Free* surplus = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (void* const kept = take_kept(size); kept != nullptr) {
      peak_ = std::max(peak_, used_);
      return kept;
    }
    ++misses_;
    whole = system_size(size);
    used_ += size;
    if (over_bound()) {
      surplus = pop_all();
      ++returns_;
    }
  }
  release_all(surplus);
  return fetch(size, whole);
}

// The size of the system block for a request of `size` that no cached piece serves.
int64_t BlockCache::system_size(int64_t size) const {
  const bool shares = kKeeps && size >= kPieceBytes && size < kHugeBytes && used_ >= kSharesFrom;
  return shares ? kHugeBytes : size;
}

void* BlockCache::fetch(int64_t size, int64_t system_size) {
  void* data = system_block(system_size);
  if (data == nullptr) {
    trim();
    data = system_block(system_size = size);
  }
  const std::lock_guard lock(mutex_);
  if (data != nullptr && kKeeps && size >= kPieceBytes) {
    Piece* const piece = new_piece(data, system_size);
    if (piece == nullptr) {
      std::free(data);
      data = nullptr;
    } else {
      split(*piece, size);
      used_ += piece->size - size;
    }
  }
  if (data == nullptr) {
    used_ -= size;
    return nullptr;
  }
  peak_ = std::max(peak_, used_);
  return data;
}

// Frees a piece, merges it with free neighbours and returns the resulting piece, which is in a free list.
BlockCache::Piece& BlockCache::give_piece(void* data) noexcept {
  Piece* piece = &known_.find(data)->second;
  used_ -= piece->size;
  if (Piece* const after = piece->after; after != nullptr && after->free) {
    unlink(*after);
    join(*piece, *after);
  }
  if (Piece* const before = piece->before; before != nullptr && before->free) {
    unlink(*before);
    join(*before, *piece);
    piece = before;
  }
  link(*piece);
  return *piece;
}

void BlockCache::release(void* data, int64_t bytes) noexcept {
  if (data == nullptr) return;
  const int64_t size = class_bytes(bytes);
  Free* surplus = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (kKeeps && size >= kPieceBytes) {
      Piece& piece = give_piece(data);
      if (piece.whole() && over_bound()) surplus = forget(piece, nullptr);
    } else {
      used_ -= size;
      const bool keeps = kKeeps && used_ + kept_ + size <= bound();
      if (keeps) {
        kept_ += size;
        small_kept_ += size;
      }
      Free*& list = keeps ? free_[static_cast<size_t>(class_of(size / kAlignment))] : surplus;
      list = new (data) Free{list};
    }
  }
  release_all(surplus);
}

// Unregisters a block that is free as a whole and prepends it to `list`, the blocks to return to the system.
BlockCache::Free* BlockCache::forget(Piece& piece, Free* list) noexcept {
  unlink(piece);
  void* const data = piece.data;
  known_.erase(data);
  return new (data) Free{list};
}

BlockCache::Free* BlockCache::pop_all() noexcept {
  Free* list = nullptr;
  for (Free*& head : free_)
    while (head != nullptr) {
      Free* const block = head;
      head = block->next;
      block->next = list;
      list = block;
    }
  kept_ -= small_kept_;
  small_kept_ = 0;
  for (Piece* piece : pieces_)
    while (piece != nullptr) {
      Piece* const next = piece->next;
      if (piece->whole()) list = forget(*piece, list);
      piece = next;
    }
  return list;
}

void BlockCache::release_all(Free* list) noexcept {
  while (list != nullptr) {
    Free* const next = list->next;
    std::free(list);
    list = next;
  }
}

void BlockCache::trim() noexcept {
  Free* list = nullptr;
  {
    const std::lock_guard lock(mutex_);
    list = pop_all();
  }
  release_all(list);
}

int64_t BlockCache::kept() const {
  const std::lock_guard lock(mutex_);
  return kept_;
}

int64_t BlockCache::misses() const {
  const std::lock_guard lock(mutex_);
  return misses_;
}

}  // namespace bitgrad::detail
