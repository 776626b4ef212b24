// The native device's memory: one reservation of address space, whose pages cost nothing until
// they are touched.
//
// Ownership: the arena owns its mapping and unmaps it in `close` (or when it is destroyed).
#pragma once

#include <cstddef>
#include <cstdint>

namespace spillway {

class Arena {
 public:
  Arena() = default;
  ~Arena() { close(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Reserves `byteLength` bytes, zeroed, from a 2 MiB boundary on, with huge pages where the
  // system has them. False when it refuses.
  bool open(size_t byteLength);
  void close();

  char* base() const { return base_; }
  bool contains(const char* start, size_t byteLength) const;

 private:
  char* mapping_ = nullptr;
  size_t mappingLength_ = 0;
  char* base_ = nullptr;
  size_t length_ = 0;
};

}  // namespace spillway
