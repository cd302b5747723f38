// The ways in which a client is woken, without a database.

#include "lock/wakeup/wakeup_source.hpp"

#include "base/clock.hpp"
#include "lock/wakeup/listening_connection.hpp"
#include "lock/wakeup/mailbox_reader.hpp"
#include "lock/wakeup/notification_source.hpp"
#include "sql/listening.hpp"
#include "support/waits.hpp"
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using wakeup::wakeup_source;

namespace {

/// Notifications that a test sends.
class fake_notifications final : public sql::notifications {
public:
    std::vector<std::string> channels{};
    std::vector<sql::notification> sent{};
    bool supported = true;
    bool watching = true;

    void listen(std::string_view channel, sql::deadline) override {
        if (!supported) throw error{errc::unsupported, "no notifications here"};
        channels.emplace_back(channel);
    }
    [[nodiscard]] int descriptor() const noexcept override { return 42; }
    [[nodiscard]] std::vector<sql::notification> take() override { return std::exchange(sent, {}); }
    void want_changes(bool wanted) override {
        if (!supported) throw error{errc::unsupported, "no watch is left"};
        watching = wanted;
    }
};

class notified_connection final : public sql::connection {
public:
    explicit notified_connection(sql::notifications* capability) : capability_{capability} {}

    bool is_alive = true;

    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    sql::result execute(const sql::statement&, std::span<const sql::value>,
                        sql::deadline) override {
        throw std::logic_error{"runs no statement"};
    }
    sql::result query(std::string_view, sql::deadline) override {
        throw std::logic_error{"runs no statement"};
    }
    [[nodiscard]] bool alive() const noexcept override { return is_alive; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }
    [[nodiscard]] sql::notifications* notifications() noexcept override { return capability_; }

private:
    sql::notifications* capability_;
};

struct recorder final : wakeup::listener {
    std::vector<std::string> messages{};
    bool by_database = false;
    bool useful = false;
    int commits = 0;

    bool on_message(std::string_view said, bool from_database) override {
        messages.emplace_back(said);
        by_database = from_database;
        return useful;
    }
    void on_commit() override { ++commits; }
    void on_sleep(bool) override {}
    void on_woken() noexcept override {}
    void on_doubt() noexcept override {}
    void on_broken() noexcept override {}
};

wakeup::recipient recipient_of(session_id session) {
    return {session,
            std::make_shared<wakeup::wake_address>(
                wakeup::wake_address{static_cast<std::int64_t>(session) * 10}),
            nullptr};
}

const sql::deadline until = std::chrono::steady_clock::now() + 1h;

}  // namespace

TEST_CASE("a client that only polls has a source that brings nothing") {
    wakeup_source silent;
    recorder to;
    notified_connection db{nullptr};
    CHECK_FALSE(silent.listen(db, recipient_of(session_id{1}), session_id{1}, until));
    silent.read(to);
    CHECK(silent.descriptor() == -1);
    CHECK(silent.wakes(session_id{1}) == wakeup_source::kind::none);
    CHECK_FALSE(silent.names_grants());
    CHECK_FALSE(silent.want_commits(true));
}

namespace {

/// A PostgreSQL server, and the connections to it.
class fake_server {
public:
    std::atomic<std::int64_t> queue{0};   ///< how full, in millionths
    std::atomic<bool> answers{true};      ///< LISTEN
    std::atomic<bool> still_runs{false};  ///< a LISTEN that was not answered
    std::atomic<bool> open{true};         ///< the connections
    std::atomic<bool> has_capability{true};
    std::atomic<errc> refuses{};      ///< to connect
    std::atomic<bool> permits{true};  ///< to ask what is asked before a LISTEN
    std::atomic<int> refusals{0};     ///< of connections
    std::atomic<int> connections{0};
    std::atomic<int> listens{0};
    std::atomic<std::int64_t> seconds{0};  ///< since the client was started
    std::atomic<int> begun{0};             ///< how often the client was told that it listens
    std::atomic<int> broken{0};            ///< likewise that the connection broke

    [[nodiscard]] std::unique_ptr<sql::connection> connect() {
        ++connections;
        return std::make_unique<link>(*this);
    }
    void send(std::string payload) {
        const std::lock_guard lock{mutex_};
        sent_.push_back({"channel", std::move(payload)});
    }
    [[nodiscard]] wakeup::listening_connection::parts parts() {
        return {.connect =
                    [this](sql::deadline) {
                        if (refuses == errc{}) return connect();
                        ++refusals;
                        throw error{refuses, "not now"};
                    },
                .source = source_,
                .now = [this] { return wakeup::nanoseconds{std::chrono::seconds{seconds}}; },
                .statement_timeout = 0ms,  // what is not answered at once is late
                .on_listening = [this] { ++begun; },
                .on_broken = [this] { ++broken; }};
    }

private:
    class link final : public sql::connection, private sql::notifications {
    public:
        explicit link(fake_server& to) : to_{to} {}
        [[nodiscard]] sql::dialect speaks() const noexcept override {
            return sql::dialect::postgresql;
        }
        sql::result execute(const sql::statement&, std::span<const sql::value> parameters,
                            sql::deadline) override {
            if (!to_.permits) throw error{errc::access_denied, "not for this role"};
            sql::result row{4};
            row.append_text(std::to_string(to_.queue));
            row.append_text(!parameters[0].is_null() && to_.still_runs ? "1" : "0");
            row.append_text("7");
            row.append_text("77");
            return row;
        }
        sql::result query(std::string_view, sql::deadline) override {
            sql::result row{1};
            row.append_text("7");
            return row;
        }
        [[nodiscard]] bool alive() const noexcept override { return to_.open; }
        [[nodiscard]] std::uint64_t round_trips() const noexcept override { return 0; }
        [[nodiscard]] std::int64_t announced_process() const noexcept override { return 7; }
        [[nodiscard]] sql::notifications* notifications() noexcept override {
            return to_.has_capability ? this : nullptr;
        }

    private:
        void listen(std::string_view, sql::deadline) override {
            ++to_.listens;
            if (!to_.answers) throw error{errc::outcome_unknown, "no answer"};
        }
        [[nodiscard]] int descriptor() const noexcept override { return 42; }
        std::vector<sql::notification> take() override {
            const std::lock_guard lock{to_.mutex_};
            return std::exchange(to_.sent_, {});
        }

        fake_server& to_;
    };

    const sql::connection_source source_{
        sql::dialect::postgresql, [this](sql::deadline) { return connect(); }, "a fake server"};
    std::mutex mutex_{};
    std::vector<sql::notification> sent_{};
};

/// Whether the last attempt has ended, without a connection: its end reads the clock, too.
bool has_failed(const wakeup::listening_connection& listening) {
    return !listening.is_attempting() && !listening.is_connected();
}

}  // namespace

TEST_CASE("PostgreSQL is listened to once for a session, on a connection of its own") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    wakeup::listen_source source{listening};
    const auto calls = server.connect();
    const auto listen_for = [&](session_id session) {
        return source.listen(*calls, recipient_of(session), session_id{0}, until);
    };
    CHECK_FALSE(source.listen(*calls, {}, session_id{1}, until));  // no session yet
    REQUIRE(eventually([&] { return listen_for(session_id{1}); }));
    CHECK_FALSE(source.must_listen_for(session_id{1}));
    CHECK_FALSE(listen_for(session_id{1}));
    CHECK(source.listening_for() == session_id{1});
    CHECK(source.names_grants());
    CHECK(source.descriptor() == 42);
    CHECK(source.wakes(session_id{1}) == wakeup_source::kind::notification);
    recorder to;
    server.send("one");
    server.send("two");
    source.read(to);
    CHECK(to.messages == std::vector<std::string>{"one", "two"});
    CHECK(to.by_database);

    REQUIRE(eventually([&] { return listen_for(session_id{2}); }));
    CHECK(source.listening_for() == session_id{2});
    CHECK(server.listens == 2);
    server.open = false;
    CHECK(server.broken == 0);
    source.read(to);
    CHECK(server.broken == 1);
    CHECK(source.listening_for() == session_id{});
    CHECK_FALSE(source.names_grants());
    CHECK(source.descriptor() == -1);
    server.open = true;
    REQUIRE(eventually([&] { return listen_for(session_id{2}); }));
    CHECK(server.connections == 4);
}

TEST_CASE(
    "after a LISTEN that was not answered, none is sent for minutes nor while it still runs") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    const auto calls = server.connect();
    const auto want = [&] { listening.want(session_id{1}, "channel", *calls); };
    server.answers = false;
    server.still_runs = true;
    want();
    REQUIRE(eventually([&] { return server.listens == 1 && has_failed(listening); }));
    for (const int second : {1, 30, 120, 239}) {
        server.seconds = second;
        want();
        REQUIRE(eventually([&] { return !listening.is_attempting(); }));
    }
    CHECK(server.connections == 2);
    server.seconds = 301;
    REQUIRE(eventually([&] {
        want();
        return server.connections == 3 && has_failed(listening);
    }));  // asks, and finds that it runs
    server.seconds = 301 + 239;
    want();
    server.still_runs = false;
    server.answers = true;
    server.seconds = 301 + 301;
    REQUIRE(eventually([&] {
        want();
        return listening.listening_for() == session_id{1};
    }));
    listening.close();
    CHECK(server.connections == 4);
    CHECK(server.listens == 2);
}

TEST_CASE("while the queue of notifications is long no LISTEN is sent, and minutes later it is") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    const auto calls = server.connect();
    server.queue = sql::long_notification_queue + 1;
    listening.want(session_id{1}, "channel", *calls);
    REQUIRE(eventually([&] { return server.connections == 2 && has_failed(listening); }));
    server.queue = sql::long_notification_queue;
    server.seconds = 239;
    listening.want(session_id{1}, "channel", *calls);
    server.seconds = 301;
    REQUIRE(eventually([&] {
        listening.want(session_id{1}, "channel", *calls);
        return server.begun == 1;
    }));
    listening.close();
    CHECK(server.connections == 3);
    CHECK(server.listens == 1);
}

TEST_CASE("a connection for LISTEN that was refused, or took too long, is tried again soon") {
    for (const auto why : {errc::timed_out, errc::access_denied}) {
        CAPTURE(why);
        fake_server server;
        wakeup::listening_connection listening{server.parts()};
        const auto calls = server.connect();
        server.refuses = why;
        listening.want(session_id{1}, "channel", *calls);
        REQUIRE(eventually([&] { return server.refusals == 1; }));
        server.refuses = errc{};
        server.seconds = 1;
        CHECK(eventually([&] {
            listening.want(session_id{1}, "channel", *calls);
            return listening.listening_for() == session_id{1};
        }));
        CHECK(listening.is_possible());
    }
}

TEST_CASE("a connection for LISTEN that lasted is replaced at once; control: one that did not") {
    for (const bool lasts : {true, false}) {
        CAPTURE(lasts);
        fake_server server;
        wakeup::listening_connection listening{server.parts()};
        const auto calls = server.connect();
        int replaced = 0;
        for (int crash = 0; crash < 8; ++crash) {
            server.open = true;
            listening.want(session_id{1}, "channel", *calls);
            if (!eventually([&] { return !listening.is_attempting(); })) break;
            if (listening.listening_for() != session_id{1}) break;
            ++replaced;
            if (lasts) ++server.seconds;
            server.open = false;
            (void)listening.take();
        }
        if (lasts) {
            CHECK(replaced == 8);
        } else {
            CHECK(replaced < 8);
        }
    }
}

TEST_CASE("a role that may not ask what is asked before a LISTEN polls") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    const auto calls = server.connect();
    server.permits = false;
    listening.want(session_id{1}, "channel", *calls);
    CHECK(eventually([&] { return !listening.is_possible(); }));
    listening.close();
    CHECK(server.listens == 0);
}

TEST_CASE("a waiter's first poll waits for no LISTEN that is not being sent") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    wakeup::listen_source source{listening};
    const auto calls = server.connect();
    server.queue = sql::long_notification_queue + 1;
    listening.want(session_id{1}, "channel", *calls);
    REQUIRE(eventually([&] { return server.connections == 2 && has_failed(listening); }));
    auto shortest = std::chrono::steady_clock::duration::max();  // the machine may be busy
    for (const int session : {2, 3, 4, 5}) {
        const auto began = std::chrono::steady_clock::now();
        CHECK_FALSE(source.listen(*calls, recipient_of(session_id{session}), session_id{}, until));
        shortest = std::min(shortest, std::chrono::steady_clock::now() - began);
    }
    CHECK(shortest < 100ms);
    CHECK(server.connections == 2);
}

TEST_CASE("a driver without notifications is not asked to listen") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    wakeup::listen_source source{listening};
    const auto calls = server.connect();
    server.has_capability = false;
    CHECK_FALSE(source.listen(*calls, recipient_of(session_id{1}), session_id{0}, until));
    CHECK_FALSE(listening.is_possible());
    server.has_capability = true;
    CHECK_FALSE(source.listen(*calls, recipient_of(session_id{1}), session_id{0}, until));
    CHECK(source.wakes(session_id{1}) == wakeup_source::kind::none);
    listening.close();
    CHECK(server.connections == 1);
}

TEST_CASE("a connection for LISTEN that has no notifications is not made again") {
    fake_server server;
    wakeup::listening_connection listening{server.parts()};
    fake_notifications capability;
    notified_connection calls{&capability};
    server.has_capability = false;
    listening.want(session_id{1}, "channel", calls);
    CHECK(eventually([&] { return !listening.is_possible(); }));
    listening.close();
    CHECK(server.listens == 0);
}

TEST_CASE("a commit to an SQLite file is reported, and reports can be turned off") {
    fake_notifications capability;
    notified_connection db{&capability};
    wakeup::file_watch_source source;
    recorder to;
    CHECK_FALSE(source.watches_commits());
    CHECK(source.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    CHECK(source.watches_commits());
    CHECK_FALSE(source.names_grants());
    CHECK(source.wakes(session_id{1}) == wakeup_source::kind::notification);
    capability.sent = {{}};
    source.read(to);
    CHECK(to.commits == 1);
    CHECK(to.messages.empty());
    CHECK_FALSE(source.want_commits(false));
    CHECK_FALSE(capability.watching);
    CHECK(source.want_commits(true));
    capability.supported = false;
    CHECK_FALSE(source.want_commits(true));
}

TEST_CASE("a flood of messages of no use leaves the mailbox unread for a moment") {
    std::random_device random;
    const auto number =
        static_cast<std::int64_t>((std::uint64_t{random()} << 31 | random()) & INT64_MAX);
    const auto box = std::make_shared<wakeup::mailbox>(number);
    const wakeup::mailbox_sender sender{number, wakeup::network_namespace()};
    REQUIRE(sender.reachable());
    const auto flood = [&] {
        for (std::size_t i = 0; i < wakeup::mailbox::flood && sender.post("forged"); ++i) {
        }
    };
    wakeup::mailbox_reader reader;
    recorder to;
    reader.read(to, 0s);
    CHECK(reader.descriptor(0s) == -1);
    reader.attend(box);
    CHECK(reader.descriptor(1s) == box->descriptor());
    REQUIRE(sender.post("one"));
    reader.read(to, 1s);
    CHECK(to.messages == std::vector<std::string>{"one"});
    CHECK_FALSE(to.by_database);
    CHECK(reader.due(1s) == base::alarm::never);

    // The kernel may take fewer than a flood at once; then there is none to be seen.
    flood();
    reader.read(to, 2s);
    const bool flooded = to.messages.size() >= 1 + wakeup::mailbox::flood;
    CHECK((reader.due(2s) == 2s + wakeup::mailbox::rest_from_flood) == flooded);
    CHECK((reader.descriptor(2s) == -1) == flooded);
    reader.read(to, 3s);
    CHECK(reader.due(3s) == base::alarm::never);

    // One useful message among them: the mailbox is read on.
    to.useful = true;
    flood();
    reader.read(to, 4s);
    CHECK(reader.due(4s) == base::alarm::never);
    reader.attend(nullptr);
    CHECK(reader.descriptor(4s) == -1);
}
