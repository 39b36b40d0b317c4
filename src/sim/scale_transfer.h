// A message that takes longer or shorter than predicted, or over other links. The one list of what of it scales.
//
//   scale_transfer(activity, 1.2, 1.2);       // all of it takes 1.2 times as long
//   scale_transfer(activity, 0.5, 1);         // over twice the bandwidth
#pragma once

#include "sim/timed_graph.h"

namespace nlsplit::inline sim {

// `way`: how much longer bytes take, `latency`: what precedes and follows them. With one factor for both
// until_released() scales by it too, so `handover` goes with the way. What the ends pay stays: overheads, `slowed` and
// `busy` (its threads wake up late, however far the other end is) are times of processors.
inline void scale_transfer(Activity& transfer, double way, double latency) {
  for (double* part : {&transfer.duration, &transfer.bytes, &transfer.request, &transfer.queued, &transfer.handover,
                       &transfer.clear_to_send_delay})
    *part *= way;
  for (double* part : {&transfer.latency, &transfer.handshake}) *part *= latency;
}

// Then it is as if its ends' processors had no part in it.
inline void leave_out_overheads(Activity& transfer) {
  for (double* part : {&transfer.sender_overhead, &transfer.receiver_overhead, &transfer.slowed, &transfer.busy})
    *part = 0;
}

}  // namespace nlsplit::inline sim
