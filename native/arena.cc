#include "arena.h"

#include <sys/mman.h>

namespace spillway {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

}  // namespace

bool Arena::open(size_t byteLength) {
  if (byteLength > SIZE_MAX - 2 * kHugePage) return false;
  const size_t length = byteLength + kHugePage;
#ifdef MAP_NORESERVE
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
#else
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
#endif
  void* mapping = mmap(nullptr, length, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (mapping == MAP_FAILED) return false;
  mapping_ = static_cast<char*>(mapping);
  mappingLength_ = length;
  const size_t past = reinterpret_cast<uintptr_t>(mapping) % kHugePage;
  base_ = mapping_ + (past == 0 ? 0 : kHugePage - past);
  length_ = byteLength;
#ifdef MADV_HUGEPAGE
  // Scarce huge pages cost time and no correctness.
  madvise(base_, length_, MADV_HUGEPAGE);
#endif
  return true;
}

void Arena::close() {
  if (mapping_ != nullptr) munmap(mapping_, mappingLength_);
  mapping_ = base_ = nullptr;
  mappingLength_ = length_ = 0;
}

bool Arena::contains(const char* start, size_t byteLength) const {
  const auto from = reinterpret_cast<uintptr_t>(start), base = reinterpret_cast<uintptr_t>(base_);
  return from >= base && from - base <= length_ && byteLength <= length_ - (from - base);
}

}  // namespace spillway
