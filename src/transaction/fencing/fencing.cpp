#include "transaction/fencing/fencing.hpp"

#include "sql/changed_settings.hpp"
#include "sql/server_facts.hpp"
#include <rowlock/error.hpp>

#include <array>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace rowlock::strategy {
namespace {

using sql::value;
using std::chrono::milliseconds;

/// True for the error that the statements fence and release_on_commit raise on PostgreSQL. Its text
/// is ours and holds no user data.
bool was_raised(const error& failure) {
    return failure.sqlstate() == "22P02" &&
           failure.server_message().find("rowlock: the lease is not held any more") !=
               std::string::npos;
}

verdict raised_verdict(const error& failure) {
    const bool latest = failure.server_message().find("isolation level read ") != std::string::npos;
    return latest ? verdict::not_current : verdict::not_in_view;
}

verdict on_postgresql(sql::connection& db, const sql::statement& what,
                      std::span<const value> parameters, sql::deadline until) {
    try {
        db.execute(what, parameters, until);
        return verdict::current;
    } catch (const error& failure) {
        if (!was_raised(failure)) throw;
        return raised_verdict(failure);
    }
}

}  // namespace

verdict fencing::fence(sql::connection& db, const claim& lease, const fence_limits& limits,
                       sql::deadline until) const {
    switch (db.speaks()) {
        case sql::dialect::postgresql: {
            const std::array<value, 5> parameters{lease.name, lease.session, lease.token,
                                                  limits.idle.count(), limits.statement.count()};
            return on_postgresql(db, located(kind::fence), parameters, until);
        }
        case sql::dialect::mysql: {
            const bool certifies = sql::facts_of(db, until).member_of != sql::cluster::none;
            return on_mysql(db, certifies ? kind::fence_write : kind::fence, lease, limits, until);
        }
        case sql::dialect::sqlite:
            break;
    }
    const std::array<value, 3> parameters{lease.name, lease.session, lease.token};
    const bool renewed = db.execute(sql_.fence, parameters, until).affected() > 0;
    return renewed ? verdict::current : verdict::not_current;
}

verdict fencing::release_on_commit(sql::connection& db, const claim& lease,
                                   const fence_limits& limits, sql::deadline until) const {
    switch (db.speaks()) {
        case sql::dialect::postgresql: {
            const std::array<value, 6> parameters{lease.name,
                                                  lease.session,
                                                  lease.token,
                                                  limits.idle.count(),
                                                  limits.statement.count(),
                                                  lease.grant_id};
            return on_postgresql(db, located(kind::release_on_commit), parameters, until);
        }
        case sql::dialect::mysql:
            return on_mysql(db, kind::release_on_commit, lease, limits, until);
        case sql::dialect::sqlite:
            break;
    }
    const std::array<value, 4> parameters{lease.name, lease.session, lease.token, lease.grant_id};
    const bool freed = db.execute(sql_.release_on_commit, parameters, until).affected() > 0;
    return freed ? verdict::current : verdict::not_current;
}

sql::statement fencing::located(kind which) const {
    const auto schema = sql_.all.found_in().get();
    if (schema.empty()) return which == kind::fence ? sql_.fence : sql_.release_on_commit;
    const std::lock_guard lock{mutex_};
    const std::pair key{which, schema};
    if (const auto known = located_.find(key); known != located_.end()) return known->second;
    const auto name = which == kind::fence ? "fence" : "release_on_commit";
    auto text = sql::load_statement(sql_.speaks, name, {.prefix = sql_.prefix, .found_in = schema});
    return located_.emplace(key, std::move(text)).first->second;
}

verdict fencing::on_mysql(sql::connection& db, kind which, const claim& lease,
                          const fence_limits& limits, sql::deadline until) const {
    // First, because a failing fence may lock a row all the same, which must not stay locked
    // forever.
    sql::limit_idle_time(db, limits.idle, until);
    if (which == kind::fence) {
        const auto answer = run_bounded(db, which, lease, limits.statement, until);
        sql::limit_idle_time_again(db, answer.integer(0, 1), limits.idle, until);
        return answer.integer(0, 0) > 0 ? verdict::current : verdict::not_in_view;
    }
    const auto seen = run_bounded(db, kind::fence_view, lease, limits.statement, until);
    sql::limit_idle_time_again(db, seen.integer(0, 1), limits.idle, until);
    if (seen.integer(0, 0) == 0) return verdict::not_in_view;
    // MySQL bounds the wait of a write by innodb_lock_wait_timeout alone, so a read locks the row
    // first.
    if (!sql::facts_of(db, until).mariadb &&
        run_bounded(db, kind::lock, lease, limits.statement, until).empty()) {
        return verdict::not_current;
    }
    const bool changed = run_bounded(db, which, lease, limits.statement, until).affected() > 0;
    return changed ? verdict::current : verdict::not_current;
}

sql::result fencing::run_bounded(sql::connection& db, kind which, const claim& lease,
                                 milliseconds longest, sql::deadline until) const {
    const auto& statement = bounded(which, sql::facts_of(db, until).mariadb, longest);
    std::vector<value> parameters{value{lease.name}, value{lease.session}, value{lease.token}};
    if (which == kind::lock) std::swap(parameters[1], parameters[2]);
    if (which == kind::release_on_commit) parameters.emplace_back(lease.grant_id);
    return db.execute(statement, parameters, until);
}

/// The caller's handle may wait for its answer without any limit, so the statement sets one on the
/// server.
const sql::statement& fencing::bounded(kind which, bool mariadb, milliseconds longest) const {
    const std::lock_guard lock{mutex_};
    const std::pair key{which, mariadb ? longest.count() : -longest.count()};
    if (const auto found = bounded_.find(key); found != bounded_.end()) return found->second;
    const sql::statement& plain = which == kind::fence         ? sql_.fence
                                  : which == kind::fence_view  ? *sql_.fence_view
                                  : which == kind::fence_write ? *sql_.fence_write
                                  : which == kind::lock        ? sql_.lock_lease
                                                               : sql_.release_on_commit;
    std::string text = plain.text();
    if (mariadb) {
        const auto thousandths = std::to_string(1000 + longest.count() % 1000).substr(1);
        std::string prefix = "set statement max_statement_time = ";
        prefix.append(std::to_string(longest.count() / 1000)).append(".").append(thousandths);
        const auto body = text.find("*/") + 2;
        text.insert(body, " " + prefix + " for");
        const std::string_view elsewhere = sql::idle_limit_name(false);
        if (const auto at = text.find(elsewhere); at != std::string::npos) {
            text.replace(at, elsewhere.size(), sql::idle_limit_name(true));
        }
    } else if (which == kind::fence || which == kind::fence_view || which == kind::lock) {
        // fence_view's read takes locks at SERIALIZABLE.
        const std::string hint =
            " /*+ MAX_EXECUTION_TIME(" + std::to_string(longest.count()) + ") */";
        const auto body = text.find("select") + std::string_view{"select"}.size();
        text.insert(body, hint);
    }
    return bounded_.emplace(key, sql::statement{std::move(text)}).first->second;
}

}  // namespace rowlock::strategy
