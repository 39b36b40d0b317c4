// Attention of few queries over long caches: keys and values are read once, where they lie, by all queries that share
// them; nothing is packed. Scores in blocks as kernels/layout.h says.
#include "kernels/attention/attention.h"
#include "kernels/functions/epilogue.h"
#include "kernels/module/half_packets.h"

namespace nlsplit::inline kernels {
namespace {

#if defined(__AVX512F__)
// The sums of sixteen vectors, each added up as Eigen's predux does it: of vector 4 j + r, number 4 r + j of the
// result.
inline Packet sums_of_sixteen(const Packet* of) {
  Packet fours[4];
  for (int j = 0; j < 4; ++j) {
    const Packet *a = of + 4 * j, *b = a + 1, *c = a + 2, *d = a + 3;
    const Packet ab = add(_mm512_shuffle_f32x4(*a, *b, 0x44), _mm512_shuffle_f32x4(*a, *b, 0xee));
    const Packet cd = add(_mm512_shuffle_f32x4(*c, *d, 0x44), _mm512_shuffle_f32x4(*c, *d, 0xee));
    fours[j] = add(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  }
  const auto twos = [](const Packet& a, const Packet& b) {
    const __m512d low = _mm512_castps_pd(a), high = _mm512_castps_pd(b);
    return add(_mm512_castpd_ps(_mm512_unpacklo_pd(low, high)), _mm512_castpd_ps(_mm512_unpackhi_pd(low, high)));
  };
  const Packet first = twos(fours[0], fours[1]), second = twos(fours[2], fours[3]);
  return add(_mm512_shuffle_ps(first, second, 0x88), _mm512_shuffle_ps(first, second, 0xdd));
}
#endif

constexpr int most_rows = 4;                        // queries at a time
constexpr int value_vectors = width >= 16 ? 4 : 2;  // of a value at a time: their sums stay in registers

// Positions that lie one behind the other, in rows of the cache.
struct Run {
  int64_t row;
  int64_t count;
};

// Kept: how keys and values lie in memory.
template <class Kept>
class Rows {
 public:
  using Stored = typename Kept::Stored;

  explicit Rows(const KernelCall& call)
      : call_(call),
        a_(attention_of(*call.desc)),
        mask_(mask_of(call)),
        epilogue_(call),
        scale_(broadcast(static_cast<float>(attr_float(call.desc->attrs, "scale")))),
        softcap_(static_cast<float>(attr_float(call.desc->attrs, "softcap"))),
        causal_(attr_int(call.desc->attrs, "causal") != 0),
        window_(attr_int(call.desc->attrs, "window") == 0 ? a_.keys : attr_int(call.desc->attrs, "window")),
        shared_(a_.heads / a_.kv_heads) {}

  void run() const {
    const int64_t rows = shared_ * a_.queries, chunks = (rows + most_rows - 1) / most_rows;
    parallel_for(call_, a_.batch * a_.kv_heads * chunks, [&](int64_t i) {
      const int64_t head = i / chunks, first = i % chunks * most_rows;
      switch (std::min<int64_t>(most_rows, rows - first)) {
        case 1:
          return attend<1>(head, first);
        case 2:
          return attend<2>(head, first);
        case 3:
          return attend<3>(head, first);
        default:
          return attend<4>(head, first);
      }
    });
  }

 private:
  template <int rows>
  struct Block {
    float scores[rows][attention_keys];
    float largest[rows], sum[rows], shrink[rows];
  };

  // Keys [begin, begin + count) of a head of the keys, counted through over all samples.
  int runs_of(int64_t head, int64_t begin, int64_t count, Run* runs) const {
    const int64_t sample = head / a_.kv_heads, own = head % a_.kv_heads;
    if (a_.page == 0) {
      runs[0] = {head * a_.keys + begin, count};
      return 1;
    }
    int made = 0;
    for (int64_t key = begin; key < begin + count;) {
      const int64_t in_page = key % a_.page, more = std::min(a_.page - in_page, begin + count - key);
      const int64_t page = whole_at(call_, 4, sample * (a_.keys / a_.page) + key / a_.page, a_.pages - 1);
      runs[made++] = {(page * a_.kv_heads + own) * a_.page + in_page, more};
      key += more;
    }
    return made;
  }

  // q[r] · k[i] of `keys` neighbours. Each product's bits are those of its own chain, whoever is beside it.
  template <int rows, int keys>
  void dots(const float* q, const Stored* k, float (&scores)[rows][attention_keys], int64_t at) const {
    Packet sums[rows][keys];
    for (auto& row : sums) std::fill(row, row + keys, zeros());
    const auto step = [&](int64_t p, const auto& take, const auto& read) {
      Packet of_k[keys];
      for (int j = 0; j < keys; ++j) of_k[j] = read(k + j * a_.size + p);
      for (int r = 0; r < rows; ++r) {
        const Packet of_q = take(q + r * a_.size + p);
        for (int j = 0; j < keys; ++j) sums[r][j] = multiply_add(of_q, of_k[j], sums[r][j]);
      }
    };
    int64_t p = 0;
    for (; p + width <= a_.size; p += width)
      step(
          p, [](const float* from) { return load(from); }, Kept::read);
    if (p < a_.size)
      step(
          p, [&](const float* from) { return load_part(from, a_.size - p); },
          [&](const Stored* from) { return Kept::read_part(from, a_.size - p); });
#if defined(__AVX512F__)
    if constexpr (rows == 4 && keys == 4) {
      Packet by_key[16];
      for (int i = 0; i < 16; ++i) by_key[i] = sums[i % 4][i / 4];
      float all[width];
      store(all, sums_of_sixteen(by_key));
      for (int r = 0; r < 4; ++r) std::copy_n(all + 4 * r, 4, scores[r] + at);
      return;
    }
#endif
    for (int r = 0; r < rows; ++r) {
      for (int j = 0; j < keys; ++j) scores[r][at + j] = Eigen::internal::predux(sums[r][j]);
    }
  }

  // out[r] = out[r] * shrink[r] + Σ scores[r][i] v[i], for `vectors` of each value from column c on.
  template <int rows, int vectors, class Load, class Read, class Store>
  void add_values(const Block<rows>& block, const Run* runs, int count, float* out, int64_t c, const Load& take,
                  const Read& read, const Store& put) const {
    Packet sums[rows][vectors];
    for (int r = 0; r < rows; ++r) {
      for (int x = 0; x < vectors; ++x)
        sums[r][x] = multiply(take(out + r * a_.value_size + c + x * width), broadcast(block.shrink[r]));
    }
    int64_t i = 0;
    for (int run = 0; run < count; ++run) {
      const Stored* v = static_cast<const Stored*>(call_.inputs[2]) + runs[run].row * a_.value_size + c;
      for (const int64_t end = i + runs[run].count; i < end; ++i, v += a_.value_size) {
        Packet values[vectors];
        for (int x = 0; x < vectors; ++x) values[x] = read(v + x * width);
        for (int r = 0; r < rows; ++r) {
          const Packet share = broadcast(block.scores[r][i]);
          for (int x = 0; x < vectors; ++x) sums[r][x] = multiply_add(share, values[x], sums[r][x]);
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int x = 0; x < vectors; ++x) put(out + r * a_.value_size + c + x * width, sums[r][x]);
    }
  }

  // Rows [first, first + rows) of those that share a head of the keys: head after head, query after query.
  template <int rows>
  void attend(int64_t kv_head, int64_t first) const {
    const int64_t sample = kv_head / a_.kv_heads, n = a_.value_size, at = kv_head * shared_ * a_.queries + first;
    const float* q = input(call_, 0) + at * a_.size;
    float* out = output(call_) + at * n;
    const int64_t length = length_of(call_, sample, a_.keys);
    const auto query = [&](int64_t r) { return (first + r) % a_.queries; };
    int64_t seen[rows], first_seen[rows], begin = a_.keys, end = 0;
    Block<rows> block;
    for (int r = 0; r < rows; ++r) {
      seen[r] = causal_ ? std::clamp<int64_t>(a_.seen(query(r), length), 0, length) : length;
      first_seen[r] = std::max<int64_t>(0, seen[r] - window_);
      begin = std::min(begin, first_seen[r]);
      end = std::max(end, seen[r]);
      block.largest[r] = no_score;
      block.sum[r] = 0;
    }
    std::fill_n(out, rows * n, 0.0f);
    // Blocks begin where they do without a window, so that a row has its bits whoever is beside it.
    for (int64_t key = begin / attention_keys * attention_keys; key < end; key += attention_keys) {
      const int64_t count = std::min(attention_keys, end - key);
      Run runs[attention_keys];
      const int made = runs_of(kv_head, key, count, runs);
      scores_of(block, q, runs, made);
      for (int r = 0; r < rows; ++r) {
        map_row(
            block.scores[r], count, [&](const Packet& x) { return multiply(x, scale_); }, block.scores[r]);
        if (softcap_ != 0) cap(block.scores[r], count);
        const int64_t head = kv_head % a_.kv_heads * shared_ + (first + r) / a_.queries;
        const int64_t hidden = std::clamp<int64_t>(first_seen[r] - key, 0, count);
        std::fill_n(block.scores[r], hidden, 0.0f);
        block.shrink[r] = exponentials(block.scores[r] + hidden, mask_.at(sample, head, query(r), key + hidden),
                                       std::clamp<int64_t>(seen[r] - key - hidden, 0, count - hidden), count - hidden,
                                       block.largest[r], block.sum[r]);
      }
      const auto take = [](const float* from) { return load(from); };
      const auto put = [](float* to, const Packet& x) { store(to, x); };
      int64_t c = 0;
      for (; c + value_vectors * width <= n; c += value_vectors * width)
        add_values<rows, value_vectors>(block, runs, made, out, c, take, Kept::read, put);
      for (; c + width <= n; c += width) add_values<rows, 1>(block, runs, made, out, c, take, Kept::read, put);
      if (c < n) {
        add_values<rows, 1>(
            block, runs, made, out, c, [&](const float* from) { return load_part(from, n - c); },
            [&](const Stored* from) { return Kept::read_part(from, n - c); },
            [&](float* to, const Packet& x) { store_part(to, x, n - c); });
      }
    }
    for (int r = 0; r < rows; ++r) {
      const Packet share = broadcast(block.sum[r] == 0 ? 0.0f : 1.0f / block.sum[r]);  // no key is seen: zeros
      map_row(
          out + r * n, n, [&](const Packet& x) { return multiply(x, share); }, out + r * n);
    }
    epilogue_.apply(output(call_), out - output(call_), rows * n);
  }

  void cap(float* scores, int64_t count) const {
    const Packet most = broadcast(softcap_), part = broadcast(1 / softcap_);
    map_row(
        scores, count, [&](const Packet& x) { return multiply(Eigen::internal::ptanh(multiply(x, part)), most); },
        scores);
  }

  template <int rows>
  void scores_of(Block<rows>& block, const float* q, const Run* runs, int count) const {
    constexpr int together =
        rows == 1 || (rows == 4 && width == 16) ? 4 : 2;  // keys: so many chains of sums hide each other's latency
    int64_t at = 0;
    for (int run = 0; run < count; ++run) {
      const Stored* k = static_cast<const Stored*>(call_.inputs[1]) + runs[run].row * a_.size;
      int64_t i = 0;
      for (; i + together <= runs[run].count; i += together)
        dots<rows, together>(q, k + i * a_.size, block.scores, at + i);
      for (; i < runs[run].count; ++i) dots<rows, 1>(q, k + i * a_.size, block.scores, at + i);
      at += runs[run].count;
    }
  }

  const KernelCall& call_;
  const Attention a_;
  const Mask mask_;
  const Epilogue epilogue_;
  const Packet scale_;
  const float softcap_;  // 0: scores stay
  const bool causal_;
  const int64_t window_;
  const int64_t shared_;  // rows of queries for each of the keys
};

void run_cached_attention(const KernelCall& call) {
  if (call.desc->inputs[1].dtype == DType::f16)
    Rows<F16InMemory>(call).run();
  else
    Rows<F32InMemory>(call).run();
}

}  // namespace

const KernelCode code::cached_attention = {run_cached_attention};

}  // namespace nlsplit::inline kernels
