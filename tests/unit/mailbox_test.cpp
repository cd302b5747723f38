#include "lock/wakeup/mailbox.hpp"

#include "support/failure.hpp"

#include <doctest/doctest.h>
#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

using rowlock::errc;
using rowlock::wakeup::mailbox;
using support::kind_of;
using texts = std::vector<std::string>;

namespace {

std::int64_t number() {
    static std::int64_t last = std::int64_t{::getpid()} << 20;
    return ++last;
}

/// A sender in the same network namespace.
class mailbox_sender : public rowlock::wakeup::mailbox_sender {
public:
    explicit mailbox_sender(std::int64_t number)
        : rowlock::wakeup::mailbox_sender{number, rowlock::wakeup::network_namespace()} {}
};

bool readable(const mailbox& box) {
    pollfd one{box.descriptor(), POLLIN, 0};
    return ::poll(&one, 1, 0) == 1;
}

}  // namespace

TEST_CASE("a datagram reaches the mailbox with its number, and no other") {
    const auto ours = number();
    CHECK_FALSE(mailbox_sender{ours}.reachable());
    CHECK_FALSE(mailbox_sender{ours}.post("too early"));
    const mailbox box{ours};
    const mailbox other{number()};
    const mailbox_sender way{ours};
    CHECK(way.reachable());
    CHECK_FALSE(readable(box));
    CHECK(box.take().empty());
    CHECK(way.post("1 2"));
    CHECK(way.post(std::string(128, 'x')));
    CHECK_FALSE(way.post(""));
    CHECK_FALSE(way.post(std::string(129, 'x')));
    CHECK(readable(box));
    CHECK(box.take() == texts{"1 2", std::string(128, 'x')});
    CHECK_FALSE(readable(box));
    CHECK(other.take().empty());
}

TEST_CASE("a number has one mailbox, and none once it is closed") {
    const auto ours = number();
    std::optional<mailbox> box;
    box.emplace(ours);
    CHECK(kind_of([&] { const mailbox second{ours}; }) == errc::unsupported);
    const mailbox_sender way{ours};
    box.reset();
    CHECK_FALSE(way.post("x"));
    CHECK_FALSE(mailbox_sender{ours}.reachable());
    box.emplace(ours);
    CHECK(mailbox_sender{ours}.post("x"));
}

TEST_CASE("a full mailbox refuses datagrams without blocking the sender") {
    const auto ours = number();
    const mailbox box{ours};
    const mailbox_sender way{ours};
    const auto start = std::chrono::steady_clock::now();
    std::size_t taken = 0;
    while (taken < 100'000 && way.post("x")) ++taken;
    CHECK(taken > 0);
    CHECK(taken < 100'000);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds{5});
    std::size_t arrived = 0;
    for (auto all = box.take(); !all.empty(); all = box.take()) arrived += all.size();
    CHECK(arrived == taken);
    CHECK(way.post("x"));
}

TEST_CASE(
    "a sender ignores a local socket with the name of a mailbox in another network namespace") {
    const auto ours = number();
    const mailbox box{ours};
    using way = rowlock::wakeup::mailbox_sender;
    const auto here = rowlock::wakeup::network_namespace();
    REQUIRE(here.has_value());
    CHECK(way{ours, here}.reachable());
    CHECK_FALSE(way{ours, *here ^ 1}.reachable());
    CHECK_FALSE(way{ours, std::nullopt}.reachable());
    CHECK_FALSE(way{ours, *here ^ 1}.post("x"));
}
