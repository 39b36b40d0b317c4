// New positions written into a cache where it lies: TensorScatter and PagedScatter, elements of any type.
#include <algorithm>
#include <cstring>

#include "kernels/layout.h"
#include "kernels/module/run.h"

namespace nlsplit::inline kernels {
namespace {

// `count` neighbours of the update, from position `from` on, to row `to` of the cache.
struct Piece {
  int64_t to, from, count;
};

// f(piece) for all positions of a sample's `head` that count.
template <class F>
void for_pieces(const KernelCall& call, const CacheUpdate& u, int64_t sample, int64_t head, const F& f) {
  const size_t counts = u.page > 0 ? 4 : 3;
  const bool has_counts = call.desc->own_inputs() > counts;
  const bool has_begin = call.desc->own_inputs() > 2;
  const int64_t count = has_counts ? whole_at(call, counts, sample, u.steps) : u.steps;
  const int64_t begin = has_begin ? whole_at(call, 2, sample, u.circular ? u.extent - 1 : u.extent - u.steps) : 0;
  for (int64_t done = 0; done < count;) {
    const int64_t at = (begin + done) % u.extent;  // past the end only if circular
    const int64_t room = u.page > 0 ? u.page - at % u.page : u.extent - at, more = std::min(room, count - done);
    const int64_t page = u.page > 0 ? whole_at(call, 3, sample * (u.extent / u.page) + at / u.page, u.pages - 1) : 0;
    f(Piece{u.page > 0 ? (page * u.heads + head) * u.page + at % u.page : (sample * u.heads + head) * u.extent + at,
            (sample * u.heads + head) * u.steps + done, more});
    done += more;
  }
}

// A worker takes a head of all samples: two of them may write to the same page, the later one last.
void run_scatter(const KernelCall& call) {
  const CacheUpdate u = cache_update_of(*call.desc);
  parallel_for(call, u.heads, [&](int64_t head) {
    for (int64_t sample = 0; sample < u.samples; ++sample) {
      for_pieces(call, u, sample, head, [&](const Piece& piece) {
        std::memcpy(static_cast<std::byte*>(call.outputs[0]) + piece.to * u.row_bytes,
                    static_cast<const std::byte*>(call.inputs[1]) + piece.from * u.row_bytes,
                    static_cast<size_t>(piece.count * u.row_bytes));
      });
    }
  });
}

}  // namespace

const KernelCode code::scatter_in_place = {run_scatter};

}  // namespace nlsplit::inline kernels
