#include "sql/changed_settings.hpp"
#include "sql/run_statement.hpp"
#include "sql/server_facts.hpp"
#include "transaction/fencing/fencing_dialects.hpp"

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace rowlock::detail {
namespace {

using std::chrono::milliseconds;

std::string in_seconds(milliseconds time) {
    const auto thousandths = std::to_string(1000 + time.count() % 1000).substr(1);
    return std::to_string(time.count() / 1000) + "." + thousandths;
}

/// The caller's handle may wait for its answer without any limit, so each statement sets one on the
/// server.
class mysql_fencing final : public fencing {
public:
    explicit mysql_fencing(const sql::statement_set& statements) : statements_{statements} {}

    verdict fence(sql::connection& db, const claim& lease, const fence_limits& limits,
                  sql::deadline until) const override {
        const auto number = number_of(lease);
        // At XA PREPARE only the lock of a written row stays for certain.
        if (limits.two_phase || sql::facts_of(db, until).member_of != sql::cluster::none) {
            const auto* const write_it = lease.permits ? "fence_permits_write" : "fence_write";
            return write(db, lease, limits, until, [&] {
                return run(db, bounded(write_it, db, limits, until), until, lease.name,
                           lease.session, number);
            });
        }
        // First, because a failing fence may lock a row all the same, which must not stay locked
        // forever.
        sql::limit_idle_time(db, limits.idle, until);
        const auto* const read_it = lease.permits ? "fence_permits" : "fence";
        const auto answer =
            run(db, bounded(read_it, db, limits, until), until, lease.name, lease.session, number);
        sql::limit_idle_time_again(db, answer.integer(0, 1), limits.idle, until);
        return answer.integer(0, 0) > 0 ? verdict::current : verdict::not_in_view;
    }

    verdict release_on_commit(sql::connection& db, const claim& lease, const fence_limits& limits,
                              sql::deadline until) const override {
        return write(db, lease, limits, until, [&] {
            return run(db, bounded("release_on_commit", db, limits, until), until, lease.name,
                       lease.session, lease.token, lease.grant_id);
        });
    }

    verdict fence_quorum_token(sql::connection& db, std::string_view name, std::int64_t token,
                               const fence_limits& limits, sql::deadline until) const override {
        const auto& what = bounded("fence_quorum_token", db, limits, until);
        return run(db, what, until, name, token).empty() ? verdict::not_current : verdict::current;
    }

    std::optional<std::string> database_of(sql::connection& db,
                                           sql::deadline until) const override {
        return std::string{db.query("select coalesce(lower(database()), '')", until).text(0, 0)};
    }

private:
    /// What identifies the grant beside its name and session.
    static std::int64_t number_of(const claim& lease) {
        return lease.permits ? static_cast<std::int64_t>(lease.grant_id) : lease.token;
    }

    /// Runs `action`, which changes the lease's row, if the transaction's snapshot shows the grant.
    template <typename Action>
    verdict write(sql::connection& db, const claim& lease, const fence_limits& limits,
                  sql::deadline until, const Action& action) const {
        sql::limit_idle_time(db, limits.idle, until);
        const auto* const view = lease.permits ? "fence_permits_view" : "fence_view";
        const auto seen = run(db, bounded(view, db, limits, until), until, lease.name,
                              lease.session, number_of(lease));
        sql::limit_idle_time_again(db, seen.integer(0, 1), limits.idle, until);
        if (seen.integer(0, 0) == 0) return verdict::not_in_view;
        // MySQL bounds the wait of a write by innodb_lock_wait_timeout alone, so a read locks the
        // row first.
        if (!sql::facts_of(db, until).mariadb && !lock(db, lease, limits, until)) {
            return verdict::not_current;
        }
        return action().affected() > 0 ? verdict::current : verdict::not_current;
    }

    [[nodiscard]] bool lock(sql::connection& db, const claim& lease, const fence_limits& limits,
                            sql::deadline until) const {
        if (lease.permits) {
            return !run(db, bounded("lock_permit", db, limits, until), until, lease.name,
                        lease.grant_id, lease.session)
                        .empty();
        }
        return !run(db, bounded("lock_lease", db, limits, until), until, lease.name, lease.token,
                    lease.session)
                    .empty();
    }

    /// The statement with a limit on its time, which is part of its text.
    [[nodiscard]] const sql::statement& bounded(std::string_view name, sql::connection& db,
                                                const fence_limits& limits,
                                                sql::deadline until) const {
        const bool mariadb = sql::facts_of(db, until).mariadb;
        const auto longest = limits.statement;
        const std::lock_guard lock{mutex_};
        const std::pair key{std::string{name}, mariadb ? longest.count() : -longest.count()};
        if (const auto found = bounded_.find(key); found != bounded_.end()) return found->second;
        return bounded_.emplace(key, sql::statement{bounded_text(name, mariadb, longest)})
            .first->second;
    }

    [[nodiscard]] std::string bounded_text(std::string_view name, bool mariadb,
                                           milliseconds longest) const {
        const std::string idle_limit{sql::idle_limit_name(mariadb)};
        if (mariadb) {
            return statements_.text_of(name, {{"bounded_select", "{mariadb_select}"},
                                              {"bounded_update", "{mariadb_update}"},
                                              {"idle_limit", idle_limit},
                                              {"longest", in_seconds(longest)}});
        }
        return statements_.text_of(name, {{"bounded_select", "{mysql_select}"},
                                          {"longest", std::to_string(longest.count())}});
    }

    const sql::statement_set statements_;
    mutable std::mutex mutex_;
    /// By name, and product and milliseconds; few in any program.
    mutable std::map<std::pair<std::string, std::int64_t>, sql::statement> bounded_;
};

}  // namespace

std::unique_ptr<const fencing> make_mysql_fencing(const sql::statement_set& statements) {
    return std::make_unique<const mysql_fencing>(statements);
}

}  // namespace rowlock::detail
