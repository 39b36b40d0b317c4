// Shared code of the importers of language models (graph/gguf, graph/safetensors): model names with the length of a
// prompt, differences of architectures from Llama, and tensors of mapped files as weights.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/ggml.h"
#include "graph/weights.h"
#include "graph/zoo/llama.h"

namespace nlsplit::inline graph {

inline constexpr int64_t most_of_a_size = 1 << 24;  // of an extent or a count that a file states

// The element type of a file's matrices in the graph.
enum class FileWeights : uint8_t {
  stored,  // as they are stored, where that is less than f32
  f32
};

struct PromptSizes {  // as in LlamaSizes
  int64_t length = 128, context = 0, candidates = 1, cache_bits = 32, page = 0, pages = 0;
  int64_t positions() const { return length > context ? length : context; }
};
void add_prompt(LlamaSizes& sizes, const PromptSizes& prompt);

struct PromptModel {
  std::string path;
  PromptSizes sizes;
  FileWeights weights{};
};
// "PATH" and "PATH?length=64&weights=f32". `question`: where the question mark is, npos if all of it is the path.
// `weights`: where the name does not say. Errors: an unknown option, a size that is none from 1 on, weights that are
// neither "stored" nor "f32".
Result<PromptModel> split_prompt_model(std::string_view model, size_t question, FileWeights weights);

// How an architecture differs from Llama.
struct LlamaKind {
  bool biases = false, head_norms = false, gelu = false, scaled_embedding = false, experts = false;
  bool branch_norms = false;
  bool fused = false;  // queries, keys and values are the rows of one matrix, and so are gate and up: Phi-3
  int64_t window_period = 0;
};
void add_kind(LlamaSizes& sizes, const LlamaKind& kind);  // `hidden` stands already

// YaRN (Peng et al., "YaRN: efficient context window extension of large language models", ICLR 2024): waves that turn
// more than beta_fast times in the original context stay, those below beta_slow are stretched by `factor`, and between
// them it goes from one to the other. What each pair's angle is divided by; by what scores grow besides.
struct Yarn {
  double factor = 1, beta_fast = 32, beta_slow = 1;
  int64_t original = 0;  // positions
};
std::vector<float> factors_of(const Yarn& yarn, double base, int64_t head);
double score_growth(const Yarn& yarn);

// The rows of a fused matrix that the graph's weight is; none: the weight has a tensor of its own.
struct FusedRows {
  bool of_attention = false;  // else of gate and up
  int64_t first = 0, count = 0, all = 0;
};
std::optional<FusedRows> fused_rows(std::string_view weight, const LlamaSizes& sizes, const LlamaKind& kind);

// What is wrong with so many layers of a file with so many tensors: "2 layers; 11 tensors are too few, …".
// Empty: nothing.
std::string misfit_of_layers(int64_t layers, size_t tensors);

// Whatever a layer or the vocabulary makes of the prompt is a tensor of at most 1e12 elements; the context is one that
// can be. Errors begin with `file`.
Status check_elements(const std::string& file, const LlamaSizes& sizes);

struct StoredTensor {
  std::string_view format;   // "gguf"
  std::string path;          // of its file
  uint64_t header_hash = 0;  // of all in the file before the tensors
  std::string_view name;
  GgmlType type{};
  Shape shape;
  MappedBytes bytes;
};
// Rows of it, which is a matrix. `name` keeps what they are called.
StoredTensor rows_of(const StoredTensor& tensor, const FusedRows& rows, std::string& name);
// The type of a matrix in the graph, or of the matrices of experts, if they stay as they are stored: a type that Linear
// reads. Else f32.
DType stored_type_of(FileWeights weights, GgmlType type, const Shape& shape);
// Its numbers in f32, made when they are asked for; until then a few pages of it are read, since files with equal
// headers may hold a network and what training has made of it.
ContentId add_stored(WeightStore& store, const StoredTensor& tensor);
ContentId add_as_stored(WeightStore& store, const StoredTensor& tensor);  // the same, its bytes

// The tensors of a file that the graph has requested, and the first problem with one of them.
class AskedTensors {
 public:
  // Whether the file's tensor has the shape that `by` asks for; `there`: its shape, nullptr if there is none.
  bool ask(std::string_view name, const Shape* there, const Shape& wanted, std::string_view by);

  // The first problem; or the first of the file's tensors that was not requested, since it belongs to a network that
  // computes something else.
  Status problem(std::string_view file, std::string_view architecture, std::span<const std::string_view> tensors) const;

 private:
  std::set<std::string, std::less<>> asked_;
  std::string problem_;
};

}  // namespace nlsplit::inline graph
