// The few functions of libuv that the ring needs, declared here.
//
// node-api-headers ships no uv.h, and Node's own headers may be absent. libuv keeps these
// signatures and numbers stable within major version 1, which every supported Node carries, and
// node exports the symbols. A handle's size is asked at run time (uv_handle_size), so no layout is
// assumed. Must not be included together with uv.h.
#pragma once

#include <cstddef>

struct uv_loop_s;

namespace spillway::uv {

// Opaque: allocate handleSize(kPoll) bytes.
struct Poll;
using PollCallback = void (*)(Poll* handle, int status, int events);
using CloseCallback = void (*)(Poll* handle);

// UV_POLL of enum uv_handle_type, and UV_READABLE of enum uv_poll_event.
constexpr int kPoll = 8;
constexpr int kReadable = 1;

extern "C" {
size_t uv_handle_size(int type);
int uv_poll_init(uv_loop_s* loop, Poll* handle, int fd);
int uv_poll_start(Poll* handle, int events, PollCallback callback);
int uv_poll_stop(Poll* handle);
void uv_close(Poll* handle, CloseCallback callback);
void uv_handle_set_data(Poll* handle, void* data);
void* uv_handle_get_data(const Poll* handle);
void uv_ref(Poll* handle);
void uv_unref(Poll* handle);
}

}  // namespace spillway::uv
