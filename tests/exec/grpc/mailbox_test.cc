#include "exec/grpc/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "exec/grpc/hello.h"

namespace nlsplit {
namespace {

using ::testing::HasSubstr;
using State = Transport::State;

std::span<std::byte> room(std::string& text) { return std::as_writable_bytes(std::span(text)); }

// Two mailboxes, and the frames between them, which travel when they are told to.
struct Two {
  std::vector<Frame> to_a, to_b;
  Mailbox a{0, [this](int, Frame frame) { to_b.push_back(std::move(frame)); }, [] {}};
  Mailbox b{1, [this](int, Frame frame) { to_a.push_back(std::move(frame)); }, [] {}};

  Status deliver() {
    while (!to_a.empty() || !to_b.empty()) {
      for (Frame& frame : std::exchange(to_b, {})) RETURN_IF_ERROR(give(b, 0, frame));
      for (Frame& frame : std::exchange(to_a, {})) RETURN_IF_ERROR(give(a, 1, frame));
    }
    return ok_status();
  }
  // In two parts, as slices may lie.
  static Status give(Mailbox& mailbox, int peer, Frame& frame) {
    const auto bytes = frame.borrowed.empty() ? std::as_bytes(std::span(frame.own)) : frame.borrowed;
    const std::array parts = {bytes.first(bytes.size() / 2), bytes.subspan(bytes.size() / 2)};
    const Status status = mailbox.take(peer, frame.header, parts);
    if (frame.released) frame.released();
    return status;
  }
};

TEST(Mailbox, MessagesLeaveBeforeThereIsRoomForThem) {
  Two two;
  std::string small = "abcd", large(600'000, ' '), small_room(4, ' '), large_room(large.size(), ' ');
  std::iota(large.begin(), large.end(), '\0');
  const std::string sent = large;
  const auto first = two.a.send(1, 7, room(small));
  const auto second = two.a.send(1, 8, room(large));
  EXPECT_EQ(two.a.test(first), State::done);
  small = "????";  // the sender may use its bytes again
  EXPECT_EQ(two.a.test(second), State::pending);
  ASSERT_TRUE(two.deliver().ok());
  EXPECT_EQ(two.a.test(second), State::done);
  large.assign(large.size(), '?');
  const auto large_in = two.b.receive(0, 8, room(large_room)), small_in = two.b.receive(0, 7, room(small_room));
  EXPECT_EQ(two.b.test(small_in), State::done);
  EXPECT_EQ(two.b.test(large_in), State::done);
  EXPECT_EQ(small_room, "abcd");
  EXPECT_EQ(large_room, sent);
  EXPECT_TRUE(two.deliver().ok());
}

// Half of it came before there was room, and the rest goes where it belongs.
TEST(Mailbox, RoomMayBePostedInTheMiddleOfAMessage) {
  Two two;
  std::string large(4 * piece_bytes, ' '), large_room(large.size(), ' ');
  std::iota(large.begin(), large.end(), '\0');
  const auto out = two.a.send(1, 0, room(large));
  std::vector<Frame> frames = std::exchange(two.to_b, {});
  ASSERT_EQ(frames.size(), 5u);  // an ask and four pieces
  for (size_t f = 0; f < 3; ++f) ASSERT_TRUE(Two::give(two.b, 0, frames[f]).ok());
  const auto in = two.b.receive(0, 0, room(large_room));
  EXPECT_EQ(two.b.test(in), State::pending);
  for (size_t f = 3; f < 5; ++f) ASSERT_TRUE(Two::give(two.b, 0, frames[f]).ok());
  EXPECT_EQ(two.b.test(in), State::done);
  EXPECT_EQ(two.a.test(out), State::done);
  EXPECT_EQ(large_room, large);
  EXPECT_TRUE(two.deliver().ok());
}

// 16 MiB are kept, then the rest waits. What there is room for passes it, and so do small messages.
TEST(Mailbox, ASenderIsNotFarAheadOfItsReceiver) {
  Two two;
  constexpr size_t most = size_t{16} << 20, each = size_t{12} << 20;
  std::string first(each, 'a'), second(each, 'b'), third(each, 'c');
  std::vector<Transport::Request> out;
  for (std::string* text : {&first, &second, &third})
    out.push_back(two.a.send(1, static_cast<int>(out.size()), room(*text)));
  const auto bytes_put = [&] {
    size_t bytes = 0;
    for (const Frame& frame : two.to_b) bytes += frame.borrowed.size();
    return bytes;
  };
  EXPECT_EQ(bytes_put(), most);
  ASSERT_TRUE(two.deliver().ok());
  EXPECT_EQ(two.a.test(out[0]), State::done);
  EXPECT_EQ(two.a.test(out[1]), State::pending);
  std::string room_of_third(each, '?'), room_of_first(each, '?'), room_of_second(each, '?'), word = "go", heard = "??";
  const auto third_in = two.b.receive(0, 2, room(room_of_third));
  (void)two.a.send(1, 3, room(word));
  const auto word_in = two.b.receive(0, 3, room(heard));
  ASSERT_TRUE(two.deliver().ok());
  EXPECT_EQ(two.b.test(word_in), State::done);
  EXPECT_EQ(two.b.test(third_in), State::done);
  EXPECT_EQ(room_of_third, third);
  EXPECT_EQ(two.a.test(out[1]), State::pending);
  const auto first_in = two.b.receive(0, 0, room(room_of_first));
  EXPECT_EQ(two.b.test(first_in), State::done);
  EXPECT_EQ(room_of_first, first);
  ASSERT_TRUE(two.deliver().ok());
  EXPECT_EQ(two.a.test(out[1]), State::done);
  const auto second_in = two.b.receive(0, 1, room(room_of_second));
  EXPECT_EQ(two.b.test(second_in), State::done);
  EXPECT_EQ(room_of_second, second);
}

TEST(Mailbox, RefusesWhoIsTooFarAhead) {
  Two two;
  constexpr size_t most = size_t{16} << 20;
  std::string piece(piece_bytes, 'x');
  const std::array parts = {std::as_bytes(std::span(piece))};
  ASSERT_TRUE(two.b.take(0, {FrameKind::ask, 0, 0, 2 * most}, {}).ok());
  for (size_t at = 0; at < most; at += piece_bytes)
    ASSERT_TRUE(two.b.take(0, {FrameKind::piece, 0, 0, at}, parts).ok()) << at;
  const Status status = two.b.take(0, {FrameKind::piece, 0, 0, most}, parts);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("more than it may before there is room"));
}

TEST(Mailbox, MessagesOfOneTagKeepTheirOrderWhateverTheirSize) {
  Two two;
  std::vector<std::string> sent = {"one", std::string(eager_bytes + 1, 'x'), "", std::string(eager_bytes, 'y')};
  std::vector<std::string> received;
  for (const std::string& text : sent) received.emplace_back(text.size(), '?');
  std::vector<Transport::Request> out, in;
  for (size_t m = 0; m < 2; ++m) in.push_back(two.b.receive(0, 0, room(received[m])));
  for (std::string& text : sent) out.push_back(two.a.send(1, 0, room(text)));
  ASSERT_TRUE(two.deliver().ok());
  for (size_t m = 2; m < 4; ++m) in.push_back(two.b.receive(0, 0, room(received[m])));
  ASSERT_TRUE(two.deliver().ok());
  for (const auto request : in) EXPECT_EQ(two.b.test(request), State::done);
  for (const auto request : out) EXPECT_EQ(two.a.test(request), State::done);
  EXPECT_EQ(received, sent);
}

TEST(Mailbox, SaysWhichRankSentAnotherSize) {
  {
    Two two;
    std::string sent = "abc", expected = "????";
    (void)two.b.receive(0, 0, room(expected));
    (void)two.a.send(1, 0, room(sent));
    const Status status = two.deliver();
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, "rank 0 sent 3 B where rank 1 expected 4 B");
  }
  Two two;
  std::string sent = "abc", expected = "????";
  (void)two.a.send(1, 0, room(sent));
  ASSERT_TRUE(two.deliver().ok());
  EXPECT_FALSE(two.b.failure());
  (void)two.b.receive(0, 0, room(expected));
  ASSERT_TRUE(two.b.failure());
  EXPECT_EQ(two.b.failure()->message, "rank 0 sent 3 B where rank 1 expected 4 B");
}

// Whatever a peer that is not ours, or damaged, may say.
TEST(Mailbox, RefusesFramesThatFitNothing) {
  std::string expected(eager_bytes + 10, ' '), bytes(20, 'x');
  struct Row {
    FrameHeader header;
    size_t bytes;
    const char* says;
  };
  for (const Row& row : {Row{{FrameKind::clear, 0, 3, 0}, 0, "an answer to no request"},
                         Row{{FrameKind::clear, 0, 0, 0}, 1, "an answer with bytes"},
                         Row{{FrameKind::piece, 0, 3, 0}, 4, "a piece of no message"},
                         Row{{FrameKind::piece, 0, 0, 0}, 0, "a piece that does not fit"},
                         Row{{FrameKind::piece, 0, 0, 4}, 4, "a piece that does not fit"},
                         Row{{FrameKind::ask, 0, 0, 5}, 0, "a request for a small message"},
                         Row{{FrameKind::ask, 9, 0, 70'000}, 0, "a request twice"},
                         Row{{FrameKind::eager, 0, 0, 5}, 4, "a small message of another size"},
                         Row{{FrameKind::hello, 0, 0, 0}, 4, "a greeting twice"}}) {
    Two two;
    (void)two.b.receive(0, 9, room(expected));
    ASSERT_TRUE(two.b.take(0, {FrameKind::ask, 9, 0, expected.size()}, {}).ok());
    const std::array parts = {std::as_bytes(std::span(bytes)).first(row.bytes)};
    const Status status = two.b.take(0, row.header, parts);
    ASSERT_FALSE(status.ok()) << row.says;
    EXPECT_THAT(status.error().message, HasSubstr(row.says));
  }
}

TEST(Hello, IsReadAsItWasWritten) {
  const Hello hello{"secret of many letters", "abc", 0,  2,   {"host a", "machine"}, {{"C library", "glibc 2.36"}},
                    {"", "b:1", "c:2"},       10,    60, "{}"};
  const auto read = parse_hello(to_string(hello));
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, hello);
}

TEST(Hello, RefusesRanksThatCannotBe) {
  const Hello good{"s", "r", 0, 1, {"h", "m"}, {}, {"", "b:1"}, 10, 60, ""};
  ASSERT_TRUE(parse_hello(to_string(good)).ok());
  Hello self = good, beyond = good, before = good, late = good;
  self.to = 0;
  beyond.to = 2;
  before.from = -1;
  late.start_timeout_s = -1;
  for (const Hello& wrong : {self, beyond, before, late}) EXPECT_FALSE(parse_hello(to_string(wrong)).ok());
  EXPECT_FALSE(parse_hello("{}").ok());
  EXPECT_FALSE(parse_hello("").ok());
  EXPECT_THAT(parse_hello("[1]").error().message, HasSubstr("damaged"));
}

}  // namespace
}  // namespace nlsplit
