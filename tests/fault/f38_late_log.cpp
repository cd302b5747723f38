// F38: commits that the database has shown and a crash undoes.

#include "fault/frame.hpp"
#include "fault/users.hpp"
#include "support/late_server.hpp"
#include "support/own_server.hpp"
#include "support/protocols.hpp"
#include <rowlock/migrations.hpp>
#include <rowlock/open.hpp>
#include <rowlock/reclaim.hpp>

#include <array>
#include <atomic>
#include <future>
#include <random>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using support::eventually;
using support::soon;
namespace sql = rowlock::sql;

/// A process that dies with the server: session 1 of the owner "worker", on its own connection,
/// holds "job" by grant 11.
class worker {
public:
    explicit worker(const sql::connection_source& source) : db_{source.connect(soon())} {
        leases_.sessions().set_up(*db_, 10s, soon());
        db_->query("delete from rowlock_session where id = 1", soon());
        db_->query("delete from rowlock_lock where name = 'job'", soon());
        leases_.sessions().open(*db_, {rowlock::session_id{1}, "worker", "host", "program", 1, 60s},
                                soon());
        token = leases_
                    .acquire(*db_,
                             {"job", rowlock::session_id{1}, rowlock::grant_id{11}, "", "",
                              std::nullopt, true},
                             soon())
                    .token;
    }
    /// Hands over to the first waiter. Does not return while the log is held.
    void release() const noexcept {
        try {
            queue_.release(*db_, "job", rowlock::session_id{1}, rowlock::grant_id{11}, true,
                           soon());
        } catch (const rowlock::error&) {
            // The server was killed.
        }
    }
    std::int64_t token = 0;

private:
    const support::protocols protocols_{sql::statement_set{sql::dialect::mysql}};
    const rowlock::protocol::lease_protocol& leases_{protocols_.leases()};
    const rowlock::protocol::queue_protocol& queue_{protocols_.queue()};
    std::unique_ptr<sql::connection> db_;
};

std::int64_t number(sql::connection& db, const std::string& question) {
    return db.query(question, soon()).maybe_integer(0, 0).value_or(0);
}

constexpr std::array followers{"reclaim", "barging", "hand-over"};

/// The token of the next grant after the crash, which has brought the worker's grant back.
std::int64_t token_of_another(const std::string& how, const sql::connection_source& source,
                              sql::connection& look) {
    if (how == "reclaim") {
        rowlock::client successor{source, {.owner = "worker"}};
        const auto taken = successor.reclaim().leases;
        return taken.empty() ? 0 : taken.front().token().value();
    }
    look.query("update rowlock_session set ended = 1 where id = 1", soon());
    if (how == "barging") {
        rowlock::client locks{source, {}};
        const auto lease =
            locks.try_acquire_for("job", 2min, {.queueing = rowlock::queueing::barging});
        return lease ? lease->token().value() : 0;
    }
    rowlock::client locks{source, {}};
    const auto lease = locks.try_acquire_for("job", 2min);  // after the waiter
    return lease ? lease->token().value() : 0;
}

struct belief {
    std::int64_t token = 0;
    bool before_the_crash = false;
};

/// A waiter for "job" trusts the hand-over that it was notified of. The control trusts a raw read.
void lose_a_hand_over(trial& in, support::late_server& server, const std::string& then,
                      std::chrono::milliseconds held) {
    const auto source = server.source();
    auto gone = std::make_unique<worker>(source);
    rowlock::client waiter{source, {.ttl = 30s, .poll_interval = 50ms}};
    std::atomic<bool> crashed{false};
    auto told = std::async(std::launch::async, [&]() -> belief {
        const auto lease = waiter.try_acquire_for("job", 5min);
        const bool before = !crashed;
        return {lease ? lease->token().value() : 0, before};
    });
    auto look = source.connect(soon());
    const auto stands = [&] {
        return number(*look, "select count(*) from rowlock_ticket where name = 'job'") == 1;
    };
    if (!eventually(stands)) throw std::runtime_error{"no waiter is queued"};
    const auto log = server.hold_log();
    auto releasing = std::async(std::launch::async, [&] { gone->release(); });
    const auto shown = [&] {
        return number(*look, "select token from rowlock_lock where name = 'job'") > gone->token;
    };
    if (!eventually(shown)) throw std::runtime_error{"the hand-over is not seen"};
    const auto read = number(*look, "select token from rowlock_lock where name = 'job'");
    std::this_thread::sleep_for(held);
    crashed = true;
    look.reset();
    server.crash_and_start();
    releasing.get();
    gone.reset();

    look = source.connect(soon());
    const auto left = number(*look, "select token from rowlock_lock where name = 'job'");
    const bool lost = left < read;
    const auto other = token_of_another(then, source, *look);
    const auto mine = told.get();
    in.must(mine.token > 0 && other > 0, "a client got no token");
    in.must(!mine.before_the_crash || !lost, "a grant was reported that the crash has undone");
    in.must(mine.token != other, "one token was granted twice");
    if (then == "reclaim")
        in.must(other != read, "the token that was visible was granted to another client");
    if (lost && (other == read || then == "reclaim")) {
        in.unprotected("the reader believes that it holds a lease that another client holds");
    }
}

void lose_what_was_shown(trial& in) {
    support::late_server server;
    if (!server.there()) return in.skip("the server's programs are missing");
    std::mt19937 random{in.seed()};
    const auto source = server.source();
    fault::users all{
        {.sources = {source, source},
         .options = {
             .ttl = 10s, .poll_interval = 50ms, .wake_ups = rowlock::wakeup_mode::database}}};
    for (int i = 0; i < in.rounds(); ++i) {
        const std::string then = followers.at(static_cast<std::size_t>(i) % followers.size());
        lose_a_hand_over(in, server, then, std::chrono::milliseconds{random() % 300});
        in.made();
        in.must(all.go_on(20, 2min), "the users do not go on");
    }
    all.stop();
    in.violations(stress::overlapping_beliefs(all.past()));
    in.violations(stress::token_regressions(all.past()));
    in.note(std::to_string(all.grants()) + " grants");
}

/// PostgreSQL shows a commit after it is on the disk, except hand-overs to promised waiters.
void lose_kept_promises(trial& in) {
    const auto server = support::own_server::start(
        support::server::postgresql,
        {.arguments = {"-c", "wal_writer_delay=10s", "-c", "wal_writer_flush_after=1GB"}});
    if (!server) return in.skip("the server's programs are missing");
    const auto source = rowlock::open(server->url());
    rowlock::migrate(source);
    fault::users all{{.sources = {source, source, source},
                      .options = {.ttl = 10s, .poll_interval = 50ms},
                      .threads = 1,
                      .names = 1}};
    if (!all.go_on(20, 2min)) throw std::runtime_error{"nothing is granted"};
    for (int i = 0; i < in.rounds(); ++i) {
        server->crash();
        server->start_again();
        in.made();
        in.must(all.go_on(50, 2min), "the users do not go on");
    }
    all.stop();
    in.violations(stress::overlapping_beliefs(all.past()));
    in.violations(stress::token_regressions(all.past()));
    in.note(std::to_string(all.grants()) + " grants");
}

const fault::registered mariadb{{.id = "F38/mariadb",
                                 .what = "a crash takes back what was shown",
                                 .quick_rounds = 3,
                                 .full_rounds = 60,
                                 .run = lose_what_was_shown,
                                 .control_inside = true,
                                 .neighbours = fault::beside::none}};
const fault::registered postgresql{{.id = "F38/postgresql",
                                    .what = "a crash takes back hand-overs that were promised",
                                    .quick_rounds = 3,
                                    .full_rounds = 60,
                                    .run = lose_kept_promises,
                                    .neighbours = fault::beside::none}};

}  // namespace
