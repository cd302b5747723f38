#include "strategy/array_text.hpp"
#include "strategy/fast_dialects.hpp"
#include "strategy/run_statement.hpp"

#include <algorithm>
#include <string>

namespace rowlock::strategy::on_postgresql {

bool retake(sql::connection& db, const dialect::statements& sql, const grant_request& request,
            std::int64_t known, sql::deadline until) {
    return run(db, sql.retake, until, request.name, request.session, request.grant_id,
               text_or_null(request.thread), text_or_null(request.note), request.deadline_us, known)
               .affected() > 0;
}

std::vector<std::optional<std::int64_t>> acquire_all(sql::connection& db,
                                                     const dialect::statements& sql,
                                                     std::span<const grant_request> requests,
                                                     sql::deadline until) {
    std::vector<std::optional<std::int64_t>> tokens(requests.size());
    if (requests.empty()) return tokens;
    array_text names;
    array_text ids;
    array_text threads;
    array_text notes;
    array_text deadlines;
    for (const auto& each : requests) {
        names.add(each.name);
        ids.add(each.grant_id);
        threads.add_or_null(each.thread);
        notes.add_or_null(each.note);
        deadlines.add(each.deadline_us);
    }
    const auto rows = run(db, *sql.acquire_all, until, requests.front().session, names.close(),
                          ids.close(), threads.close(), notes.close(), deadlines.close());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto found =
            std::ranges::find(requests, rows.integer(row, 0), &grant_request::grant_id);
        if (found == requests.end()) continue;
        tokens[static_cast<std::size_t>(found - requests.begin())] = rows.integer(row, 1);
    }
    return tokens;
}

std::vector<bool> release_all(sql::connection& db, const dialect::statements& sql,
                              std::int64_t session, std::span<const granted_name> grants,
                              sql::deadline until) {
    std::vector<bool> freed(grants.size());
    if (grants.empty()) return freed;
    array_text names;
    array_text ids;
    for (const auto& each : grants) {
        names.add(each.name);
        ids.add(each.grant_id);
    }
    const auto rows = run(db, *sql.release_all, until, session, names.close(), ids.close(),
                          db.keeps_session_state() ? 1 : 0);
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto found = std::ranges::find(grants, rows.integer(row, 0), &granted_name::grant_id);
        if (found != grants.end()) freed[static_cast<std::size_t>(found - grants.begin())] = true;
    }
    return freed;
}

std::vector<bool> held(sql::connection& db, const dialect::statements& sql,
                       std::span<const std::string_view> names, sql::deadline until) {
    std::vector<bool> found(names.size());
    if (names.empty()) return found;
    if (names.size() == 1) {
        found[0] = !run(db, *sql.probe_held, until, names[0]).empty();
        return found;
    }
    array_text all;
    for (const auto& each : names) all.add(each);
    const auto rows = run(db, *sql.probe_all, until, all.close());
    for (std::size_t row = 0; row < rows.rows(); ++row) {
        const auto name = std::ranges::find(names, rows.text(row, 0));
        if (name != names.end()) found[static_cast<std::size_t>(name - names.begin())] = true;
    }
    return found;
}

}  // namespace rowlock::strategy::on_postgresql
