// Queues, thread pool and kernels under many threads, for ThreadSanitizer; scripts/test-sanitize.mjs
// runs it. Node itself is not instrumented, so its own synchronisation is invisible to the
// sanitizer: this program drives the same objects without Node. What it computes is checked too.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#include "../kernel-registry.h"
#include "../queue.h"

namespace spillway {
namespace {

void check(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "queue-stress: not so: %s\n", what);
  std::exit(1);
}

double addressOf(const void* data) {
  return static_cast<double>(reinterpret_cast<uintptr_t>(data));
}

// A kernel's command; `args` lives until it is pushed.
Command launchOf(const char* name, const std::vector<double>& args) {
  Command command;
  command.kind = Command::Kind::kernel;
  command.fn = kernelOf(kernelIdOf(name));
  check(command.fn != nullptr, name);
  command.args = args.data();
  command.argCount = args.size();
  return command;
}

Command copyOf(void* target, void* source, size_t count, Command::Kind kind = Command::Kind::copy) {
  Command command;
  command.kind = kind;
  command.target = static_cast<char*>(target);
  command.source = static_cast<char*>(source);
  command.count = count;
  return command;
}

Command waitOf(CommandQueue& other, uint64_t sequence) {
  Command command;
  command.kind = Command::Kind::wait;
  command.other = &other;
  command.sequence = sequence;
  return command;
}

// A completion told from a queue's thread to another, as the runtime's onSignal is. Without the
// signal, `await` sleeps for good.
class Signal {
 public:
  void raise() {
    std::lock_guard<std::mutex> lock(mutex_);
    changed_.notify_all();
  }
  void await(const CommandQueue& queue, uint64_t sequence) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return queue.completed() >= sequence; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

// Every element is in exactly one piece, and no two pieces share a worker at one time.
void pieces() {
  for (int size = 1; size <= 5; ++size) {
    ThreadPool pool(size);
    for (size_t count = 0; count < 400; ++count) {
      std::vector<int> visits(count, 0);
      std::vector<size_t> perWorker(static_cast<size_t>(size), 0);
      pool.parallelFor(count, 1 + count % 7, [&](size_t begin, size_t end, int worker) {
        // A call from within one of several pieces runs in place, as the same worker.
        const bool isOnly = end - begin == count;
        pool.parallelFor(end - begin, 1, [&](size_t from, size_t to, int inner) {
          check(isOnly || inner == worker, "a nested call keeps its worker");
          for (size_t i = from; i < to; ++i) ++visits[begin + i];
        });
        perWorker[static_cast<size_t>(worker)] += end - begin;
      });
      size_t total = 0;
      for (const size_t part : perWorker) total += part;
      check(total == count, "pieces cover the range");
      for (const int visit : visits) check(visit == 1, "each element is visited once");
    }
  }
}

// As many pieces as threads, each of which waits for the others: every thread takes one, awake or
// asleep before.
void allThreads() {
  ThreadPool pool(4);
  for (int round = 0; round < 400; ++round) {
    std::atomic<int> arrived{0};
    std::vector<int> workers(4, -1);
    pool.parallelFor(4, 1, [&](size_t begin, size_t, int worker) {
      workers[begin] = worker;
      arrived.fetch_add(1);
      while (arrived.load() < 4) std::this_thread::yield();
    });
    int seen = 0;
    for (const int worker : workers) seen |= 1 << worker;
    check(seen == 15, "pieces that run at one time have workers of their own");
    if (round % 8 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Upload, compute and download of many steps over two slots: each waits for what it needs alone.
void pipeline() {
  constexpr size_t kSteps = 300, kLength = 1 << 16, kSlots = 2;
  std::vector<float> sources(kSlots * kLength), slots(kSlots * kLength), sums(kSlots * 4);
  std::vector<float> results(kSteps * 4);
  Signal signal;
  CommandQueue compute(4, [] {}), upload(1, [] {}), download(1, [&] { signal.raise(); });
  std::vector<uint64_t> uploaded(kSteps), computed(kSteps), downloaded(kSteps);
  for (size_t step = 0; step < kSteps; ++step) {
    const size_t slot = step % kSlots;
    float *source = &sources[slot * kLength], *data = &slots[slot * kLength], *sum = &sums[slot * 4];
    if (step >= kSlots) {
      check(upload.waitFor(uploaded[step - kSlots]), "an upload completes");
      upload.push(waitOf(compute, computed[step - kSlots]));
      compute.push(waitOf(download, downloaded[step - kSlots]));
    }
    for (size_t i = 0; i < kLength; ++i) source[i] = static_cast<float>(step);
    uploaded[step] = upload.push(copyOf(data, source, kLength * sizeof(float)));
    compute.push(waitOf(upload, uploaded[step]));
    computed[step] = compute.push(launchOf(
        "sumFloat", {addressOf(data), addressOf(sum), 4, static_cast<double>(kLength / 4), 1, 1}));
    download.push(waitOf(compute, computed[step]));
    downloaded[step] = download.push(copyOf(&results[step * 4], sum, 4 * sizeof(float)));
    if (step % 16 != 15 || download.watch(downloaded[step]) >= downloaded[step]) continue;
    signal.await(download, downloaded[step]);
  }
  check(download.waitFor(downloaded.back()), "the last download completes");
  for (size_t i = 0; i < results.size(); ++i) {
    check(results[i] == static_cast<float>(i / 4 * (kLength / 4)), "a step's sum is its own");
  }
}

// More commands and arguments than the rings hold, while other threads wait for them.
void fullRings() {
  constexpr uint64_t kCommands = 30000;
  float value = 0;
  uint64_t owned = 0;
  CommandQueue queue(2, [] {});
  std::vector<std::thread> waiters;
  for (uint64_t stride : {1, 37, 1009}) {
    waiters.emplace_back([&queue, stride] {
      for (uint64_t at = stride; at <= kCommands; at += stride) {
        check(queue.waitFor(at) && queue.completed() >= at, "a wait ends after its command");
      }
    });
  }
  for (uint64_t index = 1; index <= kCommands; ++index) {
    uint64_t number = 0;
    if (index % 7 == 0) {
      auto* copy = static_cast<uint64_t*>(std::malloc(sizeof(uint64_t)));
      *copy = index;
      number = queue.push(copyOf(&owned, copy, sizeof *copy, Command::Kind::copyOwned));
    } else {
      std::vector<double> args(index % 97 == 0 ? CommandQueue::kMostArgs : 64, 0.0);
      args[0] = addressOf(&value);
      args[1] = 1;
      args[2] = static_cast<double>(index);
      number = queue.push(launchOf("fillFloat", args));
    }
    check(number == index, "commands are numbered in order");
  }
  for (auto& waiter : waiters) waiter.join();
  check(owned == kCommands / 7 * 7 && value == static_cast<float>(kCommands), "the last write stays");
}

// Queues that are stopped while one waits for another, a thread waits for both, and buffers queue.
void stopsInTheMiddle() {
  for (int round = 0; round < 60; ++round) {
    std::vector<char> target(4096);
    CommandQueue first(3, [] {}), second(1, [] {});
    for (int i = 0; i < 50; ++i) {
      const uint64_t slept = first.push(launchOf("sleepFor", {20.0}));
      second.push(waitOf(first, slept));
      second.push(copyOf(target.data(), std::calloc(4096, 1), 4096, Command::Kind::copyOwned));
    }
    std::thread waiter([&] { check(!second.waitFor(100), "a wait on a stopped queue fails"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 6));
    first.requestStop();
    second.requestStop();
    if (round % 2 == 0) waiter.join();
    first.stop();
    second.stop();
    if (round % 2 == 1) waiter.join();
    check(first.push(launchOf("sleepFor", {0.0})) == 0, "a stopped queue takes no command");
  }
}

// Floats that kernels read and write, at addresses of the alignment that the arena gives.
class Memory {
 public:
  static constexpr size_t kFloats = 1 << 19;
  Memory() : data_(static_cast<float*>(std::aligned_alloc(4096, kFloats * sizeof(float)))) {
    check(data_ != nullptr, "there is memory");
  }
  ~Memory() { std::free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  // Numbers in [-0.5, 0.5); the last kIds words are integers in [0, 100).
  static constexpr size_t kIds = 4096, kFirstId = kFloats - kIds;
  void fill() {
    for (size_t i = 0; i < kFloats; ++i) {
      const auto mixed = static_cast<uint32_t>(i) * 2654435761u >> 8;
      data_[i] = static_cast<float>(mixed) / 16777216.0f - 0.5f;
      const auto id = static_cast<int32_t>(mixed % 100);
      if (i >= kFirstId) std::memcpy(data_ + i, &id, sizeof id);
    }
  }
  double at(size_t index) const { return addressOf(data_ + index); }
  std::vector<float> copy() const { return {data_, data_ + kFloats}; }

 private:
  float* data_;
};

struct KernelCase {
  const char* name;
  std::vector<double> args;
};

// Kernels that cut their work among threads, of sizes beyond their grains.
std::vector<KernelCase> kernelCases(const Memory& memory) {
  const auto at = [&](size_t index) { return memory.at(index); };
  // Element strides of [B, H, T, D] over memory [B, T, H, D], D 32, T 192: four heads, and two.
  const std::vector<double> four = {24576, 32, 128}, two = {12288, 32, 64};
  KernelCase forward{"attention",
                     {at(0), at(30000), at(50000), at(70000), at(100000), -1, 1, 192, 4, 2, 32}};
  for (const auto* strides : {&four, &two, &two, &four}) {
    forward.args.insert(forward.args.end(), strides->begin(), strides->end());
  }
  KernelCase backward{"attentionGrad",
                      {at(0), at(30000), at(50000), at(70000), at(100000), at(110000), at(140000),
                       at(150000), at(180000), at(200000), -1, 1, 192, 4, 2, 32}};
  for (const auto* strides : {&four, &two, &two, &four, &four, &two, &two}) {
    backward.args.insert(backward.args.end(), strides->begin(), strides->end());
  }
  return {
      {"fillFloat", {at(0), 400000, 0.25}},
      {"sumFloat", {at(0), at(300000), 64, 4096, 1, 1}},
      {"softmaxFloat", {at(0), at(200000), 128, 1024}},
      {"segmentSumFloat", {at(0), at(Memory::kFirstId), at(300000), 4096, 64, 1000}},
      // Two products [192, 256] by [256, 160], as float32 and not transposed.
      {"gemm", {at(0), at(100000), at(200000), 192, 160, 256, 2,  0, 0, 256, 49152,
                0,     0,          160,        40960, 160, 30720, -1, 0}},
      {"norm", {at(0), at(140000), at(142000), at(150000), at(290000), at(291000), 128, 1024, 1e-5}},
      {"normGradWeight", {at(0), at(140000), at(290000), at(291000), at(300000), 128, 1024}},
      forward,
      backward,
  };
}

// Bits do not depend on the number of threads, one among them.
void kernelsOfManyThreads() {
  Memory memory;
  for (const KernelCase& test : kernelCases(memory)) {
    std::vector<float> alone;
    for (const int threads : {1, 2, 4}) {
      memory.fill();
      const std::vector<float> before = memory.copy();
      {
        CommandQueue queue(threads, [] {});
        check(queue.waitFor(queue.push(launchOf(test.name, test.args))), test.name);
      }
      const std::vector<float> after = memory.copy();
      const size_t bytes = Memory::kFloats * sizeof(float);
      check(std::memcmp(before.data(), after.data(), bytes) != 0, test.name);
      if (threads == 1) alone = after;
      check(std::memcmp(alone.data(), after.data(), bytes) == 0, test.name);
    }
  }
}

// A mistake on purpose: pieces on several threads add to one number.
void race() {
  ThreadPool pool(4);
  size_t sum = 0;
  for (int round = 0; round < 100; ++round) {
    pool.parallelFor(64, 1, [&](size_t begin, size_t end) {
      std::this_thread::sleep_for(std::chrono::microseconds(10));
      sum += end - begin;
    });
  }
  std::printf("raced to %zu\n", sum);
}

void run(const char* name, void (*part)()) {
  const auto start = std::chrono::steady_clock::now();
  part();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("  %s: %.1f s\n", name, seconds.count());
  std::fflush(stdout);
}

}  // namespace
}  // namespace spillway

// `queue-stress race` only shows whether the sanitizer sees what it should.
int main(int argc, char** argv) {
  using namespace spillway;
  if (argc > 1 && std::strcmp(argv[1], "race") == 0) {
    race();
    return 0;
  }
  run("pieces of parallelFor", pieces);
  run("all threads at one time", allThreads);
  run("upload, compute, download", pipeline);
  run("full rings and waiting threads", fullRings);
  run("stopping in the middle", stopsInTheMiddle);
  run("kernels of many threads", kernelsOfManyThreads);
}
