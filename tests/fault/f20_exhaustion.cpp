// F20 and F22: no connection available, a server that accepts no writes, a full disk.

#include "fault/frame.hpp"
#include "stress/history.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/own_server.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::errc;
using rowlock::sql::dialect;
using std::chrono::milliseconds;
using support::backend;
using support::eventually;
using support::kind_of;
using support::soon;
using steady = std::chrono::steady_clock;

constexpr milliseconds ttl = 1500ms;
constexpr milliseconds heartbeat = ttl / 3;
constexpr milliseconds margin = ttl / 6;
constexpr milliseconds tolerance = 100ms;

// --- F20 ---------------------------------------------------------------------------------------

/// An application's pool with a number of connections, which fails at once when it is empty.
class small_pool {
public:
    explicit small_pool(int places) : left_{places} {}

    rowlock::sql::connection_source over(const rowlock::sql::connection_source& inner) {
        return rowlock::sql::connection_source{
            inner.speaks(),
            [this, inner](rowlock::sql::deadline until) {
                if (--left_ < 0) {
                    ++left_;
                    throw rowlock::error{errc::out_of_resources, "the pool is empty"};
                }
                return inner.connect(until);
            },
            inner.description()}
            .with_tables(inner.tables());
    }
    /// Takes the remaining connections.
    void drain() { left_ = 0; }
    void refill(int places) { left_ = places; }

private:
    std::atomic<int> left_;
};

/// For 2L, all connections of the client hang in statements, and the pool is empty.
void use_up_connections(trial& in, support::lock_database& database) {
    for (int round = 0; round < in.rounds(); ++round) {
        small_pool pool{8};
        support::interception network;
        std::atomic<bool> hang{false};
        network.before([&](std::string_view what) {
            if (what != "inspect") return;
            eventually([&] { return !hang; }, 10s);
        });
        rowlock::client locks{network.wrap(pool.over(database.source())),
                              database.options({.ttl = ttl, .max_connections = 2})};
        auto held = locks.acquire("job");
        const auto token = held.token();
        in.must(eventually([&] { return locks.stats().heartbeats > 0; }), "no heartbeat");
        hang = true;
        pool.drain();
        {
            std::vector<std::jthread> busy;
            for (int i = 0; i < 6; ++i) {
                busy.emplace_back([&] {
                    // Beyond the budget of connections, which is an error in time.
                    static_cast<void>(kind_of([&] { static_cast<void>(locks.inspect("x")); }));
                });
            }
            const auto beats = locks.stats().heartbeats;
            const auto from = steady::now();
            auto last = from;
            auto seen = beats;
            while (steady::now() < from + 2 * ttl) {
                if (!in.must_alone(held.held(), "the lease was lost")) break;
                const auto now = locks.stats().heartbeats;
                if (now > seen) in.took(steady::now() - last, "between two heartbeats");
                if (now > seen) last = steady::now();
                seen = now;
                std::this_thread::sleep_for(10ms);
            }
            in.must_alone(seen - beats >= static_cast<std::uint64_t>(2 * ttl / heartbeat) - 2,
                          std::to_string(seen - beats) + " heartbeats in 2L");
            // A client that takes a connection from the pool for each heartbeat gets none.
            if (kind_of([&] { static_cast<void>(pool.over(database.source()).connect(soon())); }) ==
                errc::out_of_resources) {
                in.unprotected("a renewal by a connection of the pool");
            }
            hang = false;
        }
        pool.refill(8);
        in.made();
        if (!in.must_alone(locks.stats().lost == 0 && locks.stats().sessions == 1,
                           "a lease or the session was lost") ||
            !in.must_alone(held.held() && held.token() == token, "the lease is not what it was")) {
            continue;
        }
        held.release();
        in.must(locks.try_acquire("job").has_value(), "no recovery");
    }
}

const fault::on_databases f20{{.id = "F20",
                               .what = "no connection is left for 2L",
                               .databases = fault::all_databases,
                               .quick_rounds = 1,
                               .full_rounds = 50,
                               .bound = heartbeat + 2 * tolerance,
                               .run = use_up_connections,
                               .control_inside = true}};

// --- F22 ---------------------------------------------------------------------------------------

/// Takes away the server's ability to write, and restores it.
struct trouble {
    std::function<void()> begin;
    std::function<void()> end;
    std::vector<errc> told;  ///< the errors that a call may report meanwhile
};

bool among(errc kind, const std::vector<errc>& all) {
    return std::ranges::find(all, kind) != all.end();
}

/// Runs a holder, a waiter, and calls that fail, for 2L. Then the same clients go on.
void live_through(trial& in, const rowlock::sql::connection_source& source,
                  const rowlock::client_options& options, const trouble& fault) {
    const milliseconds grace = 2 * options.statement_timeout;
    rowlock::client locks{source, options};
    rowlock::client other{source, options};
    auto held = locks.acquire("job");
    const auto lost = held.lost();
    std::atomic<stress::micros> lost_at{0};
    const std::stop_callback note{lost, [&] { lost_at = stress::boot_time(); }};
    in.must(eventually([&] { return locks.stats().heartbeats > 0; }), "no heartbeat");
    fault.begin();
    const auto at = stress::boot_time();
    const auto until = steady::now() + 2 * ttl;
    while (steady::now() < until) {
        const auto kind = kind_of([&] { static_cast<void>(other.try_acquire("other")); });
        if (kind != errc{} && !among(kind, fault.told)) {
            in.must_alone(false, "told as " + make_error_code(kind).message());
        }
        std::this_thread::sleep_for(50ms);
    }
    in.must(lost_at != 0 && !held.held(), "lost() did not fire");
    // The last heartbeat may have been sent just before.
    if (lost_at != 0) {
        in.took(std::chrono::microseconds{lost_at - at}, "until lost() fired");
    }
    in.must(kind_of([&] { held.release(); }) == errc::lock_lost, "a release of what was lost");
    fault.end();
    const auto from = steady::now();
    for (rowlock::client* each : {&locks, &other}) {
        std::optional<rowlock::lease> again;
        const bool back = eventually(
            [&] {
                try {
                    again = each->try_acquire_for("job", 100ms);
                } catch (const rowlock::error&) {
                }
                return again.has_value();
            },
            20s);
        in.must(back, "no recovery without a restart");
        if (again) in.must(again->token() > held.token(), "a token was given again");
    }
    in.took(steady::now() - from, "until both could lock again", ttl + grace);
    in.made();
}

/// The URL of another user on the same server.
std::string url_of(const std::string& url, const std::string& user) {
    const auto begin = url.find("://") + 3;
    return url.substr(0, begin) + user + ":secret" + url.substr(url.find('@'));
}

/// A server with a user that may only read and write rows.
class small_user {
public:
    explicit small_user(support::server which)
        : server_{support::own_server::start(
              which, {.before = {"env", "LD_PRELOAD=" ROWLOCK_FAULT_FULL_DISK,
                                 "ROWLOCK_FULL_DISK=" + folder_.path() + "/full"}})} {
        if (!server_) return;
        const auto root = rowlock::open(server_->url());
        admin_ = root.connect(soon());
        rowlock::migrate(root);
        if (postgresql()) {
            run("create role app login password 'secret'");
            run("grant select, insert, update, delete on all tables in schema public to app");
            run("grant usage on all sequences in schema public to app");
        } else {
            run("create user app identified by 'secret'");
            run("grant select, insert, update, delete on *.* to app");
        }
        source_ = rowlock::open(url_of(server_->url(), "app"));
    }
    [[nodiscard]] bool there() const { return source_.has_value(); }
    [[nodiscard]] const rowlock::sql::connection_source& source() const { return *source_; }

    /// PostgreSQL's default_transaction_read_only is a session setting, which the client overrides.
    trouble read_only() {
        trouble made;
        if (postgresql()) {
            made.told = {errc::access_denied};
            made.begin = [this] {
                run("revoke insert, update, delete on all tables in schema public from app");
            };
            made.end = [this] {
                run("grant insert, update, delete on all tables in schema public to app");
            };
        } else {
            made.told = {errc::read_only};
            made.begin = [this] { run("set global read_only = 1"); };
            made.end = [this] { run("set global read_only = 0"); };
        }
        return made;
    }

    /// Ends the existing connections, and refuses new ones.
    trouble no_connections() {
        trouble made;
        made.told = {errc::out_of_resources, errc::database_unreachable, errc::outcome_unknown,
                     errc::timed_out};
        if (postgresql()) {
            made.begin = [this] {
                run("alter role app connection limit 0");
                run("select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'");
            };
            made.end = [this] { run("alter role app connection limit -1"); };
        } else {
            made.begin = [this] {
                run("alter user app with max_user_connections 1");
                end_connections();
                eventually([this] { return took_the_last(); });
            };
            made.end = [this] {
                last_.reset();
                run("alter user app with max_user_connections 0");
            };
        }
        return made;
    }

    /// PostgreSQL only: each change of a row is a new version of it, the pages of the tables are
    /// full, and old versions stay while a transaction has an old snapshot. InnoDB changes rows in
    /// place.
    trouble no_room() {
        trouble made;
        made.told = {errc::out_of_resources};
        made.begin = [this] {
            old_ = rowlock::open(server_->url()).connect(soon());
            old_->query("begin isolation level repeatable read", soon());
            old_->query("select 1", soon());
            folder_.write("full", "");
            fill("rowlock_session", "id", "ttl_us");
            fill("rowlock_lock", "name", "token");
        };
        made.end = [this] {
            std::filesystem::remove(folder_.path() + "/full");
            old_.reset();
        };
        return made;
    }
    [[nodiscard]] bool postgresql() const { return admin_->speaks() == dialect::postgresql; }

private:
    void run(const std::string& text) { admin_->query(text, soon()); }
    /// Fills the page of one row at a time, so that the versions of a failed update may be removed.
    void fill(const std::string& table, const std::string& key, const std::string& column) {
        const auto rows = admin_->query("select " + key + "::text from " + table, soon());
        for (std::size_t i = 0; i < rows.rows(); ++i) {
            const auto text = "update " + table + " set " + column + " = " + column + " where " +
                              key + "::text = '" + std::string{rows.text(i, 0)} + "'";
            if (!eventually(
                    [&] { return kind_of([&] { run(text); }) == errc::out_of_resources; })) {
                throw std::runtime_error{"the pages of " + table + " do not fill up"};
            }
        }
    }
    /// MySQL has no KILL USER.
    void end_connections() {
        for (const auto& each :
             support::processes(*admin_, [](const auto& one) { return one.user == "app"; })) {
            // The connection may have ended by itself.
            static_cast<void>(kind_of([&] { run("kill " + std::to_string(each.id)); }));
        }
    }
    bool took_the_last() {
        try {
            last_ = source_->connect(soon());
            return true;
        } catch (const rowlock::error&) {
            return false;
        }
    }

    support::server_folder folder_;
    std::unique_ptr<support::own_server> server_;
    std::unique_ptr<rowlock::sql::connection> admin_;
    std::unique_ptr<rowlock::sql::connection> last_;
    std::unique_ptr<rowlock::sql::connection> old_;
    std::optional<rowlock::sql::connection_source> source_;
};

void take_it_all_away(trial& in, support::server which, milliseconds time_to_live) {
    small_user user{which};
    if (!user.there()) return in.skip("no server");
    const rowlock::client_options options{.ttl = time_to_live, .statement_timeout = 500ms};
    for (int i = 0; i < in.rounds(); ++i) {
        const int which_one = i % (user.postgresql() ? 3 : 2);
        live_through(in, user.source(), options,
                     which_one == 0   ? user.read_only()
                     : which_one == 1 ? user.no_connections()
                                      : user.no_room());
    }
}

/// Limits the size of this process's files, as a quota does, and nearly as a full disk does.
void fill_the_disk(trial& in, milliseconds time_to_live) {
    std::signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < in.rounds(); ++i) {
        support::lock_database database{backend::sqlite};
        rlimit before{};
        ::getrlimit(RLIMIT_FSIZE, &before);
        trouble full;
        full.told = {errc::out_of_resources, errc::outcome_unknown, errc::database_error,
                     errc::timed_out, errc::database_unreachable};
        full.begin = [&] {
            const rlimit nothing{0, before.rlim_max};
            ::setrlimit(RLIMIT_FSIZE, &nothing);
        };
        full.end = [&] { ::setrlimit(RLIMIT_FSIZE, &before); };
        live_through(in, database.source(),
                     database.options({.ttl = time_to_live, .statement_timeout = 500ms}), full);
    }
}

constexpr milliseconds told_within = ttl - margin + tolerance;
constexpr milliseconds too_long = 4 * ttl;  ///< the ttl of the control

const std::string what = "no writes, no connections or no room for 2L";

const fault::registered f22_postgresql{
    {.id = "F22/postgresql",
     .what = what,
     .quick_rounds = 3,
     .full_rounds = 21,
     .bound = told_within,
     .run = [](trial& in) { take_it_all_away(in, support::server::postgresql, ttl); },
     .control = [](trial& in) { take_it_all_away(in, support::server::postgresql, too_long); }}};
const fault::registered f22_mariadb{
    {.id = "F22/mariadb",
     .what = what,
     .quick_rounds = 2,
     .full_rounds = 20,
     .bound = told_within,
     .run = [](trial& in) { take_it_all_away(in, support::server::mariadb, ttl); },
     .control = [](trial& in) { take_it_all_away(in, support::server::mariadb, too_long); }}};
const fault::registered f22_sqlite{{.id = "F22/sqlite",
                                    .what = what,
                                    .quick_rounds = 1,
                                    .full_rounds = 10,
                                    .bound = told_within,
                                    .run = [](trial& in) { fill_the_disk(in, ttl); },
                                    .control = [](trial& in) { fill_the_disk(in, too_long); }}};

}  // namespace
