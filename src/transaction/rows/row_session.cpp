#include "base/require.hpp"
#include "sql/connection_memory.hpp"
#include "sql/database_traits.hpp"
#include "sql/in_transaction.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "sql/statements.hpp"
#include "transaction/rows/row_locking.hpp"
#include "transaction/rows/row_sessions.hpp"
#include "transaction/rows/row_transaction.hpp"
#include "transaction/rows/statement_effect.hpp"
#include <rowlock/error.hpp>
#include <rowlock/row_session.hpp>

#include <algorithm>
#include <optional>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

namespace rowlock {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Timeout of a rollback, which has no reason to take long, also in a destructor.
constexpr auto close_timeout = 1s;

row_session_options validated(row_session_options options, sql::dialect speaks) {
    require(options.statement_timeout > 0ms && options.statement_timeout <= 1min,
            "statement_timeout must be positive and at most one minute");
    require(options.max_hold >= 100ms && options.max_hold <= 24h,
            "max_hold must be from 100 ms to 1 day");
    require(options.max_sessions >= 1 && options.max_sessions <= 1000,
            "max_sessions must be from 1 to 1000");
    require(options.checkout_timeout >= 0ms && options.checkout_timeout <= 24h,
            "checkout_timeout must be from 0 to 1 day");
    require(options.index_cache_ttl >= 0ms, "index_cache_ttl must not be negative");
    detail::require_usable(options.wait, speaks);
    return options;
}

/// Converts the failure of a statement before the commit. Without a commit nothing took effect, so
/// the transaction's outcome is known even where the statement's is not.
error without_doubt(const error& failure, bool over) {
    if (over) {
        return {errc::timed_out,
                "the row session lasted longer than max_hold, and everything was rolled back: do "
                "less in it, or raise max_hold",
                {failure.sqlstate(), failure.native_code(), failure.server_message()}};
    }
    if (failure.kind() != errc::outcome_unknown) return failure;
    return {errc::database_unreachable,
            "the connection of the row session broke; nothing was committed: run it again",
            {failure.sqlstate(), failure.native_code(), failure.server_message()}};
}

}  // namespace

std::string_view to_string(row_session_ending how) noexcept {
    switch (how) {
        case row_session_ending::committed:
            return "committed";
        case row_session_ending::rolled_back:
            return "rolled_back";
        case row_session_ending::timed_out:
            return "timed_out";
        case row_session_ending::lost:
            return "lost";
    }
    return "unknown";
}

std::ostream& operator<<(std::ostream& out, row_session_ending how) {
    return out << to_string(how);
}

class row_session::state {
public:
    state(const sql::connection_source& source, row_session_options options)
        : speaks_{source.speaks()},
          tables_{source.tables()},
          options_{validated(std::move(options), source.speaks())},
          home_{detail::row_sessions::of(source)},
          guarded_{*this} {
        const auto place_by = steady_clock::now() + options_.checkout_timeout;
        place_.emplace(home_->pool().take(static_cast<std::size_t>(options_.max_sessions), place_by,
                                          place_by + options_.statement_timeout));
        waited_ = place_->waited();
        start(steady_clock::now() + options_.statement_timeout);
        // A fence asks for them: the question is none that the caller may send.
        sql::memory_of(guarded_).facts = sql::memory_of(**place_).facts;
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
        if (home_->fork().in_child()) {
            if (place_) place_->abandon();
        } else if (!ending_) {
            end(row_session_ending::rolled_back);
        }
    }

    std::optional<table_row> lock(std::string_view table, const key_columns& columns,
                                  const row_key& values, const row_options& options) {
        const auto wait = options.wait.value_or(options_.wait);
        return run([&](sql::connection& db) {
            detail::require_usable(wait, db.speaks());
            begin_late(wait);
            return lock_row(db, table, columns, values, options.columns, wait);
        });
    }

    std::vector<std::optional<table_row>> lock_all(std::string_view table,
                                                   const key_columns& columns,
                                                   const std::vector<row_key>& keys,
                                                   const row_options& options) {
        std::vector<std::optional<table_row>> rows(keys.size());
        for (const auto index : detail::locking_order(columns, keys)) {
            rows[index] = lock(table, columns, keys[index], options);
        }
        return rows;
    }

    void lock_resource(const lock_name& name, std::optional<row_wait> wanted) {
        const auto wait = wanted.value_or(options_.wait);
        run([&](sql::connection& db) {
            require(wait.how() != row_wait::kind::skip_locked,
                    "a resource cannot be skipped if it is locked: use nowait");
            begin_late(wait);
            const std::string table =
                (tables_.schema.empty() ? "" : tables_.schema + ".") + tables_.prefix + "version";
            const key_columns column{"resource"};
            const row_key value{name.str()};
            const std::vector<std::string> key_alone;
            for (int attempt = 0; attempt < 3; ++attempt) {
                if (lock_row(db, table, column, value, key_alone, wait)) return;
                foreign_timeout_ = detail::sets_lock_timeout(db.speaks());
                detail::insert_resource(db, keys(), insert_resource(), name.str(), wait,
                                        options_.statement_timeout, ends_at_);
            }
            throw error{errc::conflict,
                        "the row of a resource was deleted again and again while it was being "
                        "locked: run the transaction again"};
        });
    }

    sql::connection& connection() {
        require_open();
        return guarded_;
    }

    void commit() {
        require_open();
        if (steady_clock::now() >= ends_at_) fail(error{errc::timed_out, ""});
        if (begun_) send_commit();
        end(row_session_ending::committed);
    }

    void rollback() {
        require_process();
        if (ending_ == row_session_ending::committed) {
            throw error{errc::invalid_options, "this row session has been committed already"};
        }
        if (!ending_) end(row_session_ending::rolled_back);
    }

    [[nodiscard]] std::optional<row_session_ending> ending() const noexcept { return ending_; }
    [[nodiscard]] bool failed() const noexcept { return failure_.has_value(); }
    [[nodiscard]] steady_clock::duration held() const noexcept {
        return ending_ ? held_ : steady_clock::now() - began_at_;
    }

private:
    /// What connection() returns: the session's connection, with checks around each statement.
    class guarded final : public sql::connection {
    public:
        explicit guarded(state& of) : of_{of} {}

        [[nodiscard]] sql::dialect speaks() const noexcept override { return of_.speaks_; }
        sql::result execute(const sql::statement& what, std::span<const sql::value> parameters,
                            sql::deadline until) override {
            return of_.run_for_caller(what.text(), [&](sql::connection& db) {
                return db.execute(what, parameters, std::min(until, of_.ends_at_));
            });
        }
        sql::result query(std::string_view text, sql::deadline until) override {
            return of_.run_for_caller(text, [&](sql::connection& db) {
                return db.query(text, std::min(until, of_.ends_at_));
            });
        }
        [[nodiscard]] bool alive() const noexcept override {
            return of_.place_ && (*of_.place_)->alive();
        }
        [[nodiscard]] bool keeps_session_state() const noexcept override {
            return !of_.place_ || (*of_.place_)->keeps_session_state();
        }
        [[nodiscard]] sql::transaction_state transaction() const noexcept override {
            if (!of_.place_) return sql::transaction_state::none;
            // SQLite's transaction begins with the first statement, which is therefore in it too.
            return sql::transaction_state::open;
        }
        [[nodiscard]] int socket() const noexcept override {
            return of_.place_ ? (*of_.place_)->socket() : -1;
        }
        [[nodiscard]] std::int64_t announced_process() const noexcept override {
            return of_.place_ ? (*of_.place_)->announced_process() : 0;
        }
        [[nodiscard]] std::uint64_t round_trips() const noexcept override {
            return of_.place_ ? (*of_.place_)->round_trips() : 0;
        }

    private:
        state& of_;
    };

    // --- beginning

    /// Replaces a connection that died while it was idle: nothing has been done on it.
    void start(sql::deadline until) {
        try {
            begin(until);
        } catch (const error&) {
            const bool died = !(*place_)->alive() && place_->reused();
            if (!died) {
                place_->close_afterwards();  // in the middle of a transaction, or of a set-up
                throw;
            }
            place_->reconnect(until);
            begin(until);
        } catch (...) {
            place_->close_afterwards();
            throw;
        }
    }

    void begin(sql::deadline until) {
        auto& db = **place_;
        detail::refuse_cluster(db, options_.accept_double_grants_in_cluster, until);
        began_at_ = steady_clock::now();
        ends_at_ = began_at_ + options_.max_hold;
        begun_ = detail::begin_row_transaction(*place_, options_, until);
    }

    /// SQLite's transaction begins with the first lock or statement, whose wait applies to the
    /// file's lock.
    void begin_late(row_wait wait) {
        if (begun_) return;
        const auto time = wait.how() == row_wait::kind::bounded ? wait.limit() : 10ms;
        const auto now = steady_clock::now();
        (*place_)->query("begin immediate", std::min(ends_at_, now + std::max(time, 10ms)));
        begun_ = true;
    }

    // --- working

    std::optional<table_row> lock_row(sql::connection& db, std::string_view table,
                                      const key_columns& columns, const row_key& values,
                                      const std::vector<std::string>& read, row_wait wait) {
        const bool bounded = wait.how() == row_wait::kind::bounded;
        if (bounded && detail::sets_lock_timeout(db.speaks())) {
            foreign_timeout_ = wait != options_.wait;
        }
        auto row = detail::lock_one(db, keys(),
                                    {.table = table,
                                     .columns = columns,
                                     .values = values,
                                     .read = read,
                                     .wait = wait,
                                     .statement_timeout = options_.statement_timeout,
                                     .index_cache_ttl = options_.index_cache_ttl,
                                     .last = ends_at_,
                                     .borrowed = false});
        if (row) ++rows_locked_;
        return row;
    }

    /// Loaded when a resource is missing for the first time: few sessions ever need it.
    const sql::statement& insert_resource() {
        if (!insert_resource_) {
            insert_resource_ = sql::load_statement(speaks_, "insert_resource", {.tables = tables_});
        }
        return *insert_resource_;
    }

    /// The caller's SQL may have changed what a name means, for this session alone.
    detail::row_keys& keys() { return own_keys_ ? *own_keys_ : home_->keys(); }

    /// On PostgreSQL the wait for a row is the transaction's lock_timeout: this restores it before
    /// the caller's own statement.
    void reset_lock_timeout(sql::connection& db) {
        if (!foreign_timeout_) return;
        static const sql::statement reset{
            "select pg_catalog.set_config('lock_timeout', $1::pg_catalog.text, true)"};
        sql::run(db, reset, ends_at_, std::to_string(detail::lock_timeout_of(options_).count()));
        foreign_timeout_ = false;
    }

    /// Any failure ends the session.
    template <typename Action>
    auto run(Action action) -> std::invoke_result_t<Action&, sql::connection&> {
        require_open();
        try {
            if (steady_clock::now() >= ends_at_) throw error{errc::timed_out, ""};
            return action(**place_);
        } catch (const error& failure) {
            fail(failure);
        } catch (...) {  // out of memory, at any point
            place_->close_afterwards();
            failure_.emplace(errc::out_of_resources, "there was no memory for the statement");
            end(row_session_ending::rolled_back);
            throw;
        }
    }

    template <typename Action>
    sql::result run_for_caller(std::string_view text, Action action) {
        return run([&](sql::connection& db) {
            const auto effect = detail::effect_of(db.speaks(), text);
            refuse(effect);
            begin_late(options_.wait);
            reset_lock_timeout(db);
            if (effect != detail::statement_effect::plain) {
                place_->close_afterwards();
                own_keys_ = std::make_unique<detail::row_keys>();
            }
            const bool doubtful = effect == detail::statement_effect::may_end &&
                                  sql::traits_of(db.speaks()).procedures_may_commit;
            if (doubtful) db.query("savepoint rowlock_row_session", ends_at_);
            auto answer = action(db);
            if (doubtful) require_savepoint(db);
            require_still_open(db);
            return answer;
        });
    }

    static void refuse(detail::statement_effect effect) {
        require(effect != detail::statement_effect::ends_transaction,
                "this statement would end the row session's transaction, and was not sent: use "
                "commit() and rollback(), and change tables elsewhere");
        require(effect != detail::statement_effect::several,
                "one statement at a time: the text holds more than one");
    }

    /// A procedure may have committed and begun a new transaction: then the savepoint is gone.
    void require_savepoint(sql::connection& db) const {
        constexpr int no_such_savepoint = 1305;
        try {
            db.query("release savepoint rowlock_row_session", ends_at_);
        } catch (const error& failure) {
            if (failure.native_code() != no_such_savepoint) throw;
            has_ended();
        }
    }

    /// Catches text whose effect was misjudged.
    static void require_still_open(sql::connection& db) {
        const auto now = db.transaction();
        if (now == sql::transaction_state::open || now == sql::transaction_state::unknown) return;
        has_ended();
    }

    [[noreturn]] static void has_ended() {
        throw error{errc::invalid_options,
                    "this statement has ended the row session's transaction, and its locks are "
                    "gone: what was written before it may be committed"};
    }

    void send_commit() {
        auto& db = **place_;
        try {
            require_still_open(db);
            db.query("commit", steady_clock::now() + options_.statement_timeout);
        } catch (const error& failure) {
            // The server refused the commit or did not answer, so without_doubt() does not apply.
            failure_.emplace(failure);
            const bool gone = !db.alive() || failure.kind() == errc::outcome_unknown;
            if (gone) db.discard();
            end(gone ? row_session_ending::lost : row_session_ending::rolled_back);
            throw;
        } catch (...) {  // out of memory; or a caller-made connection that throws other types
            db.discard();
            end(row_session_ending::lost);
            throw;
        }
    }

    // --- ending

    [[noreturn]] void fail(const error& failure) {
        const bool over = steady_clock::now() >= ends_at_;
        const bool dead = !(*place_)->alive();
        failure_.emplace(without_doubt(failure, over));
        end(over   ? row_session_ending::timed_out
            : dead ? row_session_ending::lost
                   : row_session_ending::rolled_back);
        throw error{*failure_};
    }

    void end(row_session_ending how) noexcept {
        if (how != row_session_ending::committed && begun_) how = roll_back(how);
        held_ = steady_clock::now() - began_at_;
        ending_ = how;
        place_.reset();
        if (!options_.on_end) return;
        try {
            options_.on_end({.ending = how,
                             .held = std::chrono::floor<milliseconds>(held_),
                             .checkout_wait = std::chrono::floor<milliseconds>(waited_),
                             .rows_locked = rows_locked_});
        } catch (...) {  // on_end's exceptions are ignored
        }
    }

    row_session_ending roll_back(row_session_ending how) noexcept {
        auto& db = **place_;
        if (!db.alive() || db.discarded()) return how;
        try {
            db.query("rollback", steady_clock::now() + close_timeout);
            if (db.transaction() == sql::transaction_state::open) db.discard();
        } catch (const error& failure) {
            // SQLite may have rolled back by itself.
            if (db.alive() && db.transaction() == sql::transaction_state::none) return how;
            db.discard();
            if (how == row_session_ending::rolled_back) how = row_session_ending::lost;
        } catch (...) {
            db.discard();
        }
        return how;
    }

    void require_process() const { home_->fork().require_same_process(); }

    void require_open() const {
        require_process();
        if (!ending_) return;
        if (failure_) {
            throw error{
                failure_->kind(),
                std::string{"this row session has ended, since an earlier call failed; start "
                            "another. The failure was: "} +
                    failure_->what(),
                {failure_->sqlstate(), failure_->native_code(), failure_->server_message()}};
        }
        throw error{errc::invalid_options, "this row session has been " +
                                               std::string{to_string(*ending_)} +
                                               " already: start another"};
    }

    const sql::dialect speaks_;
    const sql::table_names tables_;
    const row_session_options options_;
    const std::shared_ptr<detail::row_sessions> home_;  ///< outlives place_
    std::optional<sql::connection_pool::borrowed> place_;
    guarded guarded_;
    steady_clock::duration waited_{};
    steady_clock::time_point began_at_{};
    sql::deadline ends_at_{};
    bool begun_ = false;
    /// PostgreSQL: lock_timeout is not that of the caller's own statements.
    bool foreign_timeout_ = false;
    std::unique_ptr<detail::row_keys> own_keys_;
    std::optional<sql::statement> insert_resource_;
    std::size_t rows_locked_ = 0;
    std::optional<error> failure_;
    std::optional<row_session_ending> ending_;
    steady_clock::duration held_{};
};

row_session::row_session(const sql::connection_source& source, row_session_options options)
    : state_{std::make_unique<state>(source, std::move(options))} {}

row_session::row_session(row_session&&) noexcept = default;
row_session::~row_session() = default;

std::optional<table_row> row_session::lock(std::string_view table, const key_columns& columns,
                                           const row_key& values, const row_options& options) {
    return state_->lock(table, columns, values, options);
}

std::vector<std::optional<table_row>> row_session::lock_all(std::string_view table,
                                                            const key_columns& columns,
                                                            const std::vector<row_key>& keys,
                                                            const row_options& options) {
    return state_->lock_all(table, columns, keys, options);
}

void row_session::lock_resource(const lock_name& name, std::optional<row_wait> wait) {
    state_->lock_resource(name, wait);
}

sql::connection& row_session::connection() {
    return state_->connection();
}

void row_session::commit() {
    state_->commit();
}

void row_session::rollback() {
    state_->rollback();
}

std::optional<row_session_ending> row_session::ending() const noexcept {
    return state_->ending();
}

bool row_session::failed() const noexcept {
    return state_->failed();
}

std::chrono::milliseconds row_session::held_for() const noexcept {
    return std::chrono::floor<milliseconds>(state_->held());
}

}  // namespace rowlock
