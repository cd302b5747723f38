// F7 and F8: connections that the server kills, and networks that drop everything.

#include "fault/frame.hpp"
#include "stress/history.hpp"
#include "support/failure.hpp"
#include "support/processlist.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/shop.hpp"
#include "support/tcp_relay.hpp"
#include "support/this_process.hpp"
#include "support/unhurried.hpp"
#include <rowlock/advisory_lock.hpp>
#include <rowlock/client.hpp>
#include <rowlock/row_session.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::errc;
using rowlock::sql::dialect;
using std::chrono::milliseconds;
using support::kind_of;
using support::soon;
using steady = std::chrono::steady_clock;

// --- F7 ----------------------------------------------------------------------------------------

bool is_postgresql(const support::lock_database& database) {
    return database.speaks() == dialect::postgresql;
}

/// All connections of this process but the fixture's own.
int kill_connections(support::lock_database& database) {
    std::vector<std::int64_t> others;
    if (is_postgresql(database)) {
        const auto found =
            database.run("select pid from pg_stat_activity where client_port in " +
                         support::ports_of_this_process() + " and pid <> pg_backend_pid()");
        for (std::size_t i = 0; i < found.rows(); ++i) others.push_back(found.integer(i, 0));
    } else {
        const auto own = database.number("select connection_id()");
        for (const auto& each : support::processes(database.admin(), [&](const auto& one) {
                 return one.id != own && one.is_of_this_program();
             })) {
            others.push_back(each.id);
        }
    }
    int killed = 0;
    for (const auto process : others) {
        const auto id = std::to_string(process);
        try {
            database.run(is_postgresql(database) ? "select pg_terminate_backend(" + id + ")"
                                                 : "kill connection " + id);
            ++killed;
        } catch (const rowlock::error&) {  // ended by itself
        }
    }
    return killed;
}

/// Where the driver shows no socket, a periodic check detects a broken connection.
constexpr milliseconds check_period = 300ms;

milliseconds at_once(const support::lock_database& database) {
    return is_postgresql(database) ? 200ms : check_period + 200ms;
}

/// A program that locks by the database's functions and never checks the lock afterwards.
class unsupervised {
public:
    unsupervised(support::lock_database& database, const rowlock::sql::connection_source& source)
        : database_{database}, connection_{source.connect(soon())} {}
    bool lock() { return ask(*connection_); }
    bool another_can_lock() {
        other_ = database_.source().connect(soon());
        return support::eventually([&] { return ask(*other_); }, 5s);
    }

private:
    bool ask(rowlock::sql::connection& on) {
        const auto name = "'" + database_.prefix() + "control'";
        return on.query(is_postgresql(database_)
                            ? "select pg_try_advisory_lock(hashtext(" + name + "))::int"
                            : "select get_lock(" + name + ", 0)",
                        soon())
                   .integer(0, 0) == 1;
    }
    support::lock_database& database_;
    std::unique_ptr<rowlock::sql::connection> connection_;
    std::unique_ptr<rowlock::sql::connection> other_;
};

void check_row_session(trial& in, rowlock::row_session& session, support::shop& shop,
                       support::lock_database& database, std::int64_t stock) {
    const auto kind = kind_of([&] { (void)session.lock(shop.table(), {"sku"}, {"A1"}); });
    in.must(kind == errc::database_unreachable || kind == errc::outcome_unknown,
            "a row session did not report the loss of its connection");
    in.must(session.failed(), "a row session survived its connection");
    in.must(kind_of([&] { session.commit(); }) != errc{}, "a dead row session was committed");
    rowlock::row_session_options options;
    options.wait = rowlock::row_wait::bounded(20s);
    options.statement_timeout = 20s;
    rowlock::row_session other{database.source(), options};
    in.must(other.lock(shop.table(), {"sku"}, {"A1"}).has_value(), "the row is still locked");
    in.must(shop.stock("A1") == stock, "a lost transaction has written");
}

void kill_every_second(trial& in, support::lock_database& database) {
    support::shop shop{database};
    const auto stock = shop.stock("A1");
    rowlock::client locks{database.source(), database.options({.ttl = 1min, .heartbeat = 1s})};
    std::vector<rowlock::lease> leases;
    for (const char* name : {"a", "b", "c"}) leases.push_back(locks.acquire(name));
    const auto row_token = [&](const rowlock::lease& of) {
        return database.number(
            "select token from rowlock_lock where session is not null and name = '" + of.name() +
            "'");
    };
    std::vector<std::int64_t> tokens;
    for (const auto& each : leases) tokens.push_back(row_token(each));
    rowlock::advisory_client advisory{
        database.source(),
        support::unhurried<rowlock::advisory_options>({.check_period = check_period})};
    for (int i = 0; i < in.rounds(); ++i) {
        const auto next = steady::now() + 1s;
        auto lock = advisory.lock(database.prefix() + "advisory");
        const auto lost = lock.lost();
        unsupervised control{database, database.source()};
        const bool believes = control.lock();
        rowlock::row_session session{database.source(), {.statement_timeout = 20s}};
        static_cast<void>(session.lock(shop.table(), {"sku"}, {"A1"}));
        session.connection().query(shop.take_one("A1"), soon());

        const auto at = steady::now();
        const int killed = kill_connections(database);
        const auto beats = locks.stats().heartbeats;
        in.must(killed >= 3, "only " + std::to_string(killed) + " connections were killed");
        const bool told = support::eventually([&] { return lost.stop_requested(); });
        in.took(steady::now() - at, "until an advisory lock was known to be lost",
                at_once(database));
        in.must(told && !lock.held(), "an advisory lock survived its connection");
        in.must(kind_of([&] { lock.unlock(); }) == errc::lock_lost, "unlock() reported no loss");
        check_row_session(in, session, shop, database, stock);
        if (believes && control.another_can_lock()) {
            in.unprotected("two clients believe that they hold one advisory lock");
        }
        in.must(advisory.try_lock_for(database.prefix() + "advisory", 20s).has_value(),
                "the lost lock is still held by a connection");
        in.must(support::eventually([&] { return locks.stats().heartbeats > beats; }),
                "no heartbeat after the connections were killed");
        in.made();
        std::this_thread::sleep_until(next);
    }
    const auto beats = locks.stats().heartbeats;
    in.must(support::eventually([&] { return locks.stats().heartbeats > beats; }),
            "no heartbeat afterwards");
    in.must(locks.stats().lost == 0, std::to_string(locks.stats().lost) + " leases were lost");
    in.must(locks.stats().sessions == 1, "a session was lost");
    for (std::size_t i = 0; i < leases.size(); ++i) {
        in.must(leases[i].held(), "a lease is not held");
        in.must(row_token(leases[i]) == tokens[i], "a token changed");
    }
}

const fault::on_databases f7{{.id = "F7",
                              .what = "the server kills all connections every second",
                              .databases = fault::all_servers,
                              .quick_rounds = 6,
                              .full_rounds = 300,
                              .run = kill_every_second,
                              .control_inside = true,
                              .neighbours = fault::beside::few}};

// --- F8 ----------------------------------------------------------------------------------------

constexpr milliseconds ttl = 2s;
constexpr milliseconds margin = ttl / 6;
constexpr milliseconds statement_timeout = 1s;
constexpr milliseconds tolerance = 100ms;

rowlock::sql::connection_source through(const support::tcp_relay& relay,
                                        const support::lock_database& database) {
    auto address = contract::address_of(is_postgresql(database) ? support::server::postgresql
                                                                : support::server::mariadb);
    address.host = "127.0.0.1";
    address.port = relay.port();
    return database.at(address.url());
}

/// A client behind a relay that drops one or both directions.
class victim {
public:
    victim(support::lock_database& database, int number, support::tcp_relay::direction hole)
        : name_{"job-" + std::to_string(number)},
          hole_{hole},
          relay_{contract::address_of(is_postgresql(database) ? support::server::postgresql
                                                              : support::server::mariadb)
                     .port},
          locks_{through(relay_, database),
                 database.options({.ttl = ttl, .statement_timeout = statement_timeout})},
          called_{stress::boot_time()},
          lease_{locks_.acquire(name_)},
          acquired_{stress::boot_time()},
          other_{locks_.acquire("other-" + name_)} {}

    [[nodiscard]] const std::string& name() const noexcept { return name_; }

    /// Waits until lost() fires, and notes the end of the trust.
    void suffer(trial& in) {
        std::promise<stress::micros> told;
        auto lost = told.get_future();
        const std::stop_callback callback{lease_.lost(),
                                          [&] { told.set_value(stress::boot_time()); }};
        relay_.hold(hole_);
        const auto from = steady::now();
        const auto hole_at = stress::boot_time();
        auto left = lease_.remaining();
        const auto kind = kind_of([&] { other_.release(); });
        in.took(steady::now() - from, "until release() returned", statement_timeout + tolerance);
        in.must_alone(kind == errc::outcome_unknown || kind == errc::database_unreachable ||
                          kind == errc::timed_out,
                      "a release into the black hole had another result");
        // The answer to an earlier heartbeat may have arrived since.
        if (lease_.held()) {
            left = std::chrono::ceil<milliseconds>(steady::now() - from) + lease_.remaining();
        }
        left = std::min(left, ttl - margin);
        if (lost.wait_for(10s) != std::future_status::ready) {
            in.violation("lost() does not fire");
            return;
        }
        believed_until_ = lost.get();
        in.took(std::chrono::microseconds{believed_until_ - hole_at},
                "from the start of the black hole to lost()", left + tolerance);
        in.must(!lease_.held(), "held() is true after lost()");
        in.must(kind_of([&] { lease_.release(); }) == errc::lock_lost,
                "the release of a lost lease does not report the loss");
    }

    /// Restores the network.
    void recover(trial& in) {
        relay_.resume();
        resumed_ = stress::boot_time();
        in.must(locks_.try_acquire_for("again-" + name_, 10s).has_value(),
                "the client does not recover");
    }

    [[nodiscard]] stress::observed_hold belief(stress::micros until) const {
        stress::observed_hold one;
        one.name = name_;
        one.token = lease_.token().value();
        one.called = called_;
        one.acquired = acquired_;
        one.believed_until = until;
        return one;
    }
    [[nodiscard]] stress::micros believed_until() const noexcept { return believed_until_; }
    [[nodiscard]] stress::micros resumed() const noexcept { return resumed_; }

private:
    std::string name_;
    support::tcp_relay::direction hole_;
    support::tcp_relay relay_;
    rowlock::client locks_;
    stress::micros called_;
    rowlock::lease lease_;
    stress::micros acquired_;
    rowlock::lease other_;
    stress::micros believed_until_ = 0;
    stress::micros resumed_ = 0;
};

struct successor {
    rowlock::lease lease;
    stress::micros at = 0;
};

/// Checks C5 with the times in which the holders trusted their leases, and with those in which they
/// would have without the trust window.
void compare_beliefs(trial& in, const std::vector<std::unique_ptr<victim>>& victims,
                     const std::vector<successor>& next) {
    stress::history all;
    stress::history naive;
    for (std::size_t i = 0; i < victims.size(); ++i) {
        stress::observed_hold after;
        after.name = next[i].lease.name();
        after.token = next[i].lease.token().value();
        after.acquired = next[i].at;
        after.believed_until = stress::boot_time();
        all.holds.push_back(victims[i]->belief(victims[i]->believed_until()));
        naive.holds.push_back(victims[i]->belief(victims[i]->resumed()));
        all.holds.push_back(after);
        naive.holds.push_back(after);
    }
    in.violations(overlapping_beliefs(all));
    in.unprotected("would believe until the server answers",
                   static_cast<int>(overlapping_beliefs(naive).size()));
}

void swallow(trial& in, support::lock_database& database) {
    using enum support::tcp_relay::direction;
    std::mt19937 random{in.seed()};
    rowlock::client direct{database.source(), database.options({.poll_interval = 300ms})};
    for (int round = 0; round < in.rounds(); round += 3) {
        std::vector<std::unique_ptr<victim>> victims;
        std::vector<std::future<successor>> line;
        for (const auto hole : {both, requests, answers}) {
            const int number = round + static_cast<int>(victims.size());
            victims.push_back(std::make_unique<victim>(database, number, hole));
            line.push_back(std::async(std::launch::async, [&, number] {
                auto lease = support::acquire_soon(direct, "job-" + std::to_string(number));
                return successor{std::move(lease), stress::boot_time()};
            }));
        }
        support::places(database, 3);
        std::this_thread::sleep_for(milliseconds{random() % (ttl / 3).count()});
        const auto begin = steady::now();
        std::vector<std::future<void>> suffering;
        for (const auto& each : victims) {
            suffering.push_back(std::async(std::launch::async, [&] { each->suffer(in); }));
        }
        for (auto& each : suffering) each.get();
        std::vector<successor> next;
        std::this_thread::sleep_until(begin + 2 * ttl);
        for (const auto& each : victims) each->recover(in);
        for (auto& each : line) next.push_back(each.get());
        compare_beliefs(in, victims, next);
        in.made(3);
    }
}

const fault::on_databases f8{{.id = "F8",
                              .what = "a black hole for 2 ttl: both ways, requests, answers",
                              .databases = fault::all_servers,
                              .quick_rounds = 6,
                              .full_rounds = 120,
                              .run = swallow,
                              .control_inside = true,
                              .neighbours = fault::beside::few}};

}  // namespace
