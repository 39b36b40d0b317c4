// LinkCourse: the share of a link's bandwidth that is available, as a function of time. Bursts are drawn one by one,
// as far as advance() is called.
//
//   LinkCourse course(link);
//   course.add(Degradation{…}, 125e6);  course.add(Background{…}, key);
//   for (;; course.advance()) { course.share() of it until course.until(); … }
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "cost/noise.h"

namespace nlsplit::inline sim {

class LinkCourse {
 public:
  explicit LinkCourse(LinkId link) : link_(link) {}
  LinkId link() const { return link_; }

  // `bandwidth`: the link's.
  void add(const Degradation& degradation, BytesPerSecond bandwidth);
  // `seed`: of the bursts. A run begins in a burst with the probability on / (on + off), as if it had gone on for ever.
  void add(const Background& background, uint64_t seed);

  double share() const;  // in (0, 1]: the worst degradation's, times what the background leaves
  double until() const;  // when that changes; infinity: never again
  void advance();        // to until()

 private:
  struct Window {
    double share, from, until;
  };
  struct Bursts {
    double share, on, off;
    Random random;
    bool is_on;
    double until;  // the end of this burst or pause
  };
  LinkId link_;
  double now_ = 0;
  double steady_ = 1;  // what steady background leaves
  std::vector<Window> windows_;
  std::vector<Bursts> bursts_;
};

}  // namespace nlsplit::inline sim
