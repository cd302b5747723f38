#include "sql/shared_connection.hpp"

#include <rowlock/error.hpp>
#include <rowlock/sql/notifications.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace sql = rowlock::sql;
using namespace std::chrono_literals;
using rowlock::errc;
using std::chrono::steady_clock;
using rank = sql::shared_connection::rank;

namespace {

sql::deadline soon() {
    return steady_clock::now() + 20s;
}

/// The shared state of a test's fakes.
struct server {
    std::mutex mutex;
    std::vector<std::string> said;          ///< queries, in the order in which they began
    std::promise<void>* reached = nullptr;  ///< set when the query "block" runs …
    std::shared_future<void> go_on{};       ///< … which goes on after this
    bool hang_up = false;                   ///< the next query breaks the connection
    std::atomic<int> connects = 0;
    std::atomic<int> open = 0;
};

class fake_connection final : public sql::connection, private sql::notifications {
public:
    explicit fake_connection(server& at) : at_{at} {
        ++at_.connects;
        ++at_.open;
    }
    ~fake_connection() override { --at_.open; }
    [[nodiscard]] sql::dialect speaks() const noexcept override { return sql::dialect::postgresql; }
    sql::result execute(const sql::statement& what, std::span<const sql::value> /*parameters*/,
                        sql::deadline until) override {
        return query(what.text(), until);
    }
    sql::result query(std::string_view text, sql::deadline /*until*/) override {
        REQUIRE_FALSE(running_.exchange(true));
        ++trips_;
        {
            const std::lock_guard lock{at_.mutex};
            at_.said.emplace_back(text);
        }
        if (text == "block") {
            at_.reached->set_value();
            at_.go_on.wait_for(20s);
        }
        running_ = false;
        if (at_.hang_up) {
            at_.hang_up = alive_ = false;
            throw rowlock::error{errc::outcome_unknown, "hung up"};
        }
        return sql::result{};
    }
    [[nodiscard]] bool alive() const noexcept override { return alive_; }
    [[nodiscard]] sql::notifications* notifications() noexcept override { return this; }
    [[nodiscard]] std::uint64_t round_trips() const noexcept override { return trips_; }

private:
    void listen(std::string_view /*channel*/, sql::deadline /*until*/) override {}
    [[nodiscard]] int descriptor() const noexcept override { return 7; }
    std::vector<sql::notification> take() override { return {{"channel", "word"}}; }

    server& at_;
    std::atomic<bool> running_{false};
    std::uint64_t trips_ = 0;
    bool alive_ = true;
};

struct shared_by_some {
    server at;
    std::atomic<int> pokes{0};
    sql::shared_connection shared{
        {.connect = [this](sql::deadline) { return std::make_unique<fake_connection>(at); },
         .on_used = [this] { ++pokes; }}};

    std::unique_ptr<sql::connection> join(rank who = rank::usual) {
        return shared.join(who, soon());
    }
};

/// A statement that runs until the test ends it.
class blocked_statement {
public:
    explicit blocked_statement(shared_by_some& in) : user_{in.join()} {
        in.at.reached = &reached_;
        in.at.go_on = let_go_.get_future().share();
        running_ = std::async(std::launch::async, [this] { user_->query("block", soon()); });
        reached_.get_future().wait();
    }
    void end() {
        let_go_.set_value();
        running_.get();
    }

private:
    std::unique_ptr<sql::connection> user_;
    std::promise<void> reached_;
    std::promise<void> let_go_;
    std::future<void> running_;
};

errc kind_of_query(sql::connection& db, sql::deadline until) {
    try {
        db.query("select", until);
        return errc{};
    } catch (const rowlock::error& failure) {
        return failure.kind();
    }
}

}  // namespace

TEST_CASE("users of a shared connection have one connection, closed with the last of them") {
    shared_by_some in;
    auto one = in.join();
    auto two = in.join(rank::first);
    one->query("a", soon());
    two->query("b", soon());
    CHECK(in.at.connects == 1);
    CHECK(one->round_trips() == 1);
    one.reset();
    CHECK(in.shared.connected());
    two.reset();
    CHECK(in.at.open == 0);
    CHECK_FALSE(in.shared.connected());
}

TEST_CASE("a user waits for a running statement, and no longer than its deadline") {
    shared_by_some in;
    blocked_statement busy{in};
    const auto other = in.join();
    CHECK(kind_of_query(*other, steady_clock::now()) == errc::timed_out);
    auto later = std::async(std::launch::async, [&] { return kind_of_query(*other, soon()); });
    busy.end();
    CHECK(later.get() == errc{});
}

TEST_CASE("a user of first rank gets the connection before earlier ones") {
    shared_by_some in;
    blocked_statement busy{in};
    const auto heartbeat = in.join(rank::first);
    std::vector<std::future<void>> waiting;
    const auto wait_with = [&](sql::connection& db, const char* what) {
        const auto before = in.shared.waiting();
        waiting.push_back(std::async(std::launch::async, [&db, what] { db.query(what, soon()); }));
        while (in.shared.waiting() == before) std::this_thread::yield();
    };
    std::vector<std::unique_ptr<sql::connection>> callers;
    for (int i = 0; i < 4; ++i) wait_with(*callers.emplace_back(in.join()), "call");
    wait_with(*heartbeat, "heartbeat");
    busy.end();
    for (auto& each : waiting) each.get();
    CHECK(in.at.said ==
          std::vector<std::string>{"block", "heartbeat", "call", "call", "call", "call"});
}

TEST_CASE("a transaction keeps the connection to its end") {
    shared_by_some in;
    const auto one = in.join();
    const auto two = in.join(rank::first);
    for (const char* const end : {"commit", "rollback"}) {
        one->query("begin", soon());
        CHECK(kind_of_query(*two, steady_clock::now()) == errc::timed_out);
        one->query("update", soon());
        CHECK(kind_of_query(*two, steady_clock::now()) == errc::timed_out);
        one->query(end, soon());
        CHECK(kind_of_query(*two, soon()) == errc{});
    }
}

TEST_CASE("no other user continues a transaction that could not be ended") {
    shared_by_some in;
    auto one = in.join();
    const auto two = in.join();
    one->query("begin", soon());
    one->discard();
    one.reset();
    CHECK_FALSE(two->alive());
    CHECK(kind_of_query(*two, soon()) == errc::database_unreachable);
    CHECK(std::ranges::count(in.at.said, "select") == 0);
    CHECK(in.join()->alive());
    CHECK(in.at.connects == 2);
}

TEST_CASE("a broken shared connection is broken for all users, and each joins the next") {
    shared_by_some in;
    const auto one = in.join();
    const auto two = in.join();
    in.at.hang_up = true;
    CHECK(kind_of_query(*one, soon()) == errc::outcome_unknown);
    CHECK_FALSE(two->alive());
    CHECK(kind_of_query(*two, soon()) == errc::database_unreachable);
    const auto again = in.join();
    const auto too = in.join();
    CHECK(again->alive());
    CHECK(in.at.connects == 2);
}

TEST_CASE("each user leaves a renewed connection when its statement has ended") {
    shared_by_some in;
    blocked_statement busy{in};
    const auto idle = in.join();
    CHECK(in.shared.busy_for() > 0ns);
    in.shared.renew();
    CHECK_FALSE(idle->alive());
    CHECK(in.shared.busy_for() == 0ns);
    const auto fresh = in.join(rank::first);
    CHECK(kind_of_query(*fresh, soon()) == errc{});
    CHECK(in.at.connects == 2);
    busy.end();  // without a failure
}

TEST_CASE(
    "a listener is poked after a statement of another user, which may have read its "
    "notifications") {
    shared_by_some in;
    const auto one = in.join();
    const auto two = in.join();
    two->query("select", soon());
    CHECK(in.pokes == 0);
    auto* const notifications = one->notifications();
    REQUIRE(notifications != nullptr);
    notifications->listen("channel", soon());
    CHECK(notifications->descriptor() == 7);
    CHECK(in.pokes == 0);
    two->query("select", soon());
    CHECK(in.pokes == 1);
    CHECK(notifications->take().size() == 1);
    CHECK(in.pokes == 1);
    two->query("begin", soon());
    CHECK(notifications->take().empty());  // returns without waiting
    two->query("commit", soon());
    CHECK(in.pokes == 2);
    in.at.hang_up = true;
    CHECK(kind_of_query(*two, soon()) == errc::outcome_unknown);
    CHECK(notifications->descriptor() == -1);
}

TEST_CASE(
    "a listener is poked after the heartbeat's statements, although the heartbeat listened first") {
    shared_by_some in;
    const auto heartbeat = in.join(rank::first);
    heartbeat->notifications()->listen("channel", soon());
    const auto one = in.join();
    one->notifications()->listen("channel", soon());
    const int before = in.pokes;
    heartbeat->query("select", soon());
    CHECK(in.pokes == before + 1);
    static_cast<void>(heartbeat->notifications()->take());
    CHECK(in.pokes == before + 1);
}

TEST_CASE(
    "no statement starts on a renewed connection, and a waiting user moves to the next one at "
    "once") {
    shared_by_some in;
    blocked_statement busy{in};
    const auto idle = in.join();
    const auto waits = in.join();
    auto waiting = std::async(std::launch::async, [&] { return kind_of_query(*waits, soon()); });
    while (in.shared.waiting() == 0) std::this_thread::yield();
    in.shared.renew();
    CHECK(waiting.get() == errc::database_unreachable);  // while the statement still runs
    CHECK(kind_of_query(*idle, soon()) == errc::database_unreachable);
    busy.end();
    CHECK(kind_of_query(*idle, soon()) == errc::database_unreachable);
    CHECK(in.at.said == std::vector<std::string>{"block"});
}

TEST_CASE("a transaction continues to its end on a connection that was renewed meanwhile") {
    for (const char* const end : {"commit", "rollback"}) {
        shared_by_some in;
        auto one = in.join();
        one->query("begin", soon());
        in.shared.renew();
        CHECK(one->alive());
        CHECK(kind_of_query(*one, soon()) == errc{});
        one->query(end, soon());
        CHECK_FALSE(one->alive());
        CHECK(kind_of_query(*one, soon()) == errc::database_unreachable);
        CHECK(in.at.said == std::vector<std::string>{"begin", "select", end});
        one.reset();
        CHECK(in.at.open == 0);
    }
}

TEST_CASE("every user is poked when the connection is renewed or breaks") {
    shared_by_some in;
    const auto one = in.join();
    in.shared.renew();
    CHECK(in.pokes == 1);
    const auto two = in.join();
    in.at.hang_up = true;
    CHECK(kind_of_query(*two, soon()) == errc::outcome_unknown);
    CHECK(in.pokes == 2);
    auto three = in.join();
    three->discard();
    three.reset();
    CHECK(in.pokes == 3);
}

TEST_CASE("a renewed connection no longer has a descriptor, although it is open and read") {
    shared_by_some in;
    const auto one = in.join();
    one->notifications()->listen("channel", soon());
    REQUIRE(one->notifications()->descriptor() == 7);
    in.shared.renew();
    CHECK(one->notifications()->descriptor() == -1);
    CHECK_THROWS_AS(static_cast<void>(one->notifications()->take()), rowlock::error);
}
