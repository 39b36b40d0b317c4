// The functions of NVIDIA's NCCL that exec/nccl calls. Debian has neither NCCL nor its header, so they are declared
// here, as nccl.h of NCCL 2.32.3 declares them, and looked up in libnccl.so.2 at run time (exec/nccl/library.h). All of
// them have been there, unchanged, since NCCL 2.18.
//
//   api.group_start();
//   api.send(data, bytes, DataType::int8, peer, communicator, stream);
//   api.group_end();                                   // success or, of a communicator that does not block,
//   in_progress
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

namespace nlsplit::nccl {

struct Communicator;  // ncclComm_t is a pointer to one

struct UniqueId {  // ncclUniqueId
  char internal[128];
};

enum class Outcome : int32_t {  // ncclResult_t
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

enum class DataType : int32_t { int8 = 0 };  // ncclDataType_t: messages are bytes

// ncclConfig_t as NCCL 2.18 has it, and the member that followed: newer ones read as much of it as `size` says, and
// take their defaults for the rest.
inline constexpr int undefined = INT_MIN;
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = undefined;  // 0: calls only begin, and comm_get_async_error says in_progress until they have ended
  int cga_cluster_size = undefined;
  int min_ctas = undefined, max_ctas = undefined;
  const char* net_name = nullptr;
  int split_share = undefined;
  int traffic_class = undefined;
};

// A stream is a cudaStream_t.
struct Api {
  Outcome (*get_version)(int* version);  // 21805: 2.18.5
  const char* (*get_error_string)(Outcome outcome);
  const char* (*get_last_error)(Communicator* communicator);
  Outcome (*get_unique_id)(UniqueId* id);
  Outcome (*comm_init_rank_config)(Communicator** communicator, int ranks, UniqueId id, int rank, Config* config);
  Outcome (*comm_get_async_error)(Communicator* communicator, Outcome* error);
  Outcome (*comm_finalize)(Communicator* communicator);
  Outcome (*comm_destroy)(Communicator* communicator);
  Outcome (*comm_abort)(Communicator* communicator);
  Outcome (*group_start)();
  Outcome (*group_end)();
  Outcome (*send)(const void* data, size_t count, DataType type, int peer, Communicator* communicator, void* stream);
  Outcome (*recv)(void* room, size_t count, DataType type, int peer, Communicator* communicator, void* stream);
};

}  // namespace nlsplit::nccl
