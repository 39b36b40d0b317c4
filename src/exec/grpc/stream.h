// FrameStream: one gRPC stream of frames between two processes, from either end.
//
//   auto stream = dial(channel, {.frame = …, .ended = …});       // this end asks
//   FrameService service([](std::shared_ptr<FrameStream> stream) -> StreamEvents { … });   // these ends answer
//   stream->put(std::move(frame));
//
// Lines of the heartbeat go before all other frames, pieces of large messages after them. Events come one after the
// other, on gRPC's threads, and begin before dial() returns.
#pragma once

#include <grpcpp/channel.h>
#include <grpcpp/generic/async_generic_service.h>

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "exec/grpc/frame.h"

namespace nlsplit::inline exec {

struct StreamEvents {
  // A frame; its bytes after the header are these parts, valid until it returns. Returns false if the frame is not
  // valid, which ends the stream.
  std::function<bool(const FrameHeader& header, std::span<const std::span<const std::byte>> parts)> frame;
  // Called once, at the end. why: empty if an end closed the stream on purpose; broken_stream if the network failed or
  // the other process ended.
  std::function<void(const std::string& why)> ended;
};

inline constexpr const char* broken_stream = "the connection ended";

class FrameStream {
 public:
  virtual ~FrameStream() = default;
  virtual void put(Frame frame) = 0;  // any thread; after the end it is dropped
  // Whether all that was put has been handed to the network.
  virtual bool flushed() const = 0;
  // Closes the stream when everything has been written; or at once with an error, which is sent to the other end.
  virtual void finish() = 0;
  virtual void refuse(const std::string& why) = 0;
  virtual std::string peer() const = 0;  // "ipv4:10.0.0.2:7000"
};

inline constexpr const char* stream_method = "/nlsplit.Worker/Frames";

std::shared_ptr<FrameStream> dial(const std::shared_ptr<grpc::Channel>& channel, StreamEvents events);

class FrameService final : public grpc::CallbackGenericService {
 public:
  // Called for each incoming stream, before its first event; returns the stream's event handlers.
  using Arrived = std::function<StreamEvents(const std::shared_ptr<FrameStream>&)>;
  explicit FrameService(Arrived arrived);
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

 private:
  Arrived arrived_;
};

}  // namespace nlsplit::inline exec
