// Hostile text and hostile programs, on every database through every driver.

#include "lock/protocol/queue/queue_protocol.hpp"
#include "support/failure.hpp"
#include "support/lock_database.hpp"
#include "support/server_address.hpp"
#include "support/serving.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/history.hpp>
#include <rowlock/open.hpp>
#include <rowlock/rowlock.hpp>

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace rowlock;
using namespace std::chrono_literals;
using support::eventually;
using support::kind_of;
using support::soon;

namespace {

/// Text that would be SQL if it were pasted into a statement. Each may be a lock's name.
const std::vector<std::string> hostile_names{
    "'; drop table rowlock_lock; --",
    "\\'; drop table rowlock_lock; --",
    "x' or '1'='1",
    "\" ` [ ] { } ( )",
    "$1 $2 $$ $a$ ? ?? :a ::int @x @@version",
    "%s %n %% _",
    "/* not a comment */ -- # ;",
    "ends with a backslash \\",
    "''",
    "ends with a space ",
    "\xF0\x9F\x94\x92 \xF0\x9D\x92\xB3",                // beyond 16 bits
    "\xE2\x80\xAE reversed \xE2\x81\xA6 \xE2\x80\x8B",  // NOLINT(misc-misleading-bidirectional)
    "{free} {live} {now}",                              // how the .sql files name their fragments
};

/// Text that may be a note or an owner, though not a name.
const std::string hostile_text =
    "\x1b]0;title\x07 \x1b[31m \x01 \x7f \xC2\x9B \r\n\t '\"\\ $1 ? :a";

/// A folder in which every user may write, like /tmp.
class open_folder {
public:
    open_folder() {
        std::string pattern = std::filesystem::temp_directory_path() / "rowlock_open_XXXXXX";
        REQUIRE(::mkdtemp(pattern.data()) != nullptr);
        path_ = pattern;
        REQUIRE(::chmod(path_.c_str(), 01777) == 0);
    }
    open_folder(const open_folder&) = delete;
    open_folder& operator=(const open_folder&) = delete;
    ~open_folder() { std::filesystem::remove_all(path_); }

    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
    std::string path_;
};

mode_t mode_of(const std::string& path) {
    struct stat found = {};
    return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 07777 : 0;
}

std::string contents(const std::string& path) {
    std::ifstream file{path, std::ios::binary};
    return {std::istreambuf_iterator<char>{file}, {}};
}

}  // namespace

// shows: hostile-text
TEST_CASE("hostile text stays text: names, notes and owners come back unchanged") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options({.owner = hostile_text})};
        client other{database.source(), database.options()};
        const auto bystander = other.acquire("x");
        for (const auto& name : hostile_names) {
            CAPTURE(name);
            auto lease = locks.try_acquire(name, {.note = hostile_text});
            REQUIRE(lease);
            CHECK_FALSE(other.try_acquire(name));
            const auto seen = other.inspect(name);
            REQUIRE((seen && seen->holder));
            CHECK(seen->name == name);
            CHECK(seen->holder->note == hostile_text);
            CHECK(seen->holder->owner == hostile_text);
            // A prefix is not a pattern either.
            CHECK(other.list(name).size() == 1);
            CHECK(other.force_release(name));
            CHECK_FALSE(other.inspect(name)->holder);
        }
        CHECK(bystander.held());
        CHECK(other.inspect("x")->holder);
        CHECK(database.number("select count(*) from rowlock_lock") ==
              static_cast<std::int64_t>(hostile_names.size()) + 1);
    }
}

// shows: hostile-text
TEST_CASE("hostile text stays text in a queue and through a hand-over") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options()};
        client waiter{database.source(), database.options({.owner = hostile_text})};
        for (const auto& name : {hostile_names[0], hostile_names[1], hostile_names[4],
                                 hostile_names[10], hostile_names[12]}) {
            CAPTURE(name);
            auto lease = holder.acquire(name);
            std::optional<rowlock::lease> granted;
            std::jthread waits{
                [&] { granted = waiter.try_acquire_for(name, 20s, {.note = hostile_text}); }};
            std::vector<waiter_info> line;
            REQUIRE(eventually([&] {
                line = holder.waiters(name);
                return line.size() == 1;
            }));
            CHECK(line[0].name == name);
            CHECK(line[0].note == hostile_text);
            CHECK(line[0].owner == hostile_text);
            lease.release();
            waits.join();
            REQUIRE(granted);
            CHECK(granted->name() == name);
            CHECK(holder.inspect(name)->holder->note == hostile_text);
        }
    }
}

// shows: hostile-text
TEST_CASE("text that no database can store is refused before it is sent") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client locks{database.source(), database.options()};
        const std::string with_nul{"a\0b", 3};
        for (const auto& note : {with_nul, std::string{"\xff"}, std::string(1001, 'n')}) {
            CHECK(kind_of([&] { (void)locks.try_acquire("job", {.note = note}); }) ==
                  errc::invalid_options);
        }
        CHECK(kind_of([&] { (void)locks.try_acquire(with_nul); }) == errc::invalid_name);
        CHECK(kind_of([&] {
                  client{database.source(), database.options({.owner = with_nul})};
              }) == errc::invalid_options);
        CHECK_FALSE(locks.inspect("job"));
    }
}

// shows: sessions-of-others
TEST_CASE("a session that knows all ids cannot release another session's lease") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        client holder{database.source(), database.options()};
        client stranger{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        const auto mine = stranger.acquire("mine");
        const auto& leases = database.protocol();
        const auto& queue = database.queue();
        const auto db = database.connect();

        // All that the tables show, used with the stranger's own session.
        const auto seen = stranger.inspect("job");
        REQUIRE((seen && seen->holder && seen->holder->grant_id == lease.grant_id()));
        CHECK_FALSE(leases.release(*db, "job", mine.session_id(), seen->holder->grant_id, soon()));
        for (const bool contended : {false, true}) {
            CHECK_FALSE(queue
                            .release(*db, "job", mine.session_id(), seen->holder->grant_id,
                                     contended, soon())
                            .freed);
        }
        CHECK_FALSE(leases.sessions().end_expired(*db, lease.session_id(), soon()));
        CHECK_FALSE(support::serve_one(queue, *db, "job", soon()));
        const std::vector places{lease.grant_id()};
        CHECK(queue.cancel(*db, places, soon()).empty());
        CHECK(lease.held());
        CHECK(stranger.inspect("job")->token == lease.token());
        CHECK(database.number("select revision from rowlock_session where id = " +
                              to_string(lease.session_id())) == 0);
    }
}

// shows: traces-of-a-forced-release
TEST_CASE("a forced release leaves traces: the token, the holder's revision and its event") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_ALL_BACKENDS) {
        std::atomic<int> told{0};
        client holder{database.source(), database.watchful({.on_event = [&](const event& what) {
                          if (what.kind == event_kind::lease_lost &&
                              what.reason == loss_reason::forced_release && what.name == "job")
                              ++told;
                      }})};
        client stranger{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        const auto token = lease.token();
        REQUIRE(stranger.force_release("job"));
        CHECK(stranger.inspect("job")->token > token);
        CHECK(database.number("select revision from rowlock_session where id = " +
                              to_string(lease.session_id())) == 1);
        CHECK(eventually([&] { return told == 1; }));
        CHECK_FALSE(lease.held());
    }
}

TEST_CASE(
    "a forced release is in the history, with the holder and the database user that made it") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_NATIVE_BACKENDS) {
        record_history(database.source(), true);
        client holder{database.source(), database.options({.owner = "victim"})};
        client stranger{database.source(), database.options()};
        const auto lease = holder.acquire("job");
        REQUIRE(stranger.force_release("job"));
        const auto all = read_history(database.source(), {.name = "job"});
        REQUIRE(all.size() == 2);
        CHECK(all[0].owner == "victim");
        CHECK(all[1].kind == history_kind::forced);
        CHECK(all[1].session == lease.session_id());
        CHECK(all[1].grant_id == lease.grant_id());
        CHECK(all[1].token > lease.token());
        const bool sqlite = database.speaks() == sql::dialect::sqlite;  // SQLite has no users
        CHECK(all[1].db_user.empty() == sqlite);
    }
}

namespace {

/// A database user with a unique password, behind a relay.
class guest {
public:
    explicit guest(support::lock_database& database) : database_{database} {
        if (postgresql_) {
            database.run("create role " + name_ + " login superuser password 'sEcrEt'");
        } else {
            database.run("create user " + name_ + " identified by 'sEcrEt'");
            database.run("grant all on *.* to " + name_);
        }
        auto address = contract::address_of(postgresql_ ? support::server::postgresql
                                                        : support::server::mariadb);
        relay_.emplace(address.port);
        address.user = name_;
        address.password = "sEcrEt";
        address.host = "127.0.0.1";
        address.port = relay_->port();
        url_ = address.url();
    }
    guest(const guest&) = delete;
    guest& operator=(const guest&) = delete;
    ~guest() { database_.run((postgresql_ ? "drop role " : "drop user ") + name_); }
    void change_password() const {
        database_.run(postgresql_ ? "alter role " + name_ + " password 'another'"
                                  : "alter user " + name_ + " identified by 'another'");
    }
    [[nodiscard]] const std::string& url() const { return url_; }
    support::tcp_relay& way() { return *relay_; }

private:
    support::lock_database& database_;
    const bool postgresql_ = database_.speaks() == sql::dialect::postgresql;
    std::string name_ = "guest_" + std::to_string(::getpid());
    std::optional<support::tcp_relay> relay_;
    std::string url_;
};

}  // namespace

TEST_CASE("no event contains the password, however the connection to the server fails") {
    ROWLOCK_FOR_EACH_BACKEND(database, ROWLOCK_SERVER_BACKENDS) {
        guest user{database};
        std::mutex mutex;
        std::string said;
        std::atomic<int> failures{0};
        {
            client locks{
                database.at(user.url()),
                database.watchful({.statement_timeout = 1s, .on_event = [&](const event& what) {
                                       const std::lock_guard lock{mutex};
                                       said += what.message + "\n";
                                       if (what.kind == event_kind::heartbeat_failed) {
                                           ++failures;
                                       }
                                   }})};
            const auto lease = locks.acquire("job");
            const auto more_failures = [&] {
                const int before = failures;
                user.way().cut();
                return eventually([&] { return failures > before; });
            };
            SUBCASE("it is cut") {
                user.way().refuse(true);
                CHECK(more_failures());
            }
            SUBCASE("it is silent") {
                user.way().fall_silent();
                CHECK(more_failures());
            }
            SUBCASE("the password has changed") {
                user.change_password();
                CHECK(more_failures());
            }
            std::string refusal;
            try {
                (void)locks.try_acquire("other");
            } catch (const error& failure) {
                refusal = failure.what() + failure.server_message();
            }
            CHECK(!refusal.empty());
            const std::lock_guard lock{mutex};
            said += refusal;
            user.way().refuse(false);
            user.way().resume();
        }
        CAPTURE(said);
        CHECK(said.size() > 20);
        CHECK(said.find("sEcrEt") == std::string::npos);
    }
}

namespace {

/// A connection finds the file locked, and then writes.
void find_locked(const sql::connection_source& source) {
    const auto blocked = source.connect(soon());
    const auto other = source.connect(soon());
    (void)blocked->query("create table written (a)", soon());
    (void)other->query("begin immediate", soon());
    CHECK(kind_of([&] {
              (void)blocked->query("insert into written values (1)",
                                   std::chrono::steady_clock::now() + 20ms);
          }) == errc::timed_out);
    (void)other->query("rollback", soon());
    (void)blocked->query("insert into written values (1)", soon());
}

}  // namespace

// shows: sqlite-files
TEST_CASE(
    "an SQLite file in a world-writable folder, and its log, are accessible only to their owner") {
    const open_folder folder;
    const std::string path = folder / "locks.db";
    const mode_t before = ::umask(0);
    {
        const auto source = open("sqlite:" + path);
        migrate(source);
        client locks{source};
        const auto lease = locks.acquire("job");
        find_locked(source);
        for (const auto* const suffix : {"", "-wal", "-shm", "-turns"}) {
            CAPTURE(std::string{suffix});
            CHECK(mode_of(path + suffix) == 0600);
        }
    }
    ::umask(before);
}

// shows: sqlite-files
TEST_CASE("a planted file in the place of an SQLite file's turns is not written to") {
    for (const auto plant : {+[](const std::string&victim, const std::string&place) {
                                 std::filesystem::create_symlink(victim, place);
                             },
                             +[](const std::string&victim, const std::string&place) {
                                 std::filesystem::create_hard_link(victim, place);
                             },
                             +[](const std::string&, const std::string&place) {
                                 std::ofstream{place} << "other words";
                             }}) {
        const open_folder folder;
        const std::string path = folder / "locks.db";
        const std::string victim = folder / "victim";
        std::ofstream{victim} << "precious";
        const auto source = open("sqlite:" + path);
        plant(victim, path + "-turns");
        find_locked(source);
        CHECK(contents(victim) == "precious");
        CHECK((std::filesystem::is_symlink(path + "-turns") ||
               contents(path + "-turns").find_first_not_of("preciousother words") ==
                   std::string::npos));
    }
}

// shows: sqlite-files
TEST_CASE("a symbolic link in the place of a new SQLite file is not followed") {
    const open_folder folder;
    const std::string path = folder / "locks.db";
    const std::string victim = folder / "victim";
    REQUIRE(::symlink(victim.c_str(), path.c_str()) == 0);
    CHECK(kind_of([&] { migrate(open("sqlite:" + path)); }) == errc::database_unreachable);
    CHECK_FALSE(std::filesystem::exists(victim));
    std::filesystem::remove(path);

    std::ofstream{victim} << "precious";
    for (const auto* const suffix : {"-wal", "-journal", "-shm"}) {
        CAPTURE(std::string{suffix});
        REQUIRE(::symlink(victim.c_str(), (path + suffix).c_str()) == 0);
        // SQLite either removes the link or refuses. Both are right.
        try {
            migrate(open("sqlite:" + path));
        } catch (const error& refused) {
            CHECK(refused.kind() == errc::database_unreachable);
        }
        CHECK(contents(victim) == "precious");
        std::filesystem::remove(path + suffix);
        std::filesystem::remove(path);
    }
}
