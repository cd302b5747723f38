// Tests of the relay.

#include "support/loopback.hpp"
#include "support/tcp_relay.hpp"
#include "support/waits.hpp"

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

using namespace std::chrono_literals;
using support::eventually;
using support::loopback;
using support::tcp_relay;
using enum support::tcp_relay::direction;
using steady = std::chrono::steady_clock;

namespace {

class end_point {
public:
    explicit end_point(int socket) : socket_{socket} {}
    end_point(end_point&& other) noexcept : socket_{std::exchange(other.socket_, -1)} {}
    end_point& operator=(end_point&&) = delete;
    ~end_point() {
        if (socket_ >= 0) close(socket_);
    }

    void say(const std::string& what) const {
        REQUIRE(send(socket_, what.data(), what.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(what.size()));
    }
    /// The text that arrives within `patience`: "" if none, "(end)" if the other side has closed.
    [[nodiscard]] std::string hear(std::chrono::milliseconds patience = 5s) const {
        pollfd readable{socket_, POLLIN, 0};
        if (poll(&readable, 1, static_cast<int>(patience.count())) != 1) return "";
        std::array<char, 100> bytes{};
        const auto got = recv(socket_, bytes.data(), bytes.size(), 0);
        if (got <= 0) return "(end)";
        return {bytes.data(), static_cast<std::size_t>(got)};
    }

private:
    int socket_;
};

/// A server in this process.
class listener {
public:
    listener() : socket_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)} {
        auto address = loopback(0);
        socklen_t size = sizeof address;
        REQUIRE(bind(socket_, reinterpret_cast<sockaddr*>(&address), size) == 0);
        REQUIRE(listen(socket_, 8) == 0);
        REQUIRE(getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
        port_ = ntohs(address.sin_port);
    }
    listener(const listener&) = delete;
    listener& operator=(const listener&) = delete;
    ~listener() { close(socket_); }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] end_point accepted() const {
        return end_point{accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC)};
    }

private:
    int socket_;
    std::uint16_t port_ = 0;
};

end_point connected(std::uint16_t port) {
    const int made = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const auto address = loopback(port);
    REQUIRE(connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    return end_point{made};
}

/// Long enough to see that nothing arrives.
constexpr auto a_moment = 50ms;

struct through_relay {
    listener listening;
    tcp_relay relay{listening.port()};
    end_point client{connected(relay.port())};
    end_point server{listening.accepted()};
};

}  // namespace

TEST_CASE("relay: passes on both ways and counts") {
    through_relay all;
    all.client.say("question");
    CHECK(all.server.hear() == "question");
    all.server.say("answer");
    CHECK(all.client.hear() == "answer");
    all.client.say("another");
    CHECK(all.server.hear() == "another");
    const auto counted = all.relay.counted();
    CHECK(counted.connections == 1);
    CHECK(counted.exchanges == 2);
    CHECK(counted.request_bytes == 15);
    CHECK(counted.answer_bytes == 6);
}

TEST_CASE("relay: holds one direction back, and forwards it later") {
    through_relay all;
    all.relay.hold(answers);
    all.client.say("question");
    CHECK(all.server.hear() == "question");
    all.server.say("answer");
    CHECK(all.client.hear(a_moment).empty());
    all.relay.resume();
    CHECK(all.client.hear() == "answer");
    all.relay.hold(requests);
    all.client.say("late");
    CHECK(all.server.hear(a_moment).empty());
    all.server.say("unasked");
    CHECK(all.client.hear() == "unasked");
    all.relay.resume();
    CHECK(all.server.hear() == "late");
}

TEST_CASE("relay: drops bytes, which resume() does not bring back") {
    through_relay all;
    all.relay.drop(requests);
    all.client.say("lost");
    CHECK(all.server.hear(a_moment).empty());
    all.relay.resume();
    all.client.say("found");
    CHECK(all.server.hear() == "found");
}

TEST_CASE("relay: delays, and keeps the order") {
    through_relay all;
    all.relay.delay(requests, 100ms);
    const auto from = steady::now();
    all.client.say("a");
    all.client.say("b");
    std::string heard = all.server.hear();
    CHECK(steady::now() - from >= 100ms);
    if (heard.size() < 2) heard += all.server.hear();
    CHECK(heard == "ab");
}

TEST_CASE("relay: cuts connections, and bytes that it held back never arrive") {
    through_relay all;
    all.relay.hold(answers);
    all.server.say("never");
    REQUIRE(eventually([&] { return all.relay.counted().answer_bytes == 5; }));
    all.relay.cut();
    CHECK(all.client.hear() == "(end)");
    CHECK(all.server.hear() == "(end)");
    CHECK(all.relay.connections().empty());
}

TEST_CASE("relay: affects one connection, and not another") {
    through_relay all;
    const auto client = connected(all.relay.port());
    const auto server = all.listening.accepted();
    REQUIRE(eventually([&] { return all.relay.connections().size() == 2; }));
    all.relay.hold(2, both);
    client.say("x");
    all.client.say("y");
    CHECK(all.server.hear() == "y");
    CHECK(server.hear(a_moment).empty());
    all.relay.resume(2);
    CHECK(server.hear() == "x");
    all.relay.cut(1);
    CHECK(all.client.hear() == "(end)");
    client.say("z");
    CHECK(server.hear() == "z");
}

TEST_CASE("relay: holds the server's answer to the n-th exchange back") {
    through_relay all;
    const auto talk = [&](const std::string& question) {
        all.client.say(question);
        CHECK(all.server.hear() == question);
        all.server.say("re " + question);
    };
    all.relay.hold_answer(2);
    talk("one");
    CHECK(all.client.hear() == "re one");
    CHECK_FALSE(all.relay.holds_answer(0ms));
    talk("two");
    CHECK(all.relay.holds_answer());
    CHECK(all.client.hear(a_moment).empty());
    // Other connections are not affected.
    const auto client = connected(all.relay.port());
    const auto server = all.listening.accepted();
    client.say("q");
    CHECK(server.hear() == "q");
    server.say("a");
    CHECK(client.hear() == "a");
    all.relay.resume();
    CHECK(all.client.hear() == "re two");
}

TEST_CASE("relay: leads to another server, or refuses connections") {
    through_relay all;
    const listener another;
    all.relay.lead_to(another.port());
    const auto client = connected(all.relay.port());
    const auto server = another.accepted();
    client.say("here");
    CHECK(server.hear() == "here");
    all.relay.refuse(true);
    CHECK(connected(all.relay.port()).hear() == "(end)");
}

TEST_CASE(
    "relay: over a slow link each piece takes half a round trip, and a lost one arrives later") {
    for (const bool loses : {false, true}) {
        CAPTURE(loses);
        listener listening;
        tcp_relay relay{listening.port()};
        relay.become({.round_trip = 40ms, .loss = loses ? 0.5 : 0, .resend = 60ms, .seed = 3});
        const auto start = steady::now();
        const auto client = connected(relay.port());
        const auto server = listening.accepted();
        client.say("first");
        CHECK(server.hear() == "first");
        CHECK(steady::now() - start >= 60ms);  // the round trip of opening, and half of one
        const auto opened = steady::now();
        for (int i = 0; i < 10; ++i) {
            server.say("answer");
            CHECK(client.hear() == "answer");
            client.say("question");
            CHECK(server.hear() == "question");
        }
        CHECK(steady::now() - opened >= (loses ? 460ms : 400ms));
    }
}
