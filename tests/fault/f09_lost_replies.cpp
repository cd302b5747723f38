// F9 and F10: the server has executed a statement, and its answer never arrives.

#include "fault/frame.hpp"
#include "stress/crew.hpp"
#include "stress/recorded.hpp"
#include "support/failure.hpp"
#include "support/interception.hpp"
#include "support/queues.hpp"
#include "support/server_address.hpp"
#include "support/tcp_relay.hpp"
#include <rowlock/client.hpp>
#include <rowlock/open.hpp>

#include <future>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using namespace std::chrono_literals;
using fault::name_of;
using fault::trial;
using rowlock::sql::dialect;
using std::chrono::milliseconds;
using support::soon;
using steady = std::chrono::steady_clock;

/// A way to the database on which the answer to the n-th statement can be lost.
class lossy_way {
public:
    virtual ~lossy_way() = default;
    [[nodiscard]] virtual rowlock::sql::connection_source source() = 0;
    virtual void lose_answer(int n) = 0;
    /// Runs `action`, and `meanwhile` when the answer is about to be lost. Returns false if no
    /// answer was lost.
    virtual bool run(const std::function<void()>& action,
                     const std::function<void()>& meanwhile) = 0;
    /// Blocks the way and breaks its connections, or opens it again.
    virtual void close_down(bool closed) = 0;
};

/// Loses answers by a relay, which keeps the answer and cuts the connection.
class lossy_network final : public lossy_way {
public:
    explicit lossy_network(const support::lock_database& database)
        : address_{contract::address_of(database.speaks() == dialect::postgresql
                                            ? support::server::postgresql
                                            : support::server::mariadb)},
          relay_{address_.port},
          tables_{database.source().tables()} {
        address_.host = "127.0.0.1";
        address_.port = relay_.port();
    }
    [[nodiscard]] rowlock::sql::connection_source source() override {
        return rowlock::open(address_.url()).with_tables(tables_);
    }
    void lose_answer(int n) override { relay_.hold_answer(n); }
    bool run(const std::function<void()>& action, const std::function<void()>& meanwhile) override {
        auto running = std::async(std::launch::async, action);
        bool lost = false;
        while (!(lost = relay_.holds_answer(2ms)) &&
               running.wait_for(0s) != std::future_status::ready) {
        }
        if (lost) {
            meanwhile();
            relay_.cut();
            relay_.hold_answer(0);
        } else {
            relay_.resume();  // the answer to a background exchange may be kept
        }
        running.get();
        return lost;
    }
    void close_down(bool closed) override {
        if (closed) {
            relay_.hold(support::tcp_relay::direction::both);
            relay_.cut();
        } else {
            relay_.cut();
            relay_.resume();
        }
    }

private:
    contract::server_address address_;
    support::tcp_relay relay_;
    rowlock::sql::table_names tables_;
};

/// A file has no network: the answer is lost between the driver and the client.
class lossy_driver final : public lossy_way {
public:
    explicit lossy_driver(const support::lock_database& database) : database_{database} {}
    [[nodiscard]] rowlock::sql::connection_source source() override {
        return network_.wrap(database_.source());
    }
    void lose_answer(int n) override { armed_->countdown = n; }
    bool run(const std::function<void()>& action, const std::function<void()>& meanwhile) override {
        armed_->meanwhile = &meanwhile;
        armed_->lost = false;
        network_.after([armed = armed_](std::string_view what) { armed->look(what); });
        const auto disarm = [&] {
            network_.after({});
            const std::lock_guard until_done{armed_->mutex};  // in another thread of the client
            armed_->countdown = 0;
            armed_->meanwhile = nullptr;
        };
        try {
            action();
        } catch (...) {
            disarm();
            throw;
        }
        disarm();
        return armed_->lost;
    }
    void close_down(bool closed) override {
        if (closed) {
            network_.before([](std::string_view) { support::interception::refuse_to_send(); });
            network_.break_connections();
        } else {
            network_.before({});
        }
    }

private:
    /// Outlives the call, since the client's heartbeat may still use it.
    struct trap {
        std::mutex mutex;
        int countdown = 0;
        bool lost = false;
        const std::function<void()>* meanwhile = nullptr;

        void look(std::string_view what) {
            // Before the commit a transaction has changed nothing yet.
            if (what.starts_with("begin") || what == "connect") return;
            {
                const std::lock_guard lock{mutex};
                if (meanwhile == nullptr || countdown <= 0 || --countdown > 0) return;
                lost = true;
                (*meanwhile)();
            }
            support::interception::lose_reply();
        }
    };

    const support::lock_database& database_;
    support::interception network_;
    std::shared_ptr<trap> armed_ = std::make_shared<trap>();
};

std::unique_ptr<lossy_way> way_to(const support::lock_database& database) {
    if (database.which() == support::backend::sqlite) {
        return std::make_unique<lossy_driver>(database);
    }
    return std::make_unique<lossy_network>(database);
}

/// The grant id in the row. 0 if the row is missing or free.
rowlock::grant_id grant_in_row(support::lock_database& database, const std::string& name) {
    const auto found = database.run(
        "select grant_id from rowlock_lock where session is not null and name = '" + name + "'");
    return found.empty() ? rowlock::grant_id{} : found.integer<rowlock::grant_id>(0, 0);
}

rowlock::client_options briefly(const support::lock_database& database) {
    return database.options(
        {.ttl = 10s, .heartbeat = 1300ms, .retry = {.attempts = 20, .backoff = 2ms}});
}

// --- F9 ----------------------------------------------------------------------------------------

void check_one_hold(trial& in, support::lock_database& database, const rowlock::lease& lease) {
    const auto row = database.run("select token, grant_id from rowlock_lock where name = '" +
                                  lease.name() + "' and session is not null");
    if (!in.must(row.rows() == 1, "the lease is not held in the table")) return;
    in.must(lease.held(), "the lease is not held");
    in.must(row.integer(0, 0) == lease.token().value(), "another token than in the table");
    in.must(row.integer<rowlock::grant_id>(0, 1) == lease.grant_id(),
            "another grant than in the table");
    in.must(database.number("select count(*) from rowlock_history where name = '" + lease.name() +
                            "' and kind in ('granted', 'taken_over', 'handed_over')") == 1,
            "granted more than once");
}

void lose_answers_to_acquire(trial& in, support::lock_database& database) {
    const stress::recording recording{database};
    const auto way = way_to(database);
    rowlock::client locks{way->source(), briefly(database)};
    int lost = 0;
    for (int i = 0, n = 1; lost < in.rounds() && i < 3 * in.rounds() + 20; ++i) {
        locks.acquire("warm").release();
        way->lose_answer(n);
        std::optional<rowlock::lease> lease;
        const bool was_lost = way->run([&] { lease = locks.acquire(name_of(i)); }, [] {});
        check_one_hold(in, database, *lease);
        lease->release();
        // Loses each answer of an acquire in turn, then starts again with the first.
        n = was_lost ? n + 1 : 1;
        if (was_lost) {
            ++lost;
            in.made();
        }
    }
    in.must(lost >= in.rounds(), "no answer could be lost");
    in.must(support::nobody_holds(database), "an orphan is left");
}

constexpr milliseconds ttl = 2s;

/// Whether the lease is free, also if the row still refers to an ended session.
bool is_free(rowlock::client& locks, const std::string& name) {
    const auto found = locks.inspect(name);
    return !found || !found->holder || found->holder->remaining <= 0ms;
}

/// Calls that end without their grant, which must not live on.
void give_up_acquires(trial& in, support::lock_database& database) {
    const auto way = way_to(database);
    rowlock::client locks{
        way->source(),
        database.options({.ttl = ttl, .statement_timeout = 1s, .retry = {.attempts = 1}})};
    rowlock::client other{database.source(), database.options()};
    int orphans = 0;
    for (int i = 0; i < (in.rounds() + 19) / 20; ++i) {
        const auto name = "given-up-" + std::to_string(i);
        bool orphaned = false;
        // Tries each answer, repeatedly, since a heartbeat's may come in between.
        for (int tries = 0; tries < 28 && !orphaned; ++tries) {
            try {
                locks.acquire("warm").release();
            } catch (const rowlock::error&) {
                continue;
            }
            way->lose_answer(1 + tries % 7);
            try {
                way->run([&] { locks.acquire(name).release(); }, [&] { way->close_down(true); });
            } catch (const rowlock::error&) {  // expected
            }
            // The server may still be executing it.
            orphaned = support::eventually(
                [&] { return grant_in_row(database, name) != rowlock::grant_id{}; }, 100ms);
            if (!orphaned) way->close_down(false);
        }
        if (orphaned) ++orphans;
        const auto from = steady::now();
        way->close_down(false);
        in.must(support::eventually([&] { return is_free(other, name); }),
                "an orphaned grant remains");
        in.took(steady::now() - from, "until the grant of a cancelled call was free");
    }
    in.must_alone(orphans > 0, "no grant was orphaned: nothing was tested");
}

/// A lock as applications often write it: a row with a unique name.
class naive_lock {
public:
    naive_lock(support::lock_database& database, rowlock::sql::connection_source source)
        : table_{database.prefix() + "naive"}, database_{database}, source_{std::move(source)} {
        database_.run("create table " + table_ +
                      " (name varchar(50) not null primary key, owner varchar(50))");
        connection_ = source_.connect(soon());
    }
    naive_lock(const naive_lock&) = delete;
    naive_lock& operator=(const naive_lock&) = delete;
    ~naive_lock() {
        connection_.reset();
        database_.run("drop table " + table_);
    }

    /// Repeats after an error, on a new connection.
    bool acquire(const std::string& name, const std::string& owner) {
        return send("insert into " + table_ + " values ('" + name + "', '" + owner + "')");
    }
    bool release(const std::string& name) {
        return send("delete from " + table_ + " where name = '" + name + "'");
    }
    [[nodiscard]] bool holds(const std::string& name, const std::string& owner) {
        return database_.number("select count(*) from " + table_ + " where name = '" + name +
                                "' and owner = '" + owner + "'") == 1;
    }
    /// Acquires without the lossy way.
    bool acquire_directly(const std::string& name, const std::string& owner) {
        database_.run("insert into " + table_ + " values ('" + name + "', '" + owner + "')");
        return true;
    }

private:
    bool send(const std::string& sql) {
        for (int tries = 0; tries < 2; ++tries) {
            try {
                connection_->query(sql, soon());
                return true;
            } catch (const rowlock::error& failure) {
                if (failure.kind() == rowlock::errc::unique_violation) return false;
                connection_ = source_.connect(soon());
            }
        }
        return false;
    }

    std::string table_;
    support::lock_database& database_;
    rowlock::sql::connection_source source_;
    std::unique_ptr<rowlock::sql::connection> connection_;
};

void lose_answer_to_naive_acquire(trial& in, support::lock_database& database) {
    const auto way = way_to(database);
    naive_lock lock{database, way->source()};
    way->lose_answer(1);
    bool got = false;
    way->run([&] { got = lock.acquire("a", "us"); }, [] {});
    if (!got && lock.holds("a", "us"))
        in.violation("the client holds it and reports another holder");
}

const fault::on_databases f9{{.id = "F9",
                              .what = "the answer to an acquire is lost after it committed",
                              .databases = fault::all_databases,
                              .quick_rounds = 40,
                              .full_rounds = 200,
                              .bound = ttl,
                              .run =
                                  [](trial& in, support::lock_database& database) {
                                      lose_answers_to_acquire(in, database);
                                      give_up_acquires(in, database);
                                  },
                              .control = lose_answer_to_naive_acquire}};

// --- F10 ---------------------------------------------------------------------------------------

void lose_answers_to_release(trial& in, support::lock_database& database) {
    const auto way = way_to(database);
    rowlock::client locks{way->source(), briefly(database)};
    rowlock::client other{database.source(), database.options()};
    std::vector<rowlock::lease> newer;
    // The lost answer may be a heartbeat's, which reconnects after each round.
    const auto enough = static_cast<std::size_t>(in.rounds() / 2);
    for (int i = 0; i < in.rounds() || (newer.size() <= enough && i < 20 * in.rounds()); ++i) {
        auto lease = locks.acquire(name_of(i));
        way->lose_answer(1);
        way->run(
            [&] {
                try {
                    lease.release();
                } catch (const rowlock::error&) {  // repeated in the background
                }
            },
            [&] {
                if (auto got = other.try_acquire(name_of(i))) newer.push_back(std::move(*got));
            });
        in.made();
    }
    in.must_alone(newer.size() > enough, "the names were taken in between only " +
                                             std::to_string(newer.size()) + " times");
    // Each heartbeat sends unresolved releases again.
    const auto beats = locks.stats().heartbeats;
    in.must(support::eventually([&] { return locks.stats().heartbeats >= beats + 2; }),
            "no heartbeats");
    for (auto& each : newer) {
        in.must(grant_in_row(database, each.name()) == each.grant_id(),
                "a repeated release has freed a newer hold");
        each.release();
    }
    in.must(support::nobody_holds(database), "a hold is left");
}

void lose_answer_to_naive_release(trial& in, support::lock_database& database) {
    const auto way = way_to(database);
    naive_lock lock{database, way->source()};
    lock.acquire_directly("a", "us");
    way->lose_answer(1);
    way->run([&] { lock.release("a"); }, [&] { lock.acquire_directly("a", "another"); });
    if (!lock.holds("a", "another")) in.violation("a repeated release has freed a newer hold");
}

const fault::on_databases f10{{.id = "F10",
                               .what = "the answer to a release is lost, the name taken again",
                               .databases = fault::all_databases,
                               .quick_rounds = 40,
                               .full_rounds = 500,
                               .run = lose_answers_to_release,
                               .control = lose_answer_to_naive_release}};

}  // namespace
