#include "gemm-isa.h"

#include <utility>

#define SPILLWAY_BODY_FILE "gemm-body.h"
#include "simd-targets.h"

namespace spillway {

const GemmIsa& gemmIsa() {
#if SPILLWAY_X86
  switch (currentIsa()) {
    case Isa::avx512:
      return avx512::kGemm;
    case Isa::avx2:
      return avx2::kGemm;
    default:
      break;
  }
#endif
  return portable::kGemm;
}

}  // namespace spillway
