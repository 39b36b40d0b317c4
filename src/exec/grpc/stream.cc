#include "exec/grpc/stream.h"

#include <grpc/slice.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

namespace nlsplit::inline exec {
namespace {

grpc::ByteBuffer buffer_of(Frame frame) {
  const auto header = encode(frame.header);
  std::vector<grpc::Slice> slices;
  if (frame.borrowed.empty()) {
    grpc_slice all = grpc_slice_malloc(header.size() + frame.own.size());
    std::memcpy(GRPC_SLICE_START_PTR(all), header.data(), header.size());
    if (!frame.own.empty()) std::memcpy(GRPC_SLICE_START_PTR(all) + header.size(), frame.own.data(), frame.own.size());
    slices.emplace_back(all, grpc::Slice::STEAL_REF);
  } else {
    // gRPC says when it no longer looks at the caller's bytes, which nobody copies here.
    slices.emplace_back(header.data(), header.size());
    auto* released = new std::function<void()>(std::move(frame.released));
    const grpc_slice bytes = grpc_slice_new_with_user_data(
        const_cast<std::byte*>(frame.borrowed.data()), frame.borrowed.size(),
        [](void* called) {
          const std::unique_ptr<std::function<void()>> released(static_cast<std::function<void()>*>(called));
          if (*released) (*released)();
        },
        released);
    slices.emplace_back(bytes, grpc::Slice::STEAL_REF);
  }
  return {slices.data(), slices.size()};
}

// What both ends have in common. Reactor: gRPC's, whose Start… functions have the same names on both.
template <class Reactor>
class StreamOf : public FrameStream, public Reactor {
 public:
  void put(Frame frame) override {
    std::deque<grpc::ByteBuffer>& queue = frame.header.kind == FrameKind::piece  ? pieces_
                                          : frame.header.kind == FrameKind::line ? lines_
                                                                                 : others_;
    grpc::ByteBuffer buffer = buffer_of(std::move(frame));
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      queue.push_back(std::move(buffer));
      if (std::exchange(writing_, true)) return;
    }
    write_next();
  }

  bool flushed() const override {
    const std::lock_guard lock(mutex_);
    return closed_ || !writing_;
  }

  void finish() override { close(true); }

  void refuse(const std::string& why) override {
    {
      const std::lock_guard lock(mutex_);
      if (!closing_) refused_ = why;
    }
    give_up();
    close(false);
  }

  void OnReadDone(bool ok) override {
    if (!ok)
      close(false);
    else if (take())
      this->StartRead(&read_);
    else
      refuse("a frame that is not of nlsplit");
  }

  void OnWriteDone(bool ok) override {
    if (!ok) close(false);
    write_next();
  }

 protected:
  virtual void close_now(const std::string& refused) = 0;  // once, while nothing is written
  virtual void give_up() {}                                // what is under way is to end

  void begin(StreamEvents events) {
    events_ = std::move(events);
    this->StartRead(&read_);
  }

  // gRPC does not use this any more. It is deleted with its last reference.
  void end(const std::string& why) {
    const std::shared_ptr<void> self = std::move(self_);
    close(false);
    const StreamEvents events = std::move(events_);
    if (events.ended) events.ended(why);
  }

  std::shared_ptr<void> self_;  // while gRPC may call

 private:
  bool take() {
    std::vector<grpc::Slice> slices;
    if (!read_.Dump(&slices).ok()) return false;
    std::array<std::byte, header_bytes> header;
    size_t got = 0;
    std::vector<std::span<const std::byte>> parts;
    for (const grpc::Slice& slice : slices) {
      std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(slice.begin()), slice.size());
      const size_t more = std::min(bytes.size(), header.size() - got);
      std::copy_n(bytes.begin(), more, header.begin() + static_cast<ptrdiff_t>(got));
      got += more;
      if (bytes.size() > more) parts.push_back(bytes.subspan(more));
    }
    if (got < header.size()) return false;
    const auto decoded = decode(header);
    return decoded && events_.frame(*decoded, parts);
  }

  // Nothing is put any more. What was, is written first, or dropped.
  void close(bool write_all) {
    std::deque<grpc::ByteBuffer> dropped;  // releases borrowed bytes, without the lock
    std::string refused;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (!write_all) {
        dropped.swap(pieces_);
        others_.clear();
        lines_.clear();
      }
      if (writing_ || std::exchange(closed_, true)) return;
      refused = refused_;
    }
    close_now(refused);
  }

  // The caller has set writing_.
  void write_next() {
    std::string refused;
    bool writes = false;
    written_.Clear();  // releases its borrowed bytes
    {
      const std::lock_guard lock(mutex_);
      std::deque<grpc::ByteBuffer>& from = !lines_.empty() ? lines_ : !others_.empty() ? others_ : pieces_;
      writes = writing_ = !from.empty();
      if (writes) {
        written_.Swap(&from.front());
        from.pop_front();
      } else {
        if (!closing_ || std::exchange(closed_, true)) return;
        refused = refused_;
      }
    }
    if (writes)
      this->StartWrite(&written_);
    else
      close_now(refused);
  }

  StreamEvents events_;
  mutable std::mutex mutex_;  // for the queues and what is under way
  std::deque<grpc::ByteBuffer> lines_, others_, pieces_;
  bool writing_ = false, closing_ = false, closed_ = false;
  std::string refused_;
  grpc::ByteBuffer written_, read_;  // gRPC's while it writes, or reads
};

// gRPC 1.51 starts the threads of callbacks with their first user and ends them with the last one, and that end now and
// then aborts the process (grpc_cq_internal_unref). So there is a user until the process ends.
void keep_callbacks() {
  static const grpc::Server* const kept = [] {
    static grpc::CallbackGenericService nothing;
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(&nothing);
    return builder.BuildAndStart().release();
  }();
  (void)kept;
}

class ClientStream final : public StreamOf<grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>> {
 public:
  ClientStream(std::shared_ptr<grpc::Channel> channel) : channel_(std::move(channel)), stub_(channel_) {}

  void open(std::shared_ptr<ClientStream> self, StreamEvents events) {
    self_ = std::move(self);
    context_.set_wait_for_ready(true);  // the other end may not be there yet
    stub_.PrepareBidiStreamingCall(&context_, stream_method, {}, this);
    AddHold();  // for put(), which begins writes at any time
    begin(std::move(events));
    StartCall();
  }

  std::string peer() const override { return context_.peer(); }
  void OnDone(const grpc::Status& status) override {
    const bool broke = status.error_code() == grpc::StatusCode::UNAVAILABLE || status.error_message().empty();
    end(status.ok() ? "" : broke ? broken_stream : status.error_message());
  }

 private:
  void give_up() override { context_.TryCancel(); }
  void close_now(const std::string& /*refused*/) override {
    StartWritesDone();
    RemoveHold();
  }

  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
};

class ServerStream final : public StreamOf<grpc::ServerGenericBidiReactor> {
 public:
  explicit ServerStream(grpc::GenericCallbackServerContext* context) : context_(context), peer_(context->peer()) {}

  void open(std::shared_ptr<ServerStream> self, StreamEvents events) {
    self_ = std::move(self);
    begin(std::move(events));
  }

  std::string peer() const override { return peer_; }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { end(cancelled_ ? broken_stream : ""); }

 private:
  void close_now(const std::string& refused) override {
    Finish(refused.empty() ? grpc::Status::OK : grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, refused));
  }

  // Finish() waits for what is written, and who does not read never takes it.
  void give_up() override {
    if (!flushed()) context_->TryCancel();
  }

  grpc::GenericCallbackServerContext* const context_;  // gRPC's, until OnDone
  const std::string peer_;
  std::atomic<bool> cancelled_{false};  // the other end has gone
};

}  // namespace

FrameService::FrameService(Arrived arrived) : arrived_(std::move(arrived)) { keep_callbacks(); }

std::shared_ptr<FrameStream> dial(const std::shared_ptr<grpc::Channel>& channel, StreamEvents events) {
  keep_callbacks();
  auto stream = std::make_shared<ClientStream>(channel);
  stream->open(stream, std::move(events));
  return stream;
}

grpc::ServerGenericBidiReactor* FrameService::CreateReactor(grpc::GenericCallbackServerContext* context) {
  if (context->method() != stream_method) return CallbackGenericService::CreateReactor(context);
  auto stream = std::make_shared<ServerStream>(context);
  stream->open(stream, arrived_(stream));
  return stream.get();
}

}  // namespace nlsplit::inline exec
