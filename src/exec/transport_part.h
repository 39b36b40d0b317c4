// TransportPart: some ranks of a Transport as a transport of their own, numbered anew from 0. For running a Program
// that needs fewer devices than there are ranks.
//
//   TransportPart part(transport, {2, 0});     // rank 2 is rank 0 of the part, rank 0 its rank 1; on both of them
//   alike run(program, job, part, options);
//
// Ranks outside must not exchange messages with those inside until the part has had its last one; abort() ends all of
// them.
#pragma once

#include <vector>

#include "exec/transport.h"

namespace nlsplit::inline exec {

class TransportPart final : public Transport, private NativeCollectives {
 public:
  // members: ranks of `whole`, each once, its own among them. It is borrowed.
  TransportPart(Transport& whole, std::vector<int> members);

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(members_.size()); }
  std::vector<int> same_machine() const override;
  bool takes_device_memory() const override { return whole_.takes_device_memory(); }
  Request isend(int peer, int tag, std::span<const std::byte> data) override;
  Request irecv(int peer, int tag, std::span<std::byte> room) override;
  State test(Request request) override { return whole_.test(request); }
  Error error() const override { return whole_.error(); }
  std::string under_way() const override { return whole_.under_way(); }
  NativeCollectives* collectives() override { return whole_.collectives() == nullptr ? nullptr : this; }
  void pause(int rounds) override { whole_.pause(rounds); }
  void rest() override { whole_.rest(); }
  void wake() override { whole_.wake(); }
  Liveness& liveness() override { return whole_.liveness(); }
  double idle_s() const override { return whole_.idle_s(); }
  void abort(const Error& why) override { whole_.abort(why); }

 private:
  Status accepts(const Collective& collective, DType dtype) const override;
  void join(std::span<const std::vector<int>> groups) override;
  Request begin(const Collective& collective, DType dtype, std::span<std::byte> value,
                std::span<std::byte> result) override;
  std::vector<int> in_whole(std::vector<int> group) const;

  Transport& whole_;
  const std::vector<int> members_;
  int rank_ = -1;
};

}  // namespace nlsplit::inline exec
