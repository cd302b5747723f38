// F23: 64 contenders in a database that refuses statements all the time: serialization failures,
// deadlocks, SQLITE_BUSY. They are retried, and no caller sees an error.

#include "fault/frame.hpp"
#include "support/queues.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fault::trial;
using rowlock::sql::dialect;
using support::soon;
using steady = std::chrono::steady_clock;

constexpr int contenders = 64;
constexpr int clients = 4;
constexpr int names = 8;

/// Connections on which every transaction is serializable, also those of single statements.
rowlock::sql::connection_source serializable(const support::lock_database& database) {
    const auto& inner = database.source();
    return rowlock::sql::connection_source{
        inner.speaks(),
        [inner](rowlock::sql::deadline until) {
            auto made = inner.connect(until);
            if (inner.speaks() == dialect::postgresql) {
                made->query("set default_transaction_isolation = 'serializable'", until);
            } else if (inner.speaks() == dialect::mysql) {
                made->query("set session transaction isolation level serializable", until);
            }
            return made;
        },
        inner.description()}
        .with_tables(inner.tables());
}

/// An application's table in the same database, written by all.
class application {
public:
    explicit application(support::lock_database& database)
        : database_{database}, table_{database.prefix() + "busy"} {
        database_.run("create table " + table_ + " (id int primary key, n int)");
        for (int i = 0; i < 4; ++i) {
            database_.run("insert into " + table_ + " values (" + std::to_string(i) + ", 0)");
        }
    }
    application(const application&) = delete;
    application& operator=(const application&) = delete;
    ~application() { database_.run("drop table " + table_); }

    /// Reads two rows and writes them in one transaction, without retries.
    void write(rowlock::sql::connection& db, int first, int second) const {
        const auto row = [&](int which) { return " where id = " + std::to_string(which); };
        db.query("begin", soon());
        try {
            for (const int each : {first, second}) {
                db.query("select n from " + table_ + row(each), soon());
                db.query("update " + table_ + " set n = n + 1" + row(each), soon());
            }
            db.query("commit", soon());
        } catch (const rowlock::error&) {
            if (db.alive()) db.query("rollback", soon());
            throw;
        }
    }

private:
    support::lock_database& database_;
    const std::string table_;
};

/// Runs transactions that collide, until destroyed.
class collisions {
public:
    collisions(const application& app, const rowlock::sql::connection_source& source) {
        for (int t = 0; t < 4; ++t) {
            all_.emplace_back([&app, source, t, this](const std::stop_token& over) {
                auto db = source.connect(soon());
                for (int i = t; !over.stop_requested(); ++i) {
                    std::this_thread::sleep_for(1ms);
                    try {
                        app.write(*db, i % 4, (i + 1 + t) % 4);
                    } catch (const rowlock::error&) {
                        ++failed;
                        if (!db->alive()) db = source.connect(soon());
                    }
                }
            });
        }
    }
    std::atomic<int> failed{0};

private:
    std::vector<std::jthread> all_;
};

/// The current holders, by name.
class inventory {
public:
    bool enter(const std::string& name) {
        const std::lock_guard lock{mutex_};
        return in_.insert(name).second;
    }
    void leave(const std::string& name) {
        const std::lock_guard lock{mutex_};
        in_.erase(name);
    }

private:
    std::mutex mutex_;
    std::set<std::string> in_;
};

void contend(trial& in, support::lock_database& database) {
    const auto source = serializable(database);
    const application app{database};
    std::atomic<int> granted{0};
    std::atomic<int> failed{0};
    std::atomic<int> overlapping{0};
    inventory inside;
    std::atomic<std::uint64_t> retries{0};
    {
        const collisions others{app, source};
        std::vector<std::unique_ptr<rowlock::client>> all;
        for (int i = 0; i < clients; ++i) {
            // The default ten attempts of a call may all lose.
            const rowlock::retry_policy retry{.attempts = 100, .total = std::chrono::seconds{20}};
            all.push_back(
                std::make_unique<rowlock::client>(source, database.options({.retry = retry})));
        }
        std::vector<std::jthread> threads;
        const int each = std::max(1, in.rounds() / contenders);
        for (int t = 0; t < contenders; ++t) {
            threads.emplace_back([&, t] {
                auto& mine = *all[static_cast<std::size_t>(t % clients)];
                for (int i = 0; i < each; ++i) {
                    const auto which = static_cast<std::size_t>((t + i) % names);
                    try {
                        // New names each time, since inserts of rows collide as well.
                        auto held = support::acquire_soon(
                            mine, "job/" + std::to_string(which) + "/" + std::to_string(i / 4));
                        if (!inside.enter(held.name())) ++overlapping;
                        ++granted;
                        inside.leave(held.name());
                        held.release();
                    } catch (const std::exception& failure) {
                        if (++failed <= 3) in.note(failure.what());
                    }
                }
            });
        }
        threads.clear();
        for (const auto& one : all) retries += one->stats().retries;
        in.note(std::to_string(granted) + " grants, " + std::to_string(retries) + " retries, " +
                std::to_string(others.failed) + " transactions of the application failed");
        if (others.failed > 0) in.unprotected("a transaction without a retry", others.failed);
    }
    in.made(granted);
    in.must(failed == 0, std::to_string(failed) + " calls failed");
    in.must(overlapping == 0, std::to_string(overlapping) + " holds overlapped");
    in.must(support::nobody_holds(database), "something is left held");
}

const fault::on_databases f23{{.id = "F23",
                               .what = "serialization failures, deadlocks, busy files",
                               .databases = fault::all_databases,
                               .quick_rounds = 640,
                               .full_rounds = 64'000,
                               .run = contend,
                               .control_inside = true,
                               .neighbours = fault::beside::none}};

}  // namespace
