// Small helpers over plain C Node-API: argument checks, typed-array views, property access.
//
// Ownership: a Span borrows the memory of a JavaScript view for the length of one call; a function
// that keeps it longer must hold a reference to the view. Nothing here throws a C++ exception: a
// helper that fails leaves a JavaScript exception pending and returns false (or nullptr).
#pragma once

#include <node_api.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace spillway {

// Elements of a typed array: `data` may be null when `length` is 0.
template <typename T>
struct Span {
  T* data = nullptr;
  size_t length = 0;
};

template <typename T>
struct TypedArrayType;
template <>
struct TypedArrayType<float> {
  static constexpr napi_typedarray_type value = napi_float32_array;
  static constexpr const char* name = "Float32Array";
};
template <>
struct TypedArrayType<double> {
  static constexpr napi_typedarray_type value = napi_float64_array;
  static constexpr const char* name = "Float64Array";
};
template <>
struct TypedArrayType<uint8_t> {
  static constexpr napi_typedarray_type value = napi_uint8_array;
  static constexpr const char* name = "Uint8Array";
};
template <>
struct TypedArrayType<uint16_t> {
  static constexpr napi_typedarray_type value = napi_uint16_array;
  static constexpr const char* name = "Uint16Array";
};
template <>
struct TypedArrayType<int32_t> {
  static constexpr napi_typedarray_type value = napi_int32_array;
  static constexpr const char* name = "Int32Array";
};
template <>
struct TypedArrayType<uint32_t> {
  static constexpr napi_typedarray_type value = napi_uint32_array;
  static constexpr const char* name = "Uint32Array";
};

inline void throwTypeError(napi_env env, const char* message) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) napi_throw_type_error(env, nullptr, message);
}

inline void throwRangeError(napi_env env, const char* message) {
  bool pending = false;
  napi_is_exception_pending(env, &pending);
  if (!pending) napi_throw_range_error(env, nullptr, message);
}

// The arguments of one call; missing ones are `undefined`.
template <size_t N>
struct Arguments {
  napi_value values[N];
  size_t count = N;

  bool read(napi_env env, napi_callback_info info) {
    if (napi_get_cb_info(env, info, &count, values, nullptr, nullptr) == napi_ok) return true;
    throwTypeError(env, "cannot read the arguments");
    return false;
  }
  napi_value operator[](size_t index) const { return values[index]; }
};

inline bool isUndefined(napi_env env, napi_value value) {
  napi_valuetype type;
  return napi_typeof(env, value, &type) == napi_ok && type == napi_undefined;
}

// Borrows the elements of a typed array of exactly the element type T; also over a
// SharedArrayBuffer. `name` is the argument's name in the message.
template <typename T>
bool getSpan(napi_env env, napi_value value, const char* name, Span<T>* out) {
  bool isTypedArray = false;
  napi_typedarray_type type;
  void* data = nullptr;
  size_t length = 0;
  if (napi_is_typedarray(env, value, &isTypedArray) == napi_ok && isTypedArray &&
      napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr) == napi_ok &&
      type == TypedArrayType<T>::value) {
    out->data = static_cast<T*>(data);
    out->length = length;
    return true;
  }
  char message[128];
  std::snprintf(message, sizeof message, "%s must be a %s", name, TypedArrayType<T>::name);
  throwTypeError(env, message);
  return false;
}

// The same memory as bit patterns: kernels that move bits must not pass them through a float
// register, which may quieten a NaN. Float and uint32 views never meet in one function.
inline uint32_t* bitsOf(float* values) { return reinterpret_cast<uint32_t*>(values); }

// Throws a RangeError unless `actual` equals `expected`.
inline bool checkLength(napi_env env, const char* name, size_t actual, size_t expected) {
  if (actual == expected) return true;
  char message[160];
  std::snprintf(message, sizeof message, "%s has %zu elements where %zu are needed", name, actual,
                expected);
  throwRangeError(env, message);
  return false;
}

inline bool getDouble(napi_env env, napi_value value, const char* name, double* out) {
  if (napi_get_value_double(env, value, out) == napi_ok) return true;
  char message[128];
  std::snprintf(message, sizeof message, "%s must be a number", name);
  throwTypeError(env, message);
  return false;
}

inline bool getDoubleProperty(napi_env env, napi_value object, const char* name, double* out) {
  napi_value value;
  if (napi_get_named_property(env, object, name, &value) == napi_ok) {
    return getDouble(env, value, name, out);
  }
  throwTypeError(env, "an object is needed");
  return false;
}

// Adds `function` to `exports` under `name`.
inline bool exportFunction(napi_env env, napi_value exports, const char* name,
                           napi_callback function) {
  napi_value value;
  return napi_create_function(env, name, NAPI_AUTO_LENGTH, function, nullptr, &value) == napi_ok &&
         napi_set_named_property(env, exports, name, value) == napi_ok;
}

}  // namespace spillway
