// The changes that annealing makes to a plan (partition/anneal.h).
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "base/random.h"
#include "partition/anneal.h"

namespace nlsplit::inline partition {

class AnnealMoves {
 public:
  explicit AnnealMoves(const AnnealSpace& space) : space_(space) {}

  // One change at random. False: it came to nothing, and `plan` is of no use any more.
  bool change(Plan& plan, Random& random);

 private:
  bool shift_cut(Plan& plan, Random& random) const;
  bool swap_devices(Plan& plan, Random& random);
  bool add_device(Plan& plan, Random& random);
  bool drop_device(Plan& plan, Random& random);
  bool move_device(Plan& plan, Random& random);
  bool merge_stages(Plan& plan, Random& random);
  bool cut_stage(Plan& plan, Random& random);
  bool change_axis(Plan& plan, Random& random);
  bool change_shares(Plan& plan, Random& random) const;
  bool change_micro_batches(Plan& plan, Random& random) const;

  // A split stage whose devices or layers changed: shares anew, or no split if one device is left.
  void renew(Stage& stage) const;
  bool may_be(const Plan& plan);
  const std::vector<SplitAxis>& axes_of(const Stage& stage);
  std::vector<DeviceId> free_devices(const Plan& plan) const;

  const AnnealSpace& space_;
  std::map<std::pair<size_t, size_t>, std::vector<SplitAxis>> axes_;  // by begin and end
};

}  // namespace nlsplit::inline partition
