#include "lock/protocol/hold/hold_protocol.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace rowlock::protocol {

attempt hold_protocol::acquire(sql::connection& db, const grant_request& request,
                               sql::deadline until) const {
    return request.permits.is_part() ? counted_.acquire(db, request, until)
                                     : leases_.acquire(db, request, until);
}

std::optional<lease_probe> hold_protocol::probe(sql::connection& db, const grant_request& request,
                                                sql::deadline until) const {
    // An attempt for a part that finds no room has written nothing.
    if (request.permits.is_part()) return std::nullopt;
    auto seen = leases_.probe(db, request.name, request.session, until);
    if (seen.semaphore) throw name_of_semaphore(request.name);
    return seen;
}

std::optional<std::int64_t> hold_protocol::find_grant(sql::connection& db, const hold_key& which,
                                                      sql::deadline until) const {
    return which.part ? counted_.find_grant(db, which.name, which.session, which.grant_id, until)
                      : leases_.find_grant(db, which.name, which.session, which.grant_id, until);
}

std::optional<std::vector<std::int64_t>> hold_protocol::find_grants(sql::connection& db,
                                                                    std::span<const hold_key> all,
                                                                    sql::deadline until) const {
    std::vector<granted_name> whole;
    std::vector<std::string> names;
    for (const auto& each : all) {
        if (each.part) continue;
        whole.push_back({each.name, each.grant_id});
        names.emplace_back(each.name);
    }
    const auto session = all.front().session;
    std::vector<served_row> rows;
    if (!whole.empty()) rows = queues_.held_of(db, session, names, until);
    std::vector<std::int64_t> tokens;
    for (const auto& each : all) {
        if (each.part) {
            const auto token = find_grant(db, each, until);
            if (!token) return std::nullopt;
            tokens.push_back(*token);
            continue;
        }
        const auto row = std::ranges::find(rows, each.grant_id, &served_row::grant_id);
        if (row == rows.end()) return std::nullopt;
        tokens.push_back(row->granted.token);
    }
    if (!whole.empty()) {
        const auto durable = leases_.make_durable(db, session, whole, until);
        if (std::ranges::find(durable, false) != durable.end()) return std::nullopt;
    }
    return tokens;
}

hold_protocol::standing hold_protocol::look_up(sql::connection& db, const hold_key& which,
                                               sql::deadline until) const {
    const auto seen = leases_.probe(db, which.name, which.session, until);
    standing found{.session_live = seen.session_live};
    if (!found.session_live) return found;
    if (which.part) {
        found.token = find_grant(db, which, until);
    } else if (seen.present && !seen.free && seen.session == which.session &&
               seen.grant_id == which.grant_id) {
        found.token = seen.token;
    }
    return found;
}

std::optional<queue_grant> hold_protocol::served(sql::connection& db, const hold_key& entry,
                                                 sql::deadline until,
                                                 std::optional<std::int64_t> reported) const {
    return entry.part
               ? counted_.served(db, entry.name, entry.session, entry.grant_id, until)
               : queues_.served(db, entry.name, entry.session, entry.grant_id, until, reported);
}

std::vector<std::optional<queue_grant>> hold_protocol::served(sql::connection& db,
                                                              std::span<const hold_key> entries,
                                                              sql::deadline until) const {
    std::vector<std::optional<queue_grant>> found(entries.size());
    std::vector<granted_name> sole;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        if (entries[i].part) {
            found[i] = served(db, entries[i], until);
        } else {
            sole.push_back({entries[i].name, entries[i].grant_id});
            places.push_back(i);
        }
    }
    if (sole.empty()) return found;
    auto grants = queues_.served(db, entries[places.front()].session, sole, until);
    for (std::size_t i = 0; i < places.size(); ++i) found[places[i]] = std::move(grants[i]);
    return found;
}

std::optional<confirmed_grant> hold_protocol::confirm(sql::connection& db, const hold_key& which,
                                                      bool durably, sql::deadline until) const {
    if (!which.part) {
        return queues_.confirm_and_read_next(db, which.name, which.session, which.grant_id, durably,
                                             until);
    }
    const auto granted = counted_.served(db, which.name, which.session, which.grant_id, until);
    if (!granted) return std::nullopt;
    return confirmed_grant{*granted, std::nullopt};
}

release_outcome hold_protocol::release(sql::connection& db, const hold_key& which,
                                       release_hint hint, sql::deadline until) const {
    auto done = release_as(which.part, db, which, hint, until);
    // Read after the first release: a statement that lowers it is sent after the flag is set.
    if (!done.freed && which.perhaps_lowered != nullptr && *which.perhaps_lowered) {
        hint.permits = 0;
        done = release_as(!which.part, db, which, hint, until);
    }
    return done;
}

release_outcome hold_protocol::release_as(bool part, sql::connection& db, const hold_key& which,
                                          release_hint hint, sql::deadline until) const {
    if (!part) {
        return queues_.release(db, which.name, which.session, which.grant_id, hint.contended,
                               until);
    }
    return {.freed = counted_.release(db, which.name, which.session, which.grant_id, hint.permits,
                                      until),
            .next = {},
            .part = true};
}

bool hold_protocol::lower(sql::connection& db, const hold_key& which, std::int64_t to,
                          sql::deadline until) const {
    return which.part ? counted_.shrink(db, which.name, which.session, which.grant_id, to, until)
                      : counted_.lower(db, which.name, which.session, which.grant_id, to, until);
}

extended_hold hold_protocol::extend(sql::connection& db, const hold_to_extend& hold,
                                    std::chrono::microseconds by, std::int64_t revision,
                                    sql::deadline until) const {
    if (hold.which.part) {
        return {counted_.extend(db, hold.which.name, hold.which.session, hold.which.grant_id, by,
                                revision, until),
                hold.token};
    }
    const auto done = leases_.extend(db,
                                     {.name = hold.which.name,
                                      .session = hold.which.session,
                                      .grant_id = hold.which.grant_id,
                                      .token = hold.token,
                                      .new_token = hold.new_token},
                                     by, revision, until);
    const bool raised = done == extension::done || done == extension::done_before;
    return {done, raised ? hold.new_token : hold.token};
}

std::vector<session_hold> hold_protocol::holds_of(sql::connection& db, session_id session,
                                                  const std::function<bool()>& has_parts,
                                                  sql::deadline until) const {
    std::vector<session_hold> all;
    for (auto& each : leases_.leases_of(db, session, until)) {
        all.push_back({.row = std::move(each)});
    }
    if (!has_parts()) return all;
    for (auto& each : counted_.permits_of(db, session, until)) {
        if (each.upgrade != rowlock::grant_id{}) {
            all.push_back({.row = {.name = each.name,
                                   .grant_id = each.upgrade,
                                   .token = each.upgrade_token,
                                   .deadline_us = {}},
                           .part = true,
                           .upgrades = each.grant_id});
        }
        all.push_back({.row = std::move(each), .part = true});
    }
    return all;
}

std::vector<hold_protocol::row_token> hold_protocol::tokens_of(sql::connection& db,
                                                               session_id session,
                                                               std::span<const hold_key> held,
                                                               sql::deadline until) const {
    std::vector<row_token> all;
    std::vector<std::string> whole;
    for (const auto& each : held) {
        if (!each.part) whole.emplace_back(each.name);
    }
    if (!whole.empty()) {
        for (const auto& row : queues_.held_of(db, session, whole, until)) {
            all.push_back({row.grant_id, row.granted.token});
        }
    }
    if (whole.size() == held.size()) return all;
    for (const auto& row : counted_.permits_of(db, session, until)) {
        if (row.forced) continue;
        all.push_back({row.grant_id, row.token});
        if (row.upgrade != rowlock::grant_id{}) all.push_back({row.upgrade, row.upgrade_token});
    }
    return all;
}

}  // namespace rowlock::protocol
