// Ownership: a Runtime owns its arena (an anonymous mapping), its queues and the function that
// tells JavaScript of completions. It belongs to the environment that created it and is closed by
// runtimeClose, by the environment's clean-up, or by its handle's finalizer, whichever comes first;
// closing joins the queues' threads before any memory goes. A process that ends by process.exit()
// runs none of these: nothing that the threads use has a static destructor.
#include "device-runtime.h"

#include <cstdlib>
#include <cstring>

#include "arena.h"
#include "kernel-registry.h"
#include "napi-helpers.h"
#include "queue.h"

namespace spillway {
namespace {

constexpr uint64_t kMagic = 0x7370696c6c777274;
constexpr double kMostThreads = 1024;
constexpr double kLargestExact = 9007199254740992.0;

// Numbers shared with tiers/device/native/command-queues.ts.
enum QueueIndex : uint32_t { kCompute = 0, kUpload = 1, kDownload = 2, kQueueCount = 3 };

struct Runtime {
  uint64_t magic = kMagic;
  napi_env env = nullptr;
  napi_ref argsReference = nullptr;
  const double* args = nullptr;
  size_t argsLength = 0;
  napi_threadsafe_function signal = nullptr;
  Arena arena;
  CommandQueue* queues[kQueueCount] = {};
};

void onCleanup(void* data);

// Idempotent. What is queued and not begun is forgotten.
void closeRuntime(Runtime* runtime) {
  if (runtime->signal == nullptr) return;
  napi_remove_env_cleanup_hook(runtime->env, onCleanup, runtime);
  // All are told to stop before one is joined: a queue may be waiting for another.
  for (CommandQueue* queue : runtime->queues) {
    if (queue != nullptr) queue->requestStop();
  }
  for (CommandQueue* queue : runtime->queues) {
    if (queue != nullptr) queue->stop();
  }
  for (CommandQueue*& queue : runtime->queues) {
    delete queue;
    queue = nullptr;
  }
  runtime->arena.close();
  napi_release_threadsafe_function(runtime->signal, napi_tsfn_abort);
  runtime->signal = nullptr;
  if (runtime->argsReference != nullptr) napi_delete_reference(runtime->env, runtime->argsReference);
  runtime->argsReference = nullptr;
}

void onCleanup(void* data) { closeRuntime(static_cast<Runtime*>(data)); }

void finalizeRuntime(napi_env, void* data, void*) {
  auto* runtime = static_cast<Runtime*>(data);
  closeRuntime(runtime);
  runtime->magic = 0;
  delete runtime;
}

// On JavaScript's thread; `env` is null while the environment is being torn down.
void callSignal(napi_env env, napi_value callback, void*, void*) {
  if (env == nullptr || callback == nullptr) return;
  napi_value undefined;
  if (napi_get_undefined(env, &undefined) != napi_ok) return;
  // An exception goes the way of any in a callback: uncaughtException.
  napi_call_function(env, undefined, callback, 0, nullptr, nullptr);
}

Runtime* getRuntime(napi_env env, napi_value handle) {
  void* data = nullptr;
  if (napi_get_value_external(env, handle, &data) != napi_ok || data == nullptr ||
      static_cast<Runtime*>(data)->magic != kMagic) {
    throwTypeError(env, "handle must come from runtimeCreate");
    return nullptr;
  }
  auto* runtime = static_cast<Runtime*>(data);
  if (runtime->signal != nullptr) return runtime;
  throwRangeError(env, "the runtime is closed");
  return nullptr;
}

bool getWhole(napi_env env, napi_value value, const char* name, uint64_t* out) {
  double number = 0;
  if (!getDouble(env, value, name, &number)) return false;
  if (number >= 0 && number <= kLargestExact) {
    *out = static_cast<uint64_t>(number);
    return true;
  }
  char message[128];
  std::snprintf(message, sizeof message, "%s must be a whole number from 0 to 2^53", name);
  throwRangeError(env, message);
  return false;
}

bool getAddress(napi_env env, napi_value value, const char* name, char** out) {
  uint64_t number = 0;
  if (!getWhole(env, value, name, &number)) return false;
  *out = reinterpret_cast<char*>(static_cast<uintptr_t>(number));
  return true;
}

bool getQueue(napi_env env, const Runtime* runtime, napi_value value, CommandQueue** out) {
  uint32_t index = kQueueCount;
  if (napi_get_value_uint32(env, value, &index) == napi_ok && index < kQueueCount) {
    *out = runtime->queues[index];
    return true;
  }
  throwRangeError(env, "queue must be 0 (compute), 1 (upload) or 2 (download)");
  return false;
}

napi_value makeNumber(napi_env env, uint64_t number) {
  napi_value result;
  const auto value = static_cast<double>(number);
  return napi_create_double(env, value, &result) == napi_ok ? result : nullptr;
}

bool startRuntime(napi_env env, Runtime* runtime, napi_value onSignal, int threads) {
  napi_value name;
  if (napi_create_string_utf8(env, "spillway.runtime", NAPI_AUTO_LENGTH, &name) != napi_ok ||
      napi_create_threadsafe_function(env, onSignal, nullptr, name, 0, 1, nullptr, nullptr, nullptr,
                                      callSignal, &runtime->signal) != napi_ok) {
    return false;
  }
  napi_unref_threadsafe_function(env, runtime->signal);
  const napi_threadsafe_function signal = runtime->signal;
  const auto onWatched = [signal] {
    napi_call_threadsafe_function(signal, nullptr, napi_tsfn_nonblocking);
  };
  for (uint32_t index = 0; index < kQueueCount; ++index) {
    runtime->queues[index] = new CommandQueue(index == kCompute ? threads : 1, onWatched);
  }
  return napi_add_env_cleanup_hook(env, onCleanup, runtime) == napi_ok;
}

// runtimeCreate(arenaBytes, args: Float64Array, threads, onSignal): handle. Launches read their
// arguments from `args`. RangeError when the arena cannot be reserved.
napi_value runtimeCreate(napi_env env, napi_callback_info info) {
  Arguments<4> arguments;
  uint64_t arenaBytes = 0;
  double threads = 0;
  Span<double> args;
  if (!arguments.read(env, info) || !getWhole(env, arguments[0], "arenaBytes", &arenaBytes) ||
      !getSpan(env, arguments[1], "args", &args) ||
      !getDouble(env, arguments[2], "threads", &threads)) {
    return nullptr;
  }
  napi_valuetype type;
  if (napi_typeof(env, arguments[3], &type) != napi_ok || type != napi_function ||
      !(threads >= 1 && threads <= kMostThreads)) {
    throwRangeError(env, "threads must be 1 to 1024 and onSignal a function");
    return nullptr;
  }
  auto* runtime = new Runtime();
  runtime->env = env;
  runtime->args = args.data;
  runtime->argsLength = args.length;
  napi_value handle = nullptr;
  if (!runtime->arena.open(arenaBytes)) {
    delete runtime;
    throwRangeError(env, "the system refuses to reserve the arena's address space");
    return nullptr;
  }
  if (napi_create_reference(env, arguments[1], 1, &runtime->argsReference) == napi_ok &&
      startRuntime(env, runtime, arguments[3], static_cast<int>(threads)) &&
      napi_create_external(env, runtime, finalizeRuntime, nullptr, &handle) == napi_ok) {
    return handle;
  }
  closeRuntime(runtime);
  delete runtime;
  throwTypeError(env, "the environment refuses another runtime");
  return nullptr;
}

// runtimeBase(handle): address of the arena's first byte, at a 2 MiB boundary.
napi_value runtimeBase(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  if (runtime == nullptr) return nullptr;
  return makeNumber(env, reinterpret_cast<uintptr_t>(runtime->arena.base()));
}

void push(napi_env env, CommandQueue* queue, const Command& command) {
  if (queue->push(command) == 0) throwRangeError(env, "the queue was stopped");
}

// runtimeLaunch(handle, kernelId, argCount): the kernel on the compute queue; offsets are
// addresses.
napi_value runtimeLaunch(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  if (runtime == nullptr) return nullptr;
  uint32_t id = 0, argCount = 0;
  Command command;
  if (napi_get_value_uint32(env, arguments[1], &id) != napi_ok ||
      napi_get_value_uint32(env, arguments[2], &argCount) != napi_ok ||
      argCount > runtime->argsLength || argCount > CommandQueue::kMostArgs ||
      (command.fn = kernelOf(id)) == nullptr) {
    throwRangeError(env, "kernelId must come from kernelId() and argCount fit into args");
    return nullptr;
  }
  command.kind = Command::Kind::kernel;
  command.args = runtime->args;
  command.argCount = argCount;
  push(env, runtime->queues[kCompute], command);
  return nullptr;
}

// runtimeWait(handle, queue, other, sequence): `queue` goes on once `other` has completed so many.
napi_value runtimeWait(napi_env env, napi_callback_info info) {
  Arguments<4> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  CommandQueue* queue = nullptr;
  Command command;
  command.kind = Command::Kind::wait;
  if (runtime != nullptr && getQueue(env, runtime, arguments[1], &queue) &&
      getQueue(env, runtime, arguments[2], &command.other) &&
      getWhole(env, arguments[3], "sequence", &command.sequence)) {
    push(env, queue, command);
  }
  return nullptr;
}

// runtimeWrite(handle, target, bytes: Uint8Array): copies `bytes` now and, on the compute queue,
// the copy to the address `target`.
napi_value runtimeWrite(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  Command command;
  Span<uint8_t> bytes;
  if (runtime == nullptr || !getAddress(env, arguments[1], "target", &command.target) ||
      !getSpan(env, arguments[2], "bytes", &bytes)) {
    return nullptr;
  }
  command.kind = Command::Kind::copyOwned;
  command.count = bytes.length;
  command.source = static_cast<char*>(std::malloc(bytes.length == 0 ? 1 : bytes.length));
  if (command.source == nullptr) {
    throwRangeError(env, "the process has no memory for a copy of the values");
    return nullptr;
  }
  if (bytes.length > 0) std::memcpy(command.source, bytes.data, bytes.length);
  if (runtime->queues[kCompute]->push(command) == 0) {
    std::free(command.source);
    throwRangeError(env, "the queue was stopped");
  }
  return nullptr;
}

// runtimeUpload(handle, target, source: Uint8Array, type): on the upload queue; type 0 copies
// bytes, 1 widens bfloat16 and 2 float16 to float32. The caller keeps `source` until it is done.
napi_value runtimeUpload(napi_env env, napi_callback_info info) {
  Arguments<4> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  Command command;
  Span<uint8_t> source;
  uint32_t type = 0;
  if (runtime == nullptr || !getAddress(env, arguments[1], "target", &command.target) ||
      !getSpan(env, arguments[2], "source", &source)) {
    return nullptr;
  }
  const bool known = napi_get_value_uint32(env, arguments[3], &type) == napi_ok && type <= 2;
  const bool halves = known && type != 0;
  const bool isWhole = source.length % 2 == 0 && reinterpret_cast<uintptr_t>(source.data) % 2 == 0;
  if (!known || (halves && !isWhole)) {
    throwRangeError(env, "type must be 0, 1 or 2, and 16-bit elements lie at even addresses");
    return nullptr;
  }
  command.kind = halves ? Command::Kind::widen : Command::Kind::copy;
  command.sourceType = static_cast<SourceType>(type);
  command.source = reinterpret_cast<char*>(source.data);
  command.count = halves ? source.length / 2 : source.length;
  push(env, runtime->queues[kUpload], command);
  return nullptr;
}

// runtimeDownload(handle, source, target: Uint8Array): from the address `source`, on the download
// queue. The caller keeps `target` until it is done.
napi_value runtimeDownload(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  Command command;
  Span<uint8_t> target;
  if (runtime != nullptr && getAddress(env, arguments[1], "source", &command.source) &&
      getSpan(env, arguments[2], "target", &target)) {
    command.kind = Command::Kind::copy;
    command.target = reinterpret_cast<char*>(target.data);
    command.count = target.length;
    push(env, runtime->queues[kDownload], command);
  }
  return nullptr;
}

// runtimeDiscard(handle, target, byteLength): gives whole pages back, on the compute queue.
napi_value runtimeDiscard(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  Runtime* runtime = getRuntime(env, arguments[0]);
  Command command;
  command.kind = Command::Kind::discard;
  uint64_t count = 0;
  if (runtime == nullptr || !getAddress(env, arguments[1], "target", &command.target) ||
      !getWhole(env, arguments[2], "byteLength", &count)) {
    return nullptr;
  }
  command.count = count;
  if (!runtime->arena.contains(command.target, command.count)) {
    throwRangeError(env, "what is discarded lies in the arena");
    return nullptr;
  }
  push(env, runtime->queues[kCompute], command);
  return nullptr;
}

// runtimeCompleted(handle, queue): how many commands it has completed.
napi_value runtimeCompleted(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  CommandQueue* queue = nullptr;
  if (runtime == nullptr || !getQueue(env, runtime, arguments[1], &queue)) return nullptr;
  return makeNumber(env, queue->completed());
}

// runtimeWatch(handle, queue, sequence): one onSignal() once so many have completed; returns how
// many have.
napi_value runtimeWatch(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  CommandQueue* queue = nullptr;
  uint64_t sequence = 0;
  if (runtime == nullptr || !getQueue(env, runtime, arguments[1], &queue) ||
      !getWhole(env, arguments[2], "sequence", &sequence)) {
    return nullptr;
  }
  return makeNumber(env, queue->watch(sequence));
}

// runtimeBlock(handle, queue, sequence): sleeps until so many have completed.
napi_value runtimeBlock(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  CommandQueue* queue = nullptr;
  uint64_t sequence = 0;
  if (runtime != nullptr && getQueue(env, runtime, arguments[1], &queue) &&
      getWhole(env, arguments[2], "sequence", &sequence)) {
    queue->waitFor(sequence);
  }
  return nullptr;
}

// runtimeRead(handle, source, target: Uint8Array): copies from the address `source`, now.
napi_value runtimeRead(napi_env env, napi_callback_info info) {
  Arguments<3> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  char* source = nullptr;
  Span<uint8_t> target;
  if (runtime != nullptr && getAddress(env, arguments[1], "source", &source) &&
      getSpan(env, arguments[2], "target", &target) && target.length > 0) {
    std::memcpy(target.data, source, target.length);
  }
  return nullptr;
}

// runtimeKeepAlive(handle, keep): whether the process waits for an onSignal().
napi_value runtimeKeepAlive(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  if (!arguments.read(env, info)) return nullptr;
  const Runtime* runtime = getRuntime(env, arguments[0]);
  bool keep = false;
  if (runtime == nullptr || napi_get_value_bool(env, arguments[1], &keep) != napi_ok) {
    throwTypeError(env, "keep must be a boolean");
    return nullptr;
  }
  if (keep) {
    napi_ref_threadsafe_function(env, runtime->signal);
  } else {
    napi_unref_threadsafe_function(env, runtime->signal);
  }
  return nullptr;
}

// runtimeClose(handle): joins the threads and frees the arena; what has not begun is forgotten.
// Idempotent.
napi_value runtimeClose(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  if (!arguments.read(env, info)) return nullptr;
  void* data = nullptr;
  if (napi_get_value_external(env, arguments[0], &data) != napi_ok || data == nullptr ||
      static_cast<Runtime*>(data)->magic != kMagic) {
    throwTypeError(env, "handle must come from runtimeCreate");
    return nullptr;
  }
  closeRuntime(static_cast<Runtime*>(data));
  return nullptr;
}

}  // namespace

void registerDeviceRuntime(napi_env env, napi_value exports) {
  exportFunction(env, exports, "runtimeCreate", runtimeCreate);
  exportFunction(env, exports, "runtimeBase", runtimeBase);
  exportFunction(env, exports, "runtimeLaunch", runtimeLaunch);
  exportFunction(env, exports, "runtimeWait", runtimeWait);
  exportFunction(env, exports, "runtimeWrite", runtimeWrite);
  exportFunction(env, exports, "runtimeUpload", runtimeUpload);
  exportFunction(env, exports, "runtimeDownload", runtimeDownload);
  exportFunction(env, exports, "runtimeDiscard", runtimeDiscard);
  exportFunction(env, exports, "runtimeCompleted", runtimeCompleted);
  exportFunction(env, exports, "runtimeWatch", runtimeWatch);
  exportFunction(env, exports, "runtimeBlock", runtimeBlock);
  exportFunction(env, exports, "runtimeRead", runtimeRead);
  exportFunction(env, exports, "runtimeKeepAlive", runtimeKeepAlive);
  exportFunction(env, exports, "runtimeClose", runtimeClose);
}

}  // namespace spillway
