#include "kernel-registry.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "napi-helpers.h"

namespace spillway {
namespace {

struct Entry {
  const char* name;
  KernelFn fn;
};

// Never destroyed: queue threads may outlive the static destructors of a process that exits.
std::vector<Entry>& entries() {
  static auto* list = new std::vector<Entry>();
  return *list;
}

// What runKernelNow runs on: one pool per number of threads, kept for the process's life.
struct Immediate {
  std::mutex mutex;
  std::map<int, std::unique_ptr<ThreadPool>> pools;
  Scratch scratch;
};

Immediate& immediate() {
  static auto* state = new Immediate();
  return *state;
}

constexpr double kMostThreads = 1024;

// kernelId(name: string): number. RangeError when there is no such kernel.
napi_value kernelId(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  char name[64];
  size_t length = 0;
  if (napi_get_value_string_utf8(env, arguments[0], name, sizeof name, &length) != napi_ok) {
    throwTypeError(env, "name must be a string");
    return nullptr;
  }
  const int64_t id = kernelIdOf(name);
  if (id >= 0) {
    napi_value result;
    return napi_create_int64(env, id, &result) == napi_ok ? result : nullptr;
  }
  char message[128];
  std::snprintf(message, sizeof message, "the addon has no kernel named %s", name);
  throwRangeError(env, message);
  return nullptr;
}

// kernelNames(): string[], by id.
napi_value kernelNames(napi_env env, napi_callback_info) {
  napi_value result;
  if (napi_create_array(env, &result) != napi_ok) return nullptr;
  for (size_t id = 0; id < entries().size(); ++id) {
    napi_value name;
    if (napi_create_string_utf8(env, entries()[id].name, NAPI_AUTO_LENGTH, &name) != napi_ok ||
        napi_set_element(env, result, static_cast<uint32_t>(id), name) != napi_ok) {
      return nullptr;
    }
  }
  return result;
}

// runKernelNow(id, base: Uint8Array, args: Float64Array, threads): void. Offsets count from the
// first byte of `base`.
napi_value runKernelNow(napi_env env, napi_callback_info info) {
  Arguments<4> arguments;
  double id = 0, threads = 0;
  Span<uint8_t> base;
  Span<double> args;
  if (!arguments.read(env, info) || !getDouble(env, arguments[0], "id", &id) ||
      !getSpan(env, arguments[1], "base", &base) || !getSpan(env, arguments[2], "args", &args) ||
      !getDouble(env, arguments[3], "threads", &threads)) {
    return nullptr;
  }
  const KernelFn fn = id >= 0 && id < 1e6 ? kernelOf(static_cast<int64_t>(id)) : nullptr;
  if (fn == nullptr || !(threads >= 1 && threads <= kMostThreads)) {
    throwRangeError(env, "id must come from kernelId and threads must be 1 or more");
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(immediate().mutex);
  auto& pool = immediate().pools[static_cast<int>(threads)];
  if (pool == nullptr) pool = std::make_unique<ThreadPool>(static_cast<int>(threads));
  KernelCall call{args.data, args.length, reinterpret_cast<char*>(base.data), *pool,
                  immediate().scratch};
  fn(call);
  immediate().scratch.reset();
  return nullptr;
}

}  // namespace

constexpr size_t kScratchAlignment = 64;

Scratch::~Scratch() {
  for (const Block& block : blocks_) std::free(block.data);
}

void* Scratch::take(size_t bytes) {
  const size_t size = (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  if (blocks_.empty() || used_ + size > blocks_.back().size) {
    void* data = std::aligned_alloc(kScratchAlignment, size == 0 ? kScratchAlignment : size);
    // A kernel has no way to fail, and the amounts are small.
    if (data == nullptr) {
      std::fprintf(stderr, "spillway: no memory for %zu bytes of kernel scratch\n", size);
      std::abort();
    }
    blocks_.push_back({static_cast<char*>(data), size});
    used_ = 0;
  }
  char* result = blocks_.back().data + used_;
  used_ += size;
  return result;
}

void Scratch::reset() {
  if (blocks_.size() > 1) {
    size_t total = 0;
    for (const Block& block : blocks_) {
      total += block.size;
      std::free(block.data);
    }
    blocks_.clear();
    used_ = 0;
    take(total);
  }
  used_ = 0;
}

void registerKernel(const char* name, KernelFn fn) {
  if (kernelIdOf(name) >= 0) {
    std::fprintf(stderr, "spillway: two kernels are named %s\n", name);
    std::abort();
  }
  entries().push_back({name, fn});
}

KernelFn kernelOf(int64_t id) {
  return id >= 0 && static_cast<size_t>(id) < entries().size() ? entries()[id].fn : nullptr;
}

int64_t kernelIdOf(const char* name) {
  for (size_t id = 0; id < entries().size(); ++id) {
    if (std::strcmp(entries()[id].name, name) == 0) return static_cast<int64_t>(id);
  }
  return -1;
}

void registerKernelExports(napi_env env, napi_value exports) {
  exportFunction(env, exports, "kernelId", kernelId);
  exportFunction(env, exports, "kernelNames", kernelNames);
  exportFunction(env, exports, "runKernelNow", runKernelNow);
}

}  // namespace spillway
