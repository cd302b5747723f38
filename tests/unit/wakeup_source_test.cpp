// The ways in which a client is woken, without a database.

#include "coordination/wakeup/wakeup_source.hpp"

#include "base/clock.hpp"
#include "coordination/wakeup/mailbox_reader.hpp"
#include "coordination/wakeup/notification_source.hpp"
#include <rowlock/error.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using wakeup::wakeup_source;

namespace {

/// Notifications that a test sends by hand.
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

TEST_CASE("PostgreSQL is listened to once for a session and a connection") {
    fake_notifications capability;
    notified_connection db{&capability};
    wakeup::listen_source source;
    CHECK_FALSE(source.listen(db, {}, session_id{1}, until));  // no session yet
    CHECK(source.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    CHECK_FALSE(source.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    CHECK(source.listening_for() == session_id{1});
    CHECK(source.names_grants());
    CHECK(source.descriptor() == 42);
    CHECK(source.wakes(session_id{1}) == wakeup_source::kind::notification);
    CHECK(source.listen(db, recipient_of(session_id{2}), session_id{0}, until));
    CHECK(source.listening_for() == session_id{2});
    CHECK(capability.channels ==
          std::vector{wakeup::notification_channel({10}), wakeup::notification_channel({20})});
    source.detach();
    CHECK(source.listening_for() == session_id{});
    CHECK_FALSE(source.names_grants());
    CHECK(source.descriptor() == -1);
    CHECK(source.listen(db, recipient_of(session_id{2}), session_id{0}, until));
}

TEST_CASE("messages of PostgreSQL are passed on as the database's") {
    fake_notifications capability;
    notified_connection db{&capability};
    wakeup::listen_source source;
    recorder to;
    source.read(to);
    CHECK(source.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    capability.sent = {{"channel", "one"}, {"channel", "two"}};
    source.read(to);
    CHECK(to.messages == std::vector<std::string>{"one", "two"});
    CHECK(to.by_database);
    capability.sent = {{"channel", "three"}};
    db.is_alive = false;
    source.read(to);
    CHECK(to.messages.size() == 2);
}

TEST_CASE("a driver without notifications is asked once") {
    fake_notifications capability;
    capability.supported = false;
    notified_connection db{&capability};
    wakeup::listen_source refused;
    CHECK_FALSE(refused.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    capability.supported = true;
    CHECK_FALSE(refused.listen(db, recipient_of(session_id{1}), session_id{0}, until));
    CHECK(refused.wakes(session_id{1}) == wakeup_source::kind::none);

    notified_connection without{nullptr};
    wakeup::listen_source missing;
    CHECK_FALSE(missing.listen(without, recipient_of(session_id{1}), session_id{0}, until));
    CHECK_FALSE(missing.listen(db, recipient_of(session_id{1}), session_id{0}, until));
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
