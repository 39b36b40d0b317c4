// Every way a scenario can be wrong that has a message of its own: the whole text of the error, in one table.
#include <gtest/gtest.h>

#include "good_scenario.h"
#include "scenario/scenario.h"

namespace nlsplit {
namespace {

struct BadScenario {
  const char* name;
  const char* from;      // stands once in the good one
  const char* to;        // makes it bad
  const char* expected;  // the whole error
};

const BadScenario bad_scenarios[] = {
    // clang-format off
    {"UnknownKeyWithHint", "sink: b", "sinc: b",
     "s.yaml:9:1: unknown key 'sinc' in the scenario: did you mean 'sink'? Its keys are model, workload, programs, topology, devices, switches, links, network, source, sink, search, plans, noise, corrections"
       "\n  | sinc: b"},
    {"UnknownKeyWithoutHint", "sink: b", "sink: b\ncolour: red",
     "s.yaml:10:1: unknown key 'colour' in the scenario; its keys are model, workload, programs, topology, devices, switches, links, network, source, sink, search, plans, noise, corrections"
       "\n  | colour: red"},
    {"MissingSink", "sink: b\n", "",
     "s.yaml:1:1: the scenario lacks 'sink'"
       "\n  | model: zoo:simple_cnn"},
    {"MissingModel", "model: zoo:simple_cnn\n", "",
     "s.yaml:1:1: the scenario lacks 'model'"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: [1, 4]}"},
    {"KeyWithoutValue", "model: zoo:simple_cnn", "model:",
     "s.yaml:1:1: 'model' has no value"
       "\n  | model:"},
    {"DuplicateKey", "sink: b", "source: b",
     "s.yaml:9:1: 'source' is given twice here, first in line 8"
       "\n  | source: b"},
    {"NotYaml", "sink: b", "sink: [b",
     "s.yaml:10:6: this is not YAML: a '[' is not closed, or a ',' is missing in it"
       "\n  | plans:"},
    {"ModelAsList", "zoo:simple_cnn", "[a, b]",
     "s.yaml:1:8: a model (zoo:NAME, or the path of an ONNX or a GGUF file or of a folder with safetensors) is expected; this is a list"
       "\n  | model: [a, b]"},
    {"ModelOfBothKinds", "zoo:simple_cnn", "{zoo: a, path: b.onnx}",
     "s.yaml:1:8: model needs one of 'path', 'zoo' and 'safetensors'"
       "\n  | model: {zoo: a, path: b.onnx}"},
    {"ModelSeedOfFile", "zoo:simple_cnn", "{path: b.onnx, seed: 3}",
     "s.yaml:1:29: 'seed' makes the weights of zoo models; a file has its own"
       "\n  | model: {path: b.onnx, seed: 3}"},
    {"UnknownPrecision", "zoo:simple_cnn", "{zoo: simple_cnn, precision: fp16}",
     "s.yaml:1:37: unknown precision 'fp16'; it is 'float32', 'float16' or 'bfloat16'"
       "\n  | model: {zoo: simple_cnn, precision: fp16}"},
    {"ModelInputsOfZoo", "zoo:simple_cnn", "{zoo: a, inputs: {x: [1]}}",
     "s.yaml:1:25: 'inputs' gives shapes to an ONNX file; other models have theirs"
       "\n  | model: {zoo: a, inputs: {x: [1]}}"},
    {"ModelDimsOfZoo", "zoo:simple_cnn", "{zoo: a, dims: {n: 1}}",
     "s.yaml:1:23: 'dims' binds extents of an ONNX file; other models have theirs"
       "\n  | model: {zoo: a, dims: {n: 1}}"},
    {"ModelDimNotPositive", "zoo:simple_cnn", "{path: b.onnx, dims: {n: 0}}",
     "s.yaml:1:33: an extent must be from 1 to 2147483648, not 0"
       "\n  | model: {path: b.onnx, dims: {n: 0}}"},
    {"ModelShapeNotPositive", "zoo:simple_cnn", "{path: b.onnx, inputs: {x: [1, 0]}}",
     "s.yaml:1:39: an extent must be from 1 to 2147483648, not 0"
       "\n  | model: {path: b.onnx, inputs: {x: [1, 0]}}"},
    {"ModelShapeTooLarge", "zoo:simple_cnn", "{path: b.onnx, inputs: {x: [1000000, 1000000, 1000000]}}",
     "s.yaml:1:35: this shape has more than 1099511627776 elements"
       "\n  | model: {path: b.onnx, inputs: {x: [1000000, 1000000, 1000000]}}"},
    {"UnknownOptimizer", "inference", "training, optimizer: lion",
     "s.yaml:2:39: unknown optimizer 'lion'; it is 'sgd', 'momentum', 'adam' or 'adamw'"
       "\n  | workload: {mode: training, optimizer: lion, batch: 16, micro_batches: [1, 4]}"},
    {"SettingsOfUnknownOptimizer", "inference", "training, optimizer: {lion: {rate: 1}}",
     "s.yaml:2:40: unknown optimizer 'lion'; it is 'sgd', 'momentum', 'adam' or 'adamw'"
       "\n  | workload: {mode: training, optimizer: {lion: {rate: 1}}, batch: 16, micro_batches: [1, 4]}"},
    {"TwoOptimizers", "inference", "training, optimizer: {sgd: {rate: 1}, adam: {rate: 1}}",
     "s.yaml:2:39: an optimizer is a name, or a map from one name to its settings, e.g. {adamw: {rate: 3e-4}}"
       "\n  | workload: {mode: training, optimizer: {sgd: {rate: 1}, adam: {rate: 1}}, batch: 16, micro_batches: [1, 4]}"},
    {"SettingOfAnotherOptimizer", "inference", "training, optimizer: {sgd: {beta1: 0.5}}",
     "s.yaml:2:46: unknown key 'beta1' in sgd; its keys are rate, decay, no_decay"
       "\n  | workload: {mode: training, optimizer: {sgd: {beta1: 0.5}}, batch: 16, micro_batches: [1, 4]}"},
    {"BetaOfOne", "inference", "training, optimizer: {adam: {beta2: 1}}",
     "s.yaml:2:54: beta2 must be a number from 0 to 0.999999999, not '1'"
       "\n  | workload: {mode: training, optimizer: {adam: {beta2: 1}}, batch: 16, micro_batches: [1, 4]}"},
    {"NestedRateAndLearningRate", "inference", "training, optimizer: {sgd: {rate: 1}}, learning_rate: 1",
     "s.yaml:2:72: the optimizer has a 'rate' already"
       "\n  | workload: {mode: training, optimizer: {sgd: {rate: 1}}, learning_rate: 1, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownGroup", "inference", "training, optimizer: {adamw: {no_decay: biases}}",
     "s.yaml:2:58: unknown no_decay 'biases'; it is 'none' or 'norms_and_biases'"
       "\n  | workload: {mode: training, optimizer: {adamw: {no_decay: biases}}, batch: 16, micro_batches: [1, 4]}"},
    {"TwoDecaysOfARate", "inference", "training, learning_rate: {cosine: {steps: 9}, steps: {3: 1}}",
     "s.yaml:2:71: a rate has 'cosine' or 'steps', not both"
       "\n  | workload: {mode: training, learning_rate: {cosine: {steps: 9}, steps: {3: 1}}, batch: 16, micro_batches: [1, 4]}"},
    {"RateStepsThatDoNotAscend", "inference", "training, learning_rate: {steps: {30: 0.1, 20: 0.2}}",
     "s.yaml:2:61: steps must ascend: 20 is not after 30"
       "\n  | workload: {mode: training, learning_rate: {steps: {30: 0.1, 20: 0.2}}, batch: 16, micro_batches: [1, 4]}"},
    {"RateStepInItsWarmUp", "inference", "training, learning_rate: {warmup: 40, steps: {30: 0.1}}",
     "s.yaml:2:64: step 30 is within the warm-up of 40"
       "\n  | workload: {mode: training, learning_rate: {warmup: 40, steps: {30: 0.1}}, batch: 16, micro_batches: [1, 4]}"},
    {"FloorAboveThePeak", "inference", "training, learning_rate: {peak: 0.1, cosine: {steps: 9, floor: 0.2}}",
     "s.yaml:2:81: floor must be a number from 0 to 0.1, not '0.2'"
       "\n  | workload: {mode: training, learning_rate: {peak: 0.1, cosine: {steps: 9, floor: 0.2}}, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownBatchNorm", "inference", "training, batch_norm: thawed",
     "s.yaml:2:40: unknown batch_norm 'thawed'; it is 'frozen' or 'batch'"
       "\n  | workload: {mode: training, batch_norm: thawed, batch: 16, micro_batches: [1, 4]}"},
    {"BatchNormWithoutBatch", "inference", "training, batch_norm: {momentum: 0.1}",
     "s.yaml:2:41: unknown key 'momentum' in batch_norm; its keys are batch"
       "\n  | workload: {mode: training, batch_norm: {momentum: 0.1}, batch: 16, micro_batches: [1, 4]}"},
    {"BatchNormMomentumAboveOne", "inference", "training, batch_norm: {batch: {momentum: 2}}",
     "s.yaml:2:59: momentum must be a number from 0 to 1, not '2'"
       "\n  | workload: {mode: training, batch_norm: {batch: {momentum: 2}}, batch: 16, micro_batches: [1, 4]}"},
    {"SeedOfInference", "inference", "inference, seed: 1",
     "s.yaml:2:35: 'seed' is for training: mode: training"
       "\n  | workload: {mode: inference, seed: 1, batch: 16, micro_batches: [1, 4]}"},
    {"NegativeSeed", "inference", "training, seed: -1",
     "s.yaml:2:34: seed must be from 0 to 9223372036854775807, not -1"
       "\n  | workload: {mode: training, seed: -1, batch: 16, micro_batches: [1, 4]}"},
    {"ClipOfInference", "inference", "inference, clip: 1",
     "s.yaml:2:35: 'clip' is for training: mode: training"
       "\n  | workload: {mode: inference, clip: 1, batch: 16, micro_batches: [1, 4]}"},
    {"ClipAtNothing", "inference", "training, clip: 0",
     "s.yaml:2:34: clip must be a number from 1e-12 to 1000000000000, not '0'"
       "\n  | workload: {mode: training, clip: 0, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownRecompute", "inference", "training, recompute: some",
     "s.yaml:2:39: unknown recompute 'some'; it is 'none', 'full' or 'to_fit'"
       "\n  | workload: {mode: training, recompute: some, batch: 16, micro_batches: [1, 4]}"},
    {"OptimizerOfInference", "inference", "inference, optimizer: adam",
     "s.yaml:2:40: 'optimizer' is for training: mode: training"
       "\n  | workload: {mode: inference, optimizer: adam, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownLoss", "inference", "training, loss: hinge",
     "s.yaml:2:34: unknown loss 'hinge'; it is 'mean_squared_error' or 'softmax_cross_entropy'"
       "\n  | workload: {mode: training, loss: hinge, batch: 16, micro_batches: [1, 4]}"},
    {"LossOfInference", "inference", "inference, loss: mean_squared_error",
     "s.yaml:2:35: 'loss' is for training: mode: training"
       "\n  | workload: {mode: inference, loss: mean_squared_error, batch: 16, micro_batches: [1, 4]}"},
    {"LearningRateOfInference", "inference", "inference, learning_rate: 0.5",
     "s.yaml:2:44: 'learning_rate' is for training: mode: training"
       "\n  | workload: {mode: inference, learning_rate: 0.5, batch: 16, micro_batches: [1, 4]}"},
    {"AllReduceOfInference", "inference", "inference, all_reduce: ring",
     "s.yaml:2:41: 'all_reduce' is for training: mode: training"
       "\n  | workload: {mode: inference, all_reduce: ring, batch: 16, micro_batches: [1, 4]}"},
    {"ZeroOfNoStage", "inference", "training, zero: 4",
     "s.yaml:2:34: zero must be from 0 to 3, not 4"
       "\n  | workload: {mode: training, zero: 4, batch: 16, micro_batches: [1, 4]}"},
    {"NoBuckets", "inference", "training, all_reduce_buckets: 0",
     "s.yaml:2:48: all_reduce_buckets must be from 1 to 1024, not 0"
       "\n  | workload: {mode: training, all_reduce_buckets: 0, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownAllReduce", "inference", "training, all_reduce: star",
     "s.yaml:2:40: unknown all_reduce 'star'; it is 'ring', 'halving', 'doubling', 'direct', 'tree', 'two_level', 'exact' or 'native'"
       "\n  | workload: {mode: training, all_reduce: star, batch: 16, micro_batches: [1, 4]}"},
    {"LearningRateOfNothing", "inference", "training, learning_rate: 0",
     "s.yaml:2:43: rate must be a number from 1e-12 to 1000000, not '0'"
       "\n  | workload: {mode: training, learning_rate: 0, batch: 16, micro_batches: [1, 4]}"},
    {"RecomputeOfInference", "mode: inference", "recompute: full",
     "s.yaml:2:23: 'recompute' is for training: mode: training"
       "\n  | workload: {recompute: full, batch: 16, micro_batches: [1, 4]}"},
    {"UnknownMode", "inference", "sleeping",
     "s.yaml:2:18: unknown mode 'sleeping'; it is 'inference', 'training' or 'generation'"
       "\n  | workload: {mode: sleeping, batch: 16, micro_batches: [1, 4]}"},
    {"SchedulesOfTraining", "sink: b", "sink: b\nsearch: {schedules: [1f1b, zb_v]}",
     "s.yaml:10:21: none of these schedules is for inference; `nlsim schedule --list` says which are"
       "\n  | search: {schedules: [1f1b, zb_v]}"},
    {"BatchOfGeneration", "inference", "generation",
     "s.yaml:2:37: 'batch' is not for generation: 'sequences' says how many go on at once"
       "\n  | workload: {mode: generation, batch: 16, micro_batches: [1, 4]}"},
    {"PromptOfInference", "inference", "inference, prompt: 8",
     "s.yaml:2:37: 'prompt' is for generation: mode: generation"
       "\n  | workload: {mode: inference, prompt: 8, batch: 16, micro_batches: [1, 4]}"},
    {"ChunkLongerThanThePrompt", "inference, batch: 16, micro_batches: [1, 4]", "generation, prompt: 8, chunk: 9",
     "s.yaml:2:48: chunk must be from 1 to 8, not 9"
       "\n  | workload: {mode: generation, prompt: 8, chunk: 9}"},
    {"CacheWithoutPages", "inference, batch: 16, micro_batches: [1, 4]", "generation, cache: 64",
     "s.yaml:2:37: 'cache' is of caches in pages: 'page' says how many positions a page has"
       "\n  | workload: {mode: generation, cache: 64}"},
    {"CacheWithoutRoomForASequence", "inference, batch: 16, micro_batches: [1, 4]", "generation, prompt: 8, tokens: 4, context: 17, page: 4, cache: 19",
     "s.yaml:2:81: cache must be from 20 to 4194304000000, not 19"
       "\n  | workload: {mode: generation, prompt: 8, tokens: 4, context: 17, page: 4, cache: 19}"},
    {"PagesInMicroBatches", "inference, batch: 16, micro_batches: [1, 4]", "generation, sequences: 4, page: 4, micro_batches: 2",
     "s.yaml:2:68: caches in pages are of all sequences: there are no micro-batches"
       "\n  | workload: {mode: generation, sequences: 4, page: 4, micro_batches: 2}"},
    {"PagesOfSeveralNumbers", "inference, batch: 16, micro_batches: [1, 4]", "generation, sequences: [2, 4], page: 4",
     "s.yaml:2:55: with caches in pages 'sequences' is one number"
       "\n  | workload: {mode: generation, sequences: [2, 4], page: 4}"},
    {"PagesWithoutChunks", "inference, batch: 16, micro_batches: [1, 4]", "generation, chunk: 1, page: 4",
     "s.yaml:2:46: with caches in pages prompts are taken in chunks: chunk is 2 or more"
       "\n  | workload: {mode: generation, chunk: 1, page: 4}"},
    {"ContextTooShort", "inference, batch: 16, micro_batches: [1, 4]", "generation, prompt: 8, tokens: 4, context: 9",
     "s.yaml:2:61: context must be from 11 to 12582912, not 9"
       "\n  | workload: {mode: generation, prompt: 8, tokens: 4, context: 9}"},
    {"MissingBatch", "batch: 16, ", "",
     "s.yaml:2:11: workload lacks 'batch'"
       "\n  | workload: {mode: inference, micro_batches: [1, 4]}"},
    {"BatchZero", "batch: 16", "batch: 0",
     "s.yaml:2:36: batch must be from 1 to 1000000, not 0"
       "\n  | workload: {mode: inference, batch: 0, micro_batches: [1, 4]}"},
    {"BatchNotWhole", "batch: 16", "batch: 1.5",
     "s.yaml:2:36: '1.5' is not a whole number; batch is expected"
       "\n  | workload: {mode: inference, batch: 1.5, micro_batches: [1, 4]}"},
    {"BatchHuge", "batch: 16", "batch: 1000000000000",
     "s.yaml:2:36: batch must be from 1 to 1000000, not 1000000000000"
       "\n  | workload: {mode: inference, batch: 1000000000000, micro_batches: [1, 4]}"},
    {"BatchBeyondIntegers", "batch: 16", "batch: 99999999999999999999",
     "s.yaml:2:36: batch must be from 1 to 1000000, not 99999999999999999999"
       "\n  | workload: {mode: inference, batch: 99999999999999999999, micro_batches: [1, 4]}"},
    {"MicroBatchesDoNotDivide", "[1, 4]", "[1, 3]",
     "s.yaml:2:59: 3 micro-batches do not divide the batch of 16 evenly"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: [1, 3]}"},
    {"MicroBatchesHuge", "[1, 4]", "[1, 1000000000000]",
     "s.yaml:2:59: a number of micro-batches must be from 1 to 65536, not 1000000000000"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: [1, 1000000000000]}"},
    {"MicroBatchesNegative", "[1, 4]", "-4",
     "s.yaml:2:55: a number of micro-batches must be from 1 to 65536, not -4"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: -4}"},
    {"MicroBatchesTwice", "[1, 4]", "[4, 4]",
     "s.yaml:2:59: 4 is given twice"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: [4, 4]}"},
    {"MicroBatchesEmpty", "[1, 4]", "[]",
     "s.yaml:2:55: at least one micro-batch count is needed"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: []}"},
    {"DeviceUnknownKey", "A: {host: a,", "A: {host: a, core: 4,",
     "s.yaml:4:16: unknown key 'core' in device 'A': did you mean 'cores'? Its keys are host, hosts, count, kind, cores, memory, isa, precision, costs, slowdown, machine, bus, peers"
       "\n  |   A: {host: a, core: 4, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceThatSpeedsUp", "A: {host: a,", "A: {host: a, slowdown: 0.5,",
     "s.yaml:4:26: slowdown must be a number from 1 to 1000000, not '0.5'"
       "\n  |   A: {host: a, slowdown: 0.5, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceWithoutCores", "A: {host: a,", "A: {host: a, cores: 0,",
     "s.yaml:4:23: cores must be from 1 to 4096, not 0"
       "\n  |   A: {host: a, cores: 0, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceLacksHost", "A: {host: a, ", "A: {",
     "s.yaml:4:6: device 'A' lacks 'host'"
       "\n  |   A: {memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceLacksMemory", "A: {host: a, memory: 1GiB,", "A: {host: a,",
     "s.yaml:4:6: device 'A' lacks 'memory'"
       "\n  |   A: {host: a, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceLacksCosts", "B: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "B: {host: b, memory: 1GiB}",
     "s.yaml:5:6: device 'B' lacks 'costs'"
       "\n  |   B: {host: b, memory: 1GiB}"},
    {"DeviceTwice", "  B: {", "  A: {",
     "s.yaml:5:3: 'A' is given twice here, first in line 4"
       "\n  |   A: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceName", "  B: {", "  B+C: {",
     "s.yaml:5:3: 'B+C' cannot be the name of a device: use letters, digits, '_', '-' and '.'"
       "\n  |   B+C: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"PrecisionOfCpu", "A: {host: a,", "A: {host: a, precision: tf32,",
     "s.yaml:4:27: 'precision' is for devices of kind cuda; a CPU computes in float32"
       "\n  |   A: {host: a, precision: tf32, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceKindHost", "A: {host: a,", "A: {host: a, kind: host,",
     "s.yaml:4:22: unknown device kind 'host'; 'cpu' and 'cuda' are supported"
       "\n  |   A: {host: a, kind: host, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"DeviceKindUnknown", "A: {host: a,", "A: {host: a, kind: gpu,",
     "s.yaml:4:22: unknown device kind 'gpu'; 'cpu' and 'cuda' are supported"
       "\n  |   A: {host: a, kind: gpu, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"MemoryWithoutUnit", "A: {host: a, memory: 1GiB", "A: {host: a, memory: 1",
     "s.yaml:4:24: '1' has no unit; write e.g. 1KiB, 1MiB or 1GiB"
       "\n  |   A: {host: a, memory: 1, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"MemoryInWrongUnit", "A: {host: a, memory: 1GiB", "A: {host: a, memory: 1Gbps",
     "s.yaml:4:24: '1Gbps' has the unknown unit 'Gbps'; a size has one of B, kB, MB, GB, TB, KiB, MiB, GiB, TiB"
       "\n  |   A: {host: a, memory: 1Gbps, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"MemoryNegative", "A: {host: a, memory: 1GiB", "A: {host: a, memory: -1GiB",
     "s.yaml:4:24: '-1GiB' is negative; a size cannot be"
       "\n  |   A: {host: a, memory: -1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"MemoryZero", "A: {host: a, memory: 1GiB", "A: {host: a, memory: 0B",
     "s.yaml:4:24: a device without memory can hold no layer"
       "\n  |   A: {host: a, memory: 0B, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"RooflineLacksMemory", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS}}}",
     "s.yaml:4:48: roofline lacks 'memory'"
       "\n  |   A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS}}}"},
    {"RooflineZero", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 0GFLOPS",
     "s.yaml:4:58: a compute rate of 0GFLOPS cannot be"
       "\n  |   A: {host: a, memory: 1GiB, costs: {roofline: {compute: 0GFLOPS, memory: 10GBps}}}"},
    {"CostsUnknown", "A: {host: a, memory: 1GiB, costs: {roofline:", "A: {host: a, memory: 1GiB, costs: {rooflin:",
     "s.yaml:4:38: unknown key 'rooflin' in costs: did you mean 'roofline'? Its keys are roofline, profile, predict"
       "\n  |   A: {host: a, memory: 1GiB, costs: {rooflin: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"CostsMissingFile", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "A: {host: a, memory: 1GiB, costs: none/such.json}",
     "s.yaml:4:37: cannot read 'none/such.json': No such file or directory; measure on that machine with: nlbench profile s.yaml -o none/such.json"
       "\n  |   A: {host: a, memory: 1GiB, costs: none/such.json}"},
    {"SharedHostWithoutLink", "B: {host: b", "B: {host: a",
     "s.yaml:5:3: devices 'A' and 'B' are both on host 'a', but no link says how fast they exchange data: add {between: [a, a], bandwidth: ..., latency: ...}"
       "\n  |   B: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"NoDevices", "devices:\n  A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}\n  B: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}\n", "devices: {}\n",
     "s.yaml:3:10: at least one device is needed"
       "\n  | devices: {}"},
    {"LinkUnknownHost", "[a, b], band", "[a, bb], band",
     "s.yaml:7:19: unknown host 'bb': did you mean 'b'? Hosts are those that devices, source and sink name, and switches stand under 'switches'"
       "\n  |   - {between: [a, bb], bandwidth: 1Gbps, latency: 50us}"},
    {"LinkOneEnd", "[a, b], band", "[a], band",
     "s.yaml:7:15: a link is between 2 hosts, not 1"
       "\n  |   - {between: [a], bandwidth: 1Gbps, latency: 50us}"},
    {"LinkLacksLatency", ", latency: 50us", "",
     "s.yaml:7:5: link 1 lacks 'latency'"
       "\n  |   - {between: [a, b], bandwidth: 1Gbps}"},
    {"LinkBandwidthWithoutUnit", "1Gbps", "1",
     "s.yaml:7:34: '1' has no unit; write e.g. 1Mbps, 1Gbps or 1GBps"
       "\n  |   - {between: [a, b], bandwidth: 1, latency: 50us}"},
    {"LinkBandwidthWrongUnit", "1Gbps", "1GB",
     "s.yaml:7:34: '1GB' has the unknown unit 'GB'; a bandwidth has one of bps, kbps, Mbps, Gbps, Tbps, Bps, kBps, MBps, GBps, TBps, KiBps, MiBps, GiBps, TiBps"
       "\n  |   - {between: [a, b], bandwidth: 1GB, latency: 50us}"},
    {"LinkBandwidthZero", "1Gbps", "0Gbps",
     "s.yaml:7:34: a bandwidth of 0Gbps cannot be"
       "\n  |   - {between: [a, b], bandwidth: 0Gbps, latency: 50us}"},
    {"LinkLatencyWrongUnit", "50us", "50µs",
     "s.yaml:7:50: '50µs' has the unknown unit 'µs'; a time has one of s, ms, us, ns"
       "\n  |   - {between: [a, b], bandwidth: 1Gbps, latency: 50µs}"},
    {"LinkLatencySilly", "50us", "5000s",
     "s.yaml:7:50: a latency of more than an hour cannot be"
       "\n  |   - {between: [a, b], bandwidth: 1Gbps, latency: 5000s}"},
    {"LinkDuplex", "50us}", "50us, duplex: both}",
     "s.yaml:7:64: unknown duplex 'both'; it is 'full' or 'half'"
       "\n  |   - {between: [a, b], bandwidth: 1Gbps, latency: 50us, duplex: both}"},
    {"LinkNameTwice", "50us}", "50us, name: x}\n  - {between: [a, b], bandwidth: 1Gbps, latency: 50us, name: x}",
     "s.yaml:8:62: there is already a link 'x'"
       "\n  |   - {between: [a, b], bandwidth: 1Gbps, latency: 50us, name: x}"},
    {"LinksAsMap", "  - {between", "  one: {between",
     "s.yaml:7:3: links must be a list; this is a map"
       "\n  |   one: {between: [a, b], bandwidth: 1Gbps, latency: 50us}"},
    {"Disconnected", "  - {between: [a, b]", "  - {between: [a, a]",
     "s.yaml:7:3: no links connect host 'a' with host 'b'"
       "\n  |   - {between: [a, a], bandwidth: 1Gbps, latency: 50us}"},
    {"NoLinks", "links:\n  - {between: [a, b], bandwidth: 1Gbps, latency: 50us}\n", "",
     "s.yaml:1:1: no links connect host 'a' with host 'b'"
       "\n  | model: zoo:simple_cnn"},
    {"SwitchHoldsSource", "source: a", "switches: [a]\nsource: a",
     "s.yaml:4:13: 'a' is a switch: it forwards, and holds no device, source or sink"
       "\n  |   A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"SwitchTwice", "source: a", "switches: [s, s]\nsource: a",
     "s.yaml:8:15: switch 's' is given twice"
       "\n  | switches: [s, s]"},
    {"SwitchLoop", "links:\n  - {between: [a, b]", "switches: [s]\nlinks:\n  - {between: [s, s]",
     "s.yaml:8:15: a link from switch 's' to switch 's' carries nothing"
       "\n  |   - {between: [s, s], bandwidth: 1Gbps, latency: 50us}"},
    {"UnknownSource", "source: a", "source: aa",
     "s.yaml:8:9: unknown host 'aa': no device is on it and no link leads to it; did you mean 'a'?"
       "\n  | source: aa"},
    {"NicWindow", "source: a", "network: {nic_window: -1}\nsource: a",
     "s.yaml:8:23: nic_window must be from 0 to 1000000, not -1"
       "\n  | network: {nic_window: -1}"},
    {"MessagesOfAnotherType", "source: a", "network: {messages: f64}\nsource: a",
     "s.yaml:8:21: unknown messages 'f64'; it is 'f32', 'f16', 'bf16' or 'q8'"
       "\n  | network: {messages: f64}"},
    {"MessagesOfTraining", "workload: {mode: inference,", "network: {messages: f16}\nworkload: {mode: training,",
     "s.yaml:2:21: messages: f16 is for inference: gradients have the range of f32, and travel as f32 or bf16"
       "\n  | network: {messages: f16}"},
    {"EagerLimit", "source: a", "network: {eager_limit: 64}\nsource: a",
     "s.yaml:8:24: '64' has no unit; write e.g. 64KiB, 64MiB or 64GiB"
       "\n  | network: {eager_limit: 64}"},
    {"SplitUnknown", "source: a", "search: {splits: [layers]}\nsource: a",
     "s.yaml:8:19: unknown split 'layers'; it is 'layer', 'replicate', 'batch', 'height', 'width', 'channels', 'tensor' or 'sequence'"
       "\n  | search: {splits: [layers]}"},
    {"SplitTwice", "source: a", "search: {splits: [layer, layer]}\nsource: a",
     "s.yaml:8:26: 'layer' is given twice"
       "\n  | search: {splits: [layer, layer]}"},
    {"Objective", "source: a", "search: {objective: speed}\nsource: a",
     "s.yaml:8:21: unknown objective 'speed'; it is 'throughput' or 'latency'"
       "\n  | search: {objective: speed}"},
    {"ObjectiveWithoutWeight", "source: a", "search: {objective: {latency: 0}}\nsource: a",
     "s.yaml:8:21: one of the weights must be above 0, e.g. {throughput: 0.7, latency: 0.3}"
       "\n  | search: {objective: {latency: 0}}"},
    {"SearchMethod", "source: a", "search: {method: greedy}\nsource: a",
     "s.yaml:8:18: unknown method 'greedy'; it is 'auto', 'exhaustive', 'dp', 'orders', 'beam' or 'anneal'"
       "\n  | search: {method: greedy}"},
    {"LimitsMemory", "source: a", "search: {limits: {memory: 64}}\nsource: a",
     "s.yaml:8:27: '64' has no unit; write e.g. 64KiB, 64MiB or 64GiB"
       "\n  | search: {limits: {memory: 64}}"},
    {"MergeOfText", "  B: {host: b, memory", "  B: {<<: A, host: b, memory",
     "s.yaml:5:7: '<<' merges a map, e.g. '<<: *name' where '&name' marks one"
       "\n  |   B: {<<: A, host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"Keep", "source: a", "search: {keep: 0}\nsource: a",
     "s.yaml:8:16: keep must be from 1 to 100000, not 0"
       "\n  | search: {keep: 0}"},
    {"SearchAsList", "source: a", "search: [layer]\nsource: a",
     "s.yaml:8:9: search must be a map with the keys splits, schedules, objective, require, method, limits, keep, max_candidates, max_stages, seed; this is a list"
       "\n  | search: [layer]"},
    {"PlanAsText", "[..relu1@A, rest@B]", "..relu1@A",
     "s.yaml:11:9: the stages of a plan, e.g. [..conv2@A, rest@B], must be a list; this is a single value"
       "\n  |   mine: ..relu1@A"},
    {"PlanEmpty", "[..relu1@A, rest@B]", "[]",
     "s.yaml:11:9: a plan needs at least one stage, e.g. [rest@A]"
       "\n  |   mine: []"},
    {"PlanNumber", "mine:", "7:",
     "s.yaml:11:3: a plan cannot be called '7': numbers are ranks"
       "\n  |   7: [..relu1@A, rest@B]"},
    {"PlanLacksStages", "[..relu1@A, rest@B]", "{micro_batches: 4}",
     "s.yaml:11:9: plan 'mine' lacks 'stages'"
       "\n  |   mine: {micro_batches: 4}"},
    {"PlanMicroBatchesDoNotDivide", "[..relu1@A, rest@B]", "{stages: [rest@A], micro_batches: 5}",
     "s.yaml:11:43: 5 micro-batches do not divide the batch of 16 evenly"
       "\n  |   mine: {stages: [rest@A], micro_batches: 5}"},
    {"PlanNamesItself", "[..relu1@A, rest@B]", "{stages: [rest@A], name: other}",
     "s.yaml:11:28: unknown key 'name' in plan 'mine'; its keys are stages, prefill, decode, micro_batches, schedule"
       "\n  |   mine: {stages: [rest@A], name: other}"},
    {"PlanStageAsMap", "[..relu1@A, rest@B]", "[{a: b}]",
     "s.yaml:11:10: a stage, e.g. ..conv2@A, is expected; this is a map"
       "\n  |   mine: [{a: b}]"},
    {"ModelShapeOfManyAxes", "zoo:simple_cnn", "{path: b.onnx, inputs: {x: [1, 1, 1, 1, 1, 1, 1, 1, 1]}}",
     "s.yaml:1:35: a shape has at most 8 axes"
       "\n  | model: {path: b.onnx, inputs: {x: [1, 1, 1, 1, 1, 1, 1, 1, 1]}}"},
    {"ModelInputsAsList", "zoo:simple_cnn", "{path: b.onnx, inputs: [1]}",
     "s.yaml:1:31: 'inputs' must be a map, e.g. {x: [1, 3, 224, 224]}"
       "\n  | model: {path: b.onnx, inputs: [1]}"},
    {"ModelDimsAsList", "zoo:simple_cnn", "{path: b.onnx, dims: [1]}",
     "s.yaml:1:29: 'dims' must be a map, e.g. {batch: 8, width: 192}"
       "\n  | model: {path: b.onnx, dims: [1]}"},
    {"SchedulesEmpty", "source: a", "search: {schedules: []}\nsource: a",
     "s.yaml:8:21: at least one schedule is needed"
       "\n  | search: {schedules: []}"},
    {"ScheduleTwice", "source: a", "search: {schedules: [gpipe, gpipe]}\nsource: a",
     "s.yaml:8:29: 'gpipe' is given twice"
       "\n  | search: {schedules: [gpipe, gpipe]}"},
    {"LimitsWithoutMemory", "source: a", "search: {limits: {memory: 0B}}\nsource: a",
     "s.yaml:8:27: a plan without memory cannot be"
       "\n  | search: {limits: {memory: 0B}}"},
    {"PlansAsList", "plans:\n  mine: [..relu1@A, rest@B]", "plans: [a]",
     "s.yaml:10:8: plans must be a map, e.g. {mine: [..conv2@A, rest@B]}"
       "\n  | plans: [a]"},
    {"PlanWithoutStages", "mine: [..relu1@A, rest@B]", "mine:",
     "s.yaml:11:3: plan 'mine' has no stages"
       "\n  |   mine:"},
    {"CorrectionsMissing", "source: a", "corrections: none/such.json\nsource: a",
     "s.yaml:8:14: cannot read 'none/such.json': No such file or directory"
       "\n  | corrections: none/such.json"},
    {"NameTooLong", "mine:", "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn:",
     "s.yaml:11:3: a name has at most 64 letters"
       "\n  |   nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn: [..relu1@A, rest@B]"},
    {"CostsEmptyList", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "A: {host: a, memory: 1GiB, costs: []}",
     "s.yaml:4:37: costs: an empty list of profiles"
       "\n  |   A: {host: a, memory: 1GiB, costs: []}"},
    {"CostsOfBothKinds", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "A: {host: a, memory: 1GiB, costs: {profile: p.json, roofline: {compute: 60GFLOPS, memory: 10GBps}}}",
     "s.yaml:4:65: costs are a profile or a roofline, not both"
       "\n  |   A: {host: a, memory: 1GiB, costs: {profile: p.json, roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"CostsPredictAlone", "A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}", "A: {host: a, memory: 1GiB, costs: {predict: true}}",
     "s.yaml:4:37: costs lacks 'profile'"
       "\n  |   A: {host: a, memory: 1GiB, costs: {predict: true}}"},
    {"DevicesAsList", "devices:\n  A: {host: a, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}\n  B: {host: b, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}\n", "devices: [A]\n",
     "s.yaml:3:10: devices must be a map, e.g. {A: {host: a, memory: 8GiB, costs: profile.json}}"
       "\n  | devices: [A]"},
    {"HostsEmpty", "A: {host: a,", "A: {hosts: [],",
     "s.yaml:4:14: at least one host is needed"
       "\n  |   A: {hosts: [], memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"HostsAllWithoutTopology", "A: {host: a,", "A: {hosts: all,",
     "s.yaml:4:14: 'all' means the hosts of a topology, and there is none; list the hosts, e.g. [a, b]"
       "\n  |   A: {hosts: all, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"CountOfNone", "A: {host: a,", "A: {host: a, count: 0,",
     "s.yaml:4:23: count must be from 1 to 1024, not 0"
       "\n  |   A: {host: a, count: 0, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"PrecisionUnknown", "A: {host: a,", "A: {host: a, kind: cuda, precision: half,",
     "s.yaml:4:39: unknown precision 'half'; it is 'float32' or 'tf32'"
       "\n  |   A: {host: a, kind: cuda, precision: half, memory: 1GiB, costs: {roofline: {compute: 60GFLOPS, memory: 10GBps}}}"},
    {"LinkUnknownHostNoHint", "[a, b], band", "[a, elsewhere], band",
     "s.yaml:7:19: unknown host 'elsewhere'; hosts are those that devices, source and sink name, and switches stand under 'switches'"
       "\n  |   - {between: [a, elsewhere], bandwidth: 1Gbps, latency: 50us}"},
    {"NetworkProfileMissing", "source: a", "network: {profile: none/such.json}\nsource: a",
     "s.yaml:8:20: cannot read 'none/such.json': No such file or directory; measure them with: nlbench network s.yaml -o none/such.json"
       "\n  | network: {profile: none/such.json}"},
    {"NetworkProfileAndLimit", "source: a", "network: {profile: none/such.json, eager_limit: 64KiB}\nsource: a",
     "s.yaml:8:49: eager_limit is measured: the profile says it"
       "\n  | network: {profile: none/such.json, eager_limit: 64KiB}"},
    {"SwitchesAsText", "source: a", "switches: s\nsource: a",
     "s.yaml:8:11: switches must be a list; this is a single value"
       "\n  | switches: s"},
    {"WorkloadAsList", "{mode: inference, batch: 16, micro_batches: [1, 4]}", "[inference]",
     "s.yaml:2:11: workload must be a map with the keys mode, batch, micro_batches, optimizer, learning_rate, clip, batch_norm, recompute, loss, all_reduce, all_reduce_buckets, seed, zero, prompt, tokens, sequences, chunk, context, candidates, arrivals, page, cache; this is a list"
       "\n  | workload: [inference]"},
    {"MicroBatchesTooMany", "[1, 4]", "[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]",
     "s.yaml:2:55: at most 64 counts can be tried"
       "\n  | workload: {mode: inference, batch: 16, micro_batches: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 ..."},
    {"PlanScheduleOfNeither", "[..relu1@A, rest@B]", "{stages: [rest@A], schedule: {in_flight: 2}}",
     "s.yaml:11:38: a schedule has a `file`, or asks an `online` policy"
       "\n  |   mine: {stages: [rest@A], schedule: {in_flight: 2}}"},
    {"PlanScheduleOfBoth", "[..relu1@A, rest@B]", "{stages: [rest@A], schedule: {file: a.csv, online: longest_path}}",
     "s.yaml:11:60: a schedule in a file leaves nothing for 'online' to say"
       "\n  |   mine: {stages: [rest@A], schedule: {file: a.csv, online: longest_path}}"},
    {"PlanScheduleFileMissing", "[..relu1@A, rest@B]", "{stages: [rest@A], schedule: {file: none/such.csv}}",
     "s.yaml:11:45: cannot read 'none/such.csv': No such file or directory"
       "\n  |   mine: {stages: [rest@A], schedule: {file: none/such.csv}}"},
    // clang-format on
};

class ScenarioError : public ::testing::TestWithParam<BadScenario> {};

TEST_P(ScenarioError, IsWhatTheUserNeedsToRead) {
  std::string text(good);
  const size_t at = text.find(GetParam().from);
  ASSERT_NE(at, std::string::npos);
  ASSERT_EQ(text.find(GetParam().from, at + 1), std::string::npos);
  text.replace(at, std::string_view(GetParam().from).size(), GetParam().to);
  const auto scenario = parse_scenario(text, "s.yaml");
  ASSERT_FALSE(scenario.ok());
  EXPECT_EQ(scenario.error().to_string(), GetParam().expected);
  EXPECT_EQ(exit_code(scenario.error()), 2);
}

INSTANTIATE_TEST_SUITE_P(All, ScenarioError, ::testing::ValuesIn(bad_scenarios),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ScenarioErrors, TheGoodOneIsGood) { EXPECT_TRUE(parse_scenario(good, "s.yaml").ok()); }

}  // namespace
}  // namespace nlsplit
