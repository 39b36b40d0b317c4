// ZeRO, stage 2: where gradients lie whose sums each replica keeps a share of. A stage has two *bucket buffers*, which
// take turns with the gradients of a micro-batch: while one bucket is reduced in its buffer, the next one's gradients
// are made in the other. A replica then adds its share of the bucket to what it keeps, and the buffer is free.
#pragma once

#include <cstdint>

#include "compile/lowering.h"

namespace nlsplit::inline compiler {

inline constexpr size_t bucket_buffers = 2;
inline size_t bucket_buffer_of(size_t bucket) { return bucket % bucket_buffers; }
// Elements of a bucket buffer: of the largest bucket that lies there.
int64_t bucket_buffer_elements(const Reduction& reduction, size_t bucket_buffer);

// The bucket that has an element of a stage's gradients.
size_t bucket_of(const Reduction& reduction, int64_t element);

// Of a bucket, the elements that a member of the group has a share of, and where they lie in what it keeps.
struct KeptShare {
  int64_t begin = 0, end = 0;  // in the bucket
  int64_t kept = 0;
};
KeptShare kept_share(const Reduction& reduction, size_t bucket, size_t member);
int64_t kept_elements(const Reduction& reduction, size_t member);  // of all buckets

}  // namespace nlsplit::inline compiler
