// The numbers on which the catalogue (how much memory) and the kernels' code (what lies where) must agree: blocking
// constants, packed forms, the geometry of sliding windows and of products. All fixed: nothing here asks the machine
// for its caches, so that a kernel's id and its desc alone say what it computes, bit for bit.
//
// Sizes of scratch and of packed forms saturate (base/sizes.h): strides and pads of a file can make them larger than 64
// bits count. refusal() (kernels/catalogue.h) keeps such computations from the kernels.
#pragma once

#include "base/sizes.h"
#include "kernels/catalogue.h"

namespace nlsplit::inline kernels {

// Floats of a vector register, and the register tile of the products: up to tile_rows(isa) scalars times two vectors.
// Registers hold the sums, a row of vectors and scalars on their way: 16 registers with v2 and v3, 32 with the others.
// v4 reads its scalars from memory within the multiply-add, neon needs registers for them.
struct Registers {
  int64_t vector_width, tile_rows;
};
constexpr Registers registers_of(Isa isa) {
  switch (isa) {
    case Isa::v2:
      return {4, 4};
    case Isa::v3:
      return {8, 6};
    case Isa::v4:
      return {16, 14};
    case Isa::neon:
      return {4, 12};
    case Isa::cuda:
      return {1, 1};  // a GPU's kernels have no blocks of channels and pack nothing
  }
  return {};
}
constexpr int64_t vector_width(Isa isa) { return registers_of(isa).vector_width; }
constexpr int64_t tile_rows(Isa isa) { return registers_of(isa).tile_rows; }
inline constexpr int64_t widest_vector = 16;

// Blocks of a product: m_block × k_block of the left operand (256 KiB) and k_block × n_block of the right one stay in a
// second-level cache, k_block × one tile in the first. Results do not depend on them: an element is one chain over k
// whose partial sum passes from block to block in full.
inline constexpr int64_t m_block = 256;
inline constexpr int64_t n_block = 384;
inline constexpr int64_t k_block = 256;

constexpr int64_t round_up(int64_t value, int64_t to) { return saturating_round_up(value, to); }

// "Vector panels" of a k × n operand: n is cut into panels of two vectors, the last of one if that suffices, padded
// with zeros; within a panel row after row of k. How many floats that takes.
constexpr int64_t vector_panels(int64_t k, int64_t n, Isa isa) {
  return saturating_product(k, round_up(n, vector_width(isa)));
}

// "Scalar panels" of an m × k operand: m is cut into the fewest panels of at most tile_rows rows, as equal as can be
// (longer ones first); within a panel column after column of k. Takes m * k floats.
struct ScalarPanels {
  int64_t count = 0;
  int64_t rows = 0;    // of the shorter ones
  int64_t longer = 0;  // the first so many have one row more
  int64_t rows_of(int64_t panel) const { return rows + (panel < longer ? 1 : 0); }
  int64_t begin(int64_t panel) const { return panel * rows + (panel < longer ? panel : longer); }  // its first row
};
ScalarPanels scalar_panels(int64_t m, int64_t most_rows);

// The sliding window of Conv, MaxPool and AveragePool, and the image of one channel's plane it slides over: padded, and
// sorted by phase of the stride (row and column modulo it), so that every tap reads consecutive floats for consecutive
// output pixels:
//   output (y, x), tap (i, j)  is at  tap_offset(i, j) + y * image_w + x.
// Of a window over one axis, [N, C, L], a plane is one row of L pixels.
struct Window {
  int64_t batch = 0, channels = 0, h = 0, w = 0;
  int64_t out_channels = 0, out_h = 0, out_w = 0;
  int64_t kernel_h = 0, kernel_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  int64_t groups = 1;
  int64_t image_h = 0, image_w = 0;  // of one phase
  bool in_place = false;             // the plane itself serves as its image

  int64_t out_pixels() const { return out_h * out_w; }
  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t image_floats() const { return in_place ? h * w : saturating_product(stride_h, stride_w, image_h, image_w); }
  // From one channel's image to the next: where it is ours to choose, an odd number of cache lines (of 16 floats), so
  // that the same spot of many channels does not fall into the same few sets of a cache.
  int64_t image_stride() const {
    return in_place ? h * w : saturating_product(round_up(image_floats(), 16) / 16 | 1, 16);
  }
  int64_t tap_offset(int64_t i, int64_t j) const;
  // How far one pass over consecutive pixels goes, the columns between the rows included.
  int64_t flat_pixels() const {
    return out_pixels() == 0 ? 0 : saturating_sum(saturating_product(out_h - 1, image_w), out_w);
  }
};
Window window_of(const ComputeDesc& desc);
// The same of a node with these attributes, whatever operator it is.
Window window_of(const Attrs& attrs, const Shape& in, const Shape& out);

// A transposed convolution: for each sample and group the products of its planes (k = channels by n = pixels) with the
// weights turned over (m = filters times taps), `filters_at_once` filters at a time, whose rows ("columns" of the
// convolution that it is the gradient of) are then added where their windows lie in the output.
struct ConvTranspose {
  int64_t batch = 0, groups = 1, channels = 0, filters = 0;  // of a group
  int64_t h = 0, w = 0, out_h = 0, out_w = 0;
  int64_t kernel_h = 0, kernel_w = 0, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1, pad_top = 0,
          pad_left = 0;
  int64_t filters_at_once = 1;

  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t pixels() const { return h * w; }
  int64_t chunks() const { return (filters + filters_at_once - 1) / filters_at_once; }  // of a group
  // An output row, sorted by column modulo the stride: so many floats each, pads included.
  int64_t phase_floats() const;
  int64_t columns_floats() const;  // of filters_at_once
  int64_t worker_floats() const;   // the product's scratch, columns, one row of phases
};
ConvTranspose conv_transpose_of(const ComputeDesc& desc);

// A Conv or ConvTranspose with weights that become known only at run time: for each group, `samples` samples at a time,
// the product of its weights (m = filters, k = channels times taps) with the pixels that they slide over (n), of a
// ConvTranspose phase by phase of its strides. The scratch, part after part, each rounded up to widest_vector: the
// weights as scalar panels, the images of those samples, a product where it is not the result as it lies, and for each
// worker a block of the pixels as vector panels.
struct ConvProduct {
  Window image;  // of a ConvTranspose: its operand, padded so far that a tap reads as many places further up and left
  int64_t batch = 0, groups = 1, channels = 0, filters = 0, taps = 0;  // of a group
  int64_t out_h = 0, out_w = 0;
  int64_t samples = 1;      // at once: so many that small images fill the tiles
  int64_t most_pixels = 0;  // of a sample, in a phase
  bool direct = false;      // a product is a part of the result

  int64_t packed_floats() const { return saturating_product(groups, filters, channels, taps); }
  // With room for the last vector to run over.
  int64_t images_floats() const {
    return image.in_place
               ? 0
               : saturating_sum(saturating_product(samples, groups, channels, image.image_stride()), widest_vector);
  }
  int64_t columns() const { return saturating_product(samples, most_pixels); }
  int64_t result_floats() const { return direct ? 0 : saturating_product(filters, columns()); }
  int64_t worker_floats() const;
};
ConvProduct conv_product_of(const ComputeDesc& desc);

// ConvWeightGradient: for each group, and `samples` samples at a time, products of dy (m = filters) with what its
// windows see (n = columns(), each a channel and a tap) over `steps_at_once` pixels (k). The scratch, part after part,
// each rounded up to widest_vector: those pixels of dy as scalar panels; images; columns; sums.
struct ConvWeightGradient {
  Window w;                           // from x to dy
  int64_t channels = 0, filters = 0;  // of a group
  int64_t samples = 1;
  bool by_channel = false;           // vectors of channels, tap after tap; else of columns
  int64_t image_h = 0, image_w = 0;  // by_channel: what windows touch of a padded plane

  int64_t columns() const { return by_channel ? channels : saturating_product(channels, w.taps()); }
  int64_t steps_at_once() const;
  int64_t dy_floats() const { return saturating_product(filters, steps_at_once()); }
  // by_channel: panels of two vectors of channels, each [samples][image_h][image_w][lanes]. Else planes' images; none
  // if in place.
  int64_t image_floats(Isa isa) const;
  int64_t columns_floats(Isa isa) const;  // of steps_at_once pixels, as vector panels
  int64_t sums_floats(Isa isa) const;     // by_channel: [filters][taps][channels], whole vectors
};
ConvWeightGradient conv_weight_gradient_of(const ComputeDesc& desc);

// Gradients of depthwise convolutions and pools, plane by plane. `w` slides over the operand's planes, `flats` results'
// planes go to each of them; those are laid out flat (kernels/windows/window_gradient.cc). The scratch of a worker,
// part after part, each rounded up to widest_vector: an image, one phase of a result's, flat planes, and what else is
// needed.
struct WindowGradient {
  Window w;
  int64_t flats = 1;
  bool needs_image = false;
  int64_t more_floats = 0;

  static constexpr int64_t run_over = 4 * widest_vector;  // of the vectors taken at once
  int64_t image_floats() const { return needs_image ? saturating_sum(w.image_floats(), run_over) : 0; }
  int64_t phase_floats() const { return saturating_sum(saturating_product(w.image_h, w.image_w), run_over); }
  int64_t margin() const;  // as far back as a tap reads
  int64_t flat_floats() const { return saturating_sum(margin(), phase_floats()); }
  int64_t worker_floats() const;
};
WindowGradient window_gradient_of(const ComputeDesc& desc);

// Depthwise convolutions and their gradients where planes are small: vectors of channels. One
// block of channels of a sample at a time, the planes of the first operand become an image of pixels, padded; what
// windows do not see goes to one pixel behind it. The scratch of a worker, part after part: the image; the planes of
// the other side (the result, or dy) as pixels; weights, or what becomes them, tap after tap.
struct DepthwiseBlocks {
  int64_t batch = 0, channels = 0, taps = 0;
  int64_t h = 0, w = 0;  // of the planes that become the image
  int64_t pad_top = 0, pad_left = 0, image_h = 0, image_w = 0;
  int64_t pixels = 0;  // of the other side
  bool takes = false;  // one filter a channel; of gradients by the weights any number, taken as channels

  // Else vectors of pixels are as fast, and an image would leave the second-level cache.
  static constexpr int64_t most_pixels = 64 * 64;
  bool pays() const { return takes && image_pixels() <= most_pixels && pixels <= most_pixels; }
  int64_t image_pixels() const { return saturating_sum(saturating_product(image_h, image_w), 1); }
  int64_t worker_floats() const {
    return saturating_product(widest_vector, saturating_sum(image_pixels(), pixels, taps));
  }
};
DepthwiseBlocks depthwise_blocks_of(const ComputeDesc& desc);

// Extents of a Gemm or MatMul: `batch` products of m × k by k × n. A MatMul whose right operand has at most two axes is
// one product.
struct Product {
  int64_t batch = 1, m = 1, n = 1, k = 1;
};
Product product_of(const ComputeDesc& desc);

// Linear: m rows of x by n rows of weights, all of k elements. Where the weights share scales rows of x become blocks
// of `linear_block` bytes with a scale each, as many at once as a vector has fours of floats.
inline constexpr int64_t linear_block = 32;
constexpr int64_t linear_blocks_at_once(Isa isa) { return vector_width(isa) / 4; }
// So many blocks of x: their bytes, and for each float of a vector a scale and a sum; where a block of weights has a
// scale for either half of 32 elements another sum.
constexpr int64_t linear_step_bytes(Isa isa, bool two_scales) {
  return linear_blocks_at_once(isa) * linear_block + vector_width(isa) * (two_scales ? 12 : 8);
}
// Of so many rows of x on, where there are products of bytes, rows of weights are decoded into panels: a block of so
// many rows has a byte for each element, and two numbers for each row.
inline constexpr int64_t linear_panel_rows = 32, linear_panels_from = 16;
constexpr int64_t linear_panel_bytes(int64_t k) {
  const int64_t step = linear_block * linear_blocks_at_once(Isa::v4);
  return saturating_product((k + step - 1) / step, linear_panel_rows, step + linear_blocks_at_once(Isa::v4) * 8);
}
struct Linear {
  int64_t m = 1, n = 1, k = 1;
  bool has_panels(Isa isa) const { return isa == Isa::v4 && m >= linear_panels_from; }
  // Of a row of x in blocks.
  int64_t x_bytes(Isa isa, bool two_scales) const {
    return round_up(k, linear_blocks_at_once(isa) * linear_block) / (linear_blocks_at_once(isa) * linear_block) *
           linear_step_bytes(isa, two_scales);
  }
  // Of a row of x in bf16, as whole vectors of pairs.
  int64_t pair_bytes() const { return saturating_product(saturating_round_up(k, 2 * widest_vector), 2); }
};
Linear linear_of(const ComputeDesc& desc);

// Experts: `rows` choices of one expert at a time. The scratch, part after part, each rounded up to `alignment`: where
// each expert's choices begin, and which they are; rows of x, and what the last product makes of them; the first two
// products; Linear's own.
struct ExpertsSizes {
  static constexpr int64_t alignment = 64;
  int64_t rows = 1, used = 1, experts = 1, hidden = 1, width = 1;
  int64_t begin_bytes() const { return saturating_product(experts + 1, int64_t{sizeof(int64_t)}); }
  int64_t place_bytes() const { return saturating_product(rows, used, int64_t{sizeof(int64_t)}); }
  int64_t row_bytes() const { return saturating_product(rows, hidden, int64_t{sizeof(float)}); }
  int64_t inner_bytes() const { return saturating_product(rows, width, int64_t{sizeof(float)}); }
};
ExpertsSizes experts_of(const ComputeDesc& desc);
// Linear by one expert's part of that input (3 to 5), of so many rows: with the kernel that computes it.
ComputeDesc linear_of_experts(const ComputeDesc& desc, size_t weights, int64_t rows);

// An LSTM, GRU or RNN. The inputs' part of the gates is one product for `steps_at_once` steps of all samples, the
// states' part one for each step. Either weight is packed gate after gate, direction after direction, each as the right
// operand (in or hidden) × hidden. The scratch, part after part, each rounded up to widest_vector:
struct Recurrent {
  int64_t batch = 0, steps = 0, in = 0, hidden = 0, directions = 1, gates = 1;
  bool resets_first = false;  // a GRU whose last gate sees the state only after the reset gate: two products a step
  int64_t steps_at_once = 1;

  int64_t rows() const { return steps_at_once * batch; }
  int64_t gathered_floats() const;   // those steps' inputs, step after step; 0: they lie so already
  int64_t left_floats() const;       // inputs or states as scalar panels
  int64_t bias_floats() const;       // the sum of both biases
  int64_t projected_floats() const;  // the inputs' part, [gates][rows][hidden]
  int64_t gates_floats() const;      // the states' part, [gates][batch][hidden]
  int64_t reset_floats() const;      // the state after the reset gate, if that comes first
  int64_t scratch_floats() const;
  // Of one direction.
  int64_t input_panels(Isa isa) const { return saturating_product(gates, vector_panels(in, hidden, isa)); }
  int64_t state_panels(Isa isa) const { return saturating_product(gates, vector_panels(hidden, hidden, isa)); }
};
Recurrent recurrent_of(const ComputeDesc& desc);

// Blocks of k where the right operand is packed: k_block, but few rows (m) take long ones, as much as the left block
// has room for, so that packed weights are read in long runs.
int64_t product_k_step(int64_t m);
// The product of pairs of bfloat16 (kernels/products/pair_product.h): a pair takes a float. Blocks of k are so long
// that most products have one; of further ones the sums of all columns wait in float32. Of the left operand so many
// scalar panels are packed at once that they leave room in a second-level cache.
constexpr int64_t pairs_of(int64_t k) { return k / 2 + k % 2; }
constexpr int64_t pair_k_step(int64_t pairs) {
  constexpr int64_t most = 2048;
  return pairs < most ? pairs : most;
}
inline constexpr int64_t pair_unfolded_at_once = 128;  // pairs of a panel that become floats, where they have to
int64_t pair_panels_at_once(int64_t pairs, Isa isa);
int64_t pair_scratch_floats(const Product& p, Isa isa);  // of one worker
int64_t pair_panel_floats(const Product& p, Isa isa);    // the right operand of one product as vector panels of pairs
// Sizes in floats of the scratch of the products and convolutions.
int64_t product_left_floats(int64_t m, int64_t k);                    // a block of the left operand as scalar panels
int64_t product_right_floats(int64_t k, int64_t n);                   // a block of the right operand as vector panels
int64_t product_scratch_floats(const Product& p, bool right_packed);  // both, of one worker
int64_t conv_image_floats(const Window& window);            // the images of a sample's channels; 0 if in place
int64_t conv_packed_floats(const Window& window, Isa isa);  // the weights as vector panels, group after group

// ---- Blocks of channels: a tensor [N, C, H, W] lies as [N][C / b][H][W][b], b = vector_width(isa); [N, C, L] alike.

constexpr int64_t blocks_of(int64_t channels, Isa isa) {
  return (channels + vector_width(isa) - 1) / vector_width(isa);
}

// What lies where, as extents: [N, ceil(C / b), H, W, b] or [N, ceil(C / b), L, b] in blocks, else the shape itself.
Shape stored_shape(const TensorType& type);

// So many samples are convolved together that small images fill the tiles and weights are read once for all of them.
int64_t samples_at_once(const Window& window);
// Their padded images, phase by phase as Window says, each pixel one block of channels; 0 if in place.
int64_t blocked_image_floats(const Window& window, Isa isa);

// Convolutions of bf16: the weights as vector panels of pairs of channels, group after group, and a row-major operand
// as a padded image whose pixels have all channels, pair by pair.
int64_t conv_paired_floats(const Window& window, Isa isa);
int64_t paired_image_floats(const Window& window);

// F(4x4, 3x3) of A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016: output tiles of
// 4 × 4 from input tiles of 6 × 6, 36 products instead of 144. Tiles of all samples are counted through and taken
// `chunk` at a time: inputs [36][C / b][chunk][b], results [36][K / b][chunk][b]; weights [36] times vector panels.
struct Winograd {
  int64_t tiles_h = 0, tiles_w = 0;
  int64_t tiles = 0;  // of all samples
  int64_t chunk = 0;
  int64_t in_blocks = 0, out_blocks = 0, width = 0;
  int64_t panel_floats = 0;  // of one of the 36
  static constexpr int64_t points = 36;
  static constexpr int64_t side = 4;  // of a result's tile

  int64_t scratch_floats() const { return saturating_product(points, chunk, in_blocks + out_blocks, width); }
  int64_t packed_floats() const { return saturating_product(points, panel_floats); }
};
Winograd winograd_of(const Window& window, Isa isa);

// The same with row-major operands, and with weights that become known only at run time: a Conv, a ConvTranspose as the
// Conv by its weights turned over, or ConvWeightGradient, by F(3x3, 4x4), whose tiles are as large. `samples` samples
// at a time go through blocks of channels. The scratch, part after part, each rounded up to widest_vector: transformed
// weights, or what becomes them; operand and result (of the gradient: x and dy) in blocks; Winograd's own.
struct PlainWinograd {
  Window w;  // of the Conv; of the gradient from x to dy
  bool is_gradient = false;
  int64_t samples = 1;  // enough tiles that reading all weights again for the next ones is cheap

  Winograd winograd(int64_t batch, Isa isa) const;
  int64_t weights_floats(Isa isa) const;
  int64_t in_floats(Isa isa) const;
  int64_t out_floats(Isa isa) const;
  int64_t scratch_floats(Isa isa) const;  // all of it
  int64_t tiles() const;                  // of all samples
};
PlainWinograd plain_winograd_of(const ComputeDesc& desc);

// ---- Attention

// Scores are never stored but for `attention_rows` queries and `attention_keys` keys at a time; what each further block
// of keys adds is brought to the largest score so far: M. Milakov and N. Gimelshein, "Online normalizer calculation for
// softmax", 2018; the tiles are those of T. Dao et al., "FlashAttention: fast and memory-efficient exact attention with
// IO-awareness", NeurIPS 2022. Both are fixed, and the keys' is part of what a result's bits depend on: the
// exponentials of a block are summed before they meet the others'. The block of scores, 56 KiB, stays in a second-level
// cache.
inline constexpr int64_t attention_rows = 56;   // four register tiles of v4
inline constexpr int64_t attention_keys = 256;  // a whole number of vector panels at any level

struct Attention {
  int64_t batch = 1, heads = 1, kv_heads = 1, queries = 1, keys = 1, size = 1, value_size = 1;

  int64_t row_blocks() const { return (queries + attention_rows - 1) / attention_rows; }
  int64_t key_blocks() const { return (keys + attention_keys - 1) / attention_keys; }
  // Of one head's keys and values, all of them: vector panels, block of keys after block of keys.
  int64_t key_panels(Isa isa) const { return vector_panels(size, keys, isa); }
  int64_t value_panels(Isa isa) const { return vector_panels(keys, value_size, isa); }
  // Of one worker, part after part, each rounded up to widest_vector: queries as scalar panels, scores, the scores once
  // more as scalar panels, what a block of keys gives, and three numbers a row.
  int64_t most_rows() const { return queries < attention_rows ? queries : attention_rows; }
  int64_t most_keys() const { return keys < attention_keys ? keys : attention_keys; }
  int64_t query_floats() const { return round_up(saturating_product(most_rows(), size), widest_vector); }
  int64_t score_floats() const { return round_up(most_rows() * most_keys(), widest_vector); }
  int64_t result_floats() const { return round_up(saturating_product(most_rows(), value_size), widest_vector); }
  int64_t worker_floats() const {
    return saturating_sum(query_floats(), 2 * score_floats(), result_floats(),
                          3 * round_up(most_rows(), widest_vector));
  }
  // Keys of `length` that row `query` sees where none sees a later one.
  int64_t seen(int64_t query, int64_t length) const { return query + 1 + length - queries; }

  int64_t pages = 0, page = 0;  // of PagedAttention: how many there are, and keys in each
};
Attention attention_of(const ComputeDesc& desc);

// ---- TensorScatter and PagedScatter: rows of a cache that are written where they lie

struct CacheUpdate {
  int64_t samples = 1, heads = 1;  // what lies between samples and positions
  int64_t extent = 1, steps = 1;   // positions that a sample can have, and those of an update
  int64_t row_bytes = 0;           // of a position of one head
  bool circular = false;
  int64_t pages = 0, page = 0;  // of PagedScatter
};
CacheUpdate cache_update_of(const ComputeDesc& desc);

}  // namespace nlsplit::inline kernels
