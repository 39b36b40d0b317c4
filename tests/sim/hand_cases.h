// Uncontended Programs with the time of each event worked out by hand; both tiers must give them.
#pragma once

#include "sim/cases.h"

namespace nlsplit::testing {

struct Expected {
  std::string device;
  int slot, instr;
  double posted, start, sent, finish;  // milliseconds; of a block `start` and `finish` count, of a transfer all
};

struct HandCase {
  std::string name;
  Case one;
  double makespan;  // milliseconds
  std::vector<Expected> events;
};

inline void check(const HandCase& hand, const Timing& timing) {
  constexpr double tolerance = 1e-9;
  ASSERT_EQ(timing.finish.size(), hand.one.graph.activities.size());
  expect_near_relative(timing.makespan, hand.makespan * ms, tolerance, "makespan");
  for (const Expected& event : hand.events) {
    const std::string name = fmt::format("{} slot {} instr {}", event.device, event.slot, event.instr);
    const size_t a = activity_of(hand.one, event.device, event.slot, event.instr);
    expect_near_relative(timing.start[a], event.start * ms, tolerance, name + " start");
    expect_near_relative(timing.finish[a], event.finish * ms, tolerance, name + " finish");
    if (!hand.one.graph.activities[a].is_transfer) continue;
    expect_near_relative(timing.posted[a], event.posted * ms, tolerance, name + " posted");
    expect_near_relative(timing.sent[a], event.sent * ms, tolerance, name + " sent");
  }
}

// B works 3 ms on something else before it looks at the message, and has one instance for it; A has `instances`.
inline std::string late_receiver(int64_t eager_limit, int instances) {
  return fmt::format(R"(
program late batch 2 micro_batches 2 eager_limit {0}
device A cpu host a memory 1000000
  buffer x f32[1000] input instances 2
  buffer a f32[1000] comm instances {1}
  segment F stage 0 phase F
    a = copy(x)
    send a to B tag 0
  order
    F.0 x:0 a:0
    F.1 x:1 a:{2}
device B cpu host b memory 1000000
  buffer big f32[3000] scratch
  buffer big2 f32[3000] scratch
  buffer a f32[1000] comm
  buffer y f32[1000] output instances 2
  segment F stage 1 phase F
    recv a from A tag 0
    big2 = copy(big)
    y = copy(a)
  order
    F.0 y:0
    F.1 y:1
)",
                     eager_limit, instances, instances - 1);
}

// A has the same 1000 floats for B and for C at the same moment.
inline std::string two_receivers(int window) {
  std::string text = fmt::format(R"(
program both batch 1 micro_batches 1 nic_window {}
device A cpu host a memory 1000000
  buffer x f32[1000] input
  buffer a f32[1000] comm
  segment F stage 0 phase F
    a = copy(x)
    send a to B tag 0
    send a to C tag 0
  order
    F.0
)",
                                 window);
  for (const char* name : {"B", "C"}) {
    text += fmt::format(R"(device {} cpu host {} memory 1000000
  buffer y f32[1000] output
  segment F stage 1 shard {} phase F
    recv y from A tag 0
  order
    F.0
)",
                        name, static_cast<char>(name[0] + ('a' - 'A')), name[0] - 'B');
  }
  return text;
}

// A and B send so many floats to C at time 0; both pass the link from the switch to C, 4 MB/s.
inline std::string two_senders(int a_floats, int b_floats) {
  std::string text = "program share batch 1 micro_batches 1\n";
  for (const auto& [name, host, floats] : {std::tuple{"A", "a", a_floats}, std::tuple{"B", "b", b_floats}}) {
    text += fmt::format(R"(device {0} cpu host {1} memory 1000000
  buffer x{0} f32[{2}] input
  segment F stage 0 shard {3} phase F
    send x{0} to C tag 0
  order
    F.0
)",
                        name, host, floats, name[0] - 'A');
  }
  return text + fmt::format(R"(device C cpu host c memory 1000000
  buffer ya f32[{}] output
  buffer yb f32[{}] output
  segment F stage 1 phase F
    recv ya from A tag 0
    recv yb from B tag 0
  order
    F.0
)",
                            a_floats, b_floats);
}

// A and B send each other 1000 floats at time 0.
inline std::string exchange() {
  std::string text = "program exchange batch 1 micro_batches 1\n";
  for (const char* name : {"A", "B"}) {
    text += fmt::format(R"(device {0} cpu host {1} memory 1000000
  buffer x{0} f32[1000] input
  buffer y{0} f32[1000] output
  segment F stage 0 shard {2} phase F
    send x{0} to {3} tag 0
    recv y{0} from {3} tag 0
  order
    F.0
)",
                        name, static_cast<char>(name[0] + ('a' - 'A')), name[0] - 'A', name[0] == 'A' ? "B" : "A");
  }
  return text;
}

// B sends A 4000 floats at time 0; A writes as many as `floats` and then sends them to B, which reads them.
inline std::string message_against_bulk(int floats, int eager_limit = 0) {
  return fmt::format(R"(
program against batch 1 micro_batches 1 eager_limit {1}
device A cpu host a memory 1000000
  buffer x f32[{0}] input
  buffer a f32[{0}] comm
  buffer bulk f32[4000] output
  segment F stage 0 shard 0 phase F
    recv bulk from B tag 0
    a = copy(x)
    send a to B tag 0
  order
    F.0
device B cpu host b memory 1000000
  buffer big f32[4000] input
  buffer a f32[{0}] comm
  buffer y f32[{0}] output
  segment F stage 0 shard 1 phase F
    send big to A tag 0
    recv a from A tag 0
    y = copy(a)
  order
    F.0
)",
                     floats, eager_limit);
}

// A sends B 5000 floats and then 2000. B writes 4800 and sends them. A takes them when it has computed for 5.8 ms.
inline std::string message_between_two() {
  return R"(
program between batch 1 micro_batches 1 eager_limit 2000
device A cpu host a memory 1000000
  buffer x f32[5000] input
  buffer w f32[2000] input
  buffer t f32[1000] scratch
  buffer t2 f32[1000] scratch
  buffer u f32[4800] scratch
  buffer r f32[4800] output
  segment F stage 0 shard 0 phase F
    send x to B tag 0
    send w to B tag 1
    t2 = copy(t)
    u = copy(r)
    recv r from B tag 2
  order
    F.0
device B cpu host b memory 1000000
  buffer v f32[4800] input
  buffer s f32[4800] comm
  buffer x f32[5000] output
  buffer w f32[2000] output
  segment F stage 0 shard 1 phase F
    recv x from A tag 0
    recv w from A tag 1
    s = copy(v)
    send s to A tag 2
  order
    F.0
)";
}

inline std::vector<HandCase> hand_cases() {
  std::vector<HandCase> cases;
  const auto add = [&](std::string name, const std::string& text, Cluster cluster, double makespan,
                       std::vector<Expected> events) {
    cases.push_back({std::move(name), make_case(text, std::move(cluster)), makespan, std::move(events)});
  };

  // 1000 floats are 4000 B. Alone on a link of 4 MB/s and 2 ms: 1 ms copying, 4000/4e6 s = 1 ms on the link, 2 ms
  // latency, 1 ms copying.
  add("one message", text_of({{1000, 1000}, 1}), chain(2, 2 * ms), 1 + 1 + 2 + 1,
      {{"A", 0, 1, 0, 1, 2, 4}, {"B", 0, 1, 0, 4, 5, 5}});

  // Over a switch: the slower link counts (4 MB/s, not 8), latencies add up (1 + 2 ms).
  {
    Cluster cluster = star(2, 0);
    cluster.links.clear();
    add_link(cluster, "a", "sw", 1 * ms, 8e6);
    add_link(cluster, "sw", "b", 2 * ms, 4e6);
    add("two hops", text_of({{1000, 1000}, 1}), cluster, 1 + 1 + 3 + 1, {{"A", 0, 1, 0, 1, 2, 5}});
  }

  // Rendezvous. Messages are written at 1 and 2 ms. The first is sent 1-2 and there at 4. B: big2 0-3, y 4-5, big2 5-8.
  // The second is ready at 2, but its instance is free at 5 only: sent 5-6, there at 8, read 8-9.
  add("rendezvous", late_receiver(0, 2), chain(2, 2 * ms), 9,
      {{"A", 0, 1, 0, 1, 2, 4}, {"B", 0, 2, 0, 4, 5, 5}, {"A", 1, 1, 5, 2, 6, 8}});
  // With one instance A's second copy waits until the first message is out: 2-3 instead of 1-2. Nothing else changes.
  add("rendezvous, one instance", late_receiver(0, 1), chain(2, 2 * ms), 9,
      {{"A", 1, 0, 0, 2, 3, 3}, {"A", 1, 1, 5, 3, 6, 8}});

  // Eager: the second leaves when it is written (2-3), is there at 4+1 = 5, and so is its instance. B: big2 5-8, y 8-9.
  add("eager", late_receiver(4000, 2), chain(2, 2 * ms), 9, {{"A", 0, 1, 0, 1, 2, 4}, {"A", 1, 1, 5, 2, 3, 5}});
  // Without latency it is there at 3, but y runs 3-4 and so the instance is free at 4: delivered is not before posted.
  add("eager, before its recv is posted", late_receiver(4000, 2), chain(2, 0), 8,
      {{"B", 0, 2, 0, 3, 4, 4}, {"A", 1, 1, 4, 2, 3, 4}, {"B", 1, 2, 0, 7, 8, 8}});
  // One instance: an eager send has copied its buffer, so A's second copy starts at 1.
  add("eager, one instance", late_receiver(4000, 1), chain(2, 2 * ms), 9,
      {{"A", 1, 0, 0, 1, 2, 2}, {"A", 1, 1, 5, 2, 3, 5}});

  // A handshake of 0.5 ms delays what is not eager: sent 1.5-2.5, there at 4.5, y 4.5-5.5; then 5.5 + 0.5 + 1 + 2 = 9,
  // y 9-10.
  {
    Cluster cluster = chain(2, 2 * ms);
    cluster.handshake = seconds(0.5 * ms);
    add("handshake", late_receiver(0, 2), cluster, 10, {{"A", 0, 1, 0, 1, 2.5, 4.5}, {"A", 1, 1, 5.5, 2.5, 7, 9}});
    add("handshake, eager", late_receiver(4000, 2), cluster, 9, {{"A", 0, 1, 0, 1, 2, 4}, {"A", 1, 1, 5, 2, 3, 5}});
  }

  // B's answer to A's request waits behind the 4 ms that B sends from 0.5 on, up to 2 ms. Asked at 1 ms: 3.5 ms are
  // left, so A sends 1 + 0.5 + 2 = 3.5 to 4.5, there at 6.5. Asked at 3 ms: 1.5 are left, 5 to 8. There is no such wait
  // if it was not measured, nor for A's answer: nothing of A moves at 0.
  {
    Cluster cluster = chain(2, 2 * ms);
    const MessageCost eager{seconds(2 * ms), bytes_per_second(link_rate)},
        rendezvous{seconds(2.5 * ms), bytes_per_second(link_rate)};
    for (const auto& [from, to] : {std::pair{0, 1}, {1, 0}})
      cluster.routes.push_back({HostId(from), HostId(to), eager, rendezvous, {.held = 2 * ms}, {}, seconds(2 * ms)});
    add("an answer waits", message_against_bulk(1000), cluster, 7.5,
        {{"B", 0, 0, 0, 0, 4.5, 6.5}, {"A", 0, 2, 0, 1, 4.5, 6.5}});
    add("an answer waits for the rest", message_against_bulk(3000), cluster, 13, {{"A", 0, 2, 0, 3, 8, 10}});
    // Requests that carry 0.5 ms of their messages. Asked at 3 ms, answered at 3.5: 1 ms is left then.
    add("an answer waits behind what its request has not outlasted", message_against_bulk(3000, 2000), cluster, 12.5,
        {{"A", 0, 2, 0, 3, 7.5, 9.5}});
    // Of 0.75 ms: B's own request was there at 0.75 and answered before A asked at 1.
    add("an answer waits for what was answered before", message_against_bulk(1000, 3000), cluster, 7.5,
        {{"A", 0, 2, 0, 1, 4.5, 6.5}});
    // At half the rate B's own request is on its way until 1.5, so A's, of 1 ms, is answered before the rest of B's
    // moves. And the answer to B travels behind A's request, which passes until 2.5: 1 ms later than it was given.
    Cluster slower = cluster;
    for (MeasuredRoute& way : slower.routes)
      way.eager.bandwidth = way.rendezvous.bandwidth = bytes_per_second(link_rate / 2);
    add("an answer before the rest moves", message_against_bulk(1000, 3000), slower, 11.5,
        {{"A", 0, 2, 0, 1, 3.5, 5.5}, {"B", 0, 0, 0, 0, 9.5, 11.5}});
    // A quarter of the rate: A's messages, written at 1 and 2 ms, move for 4 ms each. The first moves from 1.5 to 5.5;
    // from 3.5 on its rest is queued and A asks for the second. B looks at that at 8.5, and it moves from 9 to 13.
    for (MeasuredRoute& way : slower.routes)
      way.eager.bandwidth = way.rendezvous.bandwidth = bytes_per_second(link_rate / 4);
    add("what is queued", late_receiver(0, 2), slower, 16,
        {{"A", 0, 1, 0, 1, 5.5, 7.5}, {"A", 1, 1, 8.5, 3.5, 13, 15}});
    // With one instance A writes the second message as soon as its socket holds the rest of the first.
    add("a buffer whose rest is queued", late_receiver(0, 1), slower, 16,
        {{"A", 1, 0, 0, 3.5, 4.5, 4.5}, {"A", 1, 1, 8.5, 4.5, 13, 15}});
    // Requests that carry 3 ms of their messages: the first is answered at 4.5, and its socket holds the rest at once.
    add("a buffer whose request passes first", late_receiver(3000, 1), slower, 16,
        {{"A", 1, 0, 0, 4.5, 5.5, 5.5}, {"A", 1, 1, 8.5, 5.5, 13, 15}});
    // Its socket takes 3 ms for a message of 4: it holds all of the first at 4.5.
    for (MeasuredRoute& way : slower.routes) way.overheads.handover = 3 * ms / 4000;
    add("a socket takes its time", late_receiver(0, 1), slower, 16,
        {{"A", 1, 0, 0, 4.5, 5.5, 5.5}, {"A", 1, 1, 8.5, 5.5, 13, 15}});
    // Without waiting for B the first moves from 1 to 5. Its rest is queued from 3 on, and the second moves from 5 to
    // 9, whatever B does. With one instance A writes the second from 3 to 4.
    Cluster early = slower;
    for (MeasuredRoute& way : early.routes) {
      way.starts_early = true;
      way.overheads.handover = 0;
    }
    add("before its recv is posted", late_receiver(0, 2), early, 12.5,
        {{"A", 0, 1, 0, 1, 5, 7.5}, {"A", 1, 1, 8.5, 3, 9, 11.5}});
    add("before its recv is posted, one instance", late_receiver(0, 1), early, 12.5,
        {{"A", 1, 0, 0, 3, 4, 4}, {"A", 1, 1, 8.5, 4, 9, 11.5}});
    // A socket that holds 6 ms, more than a message: it takes all of the first at 1, and the second at 2 while the
    // first moves. With one instance A writes the second from 1 to 2.
    Cluster deep = early;
    for (MeasuredRoute& way : deep.routes) way.overheads.held = 6 * ms;
    add("a socket that holds several", late_receiver(0, 1), deep, 12.5,
        {{"A", 1, 0, 0, 1, 2, 2}, {"A", 0, 1, 0, 1, 5, 7.5}, {"A", 1, 1, 8.5, 2, 9, 11.5}});
    // The request for A's second message travels behind the rest of the first, so it is there at 5.5 + 0.5. B asked at
    // 4.8, so A answers B when it posts its recv, at 5.8, whatever it is to send: B's message moves from 6.3 to 11.1.
    add("a request behind the rest", message_between_two(), cluster, 13.1,
        {{"A", 0, 1, 0, 3.5, 8, 10}, {"B", 0, 3, 5.8, 4.8, 11.1, 13.1}});
    for (MeasuredRoute& way : cluster.routes) {
      way.clear_to_send_delay = seconds(0);
      way.overheads.held = 0;
    }
    // Both compute when the first handshake is to end, at 1.5 ms: it ends at 1.875. When the second is, B alone does.
    Cluster busy = cluster;
    for (MeasuredRoute& way : busy.routes) way.overheads.busy = 0.375 * ms;
    add("ends that compute", late_receiver(0, 2), busy, 10.375,
        {{"A", 0, 1, 0, 1, 2.875, 4.875}, {"A", 1, 1, 5.875, 2.875, 7.375, 9.375}});
    add("an answer that passes", message_against_bulk(1000), cluster, 6.5, {{"A", 0, 2, 0, 1, 2.5, 4.5}});
  }

  // Back-pressure. A takes 1 ms a micro-batch, the link 1 + 2, B 3. With one instance each y waits for a message that
  // waits for the y before: every 1 + 2 + 3 = 6 ms, so 5 of them end at 4 + 4 * 6 + 3. With two instances B never
  // waits: 4 + 5
  // * 3. (B copies the first 1000 floats and then as much again twice, all behind the message: one block of 3 ms.)
  for (const int instances : {1, 2}) {
    std::string text = fmt::format(R"(
program pressure batch 5 micro_batches 5
device A cpu host a memory 1000000
  buffer x f32[1000] input instances 5
  buffer a f32[1000] comm instances 5
  segment F stage 0 phase F
    a = copy(x)
    send a to B tag 0
  order
    F.0 x:0 a:0
    F.1 x:1 a:1
    F.2 x:2 a:2
    F.3 x:3 a:3
    F.4 x:4 a:4
device B cpu host b memory 1000000
  buffer a f32[1000] comm instances {}
  buffer t f32[1000] scratch
  buffer y f32[1000] output instances 5
  segment F stage 1 phase F
    recv a from A tag 0
    t = copy(a)
    t = copy(a)
    y = copy(a)
  order
)",
                                   instances);
    for (int m = 0; m < 5; ++m) text += fmt::format("    F.{0} a:{1} y:{0}\n", m, m % instances);
    add(fmt::format("back-pressure of {} instances", instances), text, chain(2, 2 * ms),
        instances == 1 ? 4 + 4 * 6 + 3 : 4 + 5 * 3, {});
  }

  // A card that sends one message at a time: 4000 B to B and to C, ready at 1 ms. One is out at 2, the other at 3, in
  // the order of the Program; each is there 2 x 1 ms later (two hops).
  add("send queue", two_receivers(1), star(3, 1 * ms), 5, {{"A", 0, 1, 0, 1, 2, 4}, {"A", 0, 2, 0, 1, 3, 5}});

  // Opposite directions of a full-duplex link do not meet.
  add("full duplex", exchange(), chain(2, 2 * ms), 3, {{"A", 0, 0, 0, 0, 1, 3}, {"B", 0, 0, 0, 0, 1, 3}});

  // Two devices of one host talk over the host's own link, and not over its network card.
  {
    Cluster cluster;
    add_device(cluster, "A", "a");
    add_device(cluster, "B", "a");
    add_link(cluster, "a", "a", 0.5 * ms, 8e6);
    std::string text = text_of({{1000, 1000}, 1, 1, 0, 1});
    text.replace(text.find("host b"), 6, "host a");
    add("same host", text, cluster, 1 + 0.5 + 0.5 + 1, {{"A", 0, 1, 0, 1, 1.5, 2}});
  }

  // So a message to a neighbour of the same host passes the one that the card is busy with: to C 1-2, to B 1-1.5
  // although it comes second and the window is 1.
  {
    Cluster cluster = chain(3, 0);
    cluster.links.clear();
    cluster.devices[1].host = HostId(0);
    add_link(cluster, "a", "a", 0, 8e6);
    add_link(cluster, "a", "c", 0);
    std::string text = two_receivers(1);
    text.replace(text.find("send a to B"), 11, "send a to #");
    text.replace(text.find("send a to C"), 11, "send a to B");
    text.replace(text.find("send a to #"), 11, "send a to C");
    text.replace(text.find("host b"), 6, "host a");
    add("same host beside a busy card", text, cluster, 2, {{"A", 0, 1, 0, 1, 2, 2}, {"A", 0, 2, 0, 1, 1.5, 1.5}});
  }

  // A message without bytes takes the latency.
  {
    HandCase empty{
        "no bytes", make_case(text_of({{1000, 1000}, 1}), chain(2, 2 * ms)), 1 + 2 + 1, {{"A", 0, 1, 0, 1, 1, 3}}};
    for (Activity& activity : empty.one.graph.activities) {
      if (activity.is_transfer) activity.bytes = activity.duration = 0;
    }
    cases.push_back(std::move(empty));
  }
  return cases;
}

inline const Case& hand_case(const std::vector<HandCase>& cases, const std::string& name) {
  return std::ranges::find(cases, name, &HandCase::name)->one;
}

}  // namespace nlsplit::testing
