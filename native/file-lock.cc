#include "file-lock.h"

#include <cerrno>

#include "napi-helpers.h"

#ifndef _WIN32
#include <fcntl.h>
#include <sys/file.h>
#endif

namespace spillway {

namespace {

napi_value toNumber(napi_env env, int value) {
  napi_value result;
  return napi_create_int32(env, value, &result) == napi_ok ? result : nullptr;
}

bool getFd(napi_env env, napi_value value, int32_t* fd) {
  if (napi_get_value_int32(env, value, fd) == napi_ok && *fd >= 0) return true;
  throwRangeError(env, "fd must be an open descriptor");
  return false;
}

// fileLock(fd): 0, or an errno (EAGAIN: another holder). The lock belongs to the open file
// description and ends when its last descriptor closes and its last request completes, also after
// a SIGKILL; a second open of the same file is another holder, in this process too.
napi_value fileLock(napi_env env, napi_callback_info info) {
  Arguments<1> arguments;
  int32_t fd = -1;
  if (!arguments.read(env, info) || !getFd(env, arguments[0], &fd)) return nullptr;
#ifdef _WIN32
  return toNumber(env, ENOSYS);
#else
  int status = 0;
  do {
    status = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
  } while (status == EINTR);
  return toNumber(env, status);
#endif
}

// fileReserve(fd, byteLength): 0, or an errno (EOPNOTSUPP where space cannot be reserved). Not
// posix_fallocate: glibc emulates that by one-byte writes, which O_DIRECT refuses.
napi_value fileReserve(napi_env env, napi_callback_info info) {
  Arguments<2> arguments;
  int32_t fd = -1;
  int64_t byteLength = 0;
  if (!arguments.read(env, info) || !getFd(env, arguments[0], &fd)) return nullptr;
  if (napi_get_value_int64(env, arguments[1], &byteLength) != napi_ok || byteLength <= 0) {
    throwRangeError(env, "byteLength must be positive");
    return nullptr;
  }
#ifdef __linux__
  int status = 0;
  do {
    status = fallocate(fd, 0, 0, byteLength) == 0 ? 0 : errno;
  } while (status == EINTR);
  return toNumber(env, status);
#else
  return toNumber(env, EOPNOTSUPP);
#endif
}

}  // namespace

void registerFileLock(napi_env env, napi_value exports) {
  exportFunction(env, exports, "fileLock", fileLock);
  exportFunction(env, exports, "fileReserve", fileReserve);
}

}  // namespace spillway
