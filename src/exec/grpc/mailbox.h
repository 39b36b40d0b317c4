// Mailbox: matches messages with receives, as MPI does. Small messages are copied and leave at once (eager). Larger
// ones are announced, and leave in pieces. Their receiver keeps what it does not expect yet, and says of each message
// when it has room for it. A sender is at most 16 MiB ahead of that. Without gRPC: frames go in and out.
//
//   Mailbox mailbox(ranks, [&](int peer, Frame frame) { streams[peer].put(std::move(frame)); });
//   const auto r = mailbox.send(1, tag, data);  …  mailbox.test(r)       // one thread
//   mailbox.take(1, header, parts);                                      // of each peer's stream its own
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/result.h"
#include "exec/grpc/frame.h"
#include "exec/transport.h"

namespace nlsplit::inline exec {

class Mailbox {
 public:
  using Put = std::function<void(int peer, Frame frame)>;
  // `rank`: of this one, for messages. `moved`: a request may have ended; on any thread.
  Mailbox(int rank, Put put, std::function<void()> moved);

  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  Transport::Request send(int peer, int tag, std::span<const std::byte> data);
  Transport::Request receive(int peer, int tag, std::span<std::byte> room);
  // done or pending. After done the request must not be used again.
  Transport::State test(Transport::Request request);

  // A frame of that peer; its bytes are these parts, one after the other. Error: the frame does not match earlier ones,
  // or a message has another size than expected.
  Status take(int peer, const FrameHeader& header, std::span<const std::span<const std::byte>> parts);
  // What receive() found: a message that had come before has another size than its room.
  std::optional<Error> failure();

 private:
  using Flag = std::atomic<Transport::State>;
  struct Arrived {
    FrameHeader header;
    std::string bytes;  // of an eager one
  };
  struct Posted {
    std::span<std::byte> room;
    Flag* done;
  };
  struct Sending {
    int peer = 0;
    std::span<const std::byte> data;
    size_t put = 0;                             // bytes
    bool cleared = false;                       // the receiver has room for all of it
    std::shared_ptr<std::atomic<size_t>> left;  // pieces that gRPC may still look at
    Flag* done = nullptr;                       // valid until then
  };
  struct Receiving {
    uint64_t size = 0;
    std::string kept{};           // what came before there was room
    std::span<std::byte> room{};  // once there is: `done` is its request
    size_t got = 0, written = 0;  // bytes that came, and that are in the room
    Flag* done = nullptr;
  };
  struct Peer {
    std::deque<uint64_t> outgoing;  // numbers of messages that are not wholly put
    size_t ahead = 0;               // bytes put of messages that the peer has not cleared
    bool putting = false;           // a thread puts pieces: the order is its
    size_t kept = 0;                // bytes kept of messages that this rank has not cleared
  };
  using Channel = std::pair<int, int>;  // peer and tag
  // gRPC may let go of the last bytes of a broken stream when the mailbox is gone.
  struct Alive {
    std::mutex mutex;
    bool here = true;
  };

  Transport::Request new_request();
  Status arrive(int peer, const FrameHeader& header, std::span<const std::span<const std::byte>> parts);
  Status clear(int peer, uint64_t message);
  void put_pieces(int peer);
  std::optional<Frame> next_piece(Peer& peer);
  void written(int peer, uint64_t message, size_t bytes);
  Status add_piece(int peer, const FrameHeader& header, std::span<const std::span<const std::byte>> parts);
  Error wrong_size(int peer, uint64_t sent, size_t expected) const;
  Error strange(int peer, const char* what) const;
  void done(Flag& flag);

  const int rank_;
  const Put put_;
  const std::function<void()> moved_;
  const std::shared_ptr<Alive> alive_ = std::make_shared<Alive>();
  std::deque<Flag> flags_;  // by request; a deque, since others keep addresses of its elements. Owner's, as free_.
  std::vector<Transport::Request> free_;
  std::mutex mutex_;  // for all below
  std::map<Channel, std::deque<Posted>> posted_;
  std::map<Channel, std::deque<Arrived>> arrived_;
  std::map<int, Peer> peers_;
  std::map<uint64_t, Sending> sending_;                      // by number: not wholly put, or not cleared
  std::map<std::pair<int, uint64_t>, Receiving> receiving_;  // by peer and its number: from its ask to its end
  std::optional<Error> wrong_;                               // of receive()
  uint64_t next_ = 0;
};

}  // namespace nlsplit::inline exec
